"""The tables of ``benchmarks/`` from simulated recordings: they decide by the rules that run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
RESULT = BENCHMARKS / "results" / "verdict_tables.json"


@pytest.fixture
def tables() -> Any:
    from benchmarks.verdicts import verdict_tables

    return verdict_tables


def process(rng: np.random.Generator, side: str, change: float, bias: float, ns: float = 10_000.0) -> dict[str, Any]:
    """What one simulated process gives: block noise of 0.2 %, plain launches of 3 % and a shift of 2 % of their own."""
    shift, own = np.exp(rng.standard_normal(2) * [0.02, bias])

    def times(count: int, noise: float, factor: float) -> list[float]:
        return list(ns * factor * np.exp(rng.standard_normal(count) * noise))

    factor = shift * (1 + change if side == "b" else 1)
    plain = {f"{side}_{timer}": times(40, 0.03, factor) for timer in ("event", "host")}
    return {"a": times(36, 0.002, 1.0), "b": times(36, 0.002, own * (1 + change)), **plain, "seconds": [0, 0]}


def recorded(bias: float = 0.0005) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    changes = {"same": 0.0, "twin": 0.0, "slow_3": 0.031, "slow_1_5": 0.0155}
    variants = {v: [process(rng, "ab"[i % 2], c, bias) for i in range(12)] for v, c in changes.items()}
    planted = {v: {"steps": 1, "true": c} for v, c in changes.items() if v.startswith("slow")}
    return {"environment": {}, "protocol": {}, "cases": {"one": {"planted": planted, "variants": variants}}}


@pytest.mark.slow
def test_twins_pass_and_slowdowns_are_found(tables: Any) -> None:
    rows = tables.decisions_of(recorded(), 40, 1, 3, say=lambda text: None)
    mine = {(r.variant, r.tolerance): r for r in rows if r.rule == "kerntune"}
    assert {k: (r.slower, r.faster) for k, r in mine.items()} == {
        ("twin", 0.02): (0, 0), ("twin", 0.01): (0, 0), ("slow_3", 0.02): (40, 0), ("slow_1_5", 0.01): (40, 0),
    }  # fmt: skip
    assert mine["twin", 0.02].bound == pytest.approx(1 - 0.05 ** (1 / 41), rel=0.05)
    assert mine["slow_3", 0.02].processes >= 3
    rank = next(r for r in rows if r.rule.startswith("rank") and r.variant == "twin")
    assert rank.slower + rank.faster > 5


def test_stored_times_are_held_against_those_of_the_same_session(tables: Any) -> None:
    """A day later the device runs a fifth slower: no rule meets a pair of both days."""
    case = recorded()["cases"]["one"]
    later = [{k: [1.2 * x for x in v] for k, v in row.items()} for row in case["variants"]["same"]]
    case["variants"] = {v: [*case["variants"]["same"], *({**r, "session": 1} for r in later)] for v in ("same", "twin")}
    found = tables.others(np.random.default_rng(1), case, "twin", 50)
    assert set(found["pytest-benchmark, mean:5%"]) == {"same", "slower"}
    assert found["pytest-benchmark, mean:5%"]["slower"] < 10, "by the processes' own 2 %, not by 20"


@pytest.mark.slow
def test_others_get_as_many_processes_as_a_first_look(tables: Any) -> None:
    """What processes have of their own is less in the mean of several, so their false alarms get fewer."""
    case = recorded()["cases"]["one"]
    lone, several = (tables.others(np.random.default_rng(1), case, "twin", 400, k) for k in (1, tables.AS_MANY))
    assert tables.AS_MANY == tables.PROCESSES
    wrong = [400 - found["do_bench median, 2%"]["same"] for found in (lone, several)]
    assert wrong[1] < wrong[0]
    assert tables.others(np.random.default_rng(1), case, "twin", 5, 7) == {}, "six of a side were recorded"
    rows = tables.decisions_of(recorded(), 5, 1, 3, say=lambda text: None)
    named = [r for r in rows if r.rule == "do_bench median, 2%, 3 processes a side"]
    assert {r.variant for r in named} == {"twin", "slow_3", "slow_1_5"}
    assert {r.processes for r in named} == {3}


def test_pooled_processes_are_one_list_a_timer(tables: Any) -> None:
    rows = [{"a": [0.0], "a_event": [1.0, 2.0], "a_host": [3.0]}, {"a": [0.0], "a_event": [4.0], "a_host": [5.0]}]
    assert tables.pooled(rows) == {"a_event": [1.0, 2.0, 4.0], "a_host": [3.0, 5.0]}


@pytest.mark.slow
def test_processes_that_contradict_leave_it_open(tables: Any) -> None:
    rows = tables.decisions_of(recorded(bias=0.02), 20, 1, 3, say=lambda text: None)
    twin = next(r for r in rows if r.rule == "kerntune" and (r.variant, r.tolerance) == ("twin", 0.02))
    assert (twin.slower, twin.faster) == (0, 0)
    assert twin.open > 0


def test_short_cases_are_asked_for_false_alarms_only(tables: Any) -> None:
    data = recorded()
    for rows in data["cases"]["one"]["variants"].values():
        for row in rows:
            row["a"], row["b"] = ([x / 5 for x in row[s]] for s in "ab")
    rows = tables.decisions_of(data, 5, 1, 3, say=lambda text: None)
    assert {r.variant for r in rows} == {"twin"}


def test_spread_is_over_processes(tables: Any) -> None:
    found = tables.spread("one", recorded(bias=0.004)["cases"]["one"])
    assert 0.002 < found.first_look < 0.008
    assert 0.01 < found.do_bench_median < 0.04
    assert found.required == 0.001


@given(st.lists(st.integers(0, 100), min_size=1, max_size=6), st.integers(101, 200))
def test_rows_add_up(slower: list[int], total: int) -> None:
    from collections import Counter

    from benchmarks.verdicts import verdict_tables as tables

    rows = [
        tables.row("r", str(i), "slow_3", 0.02, 0.03, Counter(slower=n, same=total - n)) for i, n in enumerate(slower)
    ]
    (all_of_them,) = tables.together(rows)
    assert all_of_them.slower == sum(slower)
    assert all_of_them.decisions == total * len(slower)
    assert 0 <= all_of_them.bound <= all_of_them.share


def test_a_process_is_never_drawn_twice(tables: Any) -> None:
    rows = [{"a": i} for i in range(8)]
    drawn = tables.drawn(np.random.default_rng(1), rows, 8)
    assert sorted(r["a"] for r in drawn) == list(range(8))


def test_peers_rules() -> None:
    from benchmarks.verdicts.verdict_peers import RULES

    by_name = {r.name: r for r in RULES}
    before = {"a_host": [100.0] * 20, "a_event": [100.0 + i % 3 for i in range(20)]}
    slower = {"b_host": [106.0] * 20, "b_event": [106.0 + i % 3 for i in range(20)]}
    faster = {"b_host": [90.0] * 20, "b_event": [90.0 + i % 3 for i in range(20)]}
    assert {n: r.of(before, slower) for n, r in by_name.items()} == dict.fromkeys(by_name, "slower")
    verdicts = {n: r.of(before, faster) for n, r in by_name.items()}
    assert verdicts["do_bench median, 5%"] == verdicts["rank test on event times, 99.9%"] == "faster"
    assert verdicts["pytest-benchmark, mean:5%"] == "same"


@pytest.mark.skipif(not RESULT.exists(), reason="nothing is recorded yet")
def test_the_stored_tables_hold_what_is_promised() -> None:
    stored = json.loads(RESULT.read_text())
    rows = [r for r in stored["together"] if r["rule"] == "kerntune"]
    twins = [r for r in rows if r["variant"] == "twin" and r["tolerance"] == 0.02]
    assert [r["slower"] + r["faster"] for r in twins] == [0]
    assert twins[0]["decisions"] >= 2000
