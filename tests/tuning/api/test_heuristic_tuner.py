"""Parts of the tuner whose candidates are a heuristic's proposal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from kerntune.base.config import Config
from kerntune.errors import ConfigError, StoreError, TargetError
from kerntune.heuristics.hints import KernelHints
from kerntune.kernels.cooperative_launch import LaunchBuffers
from kerntune.kernels.source import defaults_of
from kerntune.tuning.api import heuristic_tuner
from kerntune.tuning.api.heuristic_tuner import _launchable, _least_bytes, checked_buffers, static_registers


@triton.jit
def split_sum(x, out, locks, parts, n, RSPLIT: tl.constexpr, BLOCK: tl.constexpr = 16):
    pass


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 0),
        ({"n": 5, "flag": True}, 0),
        ({"x": torch.zeros(1), "y": torch.zeros(1, dtype=torch.float16), "n": 5}, 2),
        ({"x": SimpleNamespace(base=torch.zeros(1, dtype=torch.int8))}, 1),
        ({"x": SimpleNamespace(dtype="float32")}, 0),
    ],
    ids=["nothing", "scalars", "narrowest", "descriptor", "unknown"],
)
def test_an_operand_has_at_least_the_narrowest_tensors_bytes(given: dict[str, Any], expected: int) -> None:
    assert _least_bytes(given) == expected


def test_defaults_are_those_of_the_signature() -> None:
    def f(x: int, y: Any = None, *more: int, size: int = 16, **words: int) -> None: ...

    assert defaults_of(f) == {"y": None, "size": 16}


@pytest.mark.parametrize(
    ("split", "r0", "kwargs", "options"),
    [
        (1, None, {"RSPLIT": 1}, {}),
        (4, None, {"RSPLIT": 4}, {"launch_cooperative_grid": True}),
        (4, "R", {"RSPLIT": 4, "R0_BLOCK": 16}, {"launch_cooperative_grid": True}),
        (128, "R", {"RSPLIT": 128, "R0_BLOCK": 1}, {"launch_cooperative_grid": True}),
        (1, "R", {"RSPLIT": 1, "R0_BLOCK": 64}, {}),
    ],
)
def test_only_programs_that_wait_for_each_other_are_launched_together(
    split: int, r0: str | None, kwargs: dict[str, Any], options: dict[str, Any]
) -> None:
    found = _launchable(Config({"RSPLIT": split}, num_warps=8), KernelHints(sizes={"x": 8, "r0": 64}), r0)
    assert found == Config(kwargs, num_warps=8, options=options)


def test_buffers_are_parameters_of_the_kernel() -> None:
    assert checked_buffers(split_sum, "locks", "parts") == LaunchBuffers("locks", {"parts": "float32"})
    assert checked_buffers(split_sum, "locks", {"parts": "int64"}) == LaunchBuffers("locks", {"parts": "int64"})
    assert checked_buffers(split_sum, "locks", None) == LaunchBuffers("locks", {})
    plain = SimpleNamespace(__name__="plain", arg_names=["x", "locks"])
    with pytest.raises(ConfigError) as error:
        checked_buffers(plain, "locks", "parts")
    assert str(error.value) == (
        "kernel plain: a cooperative reduction needs the parameter parts, RSPLIT; it has x, locks"
    )


@pytest.mark.parametrize("error", [StoreError, TargetError])
def test_a_binary_that_cannot_be_read_says_no_registers(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    asked: list[Any] = []

    def quick(*given: Any, **words: Any) -> Any:
        asked.append((given, words))
        if len(asked) > 1:
            raise error("unreadable")
        return SimpleNamespace(registers=40)

    monkeypatch.setattr(heuristic_tuner, "quick_candidate", quick)
    compiled: Any = SimpleNamespace(binary="binary", data=b"data", asm={"ptx": ""})
    assert [static_registers(compiled), static_registers(compiled)] == [40, None]
    assert asked == [(("binary", b"data", {"ptx": ""}, (1, 1, 1)), {})] * 2
