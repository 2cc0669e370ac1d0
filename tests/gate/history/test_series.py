"""The moves of one case: only what was measured against the same reference is compared."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from kerntune.gate.history.series import Measured, found_in

SD = 0.001
RATE = 1e-4


def runs(
    levels: list[float],
    seed: int = 0,
    work: Callable[[int], str] = str,
    reference: Callable[[int], str] = lambda i: "anchor",
    setting: Callable[[int], tuple[str, ...]] = lambda i: (),
) -> list[Measured]:
    """Points of these levels, with noise."""
    errors = np.random.default_rng(seed).normal(0, SD, len(levels))
    return [
        Measured(i, work(i), reference(i), "", level + float(e), SD, setting(i))
        for i, (level, e) in enumerate(zip(levels, errors, strict=True))
    ]


def test_a_step_is_told_as_a_share_with_the_runs_beside_it() -> None:
    (found,) = found_in(runs([0.0] * 30 + [0.05] * 30), RATE)
    assert (found.before, found.after, found.drift) == (29, 30, False)
    assert abs(found.size - math.expm1(0.05)) < 0.002
    assert found.low < math.expm1(0.05) < found.high


def test_small_moves_are_not_told() -> None:
    assert found_in(runs([0.0] * 300 + [0.003] * 300), RATE) == ()


def test_a_chain_of_changes_against_ever_new_baselines_is_not_added_up() -> None:
    """Each run's baseline is the run before: the sum of 400 errors wanders by percents, nothing has moved."""
    wandered = []
    for seed in range(20):
        errors = np.random.default_rng(seed).normal(0, SD, 400)
        chain = [Measured(i, f"w{i}", f"b{i}", f"w{i - 1}", float(e), SD) for i, e in enumerate(errors)]
        assert found_in(chain, RATE) == ()
        wandered.append(abs(np.cumsum(errors)).max())
    assert max(wandered) > 0.03


def test_a_step_in_such_a_chain_is_found() -> None:
    errors = np.random.default_rng(5).normal(0, SD, 100)
    errors[60] += 0.015
    chain = [Measured(i, f"w{i}", f"b{i}", f"w{i - 1}", float(e), SD) for i, e in enumerate(errors)]
    (found,) = found_in(chain, RATE)
    assert (found.before, found.after) == (59, 60)


def test_equal_work_never_moves() -> None:
    """Whatever the errors of two runs are: they ran the same code."""
    points = runs([0.0] * 20 + [0.05] * 20, work=lambda i: "same")
    assert found_in(points, RATE) == ()


def test_a_new_baseline_of_other_work_breaks_the_comparison() -> None:
    points = runs([0.0] * 20 + [0.05] * 20, reference=lambda i: "a" if i < 20 else "b")
    assert found_in(points, RATE) == ()


def test_what_else_changed_is_named() -> None:
    def setting(run: int) -> tuple[str, ...]:
        return ("triton 3.6" if run < 30 else "triton 3.7", "host a")

    (found,) = found_in(runs([0.0] * 30 + [0.05] * 30, setting=setting), RATE)
    assert found.settings == ("triton 3.6 -> triton 3.7",)
