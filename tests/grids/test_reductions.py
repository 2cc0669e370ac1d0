"""Grids of split reductions and scans, with the blocks that they forbid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.errors import GridError
from kerntune.grids import CooperativeReductionGrid, MixOrderReductionGrid, SplitScanGrid

from .strategies import BLOCKS, SIZES

MIX = MixOrderReductionGrid()


@given(x=SIZES, block=st.sampled_from([1, 2, 4, 16]), steps=st.integers(1, 64))
def test_mix_order_splits_cover_the_rows(x, block, steps) -> None:
    split = block * steps
    gx, gy, gz = MIX({"xnumel": x, "RSPLIT_SIZE": split, "XBLOCK": block})
    assert gx * split >= x
    assert (gx - 1) * split < max(x, 1)
    assert (gy, gz) == (1, 1)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"RSPLIT_SIZE": 64}, "needs XBLOCK"),
        ({"XBLOCK": 4}, "needs RSPLIT_SIZE"),
        ({"RSPLIT_SIZE": 64, "XBLOCK": 3}, "RSPLIT_SIZE 64 is no multiple of XBLOCK 3"),
        ({"RSPLIT_SIZE": 0, "XBLOCK": 4}, "at least 1"),
        ({"RSPLIT_SIZE": 64, "XBLOCK": 0}, "at least 1"),
    ],
)
def test_mix_order_refuses(config, message) -> None:
    with pytest.raises(GridError, match=message):
        MIX({"xnumel": 100, **config})


def test_mix_order_keeps_its_rule_when_bound_piecemeal() -> None:
    bound = MIX.bind({"RSPLIT_SIZE": 64})
    assert bound({"xnumel": 100, "XBLOCK": 4}) == (2, 1, 1)
    with pytest.raises(GridError, match="no multiple"):
        bound({"xnumel": 100, "XBLOCK": 3})
    with pytest.raises(GridError, match="no multiple"):
        bound.bind({"XBLOCK": 3})


@given(x=SIZES, block=BLOCKS, split=st.integers(1, 64))
def test_cooperative_gives_every_row_block_all_splits(x, block, split) -> None:
    gx, gy, gz = CooperativeReductionGrid()({"xnumel": x, "XBLOCK": block, "RSPLIT": split})
    assert (gx, gz) == (split, 1)
    assert gy * block >= x
    assert (gy - 1) * block < max(x, 1)


def test_cooperative_needs_a_split() -> None:
    with pytest.raises(GridError, match="needs RSPLIT"):
        CooperativeReductionGrid()({"xnumel": 5, "XBLOCK": 1})


@given(x=SIZES, r=SIZES, block=BLOCKS)
def test_split_scan_has_a_row_of_blocks_for_each_row(x, r, block) -> None:
    gx, gy, gz = SplitScanGrid()({"xnumel": x, "r0_numel": r, "R0_BLOCK": block, "XBLOCK": 1})
    assert (gy, gz) == (x, 1)
    assert gx * block >= r
    assert (gx - 1) * block < max(r, 1)


def test_a_split_scan_of_sizes_of_its_own() -> None:
    grid = SplitScanGrid(xnumel=7, r0_numel=600, r0_block=256)
    assert grid({}) == (3, 7, 1)
    assert grid == SplitScanGrid(7, 600, 256)
    assert grid != SplitScanGrid(7, 601, 256)


@pytest.mark.parametrize("block", [2, 8, 0])
def test_split_scan_refuses_other_row_blocks(block) -> None:
    meta = {"xnumel": 5, "r0_numel": 1000, "R0_BLOCK": 256}
    assert SplitScanGrid()(meta) == (4, 5, 1)
    with pytest.raises(GridError, match=f"XBLOCK is {block}"):
        SplitScanGrid()({**meta, "XBLOCK": block})
    with pytest.raises(GridError, match=f"XBLOCK is {block}"):
        SplitScanGrid().bind({"XBLOCK": block})
