"""How versions are screened, and what is said of one that was timed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from samples import static_baseline

from kerntune.base.case_result import CaseId
from kerntune.base.policy import Verdict
from kerntune.cli.bisect import judging
from kerntune.cli.bisect.bisected_version import BisectedProject, BisectedVersion, TritonChoice
from kerntune.cli.bisect.entry import Bisection
from kerntune.cli.bisect.judging import ScreenedVersion, VersionJudge
from kerntune.errors import UsageError
from kerntune.kernels.source import GeneratedFrom


class RunsNothing(VersionJudge):
    """A judge whose versions wait for one another, as many as are screened at once."""

    def __init__(self, folder: Path, processes: int) -> None:
        super().__init__(BisectedProject(folder, folder, ("test_it.py",)), "cuda:90", folder, processes)
        self.together = threading.Barrier(processes, timeout=60)

    def _screen(self, version: BisectedVersion) -> ScreenedVersion:
        self.together.wait()
        return ScreenedVersion(((CaseId("test_it.py::test_x", "0"), version.commit, ()),))


@pytest.mark.parametrize("processes", [1, 3])
def test_versions_are_screened_several_at_once_and_answered_in_their_order(tmp_path: Path, processes: int) -> None:
    versions = [BisectedVersion(f"{i:040x}") for i in range(6)]
    found = RunsNothing(tmp_path, processes).screen(versions)
    assert [one.identity[0][1] for one in found if one.identity] == [version.commit for version in versions]


@pytest.mark.parametrize(
    ("verdicts", "slower"),
    [
        ("PASS IMPROVED DRIFTED NEW", False),
        ("PASS INCONCLUSIVE", None),
        ("PASS INCOMPLETE", None),
        ("REGRESSED INCONCLUSIVE PASS", True),
        ("", None),
    ],
)
def test_a_version_is_not_slower_only_if_all_its_cases_say_so(verdicts: str, slower: bool | None) -> None:
    results: Any = [SimpleNamespace(verdict=Verdict[name]) for name in verdicts.split()]
    assert judging._slower(results) is slower


def test_code_of_the_good_sides_triton_is_not_taken_for_the_runs() -> None:
    """The folder of a run begins with the good side's baselines."""
    good, made = static_baseline(), msgspec.structs.replace(static_baseline(code="made"), triton="3.8")
    assert judging._of_one_triton([good, made], {good.case: good}) == [made]
    assert judging._of_one_triton([good], {good.case: good}) == [good], "of the same Triton all are the run's"


def screened(registers: int, occupancy: float, code: str, torch: str) -> ScreenedVersion:
    """A version with one sort that Inductor generated."""
    (launch,) = static_baseline(code=code).launches
    figures = msgspec.structs.replace(launch.metrics, registers=registers, occupancy=occupancy)
    made_from = GeneratedFrom(torch, ("sort",), ("prims.sort",), code)
    found = msgspec.structs.replace(launch, kernel="sort", metrics=figures, source=code, made_from=made_from)
    case = CaseId("t.py::test_sort", "0")
    return ScreenedVersion(((case, code, ()),), launches={case: (found,)}, triton="3.9", slower=False)


def test_what_differs_has_figures_and_warnings() -> None:
    before, after = screened(32, 1.0, "a", "2.13.0"), screened(40, 0.75, "b", "2.15.0")
    because, figures, *said = judging.differences(before, after, same_code=True)
    assert because == "sort: because of torch 2.13.0 -> 2.15.0 (sort's generated code)"
    assert figures == "sort: registers 32 -> 40, occupancy 100.0% -> 75.0%"
    assert any(text.startswith("warn: sort: theoretical occupancy fell") for text in said)
    assert " or code " in judging.differences(before, after)[0]
    assert judging.differences(before, before) == []


@pytest.mark.parametrize(("commits", "because"), [(("c1", "c1"), "2.15.0 (sort's"), (("c1", "c2"), "2.15.0 or code (")])
def test_versions_of_one_commit_have_the_same_code(commits: tuple[str, str], because: str) -> None:
    known = {"2.13": screened(32, 1.0, "a", "2.13.0"), "2.15": screened(40, 0.75, "b", "2.15.0")}
    judge: Any = SimpleNamespace(timed=False, screen=lambda versions: [known[v.triton.name] for v in versions])
    line = [BisectedVersion(c, TritonChoice(n, package="torch")) for c, n in zip(commits, known, strict=True)]
    found = Bisection(judge, None, lambda text: None).along(line)
    assert not found.found
    assert found.lines[1] == f"  {line[1]}"
    assert because in found.lines[2]
    assert found.lines[3] == "    sort: registers 32 -> 40, occupancy 100.0% -> 75.0%"


