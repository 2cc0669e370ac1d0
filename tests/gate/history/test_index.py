"""From results to files, from files to the steps that are shown."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from kerntune.base.case_result import IDENTITY, CaseId, CaseResult, LaunchReport, Provenance, Since
from kerntune.base.config import Config
from kerntune.base.device import Environment
from kerntune.base.policy import Outcome, Verdict
from kerntune.base.stats import Estimate
from kerntune.errors import HistoryError
from kerntune.gate.history import summary
from kerntune.gate.history import summary as module
from kerntune.gate.history.index import Index
from kerntune.gate.history.places import Folder, add_run, history_run, origin_of
from kerntune.gate.history.points import SCHEMA, HistoryRun, Point, Shift, decoded, encoded, points_of, shift_of
from kerntune.gate.history.summary import HistoryStep, HistorySteps, curves_of, steps_of, text_of
from kerntune.gate.report import RunReport

MAX_BYTES = 64 << 20


SD = 0.001


def result(change: float | None = 0.0, work: str = "w", baseline: str = "b", since: Since | None = None) -> CaseResult:
    return CaseResult(
        case=CaseId("tests/test_a.py::test_x", "0"),
        fingerprint="f",
        verdict=Verdict.PASS,
        outcome=Outcome.PASS,
        message="",
        target="cuda:90",
        device="H200",
        launches=(LaunchReport("scale", Config(num_warps=4), registers=32),),
        current_ns=1000.0,
        change=None if change is None else Estimate(change, change - 0.00258, change + 0.00258, 0.99),
        since=since,
        provenance=Provenance(work, baseline, "2026-11-01T00:00:00+00:00", Environment("3.6.0", "2.11", driver="570")),
    )


def run(day: int, points: tuple[Point, ...], commit: str = "", branch: str = "main", host: str = "a") -> HistoryRun:
    moment = f"2026-{1 + day // 28:02}-{1 + day % 28:02}T00:00:00+00:00"
    return HistoryRun(SCHEMA, moment, points, commit or f"{day:04x}" * 10, moment, branch, host=host)


def point(value: float, work: str, case: str = "test_x", triton: str = "3.6") -> Point:
    return Point(
        CaseId(f"tests/test_a.py::{case}", "0"),
        "cuda:90",
        "H200",
        "PASS",
        work,
        "first",
        1000.0,
        change=Shift(value, SD, "2026-01-01"),
        environment={"triton": triton},
    )


@pytest.fixture
def place(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "history")


@pytest.fixture
def index(place: Folder, tmp_path: Path) -> Index:
    return Index(place, tmp_path / "cache")


def fill(place: Folder, levels: list[float], triton_from: int = 10**6, case: str = "test_x") -> None:
    errors = np.random.default_rng(len(levels)).normal(0, SD, len(levels))
    for day, (level, error) in enumerate(zip(levels, errors, strict=True)):
        made = point(level + float(error), f"w{day}", case, "3.6" if day < triton_from else "3.7")
        add_run(place, run(day, (made,)))


def test_a_point_is_a_logarithm_with_its_standard_deviation() -> None:
    (made,) = points_of([result(0.05)])
    assert made.change is not None
    assert made.change.value == pytest.approx(math.log(1.05))
    assert made.change.sd == pytest.approx(0.001 / 1.05, rel=0.01)
    assert (made.work, made.baseline_work, made.change.against) == ("w", "b", "2026-11-01T00:00:00+00:00")
    assert made.environment == {"triton": "3.6.0", "torch": "2.11", "driver": "570"}
    assert (made.registers, made.configs) == ((32,), (Config(num_warps=4),))


def test_equal_work_is_exactly_no_change() -> None:
    (made,) = points_of([result(0.03, "w", "w")])
    assert made.change == Shift(0.0, 0.0, "2026-11-01T00:00:00+00:00")


def test_the_anchor_is_its_own_reference() -> None:
    since = Since("2026-01-01", Verdict.PASS, 0.02, Estimate(0.01, 0.009, 0.011, 0.99))
    (made,) = points_of([result(0.0, since=since)])
    assert made.since is not None
    assert (made.since.against, made.since.value) == ("2026-01-01", pytest.approx(math.log(1.01)))
    (same,) = points_of([result(0.0, since=Since("2026-01-01", Verdict.PASS, 0.02, rung=IDENTITY))])
    assert same.since == Shift(0.0, 0.0, "2026-01-01")


def test_what_could_not_be_compared_with_the_anchor_is_no_zero() -> None:
    (made,) = points_of([result(0.0, since=Since("2026-01-01", Verdict.INCONCLUSIVE, 0.02, rung="stored sample"))])
    assert made.since is None


def test_what_was_not_measured_has_no_change() -> None:
    (made,) = points_of([result(None)])
    assert made.change is None
    assert points_of([msgspec.structs.replace(result(), launches=())]) == ()


def test_a_file_is_read_as_it_was_written(place: Folder) -> None:
    written = run(3, points_of([result(0.05)]))
    assert decoded(encoded(written), "x") == written


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"schema": "kerntune.history/9"}', b"[" * 10_000, b" " * (MAX_BYTES + 1)]
)
def test_damage_is_told_with_the_files_name(data: bytes) -> None:
    with pytest.raises(HistoryError, match=r"2026/a\.json"):
        decoded(data, "2026/a.json")


def test_steps_are_found_and_told(place: Folder, index: Index) -> None:
    fill(place, [0.0] * 30 + [0.05] * 30)
    found = steps_of(index)
    (step,) = found.steps
    assert (found.cases, found.runs, found.points) == (1, 60, 60)
    assert (step.before, step.after) == (f"{29:04x}" * 10, f"{30:04x}" * 10)
    assert (step.from_day, step.to_day, step.kind) == ("2026-02-02", "2026-02-03", "step")
    text = text_of(found)
    assert "+5." in text
    assert f"{'001d' * 10}"[:10] in text
    assert "1 move in 1 case, 60 runs of main, 60 measured changes" in text


def test_an_environment_that_changed_there_is_named(place: Folder, index: Index) -> None:
    fill(place, [0.0] * 30 + [0.05] * 30, triton_from=30)
    (step,) = steps_of(index).steps
    assert step.settings == ("triton 3.6 -> 3.7",)


def test_only_new_files_are_read(place: Folder, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(place, [0.0] * 20)
    assert steps_of(index).runs == 20
    read: list[str] = []
    monkeypatch.setattr(Folder, "read", lambda self, names: read.extend(names) or iter(()))
    assert steps_of(index).points == 20
    assert read == []


def test_a_damaged_file_is_named_and_the_others_count(place: Folder, index: Index) -> None:
    fill(place, [0.0] * 12)
    place.add("2026/01/broken.json", b"{")
    for _ in range(2):
        found = steps_of(index)
        assert found.points == 12
        (problem,) = found.unread
        assert problem.startswith("2026/01/broken.json: ")


def test_a_file_that_is_removed_or_mended_is_no_problem_any_more(place: Folder, index: Index, tmp_path: Path) -> None:
    fill(place, [0.0] * 12)
    for name in ("removed.json", "mended.json"):
        place.add(name, b"{")
    assert len(steps_of(index).unread) == 2
    place.remove("removed.json")
    place.add("mended.json", encoded(run(20, (point(0.0, "m"),))))
    found = steps_of(index)
    assert (found.unread, found.runs, found.points) == ((), 13, 13)


def test_a_run_that_is_removed_is_forgotten_with_its_points(place: Folder, index: Index) -> None:
    """Also the last of all: the next one that is added has none of its points."""
    fill(place, [0.0] * 30)
    slow = add_run(place, run(30, (point(0.5, "slow"), point(0.5, "slow", "test_bad"))))
    assert (steps_of(index).cases, len(steps_of(index).steps)) == (2, 1)
    place.remove(slow)
    found = steps_of(index)
    assert (found.cases, found.runs, found.points, found.steps) == (1, 30, 30, ())
    add_run(place, run(31, (point(0.0, "next"),)))
    assert (steps_of(index).points, steps_of(index).steps) == (31, ())


def test_a_checkout_with_changes_stands_after_its_commit_and_is_marked(place: Folder, index: Index) -> None:
    """What was measured there is not the commit's code."""
    fill(place, [0.0] * 30)
    changed = run(29, (point(0.05, "changed"),), commit=f"{29:04x}" * 10)
    add_run(place, msgspec.structs.replace(changed, dirty=True, created="2026-01-01T00:00:00+00:00"))
    found = steps_of(index)
    (step,) = found.steps
    commit = f"{29:04x}" * 10
    assert (step.before, step.after, step.kind) == (commit, f"{commit}+", "step")
    text = text_of(found)
    assert f"{commit[:10]}..{commit[:10]}+" in text
    assert "+: the run's checkout had changes that the commit doesn't have" in text


