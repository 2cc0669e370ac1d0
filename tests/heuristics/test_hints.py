"""KernelHints raises an error for values that no heuristic can use, and names them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.errors import HintError
from kerntune.heuristics import round_sizes
from kerntune.heuristics.hints import AXES, KernelHints, Modes, is_power_of_two


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sizes": {}}, "no size hint"),
        ({"sizes": {"w": 8}}, "unknown axis 'w'"),
        ({"sizes": {"x": 0}}, "x=0 is no positive integer"),
        ({"sizes": {"x": -4}}, "x=-4"),
        ({"sizes": {"x": 8, "r0": 8.0}}, "r0=8.0"),
        ({"sizes": {"x": True}}, "x=True"),
        ({"sizes": {"x": 8}, "loads": -1}, "loads=-1 can't be negative"),
        ({"sizes": {"x": 8}, "dynamic_sizes": -2}, "dynamic_sizes=-2"),
        ({"sizes": {"x": 8}, "tma_minimums": {"y": 16}}, "TMA minimum for y"),
        ({"sizes": {"x": 8}, "tiling_scores": {"r0": 1.0}}, "tiling score for r0"),
    ],
)
def test_bad_hints_are_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(HintError, match="kernel softmax: ") as caught:
        KernelHints(kernel="softmax", **fields)
    assert message in str(caught.value)


def test_reduction_numel_is_the_product_of_the_reduced_axes() -> None:
    assert KernelHints(sizes={"x": 4, "r0": 8, "r1": 32}).reduction_numel == 256
    assert KernelHints(sizes={"x": 4, "r0": 8}).reduction_numel == 8
    with pytest.raises(HintError, match="needs a size hint for r0, got x"):
        _ = KernelHints(sizes={"x": 4}).reduction_numel


def test_with_sizes_copies_and_checks() -> None:
    hints = KernelHints(sizes={"x": 4}, loads=3)
    other = hints.with_sizes({"x": 8})
    assert (hints.sizes, other.sizes, other.loads) == ({"x": 4}, {"x": 8}, 3)
    with pytest.raises(HintError, match="x=-3"):
        hints.with_sizes({"x": -3})


@given(st.dictionaries(st.sampled_from(AXES), st.integers(1, 1 << 45), min_size=1))
def test_sizes_are_rounded_up_in_a_copy(sizes: dict[str, int]) -> None:
    given_sizes = dict(sizes)
    hints = KernelHints(sizes=sizes)
    assert hints == KernelHints(sizes=round_sizes(sizes))
    assert list(hints.sizes.items()) == [(a, 1 << (n - 1).bit_length()) for a, n in sizes.items()]
    assert hints.with_sizes(sizes) == hints
    assert sizes == given_sizes


def test_one_reduction_follows_either_mode() -> None:
    assert not Modes().one_reduction
    assert Modes(deterministic=True).one_reduction
    assert Modes(single_reduction_config=True).one_reduction


def test_powers_of_two() -> None:
    assert [n for n in range(-2, 20) if is_power_of_two(n)] == [1, 2, 4, 8, 16]


def test_hints_are_given_by_name() -> None:
    with pytest.raises(TypeError):
        KernelHints({"x": 8})  # type: ignore[misc]
