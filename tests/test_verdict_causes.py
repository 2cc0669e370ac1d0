"""The planted causes of ``benchmarks/``: each edit has its place, and what is named is counted right."""

from __future__ import annotations

import ast
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inner import QUICK

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
RESULT = BENCHMARKS / "results" / "verdict_causes.json"

CONFTEST = """
import os

from kerntune.gpu.scripted import FakeBackend, Rule, Script


def pytest_kerntune_backend(config):
    busy = float(os.environ.get("BUSY", 1.0))
    return FakeBackend(Script([Rule(constexprs={"BLOCK": 32}, time_ns=30_000.0)], shift=busy))
"""
"""A scripted GPU on which blocks of 32 take three times as long, and everything ``BUSY`` times."""


@pytest.fixture
def causes() -> Any:
    from benchmarks.verdicts import verdict_causes

    return verdict_causes


@pytest.fixture
def quick_runs(quick_python: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script's pytest runs are quick to start."""
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(QUICK))


def test_there_are_enough_of_each_kind(causes: Any) -> None:
    kinds = [p.cause for p in causes.PLANTS]
    assert len(kinds) >= 40
    least = {"code": 12, "config": 10, "compiler": 8, "environment": 6}
    assert all(kinds.count(kind) >= n for kind, n in least.items())
    assert len({p.file for p in causes.PLANTS}) == len(kinds)


def test_every_edit_has_its_place(causes: Any) -> None:
    for plant in causes.PLANTS:
        before, after = (ast.dump(ast.parse(plant.text(planted))) for planted in (False, True))
        assert (before != after) == bool(plant.edits), plant.name
        assert plant.edits or plant.flags or plant.busy


def test_runs_are_by_flags_and_business(causes: Any) -> None:
    found = causes.groups(causes.PLANTS)
    assert sum(map(len, found.values())) == len(causes.PLANTS)
    assert {p.cause for p in found[(), False]} == {"code", "config"}
    assert {p.cause for p in found[(), True]} == {"environment"}
    assert all({p.cause for p in found[key]} == {"compiler"} for key in found if key[0])


def result(verdict: str, **shares: float | None) -> dict[str, Any]:
    parts = {name: {"change": x, "why": ""} for name, x in shares.items()}
    return {"verdict": verdict, "message": "so it is", "attribution": parts or None, "change": {"point": 0.1}}


def test_the_largest_share_is_what_is_named(causes: Any) -> None:
    slower = result("REGRESSED", environment=-0.02, compiler=0.0, code=0.01, config=None)
    assert causes.named(slower) == "environment"
    assert causes.named(result("REGRESSED", environment=0.0, compiler=0.0, code=0.2, config=-0.1)) == "code"
    assert causes.named(result("INCONCLUSIVE", environment=0.3)) == ""
    assert causes.named(result("DRIFTED", environment=0.0, compiler=None)) == ""
    assert causes.named(result("PASS")) == ""


def test_a_plant_without_a_result_is_wrong(causes: Any) -> None:
    plant = next(p for p in causes.PLANTS if p.name == "code_gelu_waits")
    rows = [causes.found(plant, None), causes.found(plant, result("REGRESSED", code=0.1))]
    assert [r.right for r in rows] == [False, True]
    assert causes.summary(rows)["all"] == {"planted": 2, "right": 1, "share": 0.5}
    assert causes.summary(rows)["code"] == {"planted": 2, "right": 1}


@pytest.mark.slow
def test_code_and_config_are_named_on_a_scripted_gpu(causes: Any, tmp_path: Path, quick_runs: None) -> None:
    plants = [p for p in causes.PLANTS if p.name in ("code_gelu_small_blocks", "config_gelu_removed")]
    project = causes.Project(tmp_path, CONFTEST)
    rows = {r.name: r for r in causes.judge_all(project, plants)}
    assert [x["verdicts"] for x in project.runs] == [{"NEW": 2}, {"REGRESSED": 2}]
    assert {n: r.named for n, r in rows.items()} == {
        "code_gelu_small_blocks": "launch",
        "config_gelu_removed": "config",
    }, rows
    assert all(r.right for r in rows.values())
    assert all(r.change == pytest.approx(2.0, abs=0.02) for r in rows.values())


@pytest.mark.slow
def test_a_busy_gpu_is_named(causes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_runs: None) -> None:
    @contextlib.contextmanager
    def busy() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("BUSY", "4")
            yield

    monkeypatch.setattr(causes, "busy_gpu", busy)
    plants = [p for p in causes.PLANTS if p.name in ("environment_softmax", "environment_gelu")]
    project = causes.Project(tmp_path, CONFTEST)
    rows = list(causes.judge_all(project, plants))
    assert [x["verdicts"] for x in project.runs] == [{"NEW": 2}, {"DRIFTED": 2}]
    assert all(r.right and r.shares["environment"] == pytest.approx(3.0, abs=0.1) for r in rows), rows


def test_a_run_that_hangs_gives_no_results(causes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causes, "RUN_LIMIT_S", 0.05)
    plant = causes.PLANTS[0]
    assert causes.Project(tmp_path).run("hangs", [plant], planted=False) == {}


def test_rows_that_are_not_asked_for_stay(causes: Any, tmp_path: Path) -> None:
    first, second = causes.PLANTS[:2]
    rows = [vars(causes.found(p, None)) for p in (first, second)]
    out = tmp_path / "out.json"
    out.write_text(json.dumps({"runs": [{"name": "record"}], "rows": rows}))
    runs, kept = causes.kept(out, [second])
    assert (runs, [r.name for r in kept]) == ([{"name": "record"}], [first.name])


@pytest.mark.skipif(not RESULT.exists(), reason="nothing is recorded yet")
def test_the_stored_result_names_causes_right() -> None:
    found = json.loads(RESULT.read_text())["summary"]["all"]
    assert found["planted"] >= 40
    assert found["share"] >= 0.95