# what one version comes to


class Project:
    """Has one layout of every version, unless that can't be built."""

    tests = ("test_it.py",)

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    @contextlib.contextmanager
    def laid_out(self, version: BisectedVersion) -> Iterator[Any]:
        if self.error is not None:
            raise self.error
        yield "layout"


class Judge(VersionJudge):
    """Its runs of pytest are reports that a test gives, one after the other."""

    def __init__(self, scratch: Path, *reports: Any, target: str = "cuda:90", project: Any = None) -> None:
        super().__init__(project or Project(), target, scratch)
        self.reports, self.options = list(reports), list[list[str]]()
        (scratch / "good").mkdir()

    def _run(self, layout: Any, options: Any) -> tuple[str, Any]:
        self.options.append([*options])
        found = self.reports.pop(0)
        if isinstance(found, Exception):
            raise found
        return "output", found


CASE = static_baseline().case
VERSION = BisectedVersion("c" * 40)


def report(*verdicts: Verdict, failed: Any = None, case: CaseId = CASE) -> Any:
    results = [SimpleNamespace(case=case, verdict=v, fingerprint="f", message=f"{v.value} said") for v in verdicts]
    return SimpleNamespace(results=results, failed=failed or {})


def timing(tmp_path: Path, *reports: Any, **known: Any) -> Judge:
    judge = Judge(tmp_path, *reports, target="", **known)
    judge._good = {CASE: static_baseline()}
    return judge


@pytest.mark.parametrize(
    ("reports", "slower", "messages"),
    [
        ([report(Verdict.REGRESSED, Verdict.PASS)], True, ("REGRESSED said",)),
        ([report(Verdict.PASS)], False, ("PASS said",)),
        ([report(Verdict.INCONCLUSIVE), report(Verdict.PASS)], False, ("PASS said",)),
        ([report(Verdict.REGRESSED, Verdict.NEW)] * 2, None, ("REGRESSED said", "NEW said")),
        ([report(failed={"a": "why"})] * 2, None, ("a fails: why",)),
        ([report()] * 2, None, (f"{VERSION}: none of the cases ran",)),
        ([report(Verdict.PASS, case=CaseId("x", "0"))] * 2, None, (f"{VERSION}: none of the cases ran",)),
        ([judging.OutOfOrder("broke off")] * 2, None, ("broke off",)),
    ],
)
def test_a_version_is_timed_until_it_is_decided(
    tmp_path: Path, reports: list[Any], slower: bool | None, messages: tuple[str, ...]
) -> None:
    judge = timing(tmp_path, *reports)
    assert judge.timed
    found = judge.measure(VERSION)
    assert (found.slower, found.messages, judge.reports) == (slower, messages, [])
    assert judge.options[0] == [f"--kerntune-baselines={tmp_path}/beside-0", "--kerntune-update=new"]
    assert (tmp_path / "beside-0").is_dir()


def test_a_version_that_cannot_be_built_is_not_timed(tmp_path: Path) -> None:
    judge = timing(tmp_path, project=Project(judging.NotBuilt("no compiler")))
    assert judge.measure(VERSION) == judging.TimedVersion(None, ("no compiler",))
    assert judge._screen(VERSION) == ScreenedVersion(None, "no compiler")


def screening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Any, *reports: Any) -> Judge:
    entries = [SimpleNamespace(baseline=b, problem="") for b in made]
    monkeypatch.setattr(judging, "load_folder", lambda folder: entries)
    judge = Judge(tmp_path, *reports)
    judge._good = {CASE: msgspec.structs.replace(static_baseline(), triton="3.0")}
    return judge


