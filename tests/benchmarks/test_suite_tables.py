"""Tables of made-up results: what counts as faster, and as good."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.suite.tables import (
    cold_rows,
    efficiency,
    figures,
    geometric_mean,
    not_run,
    proposal_rows,
    report,
)

TIMES = {"a": 100.0, "b": 100.4, "c": 110.0}


def quality(times: dict[str, float] = TIMES, case: str = "mm") -> list[dict[str, Any]]:
    configs: list[dict[str, Any]] = [{"config": c, "time_ns": t} for c, t in times.items()]
    return [{"case": case, "configs": [*configs, {"config": "broken", "failure": "out of resources"}]}]


def ran(engine: str, seconds: float, winner: str = "a", case: str = "mm", configs: int = 3) -> dict[str, Any]:
    return {"case": case, "engine": engine, "seconds": seconds, "winner": winner, "configs": configs}


def failed(engine: str, case: str = "mm") -> dict[str, Any]:
    return {"case": case, "engine": engine, "error": "it hung"}


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=20))
def test_geometric_mean_lies_between_least_and_most(values: list[float]) -> None:
    assert min(values) * (1 - 1e-9) <= geometric_mean(values) <= max(values) * (1 + 1e-9)


def test_geometric_mean_of_nothing() -> None:
    assert math.isnan(geometric_mean([]))


def test_efficiency_is_of_the_best_in_the_sweep() -> None:
    times = {"mm": TIMES}
    assert efficiency(times, "mm", "a") == 1.0
    assert efficiency(times, "mm", "c") == pytest.approx(1 / 1.1)
    assert efficiency(times, "mm", "broken") is None
    assert efficiency(times, "other", "a") is None


def test_cold_rows_compare_seconds_and_winners() -> None:
    (row,) = cold_rows({"cold": [ran("triton", 20.0, "c"), ran("kerntune", 2.0, "a")], "quality": quality()})
    assert row["faster"] == 10.0
    assert row["kerntune winner"] == 1.0
    assert row["triton winner"] == pytest.approx(1 / 1.1)


LATE = {"late": 2, "left": 0, "all_tried": 5.0, "settling_ms": 12.0, "final_winner": "a"}


def test_both_are_told_the_first_call_and_until_all_were_tried() -> None:
    cold = [ran("triton", 20.0, "c"), {**ran("kerntune", 2.0, "c"), **LATE}]
    (row,) = cold_rows({"cold": cold, "quality": quality()})
    assert (row["faster"], row["faster, all tried"]) == (10.0, 4.0)
    assert row["kerntune winner"] == pytest.approx(1 / 1.1)
    assert (row["final winner"], row["late"], row["never tried"], row["settling ms"]) == (1.0, 2, 0, 12.0)
    cold += [ran("triton", 9.0, case="add"), ran("kerntune", 1.0, case="add")]
    found = dict(figures({"cold": cold}))
    assert found["cold, until every config was tried"] == "6.00x"
    assert found["the call that tries them, longest"] == "12 ms"


def test_the_worst_of_several_winners_counts() -> None:
    rows = [ran("kerntune", 2.0, "a"), ran("kerntune", 3.0, "c"), ran("kerntune", 4.0, "b")]
    (row,) = cold_rows({"cold": rows, "quality": quality()})
    assert row["kerntune winner"] == pytest.approx(1 / 1.1)
    assert row["kerntune s"] == 3.0


def test_a_run_that_failed_is_no_time_and_is_told() -> None:
    result = {"cold": [ran("triton", 20.0), failed("kerntune")]}
    (row,) = cold_rows(result)
    assert row["kerntune s"] is None
    assert "faster" not in row
    assert "it hung" in report(result)


def test_figures_have_the_large_matmul_by_itself() -> None:
    cold = [ran("triton", 30.0, configs=48), ran("kerntune", 2.0, configs=48)]
    cold += [ran("triton", 4.0, case="add"), ran("kerntune", 1.0, case="add")]
    found = dict(figures({"cold": cold}))
    assert found["cold, geometric mean over the suite"] == f"{math.sqrt(15 * 4):.2f}x"
    assert found["cold, mm"] == "15.00x"
    assert "cold, add" not in found


def swept(*times: float | None, proposals: list[int]) -> dict[str, Any]:
    configs = [{"config": f"B={i}", **({} if t is None else {"time_ns": t})} for i, t in enumerate(times)]
    return {"kernel": "k", "family": "pointwise", "configs": configs, "proposals": {"default": proposals}}


def test_proposals_are_held_against_the_best_of_all() -> None:
    (row,) = proposal_rows({"kernels": [swept(120.0, 100.0, None, 110.0, proposals=[0, 2, 3])]})
    assert row["default"] == pytest.approx(100 / 110)
    assert (row["swept"], row["ran"], row["best"]) == (4, 3, "B=1")


def test_proposals_that_all_failed_have_no_figure() -> None:
    (row,) = proposal_rows({"kernels": [swept(100.0, None, proposals=[1])]})
    assert row["default"] is None


def test_figures_of_proposals_are_mean_and_worst() -> None:
    kernels = [swept(100.0, proposals=[0]), swept(100.0, 125.0, proposals=[1])]
    found = dict(figures({"kernels": kernels}))
    assert found["proposals (default), worst"] == "0.8000"
    assert found["proposals (default), geometric mean"] == f"{math.sqrt(0.8):.4f}"


def test_one_config_added_is_held_against_the_same_step_of_the_other_tuner() -> None:
    """Only with the same caches: a cold run of one can't be compared with a warm one of the other."""
    added = [
        {"case": "mm", "engine": "kerntune", "step": "cold", "seconds": 2.0},
        {"case": "mm", "engine": "triton", "step": "cold", "seconds": 30.0},
        {"case": "mm", "engine": "triton", "step": "new process", "seconds": 7.0},
        {"case": "mm", "engine": "kerntune", "step": "new process", "seconds": 0.5},
        {"case": "mm", "engine": "kerntune", "step": "same process", "seconds": 0.1, "error": "no"},
    ]
    ((what, text),) = figures({"added": added})
    assert what == "one config added, new process"
    assert text == "0.500 s, 1/4.0 of kerntune's cold run, 1/14.0 of triton's new process"
    ((_, alone),) = figures({"added": [r for r in added if r["engine"] == "kerntune"]})
    assert alone == "0.500 s, 1/4.0 of kerntune's cold run"


def test_kernels_without_a_result_are_named() -> None:
    results = [{"cold": [ran("triton", 2.0, case="mm[N=1]")]}, {"cold": [ran("kerntune", 1.0, case="add[n=2]")]}]
    assert not_run(results, ["mm", "attention", "add", "gated_mlp"]) == ["attention", "gated_mlp"]


def test_a_report_of_nothing_is_empty() -> None:
    assert report({}) == ""
