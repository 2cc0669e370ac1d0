"""A history as reports draw it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from kerntune.base.case_result import CaseId
from kerntune.gate.history import summary as module
from kerntune.gate.history.index import Index
from kerntune.gate.history.places import Folder, add_run
from kerntune.gate.history.points import SCHEMA, HistoryRun, Point, Shift
from kerntune.gate.history.summary import HistoryStep, HistorySteps, curves_of, text_of


def fill(folder: Path, sizes: list[float], references: list[str]) -> Index:
    noise = np.random.default_rng(1).normal(0, 0.0005, len(sizes))
    for i, (size, reference) in enumerate(zip(sizes, references, strict=True)):
        change = Shift(float(np.log1p(size) + noise[i]), 0.0005, reference)
        point = Point(CaseId("t.py::test_x", "0"), "cuda:90", "H200", "PASS", f"w{i}", "", 1000.0, change)
        moment = f"2026-{1 + i // 28:02}-{1 + i % 28:02}T00:00:00+00:00"
        add_run(Folder(folder), HistoryRun(SCHEMA, moment, (point,), f"{i:04x}" * 10, moment, "main"))
    return Index(Folder(folder), folder / "index")


def test_points_in_order_and_the_step(tmp_path: Path) -> None:
    index = fill(tmp_path, [0.0] * 20 + [0.05] * 20, ["2026-01-01"] * 40)
    (curve,) = curves_of(index)
    assert (curve.case, curve.device, curve.runs, curve.branch) == ("t.py::test_x", "H200", 40, "main")
    assert [p.commit[:4] for p in curve.points] == [f"{i:04x}" for i in range(40)]
    assert curve.points[0].change == pytest.approx(0.0, abs=0.003)
    assert curve.points[-1].change == pytest.approx(0.05, abs=0.003)
    assert [(s.before[:4], s.after[:4]) for s in curve.steps] == [("0013", "0014")]
    assert {p.stretch for p in curve.points} == {0}


def test_another_reference_begins_another_stretch(tmp_path: Path) -> None:
    index = fill(tmp_path, [0.0] * 12, ["a"] * 5 + ["b"] * 7)
    assert [p.stretch for p in curves_of(index)[0].points] == [0] * 5 + [1] * 7


def test_the_latest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_POINTS", 4)
    (curve,) = curves_of(fill(tmp_path, [0.0] * 12, ["a"] * 12))
    assert [p.commit[:4] for p in curve.points] == ["0008", "0009", "000a", "000b"]
    assert curve.runs == 12


def test_a_history_without_runs_has_no_curves(tmp_path: Path) -> None:
    assert curves_of(Index(Folder(tmp_path), tmp_path / "index")) == []


def test_a_move_names_its_target_where_moves_of_others_are_listed() -> None:
    one = HistoryStep("t::a", "cuda:90", "H100", "step", 0.05, 0.04, 0.06, "b", "a", "b", "a", 1, "d", "d", ())
    other = msgspec.structs.replace(one, target="cuda:80", device="A100")
    assert "(cuda:90)" not in text_of(HistorySteps((one, one), 2, 9, 9, 0.01))
    both = text_of(HistorySteps((one, other), 2, 9, 9, 0.01))
    assert "H100 (cuda:90)" in both
    assert "A100 (cuda:80)" in both
