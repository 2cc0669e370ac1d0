"""How versions are screened, and what is said of one that was timed."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from samples import static_baseline

from kerntune.base.case_result import CaseId
from kerntune.base.policy import Verdict
from kerntune.cli.bisect import judging
from kerntune.cli.bisect.bisected_version import BisectedProject, BisectedVersion, TritonChoice
from kerntune.cli.bisect.entry import Bisection
from kerntune.cli.bisect.judging import ScreenedVersion, VersionJudge
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
