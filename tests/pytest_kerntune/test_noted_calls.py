"""The plugin of ``kerntune tune TESTS``: calls are noted, on stand-ins none is launched."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from doubles import Item, through

from kerntune.base.config import Config
from kerntune.tuning.api import install
from kerntune.tuning.many import shapes_file
from pytest_kerntune import noted_calls
from pytest_kerntune.noted_calls import CAPTURE, on_stand_ins, pytest_load_initial_conftests, pytest_runtest_call

CONFIGS = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})]


@triton.jit
def fill_kernel(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 1.0)


tuned_kernel = triton.autotune(CONFIGS, key=[])(triton.jit(fill_kernel.fn))


def test_calls_on_stand_ins_are_noted_and_not_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a tuner, and of a kernel with given candidates; neither of a plain kernel nor a warm-up."""
    noted: list[Any] = []
    monkeypatch.setattr(
        shapes_file, "note_call", lambda kernel, args, kwargs, *given: noted.append((kernel, len(args), given))
    )
    candidates = (Config({"BLOCK": 64}),)
    with on_stand_ins("cuda:90") as capture:
        x = torch.empty(128, device="cuda")
        tuned_kernel[(1,)](x)
        fill_kernel[(1,)](x, BLOCK=64)
        capture.given = {"fill_kernel": candidates}
        fill_kernel[(1,)](x, BLOCK=64)
        fill_kernel[(1,)](x, BLOCK=64)
        fill_kernel.warmup(x, BLOCK=64, grid=(1,))
    assert noted == [(tuned_kernel, 1, ()), *[(fill_kernel, 1, (candidates,))] * 2]


@pytest.mark.parametrize(("target", "used"), [("", "install"), ("cuda:90", "stand-ins for cuda:90")])
def test_noting_begins_before_conftests_and_ends_with_the_config(
    monkeypatch: pytest.MonkeyPatch, target: str, used: str
) -> None:
    did: list[str] = []

    @contextlib.contextmanager
    def noting(name: str) -> Iterator[str]:
        did.append(name)
        yield "the capture"
        did.append("ended")

    monkeypatch.setattr(noted_calls, "on_stand_ins", lambda target: noting(f"stand-ins for {target}"))
    monkeypatch.setattr(install, "install", lambda: noting("install"))
    cleanups: list[Any] = []
    config: Any = SimpleNamespace(
        known_args_namespace=SimpleNamespace(kerntune_note_target=target), stash={}, add_cleanup=cleanups.append
    )
    pytest_load_initial_conftests(config)
    assert did == [used]
    assert config.stash == ({CAPTURE: "the capture"} if target else {})
    cleanups[0]()
    assert did == [used, "ended"]


@pytest.mark.parametrize("error", [None, ValueError("mine")])
def test_a_markers_candidates_are_those_of_its_test(error: Exception | None) -> None:
    capture = SimpleNamespace(given={})
    item: Any = Item({"candidates": {"k": [{"BLOCK": 32}]}}, config=SimpleNamespace(stash={CAPTURE: capture}))
    hook = pytest_runtest_call(item)
    next(hook)
    assert list(capture.given) == ["k"]
    with pytest.raises(StopIteration if error is None else ValueError) as ended:
        hook.send("value") if error is None else hook.throw(error)
    assert error is not None or ended.value.value == "value"
    assert capture.given == {}
    item.config.stash.clear()
    assert (through(pytest_runtest_call(item), "value"), capture.given) == ("value", {})
