"""Which versions are run to be screened."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from samples import static_baseline

from cli.bisect.test_equal_commits import FIRST, READ, Commits
from kerntune.base.case_result import CaseId
from kerntune.base.policy import Verdict
from kerntune.cli.bisect import judging
from kerntune.cli.bisect.bisected_version import BisectedProject, BisectedVersion
from kerntune.cli.bisect.judging import ScreenedVersion, VersionJudge


class RunsNothing(VersionJudge):
    """A judge that notes which versions it would run, and says that each has read the same files."""

    ran: tuple[BisectedVersion, ...] = ()

    def _screen(self, version: BisectedVersion) -> ScreenedVersion:
        self.ran += (version,)
        screened = ScreenedVersion(((CaseId("test_it.py::test_x", "0"), version.commit, ()),))
        self._equal.learn(version, screened, READ)
        return screened


@pytest.mark.parametrize("processes", [1, 3])
def test_commits_that_read_the_same_are_run_once(tmp_path: Path, processes: int) -> None:
    commits = Commits(tmp_path)
    texts = ["SIZE = 1", "SIZE = 1  # one", "SIZE = 2", "SIZE = 2  # two", "SIZE = 1  # again"]
    versions = [commits.commit({**FIRST, "kernels.py": f"{text}\n"}) for text in texts]
    project = BisectedProject(tmp_path, tmp_path, ("test_it.py",))
    judge = RunsNothing(project, "cuda:90", tmp_path, processes)
    found = judge.screen(versions)
    assert len(judge.ran) == 2
    assert [s.identity for s in found] == [found[i].identity for i in (0, 0, 2, 2, 0)]
    assert found[0].identity != found[2].identity


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
