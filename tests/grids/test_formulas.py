"""What all formulas have in common: blocks that a config lacks, blocks of none, and no minimum."""

from __future__ import annotations

import pytest

from kerntune.errors import GridError
from kerntune.grids import (
    BatchMatmulGrid3D,
    CooperativeReductionGrid,
    Grid,
    Grid1D,
    Grid2D,
    Grid2DWithYZOverflow,
    Grid3D,
    MixOrderReductionGrid,
    RoundRobinComboKernelGrid,
    SequentialComboKernelGrid,
    SequentialFlattenComboKernelGrid,
    SplitScanGrid,
    SubKernel,
)

SIZES = {"xnumel": 7, "ynumel": 5, "znumel": 3, "r0_numel": 11, "RSPLIT": 4, "RSPLIT_SIZE": 2, "XBLOCK": 1}
BLOCKS = {"XBLOCK": 2, "YBLOCK": 3, "ZBLOCK": 2, "R0_BLOCK": 4}
TWO = (SubKernel(7, 5), SubKernel(4))


@pytest.mark.parametrize(
    ("grid", "without", "with_blocks"),
    [
        (Grid1D(), (7, 1, 1), (4, 1, 1)),
        (Grid2D(), (7, 5, 1), (4, 2, 1)),
        (Grid3D(), (7, 5, 3), (4, 2, 2)),
        (BatchMatmulGrid3D(), (3, 5, 7), (2, 2, 4)),
        (Grid2DWithYZOverflow(), (7, 5, 1), (4, 2, 1)),
        (CooperativeReductionGrid(), (4, 7, 1), (4, 4, 1)),
        (SequentialComboKernelGrid(TWO), (11, 5, 1), (6, 2, 1)),
        (RoundRobinComboKernelGrid(TWO), (14, 5, 1), (8, 2, 1)),
    ],
)
def test_a_block_that_the_config_lacks_is_one_element(grid: Grid, without: object, with_blocks: object) -> None:
    sizes = {name: size for name, size in SIZES.items() if name != "XBLOCK"}
    assert grid(sizes) == without
    assert grid({**sizes, **BLOCKS}) == with_blocks
    assert grid.specialize({}).bind(sizes).constant == without


def test_splits_need_their_blocks() -> None:
    assert MixOrderReductionGrid()(SIZES) == (4, 1, 1)
    with pytest.raises(GridError, match="XBLOCK"):
        MixOrderReductionGrid()({"xnumel": 7, "RSPLIT_SIZE": 2})
    assert SplitScanGrid()({"xnumel": 7, "r0_numel": 11}) == (11, 7, 1)
    assert SplitScanGrid()({"xnumel": 7, "r0_numel": 11, "R0_BLOCK": 4}) == (3, 7, 1)


def test_flattened_parts_have_blocks_of_their_own() -> None:
    grid = SequentialFlattenComboKernelGrid(TWO)
    assert grid({}) == (7 * 5 + 4, 1, 1)
    assert grid({"XBLOCK_0": 2, "YBLOCK_0": 3, "XBLOCK_1": 4}) == (4 * 2 + 1, 1, 1)
    assert SequentialFlattenComboKernelGrid((SubKernel(7, no_x_dim=True),))({"XBLOCK_0": 2}) == (7, 1, 1)


@pytest.mark.parametrize(
    "kind", [SequentialComboKernelGrid, RoundRobinComboKernelGrid, SequentialFlattenComboKernelGrid]
)
def test_a_combo_without_work_has_no_blocks_unless_it_needs_some(kind: type) -> None:
    assert kind((SubKernel("n"),))({"n": 0}) == (0, 1, 1)
    assert kind((SubKernel("n"),), 1)({"n": 0}) == (1, 1, 1)
