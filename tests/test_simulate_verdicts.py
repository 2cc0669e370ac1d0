"""The simulation of ``benchmarks/``, small: it decides by the rules that run. And what its stored table shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "benchmarks" / "results" / "simulate_verdicts.json"


@pytest.fixture(scope="module")
def simulation() -> Any:
    from benchmarks.verdicts import simulate_verdicts

    return simulate_verdicts


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_twins_pass_and_slowdowns_are_found(simulation: Any) -> None:
    world = simulation.World(0.001, 0.02)
    assert simulation.ours(rng(), world, 0.0, 0.02, 100)["PASS"] == 100
    assert simulation.ours(rng(), world, 0.03, 0.02, 100)["REGRESSED"] == 100


def test_times_are_what_the_model_says(simulation: Any) -> None:
    world = simulation.World(0.0, 0.02, "graph")
    ratios = [np.log(b / a).mean() for a, b in simulation.pairs(rng(), world, 0.05, 100)]
    assert np.mean(ratios) == pytest.approx(np.log(1.05), abs=0.001)
    quiet = simulation.World(0.01, 0.0, "graph")
    each = [np.log(b / a).mean(-1) for a, b in simulation.pairs(rng(), quiet, 0.0, 100)]
    assert np.std(each) == pytest.approx(0.01, rel=0.1)


def test_the_others_see_the_session_shift(simulation: Any) -> None:
    found = simulation.others(rng(), simulation.World(0.001, 0.02), 0.0, 0.02, 400)
    assert found["stored median, 3%"]["REGRESSED"] > 10
    assert sum(found["stored median, 3%"].values()) == 400


def stored(**wanted: object) -> list[dict[str, Any]]:
    rows = json.loads(RESULT.read_text())["rows"]
    return [r for r in rows if all(r[k] == v for k, v in wanted.items())]


def test_the_stored_table_has_no_false_alarm() -> None:
    rows = stored(rule="kerntune", true_change=0.0)
    assert len(rows) == 12
    assert all(r["decisions"] >= 20_000 for r in rows)
    assert sum(r["slower"] + r["faster"] for r in rows) == 0


@pytest.mark.parametrize(("change", "tolerance", "share"), [(0.03, 0.02, 0.99), (0.015, 0.01, 0.95)])
def test_the_stored_table_finds_what_it_must(change: float, tolerance: float, share: float) -> None:
    rows = stored(rule="kerntune", process_bias=0.001, launch_noise=0.02, true_change=change, tolerance=tolerance)
    assert {r["timer"] for r in rows} == {"events", "graph"}
    assert all(r["bound"] >= share for r in rows)


def not_calibrated(**wanted: object) -> list[dict[str, Any]]:
    rows = json.loads(RESULT.read_text())["not_calibrated"]["rows"]
    return [r for r in rows if r["bias"] == "estimated" and all(r[k] == v for k, v in wanted.items())]


def test_the_stored_table_has_no_false_alarm_without_a_calibration() -> None:
    rows = not_calibrated(true_change=0.0)
    assert {(r["process_sd"], r["shape"]) for r in rows} >= {
        (sd, shape) for sd in (0.0005, 0.001, 0.004, 0.01) for shape in ("normal", "two states", "skewed")
    }
    assert sum(r["slower"] + r["faster"] for r in rows) <= 0.01 * sum(r["decisions"] for r in rows)
    (found,) = not_calibrated(true_change=0.015)
    assert found["slower"] >= 0.998 * found["decisions"]
    (default,) = not_calibrated(true_change=0.0, tolerance=0.02)
    assert default["processes"] <= 1.2 * 3


def test_errors_of_processes_have_the_deviation_that_is_said(simulation: Any) -> None:
    for shape in simulation.SHAPES:
        errors = simulation.biases(rng(), simulation.World(0.004, 0.0, shape=shape), (200_000,))
        assert (errors.mean(), errors.std()) == pytest.approx((0.0, 0.004), abs=5e-5), shape
