"""Stopping rules: numbers in, yes or no out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.timing.sampling import (
    ENOUGH_SPREAD,
    MAX_QUICK_SLOTS,
    MAX_SLOTS,
    MAX_WARM_UP,
    MIN_SLOTS,
    MIN_WARM_UP,
    QUICK_SLOTS,
    enough,
    warm,
)

quickly_warm, quickly_enough = partial(warm, quick=True), partial(enough, quick=True)
times = st.lists(st.floats(1.0, 1e9), max_size=60)


def taken(rule: Callable[[Sequence[float]], bool], source: Iterator[float]) -> list[float]:
    """The times that a timer takes from ``source`` until the rule stops it."""
    found: list[float] = []
    while not rule(found):
        found.append(next(source))
        assert len(found) <= 1000
    return found


def steady(noise: float, seed: int = 0) -> Iterator[float]:
    random = np.random.default_rng(seed)
    while True:
        yield float(10_000 * (1 + random.normal(0, noise)))


def cooling() -> Iterator[float]:
    """The first runs are slow: half of what is left goes with every slot."""
    extra = 1.0
    while True:
        yield 10_000 * (1 + extra)
        extra /= 2


@given(times)
def test_rules_keep_their_borders(seen: list[float]) -> None:
    if len(seen) < MIN_WARM_UP:
        assert not warm(seen)
    if len(seen) >= MAX_WARM_UP:
        assert warm(seen)
    if len(seen) < MIN_SLOTS:
        assert not enough(seen)
    if len(seen) >= MAX_SLOTS:
        assert enough(seen)


@given(times, st.sampled_from([0.25, 2.0, 1024.0]))
def test_rules_know_no_unit(seen: list[float], scale: float) -> None:
    scaled = [t * scale for t in seen]
    assert warm(scaled) == warm(seen)
    assert enough(scaled) == enough(seen)


def test_a_steady_kernel_is_measured_in_the_fewest_slots() -> None:
    assert len(taken(warm, steady(0.0005))) == MIN_WARM_UP
    assert len(taken(enough, steady(ENOUGH_SPREAD / 4))) == MIN_SLOTS


def test_a_noisy_kernel_gets_the_most_slots_and_no_more() -> None:
    assert len(taken(enough, steady(0.05))) == MAX_SLOTS
    assert len(taken(warm, steady(0.2))) == MAX_WARM_UP


def test_warm_up_outlasts_the_slope() -> None:
    warming = taken(warm, cooling())
    assert MIN_WARM_UP < len(warming) < MAX_WARM_UP
    assert warming[-1] / 10_000 - 1 < 0.005


def test_one_odd_slot_does_not_end_or_prolong_a_sample() -> None:
    """An interrupt's spike must not count: the rule uses quartiles."""
    seen = [10_000.0] * (MIN_SLOTS - 1)
    assert enough([*seen, 50_000.0])
    assert not enough([*seen[1:], 50_000.0])


@pytest.mark.parametrize(("share", "answer"), [(0.9, True), (1.1, False)])
def test_spread_is_half_the_quartiles_distance(share: float, answer: bool) -> None:
    """Quartiles at 1 -/+ share * ENOUGH_SPREAD, the median at 1; the ends far out."""
    off = share * ENOUGH_SPREAD
    seen = [0.5, 1 - off, 1 - off, 1 - off, 1.0, 1.0, 1.0, 1 + off, 1 + off, 1 + off, 1.5]
    assert len(seen) >= MIN_SLOTS
    assert enough(seen) is answer


def test_zeros_never_settle() -> None:
    """A timer that gives 0 (a broken event) ends by the limits, not by looking steady."""
    assert not enough([0.0] * MIN_SLOTS)
    assert not warm([0.0] * MIN_WARM_UP)


@pytest.mark.parametrize("rule", [warm, enough])
def test_nothing_taken_is_not_enough(rule: Callable[[Sequence[float]], bool]) -> None:
    assert not rule([])


def test_a_quick_sample_is_short_whatever_the_noise() -> None:
    assert len(taken(quickly_enough, steady(0.0005))) == QUICK_SLOTS
    assert len(taken(quickly_enough, steady(0.2))) == MAX_QUICK_SLOTS
    assert len(taken(quickly_warm, steady(0.2))) == MAX_QUICK_SLOTS
    assert len(taken(quickly_warm, steady(0.0005))) == MIN_WARM_UP


@given(times)
def test_quick_rules_never_ask_for_more(seen: list[float]) -> None:
    assert quickly_warm(seen) or not warm(seen)
    assert quickly_enough(seen) or not enough(seen)


@given(st.integers(0, 1000))
def test_a_quick_median_is_near_enough_to_tell_drift(seed: int) -> None:
    seen = taken(quickly_enough, steady(0.01, seed))
    assert np.median(seen) == pytest.approx(10_000, rel=0.02)
