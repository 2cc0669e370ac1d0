"""What a bisection says of each kind of line; versions are judged by a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from cli.bisect.commits import Git
from kerntune.base.case_result import CaseId
from kerntune.cli.bisect.bisected_version import BisectedVersion, TritonChoice, commits_between
from kerntune.cli.bisect.entry import Bisection, Conclusion, over_both
from kerntune.cli.bisect.judging import ScreenedVersion, TimedVersion, VersionJudge
from kerntune.errors import UsageError

OLD, NEW = TritonChoice("3.8"), TritonChoice("3.9")

Key = tuple[str, str]
"""A commit, and the name of its Triton."""


class TableJudge:
    """A judge that knows the work of each version, and which works are slow."""

    def __init__(self, works: dict[Key, str], slow: set[str], timed: bool = True, untold: str = "") -> None:
        self.works, self.slow, self.timed, self.untold = works, slow, timed, untold
        self.timings: list[Key] = []

    def screen(self, versions: Sequence[BisectedVersion]) -> list[ScreenedVersion]:
        return [self._screened(v) for v in versions]

    def _screened(self, version: BisectedVersion) -> ScreenedVersion:
        work = self.works[version.commit, version.triton.name]
        if not work:
            return ScreenedVersion(None, "it does not compile")
        identity = ((CaseId("test_it.py::test_x", "0"), work, ()),)
        return ScreenedVersion(identity, slower=work in self.slow, messages=(f"{work} spills",))

    def measure(self, version: BisectedVersion) -> TimedVersion:
        key = version.commit, version.triton.name
        self.timings.append(key)
        work = self.works[key]
        return TimedVersion(None if work == self.untold else work in self.slow, (f"{work} was timed",))


def bisection(judge: TableJudge, top: Path | None = None) -> Bisection:
    return Bisection(cast(VersionJudge, judge), top, lambda text: None)


def along(works: str, slow: str, **options: Any) -> tuple[Conclusion, TableJudge]:
    """Commits ``0``, ``1``, ... each with one letter of ``works``; a space can't be compiled."""
    commits = [str(i) for i in range(len(works))]
    judge = TableJudge({(c, ""): w.strip() for c, w in zip(commits, works, strict=True)}, set(slow), **options)
    return bisection(judge).along([BisectedVersion(c) for c in commits]), judge


def test_the_first_bad_one_is_told_with_the_gates_message() -> None:
    found, judge = along("aabbcccc", "c")
    assert found == Conclusion(("first bad: 4", "  c was timed"), True)
    assert judge.timings == [("7", ""), ("2", "")]


def test_nothing_to_find() -> None:
    assert along("aba", "b")[0] == Conclusion(("nothing to find: 2 compiles to the same code as 0",), False)
    assert along("abc", "b")[0] == Conclusion(("nothing to find: 2 is not slower than 0: c was timed",), False)
    assert along("abc", "b", untold="c")[0] == Conclusion(
        ("nothing to find: 2 could not be compared with 0: c was timed",), False
    )


@pytest.mark.parametrize("works", [" bc", "ab "])
def test_both_ends_must_be_told(works: str) -> None:
    with pytest.raises(UsageError, match="it does not compile"):
        along(works, "c")


def test_those_that_cant_be_told_are_listed_with_the_reason() -> None:
    found, _ = along("aa bcc", "c", untold="b")
    assert found.lines[:4] == (
        "the first bad one is among these 3, of which 2 could not be judged:",
        "  2: it does not compile",
        "  3: b was timed",
        "  4",
    )


def test_a_rule_decides_without_a_gpu_and_nothing_is_timed() -> None:
    found, judge = along("aabbcccc", "c", timed=False)
    assert found == Conclusion(("first bad: 4", "  c spills"), True)
    assert judge.timings == []


def test_without_a_rule_that_fails_all_changes_of_code_are_candidates() -> None:
    found, _ = along("aab bcc", "", timed=False)
    assert found.lines == (
        "no static rule fails for 6; these change the code, and only a GPU can tell more:",
        "  2",
        "  5",
    )
    assert not found.found


# commits and Tritons


def both(slow: set[str]) -> tuple[str, ...]:
    """Three commits under two Tritons, each with other work; the first line of the answer."""
    works = {(c, t): f"{c}{t}" for c in ("g", "m", "b") for t in ("3.8", "3.9")}
    return over_both(bisection(TableJudge(works, slow)), ["g", "m", "b"], [OLD, NEW]).lines


def test_of_commits_and_tritons_the_one_that_alone_is_slow_is_named() -> None:
    assert both({"m3.8", "b3.8", "m3.9", "b3.9"})[0] == "first bad: m under Triton 3.8"
    assert both({"g3.9", "m3.9", "b3.9"})[0] == "first bad: g under Triton 3.9"


def test_or_both_are() -> None:
    lines = both({"m3.9", "b3.9"})
    assert lines[0] == "first bad: m under Triton 3.9"
    assert lines[-1] == "only under Triton 3.9: b is not slower under Triton 3.8"


def test_tritons_alone() -> None:
    works = {("", name): name for name in ("3.7", "3.8", "3.9")}
    tritons = [TritonChoice(name) for name in ("3.7", "3.8", "3.9")]
    found = over_both(bisection(TableJudge(works, {"3.9"})), [""], tritons)
    assert found.lines[0] == "first bad: Triton 3.9"


# commits of a real repository


@pytest.mark.parametrize(("slow", "first"), [({"s2", "merge"}, "s2"), ({"merge"}, "merge")])
def test_of_a_merge_the_commit_inside_is_named(merged: Git, slow: set[str], first: str) -> None:
    works = {(merged("rev-parse", n), ""): n for n in ("c1", "c2", "s1", "s2", "merge")}
    works[merged("rev-parse", "c3"), ""] = "merge"
    looking = bisection(TableJudge(works, slow), merged.folder)
    found = looking.along([BisectedVersion(c) for c in commits_between(merged.folder, "c1", "c3")])
    assert found.lines[0].endswith(f"t: {first}")
    assert [x for x in found.lines if "merged by" in x and x.endswith("t: merge")] or first == "merge"
