"""The grids of one axis a dimension: exact cover, and the overflowing one's documented overshoot."""

from __future__ import annotations

import pytest
from hypothesis import given

from kerntune.base.device import TYPICAL_DEVICES
from kerntune.errors import GridError
from kerntune.grids import BatchMatmulGrid3D, Grid1D, Grid2D, Grid2DWithYZOverflow, Grid3D, SplitScanGrid

from .strategies import BLOCKS, SIZES

H100 = TYPICAL_DEVICES["cuda:90"]


def covers(blocks: int, numel: int, block: int) -> bool:
    """All of the size, and not one block more."""
    return blocks * block >= numel and (blocks - 1) * block < max(numel, 1)


@given(x=SIZES, y=SIZES, z=SIZES, bx=BLOCKS, by=BLOCKS, bz=BLOCKS)
def test_axes_cover_their_sizes_exactly(x, y, z, bx, by, bz) -> None:
    meta = {"xnumel": x, "ynumel": y, "znumel": z, "XBLOCK": bx, "YBLOCK": by, "ZBLOCK": bz}
    before = dict(meta)
    gx, gy, gz = Grid3D()(meta)
    assert covers(gx, x, bx)
    assert covers(gy, y, by)
    assert covers(gz, z, bz)
    assert Grid1D()(meta) == (gx, 1, 1)
    assert Grid2D()(meta) == (gx, gy, 1)
    assert BatchMatmulGrid3D()(meta) == (gz, gy, gx)
    assert meta == before


@given(x=SIZES, y=SIZES, bx=BLOCKS, by=BLOCKS)
def test_yz_overflow_covers_and_overshoots_by_less_than_z(x, y, bx, by) -> None:
    meta = {"xnumel": x, "ynumel": y, "XBLOCK": bx, "YBLOCK": by}
    gx, gy, gz = Grid2DWithYZOverflow()(meta)
    _, raw, _ = Grid2D()(meta)
    assert covers(gx, x, bx)
    assert gy <= 65535
    assert raw <= gy * gz < raw + max(gz, 1)


@pytest.mark.parametrize(
    ("ynumel", "yz"),
    [(0, (0, 0)), (1, (1, 1)), (65535, (65535, 1)), (65536, (32768, 2)), (131070, (65535, 2)), (131071, (43691, 3))],
)
def test_yz_overflow_by_hand(ynumel, yz) -> None:
    assert Grid2DWithYZOverflow()({"xnumel": 1, "ynumel": ynumel}) == (1, *yz)


def test_yz_overflow_fits_where_a_plain_grid_does_not() -> None:
    meta = {"xnumel": 64, "ynumel": 131071, "XBLOCK": 64, "YBLOCK": 1}
    assert Grid2DWithYZOverflow().resolve(meta, kernel="copy", spec=H100) == (1, 43691, 3)
    with pytest.raises(GridError, match="kernel copy: grid axis y is 131071, over the limit of 65535"):
        Grid2D().resolve(meta, kernel="copy", spec=H100)


def test_own_names_and_no_block() -> None:
    assert Grid1D("n_elements", "BLOCK")({"n_elements": 1000, "BLOCK": 256}) == (4, 1, 1)
    assert Grid2D("rows", "cols", None, 32)({"rows": 7, "cols": 100}) == (7, 4, 1)
    with pytest.raises(GridError, match="needs BLOCK"):
        Grid1D("n_elements", "BLOCK")({"n_elements": 1000})


def test_inductor_names_need_no_block() -> None:
    assert Grid2D()({"xnumel": 7, "ynumel": 9, "YBLOCK": 4}) == (7, 3, 1)
    assert Grid3D()({"xnumel": 7, "ynumel": 9, "znumel": 5}) == (7, 9, 5)
    assert SplitScanGrid()({"xnumel": 7, "r0_numel": 9}) == (9, 7, 1)


def test_every_size_and_block_of_three_axes_can_be_named() -> None:
    names = {"a": 10, "b": 20, "c": 30, "A": 5, "B": 4, "C": 3}
    assert Grid3D(*names)(names) == (2, 5, 10)
    assert BatchMatmulGrid3D(*names)(names) == (10, 5, 2)
