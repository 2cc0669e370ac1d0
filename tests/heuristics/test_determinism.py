"""The filter that leaves a reduction one config."""

from __future__ import annotations

import pytest

from kerntune.base.config import Config
from kerntune.errors import HintError
from kerntune.heuristics.hints import KernelHints, Modes
from kerntune.heuristics.reduction_blocks import one_config

from .inductor_free import shapes

ONE = KernelHints(sizes={"x": 1}, modes=Modes(single_reduction_config=True))
STRIDED = KernelHints(sizes={"x": 1}, modes=Modes(deterministic=True), contiguous_reduction_access=False)


def config(x: int, r: int, warps: int = 4) -> Config:
    return Config(kwargs={"XBLOCK": x, "R0_BLOCK": r}, num_warps=warps, num_stages=1)


@pytest.mark.parametrize(
    ("configs", "left"),
    [
        ([config(1, 4), config(1, 2)], "X1 R0_2 w4"),
        ([config(8, 4), config(1, 64)], "X1 R0_64 w4"),
        ([config(1, 64), config(8, 128), config(8, 512)], "X8 R0_128 w4"),
        ([config(1, 64, 2), config(1, 64, 8), config(1, 64, 4)], "X1 R0_64 w4"),
        ([config(1, 64), config(4, 64), config(2, 64)], "X2 R0_64 w4"),
        ([config(1, 64, 8), config(4, 64, 8)], "X1 R0_64 w8"),
    ],
)
def test_the_second_largest_wins(configs: list[Config], left: str) -> None:
    assert shapes(one_config(configs, ONE)) == [left]


def test_rows_of_one_are_dropped_without_contiguous_access() -> None:
    configs = [config(1, 64), config(8, 128), config(8, 512)]
    assert shapes(one_config(configs, STRIDED)) == ["X8 R0_128 w4"]
    assert shapes(one_config([config(1, 64), config(1, 512)], STRIDED)) == ["X1 R0_64 w4"]
    assert shapes(one_config([config(1, 256), config(8, 128), config(8, 512)], STRIDED)) == ["X8 R0_128 w4"]


def test_other_modes_keep_each_once() -> None:
    a, b = config(1, 64), config(2, 64)
    assert one_config([a, b, a], KernelHints(sizes={"x": 1})) == (a, b)


def test_nothing_to_choose_from_is_an_error() -> None:
    with pytest.raises(HintError, match="no config fits"):
        one_config([], KernelHints(sizes={"x": 1}))
