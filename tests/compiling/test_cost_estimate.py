"""Expected times order compilations, and learn."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.compiling.cost_estimate import Expectation, Shape, elements_in, tile_of

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
