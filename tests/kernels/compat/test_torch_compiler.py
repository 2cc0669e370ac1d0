"""Which frames Dynamo leaves alone, without Dynamo."""

from __future__ import annotations

import enum
import functools
import weakref
from collections.abc import Callable
from types import CodeType, SimpleNamespace
from typing import Any

import pytest

import kerntune
from kerntune.gpu.fake_cuda.modes import StandInFakeMode
from kerntune.kernels.compat import inductor_parts, torch_compiler


class Action(enum.IntEnum):
    DEFAULT = 0
    SKIP = 1


PARTS_OF_FRAMES = {
    "frame_result": lambda **said: said,
    "frame_strategy": lambda here, below: (here.name, below.name),
    "frame_action": Action,
}


def compiled_frame(monkeypatch: pytest.MonkeyPatch, code: CodeType) -> Callable[[], Any]:
    """What Dynamo is told of a frame with this code; "compiled" if it goes on as without kerntune."""
    answers = {**PARTS_OF_FRAMES, "not_below": called_by_torch.__code__}
    monkeypatch.setattr(inductor_parts, "inductor_part", answers.__getitem__)
    compile_frame = torch_compiler.leaving_out_own(lambda wrapper, frame: "compiled")
    return functools.partial(compile_frame, None, SimpleNamespace(f_code=code))


def called_by_torch(function: Callable[[], Any]) -> Any:
    return function()


def test_dynamo_compiles_users_frames_and_none_of_kerntunes(monkeypatch: pytest.MonkeyPatch) -> None:
    own = StandInFakeMode.__torch_dispatch__.__code__
    assert compiled_frame(monkeypatch, test_what_users_call_of_kerntunes_is_traced.__code__)() == "compiled"
    assert compiled_frame(monkeypatch, own)() == {"frame_exec_strategy": ("SKIP", "SKIP")}
    assert compiled_frame(monkeypatch, weakref.WeakValueDictionary.__init__.__code__)() != "compiled"
    monkeypatch.setattr(torch_compiler, "_calls_users", {own})
    assert compiled_frame(monkeypatch, own)() == {"frame_exec_strategy": ("SKIP", "DEFAULT")}


def test_what_users_call_of_kerntunes_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled_frame(monkeypatch, kerntune.choice.__code__)() == "compiled"


def test_a_function_that_isnt_compiled_itself_is_known_by_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = compiled_frame(monkeypatch, test_what_users_call_of_kerntunes_is_traced.__code__)
    assert called_by_torch(ask) == {"apply_to_code": False}


def test_marking_a_function_leaves_it_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_compiler, "_calls_users", set())
    assert torch_compiler.calls_users_code(called_by_torch) is called_by_torch
    assert torch_compiler._calls_users == {called_by_torch.__code__}
