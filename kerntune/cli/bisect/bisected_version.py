"""What lies on the line of a bisection: a commit's code under one Triton and torch, and its checkout."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import platformdirs

from kerntune.base.orphans import LAST_LINES, run_to_end
from kerntune.errors import UsageError
from kerntune.gate import git
from kerntune.gate.git import git_output


class NotBuilt(Exception):
    """A version that can't be laid out or built; the text says why. The bisection goes on with its neighbours."""


class TritonChoice(NamedTuple):
    """A Triton, or a torch (``package``), to run with: the interpreter of an environment that has it (empty: this one),
    and a folder that comes first on the path (empty for none). ``name`` is empty for what is installed here."""

    name: str = ""
    python: str = ""
    folder: str = ""
    package: str = "Triton"

    def __str__(self) -> str:
        return f"{self.package} {self.name}"


INSTALLED = TritonChoice()


class BisectedVersion(NamedTuple):
    """A commit (empty: the working tree as it is) under one Triton."""

    commit: str = ""
    triton: TritonChoice = INSTALLED

    def __str__(self) -> str:
        parts = [self.commit[:12] or "the working tree"] if self.commit or not self.triton.name else []
        return " under ".join([*parts, *([str(self.triton)] if self.triton.name else [])])


class Checkout(NamedTuple):
    """Where and how a version's tests run: in the folder ``root`` of the checkout ``top``."""

    top: Path
    root: Path
    python: str
    env: dict[str, str]
    shared_path: tuple[str, ...] | None = None
    """What all commits have on their path. None if the code is not only what is in the checkout: a process that has
    imported torch before can't run it then."""


class BisectedProject(NamedTuple):
    """The project that is bisected: the repository's root (None outside of git), the folder that the command runs in,
    what pytest is asked to run there, and the command that builds a commit (empty for none). ``own_tests``: each commit
    runs its own tests, not today's."""

    top: Path | None
    cwd: Path
    tests: tuple[str, ...]
    setup: str = ""
    own_tests: bool = False

    @contextmanager
    def laid_out(self, version: BisectedVersion) -> Iterator[Checkout]:
        """Check a version out aside and build it; :class:`NotBuilt` if that fails. The checkout is removed after."""
        first = [version.triton.folder] if version.triton.folder else []
        if not version.commit:
            env = git.run_environment([*first, *git.python_path()])
            yield Checkout(self.cwd, self.cwd, version.triton.python or sys.executable, env)
            return
        assert self.top is not None
        with git.worktree(version.commit, self.top) as root:
            here = root / self.cwd.relative_to(self.top)
            if not self.own_tests:
                for relative, source in self._replaced().items():
                    (root / relative).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source, root / relative)
            env = git.worktree_environment(root, self.top, first=first)
            done = run_to_end(["/bin/sh", "-c", self.setup], root, env) if self.setup else None
            if done is not None and done.code:
                raise NotBuilt(f"{version}: --setup ended with code {done.code}:\n{done.last()}")
            outside = [entry for entry in git.python_path() if not Path(entry).resolve().is_relative_to(self.top)]
            shared = None if self.setup else (*first, *outside, git.own_path())
            python = version.triton.python or sys.executable
            yield Checkout(root, here if here.is_dir() else root, python, env, shared)

    def _replaced(self) -> dict[Path, Path]:
        """Files that pytest is given, those in folders that it is given, and conftests above them, by their places."""
        assert self.top is not None
        found: list[Path] = []
        for path in self._test_paths():
            inside = path.rglob("*") if path.is_dir() else [path]
            found += [p for p in inside if p.is_file() and "__pycache__" not in p.parts]
            above = [f / "conftest.py" for f in path.parents if f.is_relative_to(self.top)]
            found += [p for p in above if p.is_file()]
        return {path.relative_to(self.top): path for path in found}

    def _test_paths(self) -> list[Path]:
        assert self.top is not None
        found = [(self.cwd / name).resolve() for name in named_files(self.tests, self.cwd)]
        for path in found:
            if not path.is_relative_to(self.top):
                raise UsageError(f"{path} is not in the repository {self.top}, so no commit can be tested with it")
        return [path for path in found if path.exists()]


def named_files(words: Sequence[str], cwd: Path) -> list[str]:
    """The files and folders of tests among pytest's arguments. A word after an option is its value, as in ``-k add``,
    unless it is there or can only be a file of tests."""
    found = []
    for before, word in pairwise(["", *words]):
        name = word.partition("::")[0]
        after_option = before.startswith("-") and "=" not in before
        if not word.startswith("-") and (not after_option or name.endswith(".py") or (cwd / name).exists()):
            found.append(name)
    return found


