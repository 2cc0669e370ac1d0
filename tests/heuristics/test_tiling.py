"""Sharing a tile out by scores."""

from __future__ import annotations

from itertools import permutations
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.device import TYPICAL_DEVICES
from kerntune.errors import HintError
from kerntune.heuristics import persistent_reduction, reduction
from kerntune.heuristics.hints import KernelHints
from kerntune.heuristics.presets import INDUCTOR_2_13
from kerntune.heuristics.reduction_blocks import share_out, tiled_config
from kerntune.heuristics.sizing import bounds

from .inductor_free import shapes

H100 = TYPICAL_DEVICES["cuda:90"]
LIMITS = bounds(KernelHints(sizes={"x": 1}), H100, INDUCTOR_2_13)
LARGE = {"x": 1 << 20, "y": 1 << 20, "r0": 1 << 20}


@pytest.mark.parametrize(
    ("scores", "target", "blocks"),
    [
        ({"x": 1, "y": 1}, 8, {"x": 4, "y": 2}),
        ({"y": 1, "x": 1}, 8, {"y": 4, "x": 2}),
        ({"x": 8, "y": 1}, 8, {"x": 8, "y": 1}),
        ({"x": 0, "y": 0, "r0": 0}, 4, {"x": 1, "y": 1, "r0": 4}),
        ({"x": 0, "y": 0, "r0": 0}, 32, {"x": 2, "y": 2, "r0": 8}),
        ({"x": 0, "y": 0, "r0": 1}, 64, {"x": 1, "y": 1, "r0": 64}),
    ],
)
def test_the_highest_score_doubles_first(scores: dict[str, float], target: int, blocks: dict[str, int]) -> None:
    assert share_out(target, scores, LARGE, LIMITS) == blocks


def test_an_axis_without_score_grows_once_the_others_are_full() -> None:
    assert share_out(64, {"x": 1, "y": 0}, {"x": 8, "y": 64}, LIMITS) == {"x": 8, "y": 8}


@given(
    st.permutations(["x", "y", "r0"]),
    st.tuples(*[st.sampled_from([0.0, 1.0, 3.0, 64.0])] * 3),
    st.tuples(*[st.integers(2, 18)] * 3),
    st.integers(0, 12),
)
def test_the_product_is_met_where_the_sizes_allow_it(
    order: list[str], scores: tuple[float, ...], logs: tuple[int, ...], target_log: int
) -> None:
    sizes = dict(zip(order, (1 << n for n in logs), strict=True))
    blocks = share_out(1 << target_log, dict(zip(order, scores, strict=True)), sizes, LIMITS)
    room = prod(min(sizes[a], LIMITS.max_block[a]) for a in sizes)
    assert prod(blocks.values()) == max(min(1 << target_log, room), 4)
    assert all(blocks[a] <= min(sizes[a], LIMITS.max_block[a]) for a in blocks)


def test_warps_are_bounded_twice() -> None:
    hints = KernelHints(sizes=LARGE)
    assert tiled_config(hints, 1, 1, 4, LIMITS).num_warps == 2
    assert tiled_config(hints, 64, 64, 4, LIMITS).num_warps == 8
    assert tiled_config(hints, 64, 64, 4, LIMITS, intensive=True).num_warps == 8


def test_an_x_that_no_grid_covers_is_refused() -> None:
    with pytest.raises(HintError, match="too long for one launch"):
        tiled_config(KernelHints(sizes={"x": 1 << 43, "y": 1, "r0": 8}), 64, 1, 8, LIMITS)


@pytest.mark.parametrize("order", list(permutations(("x", "y", "r0"))))
def test_a_persistent_tie_goes_to_x_whatever_the_order(order: tuple[str, ...]) -> None:
    sizes = {"x": 4096, "y": 4096, "r0": 64}
    hints = KernelHints(sizes={a: sizes[a] for a in order}, tiling_scores=dict.fromkeys(order, 1))
    assert shapes(persistent_reduction(hints, H100)) == ["X1 Y1 w2", "X4 Y2 w2", "X8 Y4 w8"]


@pytest.mark.parametrize(("order", "tall"), [("x y r0", "X8 Y4 R0_16 w2"), ("y x r0", "X4 Y8 R0_16 w2")])
def test_a_looped_tie_goes_to_the_first_in_the_mapping(order: str, tall: str) -> None:
    sizes = dict.fromkeys(("x", "y", "r0"), 4096)
    assert shapes(reduction(KernelHints(sizes=sizes, tiling_scores=dict.fromkeys(order.split(), 1)), H100))[1] == tall
    unscored = KernelHints(sizes={axis: sizes[axis] for axis in order.split()})
    assert shapes(reduction(unscored, H100))[1] == tall
