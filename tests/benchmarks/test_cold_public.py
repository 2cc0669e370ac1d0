"""The table of cold first calls: whose measurements say what of the winners, and which cases count."""

from __future__ import annotations

from typing import Any

from benchmarks.suite.cold_public import cases_of


def row(case: str, engine: str, seconds: float, winner: str, **timings: float) -> dict[str, Any]:
    tuner = {"kernel": "k", "configs": len(timings), "winner": winner, "late": 0, "timings_ms": timings}
    return {"case": case, "engine": engine, "seconds": seconds, "steps": [seconds], "tuners": [tuner]}


def test_winners_are_compared_in_both_engines_times() -> None:
    stock = row("x", "triton", 8.0, "a", a=1.0, b=1.2)
    ours = row("x", "kerntune", 2.0, "b", a=1.1, b=1.0)
    (case,) = cases_of([stock, ours])
    assert case["times_faster"] == 4.0
    assert case["winner_ratio"] == {"k": {"triton": 1.2, "kerntune": 0.909}}


def test_a_time_that_an_engine_lacks_gives_no_ratio() -> None:
    (case,) = cases_of([row("x", "triton", 8.0, "a", a=1.0, b=1.2), row("x", "kerntune", 2.0, "b", b=1.0)])
    assert case["winner_ratio"] == {"k": {"triton": 1.2}}


def test_a_case_counts_when_both_engines_have_done_it() -> None:
    rows = [row("x", "triton", 8.0, "a", a=1.0), {"case": "x", "engine": "kerntune", "error": "killed"}]
    assert cases_of(rows) == []
