"""Expected times order compilations."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.compiling.frontend import Shape, elements_in, tile_of

SIZES = st.integers(1, 1 << 20)
SHAPES = st.builds(Shape, SIZES, SIZES, st.integers(1, 8), st.integers(1, 32))


@given(SHAPES, SIZES, st.integers(1, 4))
def test_more_of_anything_takes_longer(shape, more, stages):
    assert replace(shape, length=shape.length + more).cost > shape.cost
    assert replace(shape, tile=shape.tile + more).cost > shape.cost
    assert replace(shape, stages=shape.stages + stages).cost > shape.cost


@given(SHAPES, st.integers(1, 4))
def test_more_warps_that_share_a_tile_take_less(shape, more):
    assert replace(shape, warps=shape.warps + more).cost < shape.cost


def test_a_tile_is_the_product_of_block_sizes():
    assert tile_of([128, 64, 8, True, "fp16", 0.5, None, 100]) == 128 * 64
    assert tile_of([]) == 1
    assert tile_of([16, 1 << 16]) == 1 << 20, "the smallest and the largest that count"
    assert tile_of([8, 1 << 17]) == 1


def test_what_a_program_works_on_is_read_off_its_text():
    text = "%0 : tensor<8x1024xf32>, %1 : tensor<8x1024xi1>, %2 : tensor<8x1x!tt.ptr<f16>>, %3 : tensor<1024xi32>, f32"
    assert elements_in(text) == 8 * 1024 + 8 + 1024
    assert elements_in("module {}") == 0


@pytest.mark.parametrize(
    ("shape", "cost"),
    [
        (Shape(1, 1, 1, 1), 0.0),
        (Shape(0, 0, 0, 0), 0.0),
        (Shape(1, 100, 1, 1), 0.47 * math.log(100)),
        (Shape(1, 1, 1, 8), -0.45 * math.log(8)),
        (Shape(1, 1, 5, 1), 0.33 * math.log(5)),
        (Shape(5000, 1, 1, 1), 0.33 * math.log(5000)),
        (Shape(2, 2, 2), (0.47 + 2 * 0.33) * math.log(2) - 0.45 * math.log(4)),
    ],
)
def test_the_cost_is_the_fitted_product_of_powers(shape, cost):
    """Sizes below 1 count as 1; a compilation that doesn't say its warps has Triton's four."""
    assert shape.cost == pytest.approx(cost, rel=1e-9)


@pytest.mark.parametrize(("size", "tile"), [(15, 1), (16, 16), (17, 1), (18, 1), (24, 1), (65536, 65536), (65537, 1)])
def test_a_block_size_is_a_power_of_two_from_16_to_65536(size, tile):
    assert tile_of([size]) == tile
    assert tile_of([size, 32]) == 32 * tile


def test_shapes_are_values():
    assert Shape(1, 2, 3) == Shape(1, 2, 3, 4)
    with pytest.raises(AttributeError):
        Shape(1, 2, 3).tile = 4
