"""The control of ``benchmarks/verdict_turns.py``, on times that are made up."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.verdict_turns import rows_of


def recorded(slower: float, between: float, within: float = 0.002, processes: int = 12) -> dict[str, Any]:
    """Processes whose level differs by ``between``, launches in each by ``within``."""
    rng = np.random.default_rng(1)

    def process() -> dict[str, list[float]]:
        level = 10_000 * (1 + rng.normal(0, between))
        return {
            s: list(level * f * (1 + rng.normal(0, within, 40))) for s, f in (("a_turn", 1), ("b_turn", 1 + slower))
        }

    return {"cases": {"x": {"variants": {"slow_3" if slower else "same": [process() for _ in range(processes)]}}}}


def shares(made: dict[str, Any]) -> dict[tuple[str, int, float], float]:
    return {(r["rule"], r["processes"], r["limit"]): r["share"] for r in rows_of(made, 200)}


def test_what_all_of_a_process_has_is_no_change_in_turn() -> None:
    found = shares(recorded(0.0, between=0.04))
    assert found["in turn in one process", 1, 0.02] == found["in turn in one process", 3, 0.02] == 0
    assert found["one process a side", 1, 0.02] > 0.3


def test_a_slowdown_is_found_in_turn() -> None:
    found = shares(recorded(0.031, between=0.04))
    assert found["in turn in one process", 1, 0.02] == 1
    assert found["one process a side", 1, 0.02] < 0.95


def test_too_few_processes_give_no_row() -> None:
    assert {p for _, p, _ in shares(recorded(0.0, between=0.0, processes=4))} == {1}
