"""Versions that are bisected: how they are named, found in a repository, laid out and installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.bisect.commits import Git
from kerntune.cli.bisect import bisected_version
from kerntune.cli.bisect.bisected_version import (
    BisectedProject,
    BisectedVersion,
    NotBuilt,
    TritonChoice,
    commit_line,
    commits_between,
    last_lines,
    merged_by,
    project_at,
    triton_choices,
)
from kerntune.errors import UsageError


@pytest.mark.parametrize(
    ("commit", "triton", "name"),
    [
        ("", "", "the working tree"), ("0123456789abcdef", "", "0123456789ab"), ("", "3.9", "Triton 3.9"),
        ("c1", "3.9", "c1 under Triton 3.9"),
    ],
)  # fmt: skip
def test_a_version_is_named_by_its_commit_and_its_triton(commit: str, triton: str, name: str) -> None:
    assert str(BisectedVersion(commit, TritonChoice(triton))) == name


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


def names(git: Git, commits: Sequence[str]) -> list[str]:
    return [git("show", "-s", "--format=%s", c) for c in commits]


def test_commits_lie_along_first_parents(merged: Git) -> None:
    assert names(merged, commits_between(merged.folder, "c1", "c3")) == ["c1", "c2", "merge", "c3"]
    assert names(merged, commits_between(merged.folder, "s1", "c3")) == ["s1", "s2", "merge", "c3"]
    with pytest.raises(UsageError, match="no ancestor of s1; name the commit where both begin"):
        commits_between(merged.folder, "c2", "s1")
    with pytest.raises(UsageError, match="c1 is older than c3: the good side comes first: kerntune bisect c1 c3"):
        commits_between(merged.folder, "c3", "c1")


def test_what_a_merge_has_merged(merged: Git) -> None:
    assert names(merged, merged_by(merged.folder, "merge")) == ["c2", "s1", "s2"]
    assert merged_by(merged.folder, "c2") == merged_by(merged.folder, "c1") == merged_by(merged.folder, "gone") == []


def test_a_commit_is_a_line(merged: Git) -> None:
    assert re.fullmatch(r"[0-9a-f]{7,} \d{4}-\d\d-\d\d t: c3", commit_line(merged.folder, "c3"))
    assert commit_line(merged.folder, "gone") == "gone"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BisectedProject:
    """Its first commit has ``own`` tests, the working tree has today's."""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/project/lib{os.pathsep}/elsewhere")
    top = tmp_path / "project"
    (top / "tests" / "__pycache__").mkdir(parents=True)
    git = Git(top)
    for text in ("own", "today's"):
        for name in ("conftest.py", "kernel.py", "tests/test_a.py", "tests/conftest.py"):
            (top / name).write_text(text)
        if text == "own":
            git("add", "-A")
            git.commit("c1")
    (top / "tests" / "test_new.py").write_text("today's")
    (top / "tests" / "__pycache__" / "test_a.pyc").write_text("compiled")
    return BisectedProject(top, top / "tests", (".",))


def texts(folder: Path) -> dict[str, str]:
    """What the files of a checkout hold."""
    found = (p for p in folder.rglob("*") if p.is_file() and p.name != ".git")
    return {p.relative_to(folder).as_posix(): p.read_text() for p in found}


OWN = dict.fromkeys(("conftest.py", "kernel.py", "tests/conftest.py", "tests/test_a.py"), "own")
TODAY = OWN | dict.fromkeys(("conftest.py", "tests/conftest.py", "tests/test_a.py", "tests/test_new.py"), "today's")


@pytest.mark.parametrize(
    ("tests", "own_tests", "held"),
    [
        ((".",), False, TODAY), ((".",), True, OWN),
        (("-k", "a", "test_a.py::test_x"), False, {k: v for k, v in TODAY.items() if k != "tests/test_new.py"}),
    ],
)  # fmt: skip
def test_a_commit_has_todays_tests_and_the_conftests_above_them(
    project: BisectedProject, tests: tuple[str, ...], own_tests: bool, held: dict[str, str]
) -> None:
    asked = BisectedProject(project.top, project.cwd, tests, own_tests=own_tests)
    with asked.laid_out(BisectedVersion("c1")) as found:
        assert texts(found.top) == held
        assert (found.root, found.python) == (found.top / "tests", sys.executable)
        paths = found.env["PYTHONPATH"].split(os.pathsep)
        assert paths[:4] == [str(found.top), f"{found.top}/src", f"{found.top}/lib", "/elsewhere"]
        assert found.shared_path == ("/elsewhere", paths[-1]), "what lies outside of the repository"
    assert not found.top.exists()


