"""What a bisection says of each kind of line; versions are judged by a table."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kerntune.base.case_result import CaseId
from kerntune.cli.bisect import bisected_version
from kerntune.cli.bisect.bisected_version import BisectedVersion, TritonChoice, commits_between, triton_choices
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


def test_a_triton_is_an_interpreter_or_a_folder(tmp_path: Path) -> None:
    (tmp_path / "triton").mkdir()
    python = tmp_path / "python"
    python.write_text("")
    python.chmod(0o755)
    assert triton_choices(f"a={tmp_path}, b={python}") == [
        TritonChoice("a", folder=str(tmp_path)),
        TritonChoice("b", python=str(python)),
    ]
    for wrong in ("x", "3.8;rm", f"a={tmp_path / 'gone'}"):
        with pytest.raises(UsageError, match="--triton"):
            triton_choices(wrong)


def test_a_torch_is_one_too(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (found,) = triton_choices(f"a={tmp_path}", "torch")
    assert str(BisectedVersion(triton=found)) == "torch a"
    assert str(BisectedVersion("c1", found)) == "c1 under torch a"
    with pytest.raises(UsageError, match="--torch a="):
        triton_choices(f"a={tmp_path / 'torch'}", "torch")


# commits of a real repository


class Git:
    """A repository of empty commits, named by their messages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self("init", "-q", "-b", "main")

    def __call__(self, *words: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", *who, *words], cwd=self.folder, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, name: str) -> str:
        self("commit", "-q", "--allow-empty", "-m", name)
        self("tag", name)
        return self("rev-parse", "HEAD")


@pytest.fixture
def merged(tmp_path: Path) -> Git:
    """c1, then s1 and s2 on a side branch and c2 on main, then a merge and c3."""
    git = Git(tmp_path)
    git.commit("c1")
    git("checkout", "-q", "-b", "side")
    git.commit("s1")
    git.commit("s2")
    git("checkout", "-q", "main")
    git.commit("c2")
    git("merge", "-q", "--no-ff", "-m", "merge", "side")
    git("tag", "merge")
    git.commit("c3")
    return git


def names(git: Git, commits: Sequence[str]) -> list[str]:
    return [git("show", "-s", "--format=%s", c) for c in commits]


def test_commits_lie_along_first_parents(merged: Git) -> None:
    assert names(merged, commits_between(merged.folder, "c1", "c3")) == ["c1", "c2", "merge", "c3"]
    assert names(merged, commits_between(merged.folder, "s1", "c3")) == ["s1", "s2", "merge", "c3"]
    with pytest.raises(UsageError, match="no ancestor of s1; name the commit where both begin"):
        commits_between(merged.folder, "c2", "s1")
    with pytest.raises(UsageError, match="c1 is older than c3: the good side comes first: kerntune bisect c1 c3"):
        commits_between(merged.folder, "c3", "c1")


@pytest.mark.parametrize(("slow", "first"), [({"s2", "merge"}, "s2"), ({"merge"}, "merge")])
def test_of_a_merge_the_commit_inside_is_named(merged: Git, slow: set[str], first: str) -> None:
    works = {(merged("rev-parse", n), ""): n for n in ("c1", "c2", "s1", "s2", "merge")}
    works[merged("rev-parse", "c3"), ""] = "merge"
    looking = bisection(TableJudge(works, slow), merged.folder)
    found = looking.along([BisectedVersion(c) for c in commits_between(merged.folder, "c1", "c3")])
    assert found.lines[0].endswith(f"t: {first}")
    assert [x for x in found.lines if "merged by" in x and x.endswith("t: merge")] or first == "merge"


@pytest.mark.parametrize(
    ("package", "version", "wanted"),
    [("Triton", "3.9", "triton==3.9.*"), ("Triton", "3.9.0", "triton==3.9.0"), ("torch", "2.15", "torch==2.15.*")],
)
def test_pip_is_asked_for_the_newest_of_a_series_or_one_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, version: str, wanted: str
) -> None:
    """torch with its libraries, but without its Triton: a step is one of torch alone."""
    asked: list[list[str]] = []

    def pip(command: list[str], **options: Any) -> SimpleNamespace:
        asked.append(command)
        for name in ("triton", "triton-3.9.0.dist-info", "torch", "nvidia"):
            Path(command[command.index("--target") + 1], name).mkdir(parents=True)
        return SimpleNamespace(returncode=0, stdout="", stderr="")

    monkeypatch.setattr(bisected_version.platformdirs, "user_cache_dir", lambda name: str(tmp_path))
    monkeypatch.setattr(subprocess, "run", pip)
    place = bisected_version._installed(version, package)
    left = sorted(path.name for path in place.iterdir() if path.name.startswith(("triton", "nvidia")))
    assert left == (["nvidia"] if package == "torch" else ["nvidia", "triton", "triton-3.9.0.dist-info"])
    assert asked[0][-1] == wanted
    assert ("--no-deps" in asked[0]) == (package == "Triton")
    assert bisected_version._installed(version, package) == place
    assert len(asked) == 1
