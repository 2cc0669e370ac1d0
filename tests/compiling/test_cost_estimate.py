"""Expected times order compilations, and learn."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.compiling.frontend import RATE, Expectation, Shape, elements_in, tile_of

SIZES = st.integers(1, 1 << 20)
SHAPES = st.builds(Shape, SIZES, SIZES, st.integers(1, 8), st.integers(1, 32))


@given(SHAPES, SIZES, st.integers(1, 4))
def test_before_anything_was_seen_more_of_anything_takes_longer(shape, more, stages):
    guess = Expectation().seconds
    assert guess(replace(shape, length=shape.length + more)) > guess(shape)
    assert guess(replace(shape, tile=shape.tile + more)) > guess(shape)
    assert guess(replace(shape, stages=shape.stages + stages)) > guess(shape)


@given(SHAPES, st.integers(1, 4))
def test_more_warps_that_share_a_tile_take_less(shape, more):
    guess = Expectation().seconds
    assert guess(replace(shape, warps=shape.warps + more)) < guess(shape)


@given(SHAPES, st.floats(1e-3, 1e3))
def test_what_is_seen_again_and_again_is_expected(shape, seconds):
    expectation = Expectation()
    for _ in range(60):
        expectation.saw(shape, seconds)
    assert expectation.seconds(shape) == pytest.approx(seconds, rel=1e-3)


@given(st.lists(st.tuples(SHAPES, st.floats(0, 1e6)), max_size=30), SHAPES)
def test_it_stays_a_positive_number(seen, shape):
    expectation = Expectation()
    for one, seconds in seen:
        expectation.saw(one, seconds)
    assert 0 < expectation.seconds(shape) < math.inf


def test_it_learns_that_stages_cost_nothing():
    expectation = Expectation()
    for _ in range(1000):
        for stages in (1, 2, 4, 8):
            expectation.saw(Shape(5000, 4096, stages), 0.25)
    assert expectation.seconds(Shape(5000, 4096, 8)) == pytest.approx(
        expectation.seconds(Shape(5000, 4096, 1)), rel=0.1
    )


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
    ("shape", "exponent"),
    [
        (Shape(1, 1, 1, 1), -8.8),
        (Shape(0, 0, 0, 0), -8.8),
        (Shape(1, 100, 1, 1), -8.8 + 0.47 * math.log(100)),
        (Shape(1, 1, 1, 8), -8.8 - 0.45 * math.log(8)),
        (Shape(1, 1, 5, 1), -8.8 + 0.33 * math.log(5)),
        (Shape(5000, 1, 1, 1), -8.8 + 0.33 * math.log(5000)),
        (Shape(2, 2, 2), -8.8 + (0.47 + 2 * 0.33) * math.log(2) - 0.45 * math.log(4)),
    ],
)
def test_the_first_expectation_is_the_fitted_product_of_powers(shape, exponent):
    """Sizes below 1 count as 1; a compilation that doesn't say its warps has Triton's four."""
    assert Expectation().seconds(shape) == pytest.approx(math.exp(exponent), rel=1e-9)


@pytest.mark.parametrize(("seconds", "counted"), [(0.5, 0.5), (40.0, 40.0), (0.0, 1e-4), (1e-9, 1e-4)])
def test_one_observation_corrects_its_share_of_the_error(seconds, counted):
    """Of the logarithm; nothing takes less than a tenth of a millisecond."""
    shape, expectation = Shape(5000, 4096, 3), Expectation()
    before = math.log(expectation.seconds(shape) / counted)
    expectation.saw(shape, seconds)
    assert RATE == 0.3
    assert math.log(expectation.seconds(shape) / counted) == pytest.approx(0.7 * before)


def test_no_expectation_is_longer_than_years():
    assert Expectation((25.0, 0.0, 0.0, 0.0, 0.0)).seconds(Shape(1, 1, 1)) == math.exp(20.0)
    assert Expectation((19.5, 0.0, 0.0, 0.0, 0.0)).seconds(Shape(1, 1, 1)) == math.exp(19.5)


@pytest.mark.parametrize(("size", "tile"), [(15, 1), (16, 16), (17, 1), (18, 1), (24, 1), (65536, 65536), (65537, 1)])
def test_a_block_size_is_a_power_of_two_from_16_to_65536(size, tile):
    assert tile_of([size]) == tile
    assert tile_of([size, 32]) == 32 * tile


def test_shapes_are_values():
    assert Shape(1, 2, 3) == Shape(1, 2, 3, 4)
    with pytest.raises(AttributeError):
        Shape(1, 2, 3).tile = 4
    assert Expectation() == Expectation()
