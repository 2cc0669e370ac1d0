"""Expected times order compilations, and learn."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.farm.expect import Expectation, Shape, tile_of

SIZES = st.integers(1, 1 << 20)
SHAPES = st.builds(Shape, SIZES, SIZES, st.integers(1, 8))


@given(SHAPES, SIZES, st.integers(1, 4))
def test_before_anything_was_seen_more_of_anything_takes_longer(shape, more, stages):
    guess = Expectation().seconds
    assert guess(Shape(shape.length + more, shape.tile, shape.stages)) > guess(shape)
    assert guess(Shape(shape.length, shape.tile + more, shape.stages)) > guess(shape)
    assert guess(Shape(shape.length, shape.tile, shape.stages + stages)) > guess(shape)


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
