"""``kerntune history``."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from kerntune.base.case_result import CaseId, CaseResult, LaunchReport
from kerntune.base.policy import Outcome, Verdict
from kerntune.cli import history
from kerntune.errors import UsageError
from kerntune.gate.history.places import Folder, add_run
from kerntune.gate.history.points import SCHEMA, HistoryRun, Point, Shift, decoded
from kerntune.gate.report import RunReport, write_run


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def fill(folder: Path, size: float = 0.05, branch: str = "main") -> None:
    errors = np.random.default_rng(1).normal(0, 0.001, 40)
    for i, error in enumerate(errors):
        change = Shift(float(error) + size * (i >= 20), 0.001, "2026-01-01")
        point = Point(CaseId("t.py::test_x", "0"), "cuda:90", "H200", "PASS", f"w{i}", "first", 1000.0, change)
        moment = f"2026-{1 + i // 28:02}-{1 + i % 28:02}T00:00:00+00:00"
        add_run(Folder(folder), HistoryRun(SCHEMA, moment, (point,), f"{i:04x}" * 10, moment, branch))


def test_steps_are_shown(kerntune, tmp_path):
    fill(tmp_path / "h")
    ran = kerntune("history", "show", "--history=h")
    assert ran.code == 0
    assert "t.py::test_x" in ran.out
    assert "0013001300..0014001400" in ran.out
    assert "1 move in 1 case, 40 runs" in ran.out
    assert kerntune("history", "show", "--history=h", "--exit-code").code == 1


def test_the_ini_file_names_the_place(kerntune, tmp_path):
    fill(tmp_path / "h", 0.0)
    (tmp_path / "pytest.ini").write_text("[pytest]\nkerntune_history = h\n")
    ran = kerntune("history", "show", "--json", "--exit-code")
    assert ran.code == 0
    shown = json.loads(ran.out)
    assert (shown["steps"], shown["runs"], shown["false_rate"]) == ([], 40, 0.01)


def test_a_damaged_file_is_a_finding(kerntune, tmp_path):
    fill(tmp_path / "h")
    (tmp_path / "h" / "broken.json").write_text("{")
    ran = kerntune("history", "show", "--history=h")
    assert ran.code == 1
    assert "broken.json: not readable as JSON" in ran.err
    assert "1 move in 1 case" in ran.out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["history", "show"], "name the history: --history=FOLDER|git:BRANCH|URL"),
        (["history", "show", "git:runs"], "name the history by its option: kerntune history show --history=git:runs"),
        (["history", "show", "--history=git:"], "no name of a branch"),
        (["history", "show", "--history=h", "--false-rate=0"], "give a probability between 0 and 1"),
        (["history", "show", "--history=h", "--false-rate=1"], "--false-rate 1.0: give a probability between 0 and 1"),
        (["history", "add", "--history=h", "nothing.json"], "nothing.json: no such file"),
    ],
)
def test_wrong_usage(kerntune, words, why):
    kerntune(*words).complains(2, why)


def timed_result() -> CaseResult:
    case, launches = CaseId("t.py::test_x", "0"), (LaunchReport("scale"),)
    known = {"message": "", "target": "cuda:90", "device": "H200", "launches": launches, "current_ns": 1000.0}
    return CaseResult(case, "f", Verdict.PASS, Outcome.PASS, **known)


def test_runs_are_added_from_their_json(kerntune, tmp_path):
    results = (timed_result(),)
    write_run(tmp_path / "run.json", RunReport(results, created="2026-11-22T10:00:00+00:00", versions={"pytest": "9"}))
    write_run(tmp_path / "none.json", RunReport((), created="2026-11-22T10:00:00+00:00"))
    ran = kerntune("history", "add", "--history=h", "run.json", "none.json")
    assert ran.code == 0
    assert "run.json: added as 2026/11/20261122T100000-" in ran.out
    assert "none.json: holds no case that was timed; nothing added" in ran.out
    place = Folder(tmp_path / "h")
    ((name, data),) = place.read(place.names())
    made = decoded(data, name)
    assert (made.created, made.versions) == ("2026-11-22T10:00:00+00:00", {"pytest": "9"})
    assert [str(p.case) for p in made.points] == [str(results[0].case)]


def test_an_empty_place_is_told_from_one_without_steps(kerntune, tmp_path):
    (tmp_path / "h").mkdir()
    ran = kerntune("history", "show", "--history=h")
    assert ran.code == 0
    assert "h: no run was added there yet" in ran.err
    (tmp_path / "pytest.ini").write_text("[pytest]\nkerntune_history = later\n")
    ran = kerntune("history", "show")
    assert ran.code == 0
    assert "later: no run was added there yet" in ran.err


def test_a_branch_is_told_from_runs_without_one(kerntune, tmp_path):
    """As those of a detached head."""
    fill(tmp_path / "h", branch="")
    told = kerntune("history", "show", "--history=h", "--branch=side").err
    assert "h: no run of branch side; most are of no branch" in told


def test_a_branch_or_a_case_that_no_run_has_is_told(kerntune, tmp_path):
    fill(tmp_path / "h")
    assert (
        "h: no run of branch side; most are of main" in kerntune("history", "show", "--history=h", "--branch=side").err
    )
    ran = kerntune("history", "show", "--history=h", "--case=nosuch")
    assert "h: no case with 'nosuch' in its name" in ran.err
    assert kerntune("history", "show", "--history=h", "--case=test_x").err == ""


@pytest.mark.parametrize("words", [("show",), ("show", "--exit-code", "--json")])
def test_a_place_that_isnt_there_is_an_error(kerntune, tmp_path, words):
    kerntune("history", *words, "--history=nowhere").complains(
        2, f"--history=nowhere: there is no folder {tmp_path}/nowhere; the first run with "
    )
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    kerntune("history", *words, "--history=git:nowhere").complains(
        2, f"--history=git:nowhere: there is no branch nowhere in {tmp_path}"
    )


def test_a_run_is_forgotten_by_its_file_or_its_commit(kerntune, tmp_path):
    fill(tmp_path / "h")
    (tmp_path / "h" / "broken.json").write_text("{")
    assert kerntune("history", "show", "--history=h").code == 1
    names = Folder(tmp_path / "h").names()
    ran = kerntune("history", "forget", "--history=h", "broken.json", "0003" * 10, names[7])
    assert ran.code == 0
    assert f"h: {names[3]} is forgotten" in ran.out
    ran = kerntune("history", "show", "--history=h")
    assert (ran.code, ran.err) == (0, "")
    assert "38 runs of main" in ran.out


def test_nothing_is_forgotten_where_a_name_is_not_clear(kerntune, tmp_path):
    fill(tmp_path / "h")
    fill(tmp_path / "h", 0.04)
    names = Folder(tmp_path / "h").names()
    ran = kerntune("history", "forget", "--history=h", names[0], "0019" * 10)
    assert ran.code == 2
    assert "2 runs are of commit" in ran.err
    assert sum(name in ran.err for name in names) == 2
    kerntune("history", "forget", "--history=h", names[0], "nosuch").complains(
        2, "has no run nosuch; name a file of it, or a commit"
    )
    assert Folder(tmp_path / "h").names() == names


class Place:
    name = "h"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026/01/a-01234567-x.json", [0]), ("a-01234567-x.json", [0]), ("a-01234567-x", [0]), ("01234567", [0]),
        ("0123456789abcdef", [0]), ("01234567+", [0]), ("0123456", "h: has no run 0123456; name a file of it, or a"),
        ("0123456+", "h: has no run 0123456+;"), ("a", "h: has no run a;"),
        ("99999999", "h: 2 runs are of commit 99999999; name one:"),
    ],
)  # fmt: skip
def test_a_run_is_named_by_its_file_or_by_eight_digits_of_its_commit(text, found):
    names = ["2026/01/a-01234567-x.json", "2026/02/b-99999999-x.json", "2026/02/c-99999999-y.json"]
    if isinstance(found, list):
        assert history._runs_named(Place(), names, text) == [names[i] for i in found]
        return
    with pytest.raises(UsageError) as told:
        history._runs_named(Place(), names, text)
    assert str(told.value).startswith(found)
    assert str(told.value).splitlines()[1:] == (names[1:] if "2 runs" in found else [])


@pytest.mark.parametrize(
    ("case", "device", "points", "drawn"),
    [("t.py::test_x", "H200", (1,), True), ("t.py::test_x", "H200", (), False), ("t.py::test_y", "H200", (1,), False),
     ("t.py::test_x", "H100", (1,), False)],
)  # fmt: skip
def test_a_curve_of_a_case_of_these_runs_is_drawn(case, device, points, drawn):
    curve = SimpleNamespace(case=case, target="cuda:90", device=device, points=points)
    assert history._is_drawn([curve], [RunReport((timed_result(),))]) is drawn
