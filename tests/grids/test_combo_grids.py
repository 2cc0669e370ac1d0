"""Combo grids: enough blocks for every sub-kernel, by each way of laying them out."""

from __future__ import annotations

import pytest
from hypothesis import given

from kerntune.errors import GridError
from kerntune.grids import (
    RoundRobinComboKernelGrid,
    SequentialComboKernelGrid,
    SequentialFlattenComboKernelGrid,
    SubKernel,
)

from .strategies import BLOCKS, combos

KINDS = (SequentialComboKernelGrid, SequentialFlattenComboKernelGrid, RoundRobinComboKernelGrid)
TWO = (SubKernel(1000), SubKernel("n", no_x_dim=True))


def value(term: int | str, values: dict[str, int]) -> int:
    return values[term] if isinstance(term, str) else term


def cover(size: int, block: int) -> int:
    """Blocks needed, counted another way than the grids count them."""
    return size // block + (size % block > 0)


def widths(kernels, values, block) -> list[int]:
    return [cover(value(k.xnumel, values), 1 if k.no_x_dim else block) for k in kernels]


@given(combo=combos(), xblock=BLOCKS, yblock=BLOCKS)
def test_sequential_is_the_sum(combo, xblock, yblock) -> None:
    kernels, values = combo
    x, y, z = SequentialComboKernelGrid(kernels)({**values, "XBLOCK": xblock, "YBLOCK": yblock})
    assert x == sum(widths(kernels, values, xblock))
    assert_yz(kernels, values, yblock, y, z)


@given(combo=combos(), xblock=BLOCKS, yblock=BLOCKS)
def test_round_robin_is_as_many_turns_as_the_widest_needs(combo, xblock, yblock) -> None:
    kernels, values = combo
    x, y, z = RoundRobinComboKernelGrid(kernels)({**values, "XBLOCK": xblock, "YBLOCK": yblock})
    assert x == len(kernels) * max(widths(kernels, values, xblock))
    assert_yz(kernels, values, yblock, y, z)


def assert_yz(kernels, values, yblock, y, z) -> None:
    heights = [cover(value(k.ynumel, values), yblock) for k in kernels if k.ynumel is not None]
    if not heights:
        assert (y, z) == (1, 1)
        return
    assert y <= 65535
    assert max(heights) <= y * z < max(heights) + max(z, 1)


@given(combo=combos(), xblock=BLOCKS, yblock=BLOCKS)
def test_flattened_is_the_sum_of_areas(combo, xblock, yblock) -> None:
    kernels, values = combo
    meta = {f"{axis}BLOCK_{i}": block for i in range(len(kernels)) for axis, block in (("X", xblock), ("Y", yblock))}
    heights = [1 if k.ynumel is None else cover(value(k.ynumel, values), yblock) for k in kernels]
    areas = [w * h for w, h in zip(widths(kernels, values, xblock), heights, strict=True)]
    assert SequentialFlattenComboKernelGrid(kernels)({**values, **meta}) == (sum(areas), 1, 1)


def test_flattened_blocks_are_each_kernels_own() -> None:
    grid = SequentialFlattenComboKernelGrid((SubKernel(100, 10), SubKernel(100, 10)))
    assert grid({"XBLOCK_0": 50, "YBLOCK_0": 5, "XBLOCK_1": 10, "YBLOCK_1": 10}) == (2 * 2 + 10, 1, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_floor_holds_from_below_only(kind) -> None:
    meta = {"n": 3, "XBLOCK": 500, "XBLOCK_0": 500}
    least = kind(TWO)(meta)[0]
    assert kind(TWO, least - 1)(meta)[0] == least
    assert kind(TWO, least + 7)(meta)[0] == least + 7


def test_by_hand() -> None:
    meta = {"n": 3, "XBLOCK": 500}
    assert SequentialComboKernelGrid(TWO)(meta) == (2 + 3, 1, 1)
    assert RoundRobinComboKernelGrid(TWO)(meta) == (2 * 3, 1, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_yield_to_the_config(kind) -> None:
    names = ("XBLOCK", "XBLOCK_0")
    grid = kind((SubKernel(1000),), 0, tuple((name, 100) for name in names))
    assert grid({}) == (10, 1, 1)
    assert grid(dict.fromkeys(names, 500)) == (2, 1, 1)
    assert grid.specialize({}).constant == (10, 1, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_combo_is_an_error(kind) -> None:
    with pytest.raises(GridError, match="at least one kernel"):
        kind(())


def test_a_static_zero_is_as_a_dynamic_one() -> None:
    static = SequentialComboKernelGrid((SubKernel(0), SubKernel(64, 0)))
    dynamic = SequentialComboKernelGrid((SubKernel("a"), SubKernel(64, "b")))
    assert static({"XBLOCK": 64}) == dynamic({"a": 0, "b": 0, "XBLOCK": 64}) == (1, 0, 0)