def test_what_the_probability_of_chance_rests_on_is_said(place: Folder, index: Index) -> None:
    fill(place, [0.0] * 12)
    assert "at most 0.01, if the errors of a case's runs are independent and alike" in text_of(steps_of(index))


def test_the_probability_of_a_false_move_is_shared_by_all_cases(
    place: Folder, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []
    monkeypatch.setattr(summary, "found_in", lambda measured, settings, rate: given.append(rate) or ())
    add_run(place, run(1, tuple(point(0.0, "a", f"test_{i}") for i in range(4))))
    steps_of(index, false_rate=0.02)
    assert given == [0.005] * 4


def test_anchors_of_few_runs_are_not_compared_with(place: Folder, index: Index) -> None:
    """The other runs would be left out."""
    fill(place, [0.0] * 10)
    add_run(place, run(11, (msgspec.structs.replace(point(0.0, "p"), since=Shift(0.0, SD, "anchor")),)))
    assert steps_of(index).points == 11


@pytest.mark.parametrize(("runs", "sound"), [(12, 0), (300, 8192)], ids=["all of it", "behind the first pages"])
def test_a_damaged_index_is_made_anew(place: Folder, index: Index, tmp_path: Path, runs: int, sound: int) -> None:
    fill(place, [0.0] * runs)
    steps_of(index)
    (file,) = (tmp_path / "cache").iterdir()
    data = file.read_bytes()
    file.write_bytes(data[:sound] + b"\xff" * (len(data) - sound))
    assert steps_of(index).points == runs


def test_runs_stand_in_the_order_of_their_commits(place: Folder, index: Index) -> None:
    """A backfill runs old commits today."""
    days = list(range(40))
    for day in days[20:] + days[:20]:
        made = run(day, (point((0.05 if day >= 20 else 0.0), f"w{day}"),))
        add_run(place, msgspec.structs.replace(made, created="2027-01-01T00:00:00+00:00"))
    (step,) = steps_of(index).steps
    assert (step.before, step.after) == (f"{19:04x}" * 10, f"{20:04x}" * 10)


def test_branches_and_cases_can_be_chosen(place: Folder, index: Index) -> None:
    add_run(place, run(1, (point(0.0, "a"), point(0.0, "b", "test_other"))))
    add_run(place, run(2, (point(0.0, "a"),), branch="pull/7"))
    assert [(steps_of(index, branch=b).runs, steps_of(index, branch=b).points) for b in ("main", "pull/7")] == [
        (1, 2),
        (1, 1),
    ]
    assert steps_of(index, case="other").cases == 1


def test_more_runs_than_one_row_holds(place: Folder, index: Index) -> None:
    fill(place, [0.0] * 300 + [0.05] * 20)
    (step,) = steps_of(index).steps
    assert step.after == f"{300:04x}" * 10


def test_a_run_has_where_it_took_place(tmp_path: Path) -> None:
    origin = origin_of(tmp_path, {"GITHUB_REF_NAME": "main"})
    report = RunReport((result(),), created="2026-11-22T10:00:00+00:00", versions={"kerntune": "1"}, origin=origin)
    made = history_run(report)
    assert (made.commit, made.branch, made.dirty) == ("", "main", False)
    assert (made.host, made.versions) == (os.uname().nodename, {"kerntune": "1"})
    assert len(made.points) == 1


def test_a_report_of_an_earlier_kerntune_has_no_commit() -> None:
    """That of the checkout in which it is added would be another one's."""
    made = history_run(RunReport((result(),), created="2026-11-22T10:00:00+00:00"))
    assert (made.commit, made.branch, made.host) == ("", "", "")


def test_the_same_run_is_added_once(place: Folder) -> None:
    made = run(1, (point(0.0, "a"),))
    assert add_run(place, made) == add_run(place, made)
    assert len(place.names()) == 1


def test_nothing_is_added_for_a_run_without_points(place: Folder) -> None:
    assert add_run(place, run(1, ())) == ""
    assert place.names() == []


def test_branches_are_no_one_series(place: Folder, index: Index) -> None:
    """A slow pull request is no step of the main branch, which is the one with most runs."""
    fill(place, [0.0] * 26)
    for day in range(20, 24):
        add_run(place, run(day, (point(0.05, f"p{day}"),), branch="pull/7"))
    found = steps_of(index)
    assert (found.branch, found.runs, found.steps) == ("main", 26, ())
    assert "26 runs of main" in text_of(found)


def test_another_branchs_anchors_change_nothing(place: Folder, index: Index) -> None:
    fill(place, [0.0] * 10)
    for day in range(9):
        made = msgspec.structs.replace(point(0.0, f"p{day}"), since=Shift(0.0, SD, "anchor"))
        add_run(place, run(day, (made,), branch="pull/7"))
    assert steps_of(index, branch="main").points == 10


def test_versions_are_compared_by_name(place: Folder, index: Index) -> None:
    """One side may lack one."""
    errors = np.random.default_rng(1).normal(0, SD, 40)
    for day, error in enumerate(errors):
        made = point(0.05 * (day >= 20) + float(error), f"w{day}")
        known = {"triton": "3.6", "driver": "570"} if day >= 20 else {"assembler": "12", "driver": "560"}
        add_run(place, run(day, (msgspec.structs.replace(made, environment=known),)))
    (step,) = steps_of(index).steps
    assert step.settings == ("driver 560 -> 570",)


def test_processes_share_an_index(place: Folder, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one adds the same files while this one reads them."""
    fill(place, [0.0] * 12)
    other, read = Index(place, tmp_path / "cache"), Folder.read

    def slowly(self: Folder, names: list[str]) -> Iterator[tuple[str, bytes]]:
        monkeypatch.setattr(Folder, "read", read)
        assert other.update() == []
        return read(self, names)

    monkeypatch.setattr(Folder, "read", slowly)
    assert index.update() == []
    assert steps_of(index).points == 12


def test_an_index_that_is_locked_is_left_alone(
    place: Folder, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(place, [0.0] * 12)
    steps_of(index)
    monkeypatch.setattr("kerntune.gate.history.index.PATIENCE_S", 0.05)
    (file,) = (tmp_path / "cache").iterdir()
    before = file.stat().st_ino
    with contextlib.closing(sqlite3.connect(file)) as base:
        base.execute("BEGIN IMMEDIATE")
        with pytest.raises(HistoryError, match=r"can't be used .*locked"):
            steps_of(index)
    assert file.stat().st_ino == before
    assert steps_of(index).points == 12


POISON = [
    {"change": {"value": 1e300, "sd": 0.1, "against": "x"}}, {"change": {"value": 0.1, "sd": -1.0, "against": "x"}},
    {"since": {"value": -10.0, "sd": 0.1, "against": "x"}}, {"time_ns": -1.0}, {"time_ns": 1e300},
    {"device": "\x1b[31m"}, {"target": "\n::error::x"}, {"environment": {"a b": "c"}}, {"environment": {"a": "\x1f"}},
    {"case": {"nodeid": "t.py::\u202e", "call": "0"}}, {"work": "\0"},
]  # fmt: skip


@pytest.mark.parametrize("poison", POISON, ids=str)
def test_a_poisoned_run_costs_itself_alone(tmp_path: Path, poison: dict[str, Any]) -> None:
    good = [run(day, points_of([result()]), commit=str(day)) for day in (1, 2)]
    place = Folder(tmp_path / "h")
    for one in good:
        add_run(place, one)
    bad = json.loads(encoded(run(3, points_of([result()]), commit="3")))
    bad["points"][0].update(poison)
    (tmp_path / "h" / "bad.json").write_text(json.dumps(bad))
    found = steps_of(Index(place, tmp_path / "index"))
    assert (found.runs, found.points) == (2, 2)
    (problem,) = found.unread
    assert problem.startswith("bad.json: ")
    assert "points[0]." in problem


@pytest.mark.parametrize("field", ["created", "committed", "branch", "host", "commit"])
def test_a_run_s_own_fields_are_looked_at(field: str) -> None:
    data = json.loads(encoded(run(1, points_of([result()]), commit="1")))
    for text in ("\x1b[31m", "a\nb"):
        with pytest.raises(HistoryError, match=rf"it: {field} (is|has) "):
            decoded(json.dumps({**data, field: text}).encode(), "it")


def test_what_can_not_be_read_again_is_not_written() -> None:
    """A change of more than ten thousand times is none that was measured."""
    for point, low, high, level in (
        (1e9, 1e8, 1e10, 0.99),
        (-1.0, -0.9, 1.0, 0.99),
        (0.0, 0.0, 0.0, 1e-9),
        (0, -1, 1, 1),
    ):
        (found,) = points_of([msgspec.structs.replace(result(), change=Estimate(point, low, high, level))])
        assert found.change is None


# a history as reports draw it


def fill_of_curves(folder: Path, sizes: list[float], references: list[str]) -> Index:
    noise = np.random.default_rng(1).normal(0, 0.0005, len(sizes))
    for i, (size, reference) in enumerate(zip(sizes, references, strict=True)):
        change = Shift(float(np.log1p(size) + noise[i]), 0.0005, reference)
        point = Point(CaseId("t.py::test_x", "0"), "cuda:90", "H200", "PASS", f"w{i}", "", 1000.0, change)
        moment = f"2026-{1 + i // 28:02}-{1 + i % 28:02}T00:00:00+00:00"
        add_run(Folder(folder), HistoryRun(SCHEMA, moment, (point,), f"{i:04x}" * 10, moment, "main"))
    return Index(Folder(folder), folder / "index")


def test_points_in_order_and_the_step(tmp_path: Path) -> None:
    index = fill_of_curves(tmp_path, [0.0] * 20 + [0.05] * 20, ["2026-01-01"] * 40)
    (curve,) = curves_of(index)
    assert (curve.case, curve.device, curve.runs, curve.branch) == ("t.py::test_x", "H200", 40, "main")
    assert [p.commit[:4] for p in curve.points] == [f"{i:04x}" for i in range(40)]
    assert curve.points[0].change == pytest.approx(0.0, abs=0.003)
    assert curve.points[-1].change == pytest.approx(0.05, abs=0.003)
    assert [(s.before[:4], s.after[:4]) for s in curve.steps] == [("0013", "0014")]
    assert {p.stretch for p in curve.points} == {0}


def test_another_reference_begins_another_stretch(tmp_path: Path) -> None:
    index = fill_of_curves(tmp_path, [0.0] * 12, ["a"] * 5 + ["b"] * 7)
    assert [p.stretch for p in curves_of(index)[0].points] == [0] * 5 + [1] * 7


def test_the_latest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_POINTS", 4)
    (curve,) = curves_of(fill_of_curves(tmp_path, [0.0] * 12, ["a"] * 12))
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


@pytest.mark.parametrize(
    ("changes", "place", "between", "days", "kind"),
    [
        ({}, "H100", "bbbbbbbbbb..aaaaaaaaaa", "2026-01-01", "step"),
        ({"before": "", "earliest": ""}, "H100", "?..aaaaaaaaaa", "2026-01-01", "step"),
        ({"device": "", "kind": "drift", "runs": 3, "to_day": "2026-01-02", "latest": "c" * 12 + "+"}, "cuda:90",
         "bbbbbbbbbb..aaaaaaaaaa (99 %: bbbbbbbbbb..cccccccccc+)", "2026-01-01 to 2026-01-02", "drift over 3 runs"),
        ({"settings": ("triton 3.8 -> 3.9", "host a -> b"), "kind": "environment"}, "H100", "bbbbbbbbbb..aaaaaaaaaa",
         "2026-01-01", "environment\ntriton 3.8 -> 3.9\nhost a -> b"),
    ],
)  # fmt: skip
def test_the_row_of_a_move(changes: dict[str, Any], place: str, between: str, days: str, kind: str) -> None:
    commits = ("b" * 12, "a" * 12) * 2
    step = HistoryStep("t::a", "cuda:90", "H100", "step", 0.05, 0.0412, -0.06, *commits, 1, *["2026-01-01"] * 2, ())
    step = msgspec.structs.replace(step, **changes)
    assert summary._cells(step, False) == ("t::a", place, "+5.00 %", "+4.12..-6.00", between, days, kind)
    assert summary._cells(step, True)[1] == f"{place} (cuda:90)"


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        ("value", math.log(1e4), True), ("value", -math.log(1e4), True), ("value", 9.22, False),
        ("sd", 0.0, True), ("sd", 10.0, True), ("sd", 10.001, False), ("sd", -1e-9, False),
    ],
)  # fmt: skip
def test_a_change_is_of_ten_thousand_times_at_most(name: str, value: float, fits: bool) -> None:
    shift = msgspec.structs.replace(Shift(0.0, 0.0, "b"), **{name: value})
    for field in ("change", "since"):
        made = run(1, (msgspec.structs.replace(point(0.0, "w"), **{field: shift}),))
        if fits:
            assert decoded(encoded(made), "it") == made
            continue
        with pytest.raises(HistoryError, match=rf"^it: .* at `\$\.points\[0\]\.{field}\.{name}`"):
            decoded(encoded(made), "it")


@pytest.mark.parametrize(
    ("created", "committed", "wrong"),
    [("2026-11-22T10:15:00Z", "", ""), ("", "", "created"), ("2026-11-22T10:15", "2026-11-22", "committed")],
)
def test_a_run_has_a_time_and_its_commit_may_have_one(created: str, committed: str, wrong: str) -> None:
    made = msgspec.structs.replace(run(1, ()), created=created, committed=committed)
    if not wrong:
        assert decoded(encoded(made), "it") == made
        return
    with pytest.raises(HistoryError, match=rf"^it: {wrong} is '.*', no time as 2026-11-22T10:15:00Z"):
        decoded(encoded(made), "it")


LEVEL = 0.99


@pytest.mark.parametrize(
    ("low", "point", "high", "known"),
    [
        (0.01, 0.01, 0.01, True), (0.0, 0.01, 0.01, True), (0.01, 0.01, 0.02, True), (0.02, 0.01, 0.03, False),
        (0.0, 0.01, 0.005, False), (-1.0, 0.0, 0.1, False), (-0.99, 0.0, 0.1, True), (0.0, 0.1, math.inf, False),
        (math.nan, 0.1, 0.2, False),
    ],
)  # fmt: skip
def test_an_interval_around_its_point_is_a_shift(low: float, point: float, high: float, known: bool) -> None:
    assert (shift_of(Estimate(point, low, high, LEVEL), "b") is not None) == known


@pytest.mark.parametrize(("level", "known"), [(0.49, False), (0.5, True), (0.999, True), (1.0, False)])
def test_a_level_of_a_half_to_one_is_a_shift(level: float, known: bool) -> None:
    assert (shift_of(Estimate(0.1, 0.05, 0.15, level), "b") is not None) == known


def test_a_shift_is_by_what_it_is_against() -> None:
    change = Estimate(0.1, 0.05, 0.15, LEVEL)
    assert shift_of(change, "") is None
    assert shift_of(None, "b") is None
    assert shift_of(change, "", same_work=True) is None
    assert shift_of(None, "b", same_work=True) == Shift(0.0, 0.0, "b")
    found = shift_of(change, "b")
    assert found is not None
    assert found.value == pytest.approx(math.log(1.1))
    assert found.sd == pytest.approx((math.log(1.15) - math.log(1.05)) / 2 / 2.5758293)
    assert shift_of(Estimate(9_998.0, 0.0, 1e5, LEVEL), "b") is not None
    assert shift_of(Estimate(10_000.0, 0.0, 1e5, LEVEL), "b") is None, "more than ten thousand times as slow"