def project_at(cwd: Path, tests: Sequence[str], setup: str, own_tests: bool, need_git: bool) -> BisectedProject:
    """The project around a folder; :class:`UsageError` if it has no tests to run, or isn't in git where it must be."""
    names = named_files(tests, cwd)
    if not names:
        raise UsageError("say which tests to run, after --: kerntune bisect GOOD BAD -- tests/test_x.py::test_y")
    for name in names:
        if not (cwd / name).exists():
            raise UsageError(
                f"{name}: there is no such test file in {cwd}; today's test runs against each commit's code"
            )
    cwd = cwd.resolve()
    top = git.top_of(cwd) if need_git else None
    return BisectedProject(top, cwd, tuple(tests), setup, own_tests)


def commits_between(top: Path, good: str, bad: str) -> list[str]:
    """The good commit, those after it on the way to the bad one, the bad one: along first parents if the good one lies
    there, else all that descend from it. :class:`UsageError` if the good one is no ancestor."""
    first, last = git.commit_of(top, good), git.commit_of(top, bad)
    if git_output(top, "merge-base", "--is-ancestor", first, last) is None:
        if git_output(top, "merge-base", "--is-ancestor", last, first) is not None:
            raise UsageError(f"{bad} is older than {good}: the good side comes first: kerntune bisect {bad} {good}")
        raise UsageError(
            f"{good} is no ancestor of {bad}; name the commit where both begin: git merge-base {good} {bad}"
        )
    line = _listed(top, "--first-parent", f"{first}..{last}")
    if line and (git_output(top, "rev-parse", f"{line[0]}^1") or b"").decode().strip() != first:
        line = _listed(top, "--topo-order", "--ancestry-path", f"{first}..{last}")
    return [first, *line]


def merged_by(top: Path, commit: str) -> list[str]:
    """Of a merge: its first parent, and the commits that it merged, in order; else nothing."""
    parents = (git_output(top, "rev-parse", f"{commit}^@") or b"").decode().split()
    if len(parents) < 2:
        return []
    return [parents[0], *_listed(top, "--first-parent", f"{parents[0]}..{parents[1]}")]


def commit_line(top: Path, commit: str) -> str:
    """A commit for people: its short name, date, author and subject."""
    shown = git_output(top, "show", "-s", "--date=short", "--format=%h %ad %an: %s", commit) or commit.encode()
    return shown.decode(errors="replace").strip()


def _listed(top: Path, *words: str) -> list[str]:
    return (git_output(top, "rev-list", "--reverse", *words) or b"").decode().split()


def triton_choices(text: str, package: str = "Triton") -> list[TritonChoice]:
    """What ``--triton`` or ``--torch`` names: versions, oldest first as given; ``NAME=PATH`` is an environment's
    interpreter or a folder that has the ``package``. A version without a path is installed once, by pip, into
    kerntune's cache folder."""
    return [_choice(part.strip(), package) for part in text.split(",") if part.strip()]


def _choice(text: str, package: str) -> TritonChoice:
    name, has_path, path = text.partition("=")
    if not has_path:
        return TritonChoice(name, folder=str(_installed(name, package)), package=package)
    found, word = Path(path).expanduser().absolute(), package.lower()
    if (found / word).is_dir():
        return TritonChoice(name, folder=str(found), package=package)
    if found.is_file() and os.access(found, os.X_OK):
        return TritonChoice(name, python=str(found), package=package)
    raise UsageError(f"--{word} {text}: {path} is neither an interpreter nor a folder that has {word}/")


def _installed(version: str, package: str) -> Path:
    """The folder of a version. Of torch its libraries are in it as well, but not the Triton that it asks for: versions
    on a line differ in one package."""
    word = package.lower()
    if not re.fullmatch(r"\d+(\.\d+){1,2}(\.\*|[\w.]*)", version):
        raise UsageError(f"--{word} {version}: is no version; write 3.9, 3.9.0, or NAME=PATH of an environment")
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    place = Path(platformdirs.user_cache_dir("kerntune")) / f"{word}s" / f"{version}-{python}"
    if (place / word).is_dir():
        return place
    aside = place.with_name(f"{place.name}.{os.getpid()}")
    wanted = f"{word}=={version}" + (".*" if version.count(".") < 2 else "")
    alone = ["--no-deps"] if word == "triton" else []
    done = run_to_end([sys.executable, "-m", "pip", "install", "--quiet", *alone, "--target", str(aside), wanted])
    if done.code:
        shutil.rmtree(aside, ignore_errors=True)
        raise UsageError(f"--{word} {version}: pip could not install it:\n{done.last()}")
    if word != "triton":
        for part in [aside / "triton", *aside.glob("triton-*.dist-info")]:
            shutil.rmtree(part, ignore_errors=True)
    with suppress(OSError):  # another process was first
        aside.rename(place)
    shutil.rmtree(aside, ignore_errors=True)
    return place


def last_lines(text: str) -> str:
    """The end of a command's output."""
    return "\n".join([line for line in text.splitlines() if line.strip()][-LAST_LINES:])
