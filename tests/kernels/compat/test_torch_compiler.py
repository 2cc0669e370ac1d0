"""Which frames Dynamo leaves alone, without Dynamo."""

from __future__ import annotations

import contextlib
import enum
import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, SimpleNamespace
from typing import Any

import pytest

import kerntune
from kerntune.gpu.fake_cuda.modes import StandInFakeMode
from kerntune.kernels.compat import torch_compiler


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
    monkeypatch.setattr(torch_compiler, "inductor_part", answers.__getitem__)
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


class Settings(SimpleNamespace):
    """A module of torch's settings."""

    @contextlib.contextmanager
    def patch(self, changes: dict[str, Any]) -> Iterator[None]:
        before = dict(vars(self))
        vars(self).update(changes)
        yield
        vars(self).clear()
        vars(self).update(before)


GRAPH_CACHES = {"fx_graph_cache": False, "fx_graph_remote_cache": False}
OTHERS = {
    "compile_threads": 1, "autotune_local_cache": False, "autotune_remote_cache": False,
    "bundled_autotune_remote_cache": False, "use_static_cuda_launcher": False, "use_static_triton_launcher": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("begin", "inductor", "functorch"),
    [
        (torch_compiler.only_code_generation, {**GRAPH_CACHES, **OTHERS},
         {"enable_autograd_cache": False, "force_non_lazy_backward_lowering": True}),
        (torch_compiler.without_graph_caches, GRAPH_CACHES, {"enable_autograd_cache": False}),
    ],
    ids=["only code", "no caches"],
)  # fmt: skip
def test_settings_while_code_is_generated(
    monkeypatch: pytest.MonkeyPatch, begin: Any, inductor: dict[str, Any], functorch: dict[str, Any]
) -> None:
    """Those that this torch has; afterwards they are what they were."""
    names = {"config": [*inductor, "other"], "functorch_config": [*functorch, "other"]}
    settings = {word: Settings(**dict.fromkeys(known, "own")) for word, known in names.items()}
    monkeypatch.setattr(torch_compiler, "inductor_part", settings.__getitem__)
    with begin():
        assert [vars(settings[word]) for word in names] == [{**inductor, "other": "own"}, {**functorch, "other": "own"}]
    assert all(set(vars(one).values()) == {"own"} for one in settings.values())
    for one in settings.values():
        one.__dict__.clear()
    with begin():
        assert [vars(settings[word]) for word in names] == [{}, {}]


def test_what_torch_has_kept_about_the_gpu_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Inductor's modules only what is their own, and is cached."""
    dropped: list[str] = []

    def kept(name: str, module: str) -> Any:
        return SimpleNamespace(cache_clear=lambda: dropped.append(name), __module__=module)

    module = "torch._inductor.utils"
    names = {"own": kept("own", module), "plain": SimpleNamespace(__module__=module), "other": kept("other", "torch")}
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**names))
    for absent in ("torch._inductor.runtime.hints", "torch.utils._triton"):
        monkeypatch.delitem(sys.modules, absent, raising=False)
    properties = {"cuda:0": "of the GPU before"}
    for has_triton in (kept("has_triton", "torch.utils._triton"), SimpleNamespace()):
        parts = {"device_properties": properties, "has_triton": has_triton}
        monkeypatch.setattr(torch_compiler, "inductor_part", parts.__getitem__)
        torch_compiler.forget_answers()
    assert (properties, dropped) == ({}, ["has_triton", "own", "own"])


def test_functions_that_dynamo_has_bound_of_torch_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interface:
        device_count = staticmethod(len)
        current_device = len
        no_function_of_torch_cuda = staticmethod(len)

    monkeypatch.setattr(torch_compiler, "inductor_part", lambda word: Interface)
    assert [*torch_compiler.interface_functions()] == [("device_count", True), ("current_device", False)]