def test_what_a_version_compiles_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = static_baseline()
    run = report(Verdict.REGRESSED, Verdict.PASS)
    for result in run.results:
        result.fingerprint = made.fingerprint
    judge = screening(tmp_path, monkeypatch, [made, msgspec.structs.replace(made, fingerprint="other")], run, run)
    found = judge._screen(VERSION)
    work = tuple((x.code, x.grid) for x in made.launches)
    assert found.identity == ((CASE, made.fingerprint, work),)
    assert (found.launches, found.triton, found.slower) == ({CASE: made.launches}, made.triton, True)
    assert (found.messages, found.reason) == (("REGRESSED said",), "")
    assert judge.options == [[f"--kerntune-baselines={tmp_path}/beside-0", "--kerntune-target=cuda:90"]]
    judge._known[VERSION] = found
    assert judge.screen([VERSION])[0] is found
    assert len(judge.reports) == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (report(Verdict.PASS, failed={CASE.nodeid: "why"}), f"{VERSION}: {CASE} fails: why"),
        (report(Verdict.PASS), f"{VERSION}: {CASE} has launched nothing that can be compiled"),
        (judging.OutOfOrder("broke off"), "broke off"),
        (UsageError("no such option"), f"{VERSION}: no such option"),
    ],
)
def test_why_nothing_is_known_of_a_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any, reason: str
) -> None:
    judge = screening(tmp_path, monkeypatch, [static_baseline()], answer)
    assert judge._screen(VERSION) == ScreenedVersion(None, reason)


def test_the_good_side_is_recorded_with_its_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, run = static_baseline(), report(Verdict.PASS)
    run.results[0].fingerprint = made.fingerprint
    judge = screening(tmp_path, monkeypatch, [made], run)
    assert judge.record_good(VERSION) == (CASE,)
    assert judge.options == [["--kerntune-target=cuda:90", f"--kerntune-export={tmp_path}/good"]]
    assert judge.screen([VERSION])[0].identity
    assert judge.reuse_good(tmp_path / "good") == (CASE,)
    judge.keep_good(tmp_path / "kept")
    assert (tmp_path / "kept").is_dir()


@pytest.mark.parametrize(
    ("error", "answer", "says"),
    [
        (judging.NotBuilt("no compiler"), None, r"^the good side can't be built: no compiler$"),
        (None, judging.OutOfOrder("broke off"), r"^the good side, c+( .*)?: broke off$"),
        (None, report(failed={"a": "why"}), r": no case was recorded: a fails: why$"),
        (None, report(), r": no case was recorded: output$"),
    ],
)
def test_a_good_side_without_cases_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Any, answer: Any, says: str
) -> None:
    monkeypatch.setattr(judging, "load_folder", lambda folder: [])
    judge = Judge(tmp_path, answer, project=Project(error))
    with pytest.raises(UsageError, match=says):
        judge.record_good(VERSION)


@pytest.mark.parametrize(
    ("code", "log", "error"),
    [(0, True, ""), (1, True, ""), (5, True, ""), (2, True, "code 2: last"), (0, False, "code 0: ")],
)
def test_a_run_that_broke_off_says_its_last_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, log: bool, error: str
) -> None:
    judge = VersionJudge(cast(Any, Project()), "cuda:90", tmp_path)
    asked: list[Any] = []

    def run(layout: Any, command: list[str], said: Path) -> int:
        asked.append(command)
        said.write_text("E   first\nE   last\nother\n")
        if log:
            said.with_suffix(".json").touch()
        return code

    monkeypatch.setattr(judge._runs, "run", run)
    monkeypatch.setattr(judging, "read_run", lambda path: path.name)
    if error:
        with pytest.raises(judging.OutOfOrder, match=f"^its tests ended with {error}"):
            judge._run(cast(Any, None), ["--more"])
    else:
        assert judge._run(cast(Any, None), ["--more"]) == ("E   first\nE   last\nother\n", "run-0.json")
    assert asked[0][:2] == ["baselines", "refresh"]
    assert asked[0][-3:] == [f"--kerntune-json={tmp_path}/run-0.json", "--more", "test_it.py"]
    judge.close()


def test_a_grid_that_changed_is_a_difference() -> None:
    (launch,) = static_baseline().launches
    other = msgspec.structs.replace(launch, grid=(1, 2, 3))
    sides = [ScreenedVersion(None, launches={CASE: (x,)}, triton="3.9") for x in (launch, other)]
    grid = "x".join(map(str, launch.grid))
    assert f"{launch.kernel}: grid {grid} -> 1x2x3" in judging.differences(*sides)
    assert judging.differences(sides[0], sides[0]) == []