def test_a_version_has_its_tritons_interpreter_and_folder_first(project: BisectedProject) -> None:
    triton = TritonChoice("3.9", python="/env/bin/python", folder="/triton")
    for commit in ("c1", ""):
        with project.laid_out(BisectedVersion(commit, triton)) as found:
            assert found.python == "/env/bin/python"
            assert found.env["PYTHONPATH"].split(os.pathsep)[0] == "/triton"
            assert (found.shared_path or [None])[0] == ("/triton" if commit else None)
    with project.laid_out(BisectedVersion()) as found:
        assert (found.top, found.root, found.python) == (project.cwd, project.cwd, sys.executable)
        assert found.env["PYTHONPATH"].startswith(f"{project.top}/lib{os.pathsep}/elsewhere{os.pathsep}")


def test_a_commit_without_the_folder_runs_in_its_root(project: BisectedProject) -> None:
    assert project.top is not None
    later = project.top / "later"
    later.mkdir()
    with BisectedProject(project.top, later, ("../tests",), own_tests=True).laid_out(BisectedVersion("c1")) as found:
        assert found.root == found.top


def test_a_commit_is_built_in_its_checkout(project: BisectedProject) -> None:
    def asked(setup: str) -> BisectedProject:
        return BisectedProject(project.top, project.cwd, (".",), setup)

    with asked('echo "$PYTHONPATH" > built').laid_out(BisectedVersion("c1")) as found:
        assert (found.top / "built").read_text().startswith(f"{found.top}{os.pathsep}")
        assert found.shared_path is None, "more than the checkout may differ"
    with (
        pytest.raises(NotBuilt, match=r"^c1: --setup ended with code 3:\nno compiler$"),
        asked("echo no compiler; exit 3").laid_out(BisectedVersion("c1")),
    ):
        pass


def test_tests_outside_of_the_repository_can_not_be_run_in_a_commit(project: BisectedProject) -> None:
    asked = BisectedProject(project.top, project.cwd, ("../../other.py",))
    with pytest.raises(UsageError, match=rf"/other\.py is not in the repository {project.top}, so no commit can be"):
        asked._test_paths()
    assert BisectedProject(project.top, project.cwd, ("gone.py", "-x"))._test_paths() == []


def test_a_project_is_the_folder_and_the_repository_around_it(project: BisectedProject) -> None:
    words = ["-x", "test_a.py::test_x"]
    found = project_at(project.cwd, words, "make", True, need_git=True)
    assert found == BisectedProject(project.top, project.cwd, tuple(words), "make", True)
    assert project_at(project.cwd, words, "", False, need_git=False).top is None
    narrowed = project_at(project.cwd, ["-k", "not add", "test_a.py", "-m", "slow"], "", False, need_git=True)
    assert narrowed._test_paths() == [project.cwd / "test_a.py"]
    for tests, said in (([], "say which tests to run, after --"), (["-x"], "say which tests to run"),
                        (["-k", "add"], "say which tests to run"),
                        (["-x", "gone.py::x"], "gone.py: there is no such test file in"),
                        (["--tb=no", "gone"], "gone: there is no such test file in"),
                        (["test_a.py", "gone.py::x"], "gone.py: there is no such test file in")):  # fmt: skip
        with pytest.raises(UsageError, match=f"^{said}"):
            project_at(project.cwd, tests, "", False, need_git=True)


def test_the_last_lines_are_those_with_text() -> None:
    text = "\n".join(f"{i}\n  " for i in range(20))
    assert last_lines(text).split() == [str(i) for i in range(5, 20)]


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
