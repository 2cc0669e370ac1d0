"""Which commits need no run of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kerntune.cli.bisect.bisected_version import BisectedProject, BisectedVersion, TritonChoice
from kerntune.cli.bisect.equal_commits import EqualCommits

FIRST = {"kernels.py": "SIZE = 1  # one\n", "other.py": "", "data.json": "{}", "test_it.py": "import kernels\n"}

READ = frozenset({"kernels.py", "data.json", "test_it.py", "__pycache__/kernels.pyc"})


class Commits:
    """A repository; each commit changes some files, None removes one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
        command = ["git", *who, *words]
        return subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, files: dict[str, str | None]) -> BisectedVersion:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.unlink(missing_ok=True)
            if text is not None:
                path.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-qm", "x", "--allow-empty")
        return BisectedVersion(self.git("rev-parse", "HEAD"))

    def equal(self, changed: dict[str, str | None], own_tests: bool = False) -> bool:
        """Whether a commit with these changes needs no run after one without them."""
        first, second = self.commit(FIRST), self.commit(changed)
        equal = EqualCommits[str](BisectedProject(self.folder, self.folder, ("test_it.py",), own_tests=own_tests))
        equal.learn(first, "found", READ)
        assert len(equal.different([first, second])) == 2 - (equal.known(second) is not None)
        return equal.known(second) == "found"


@pytest.fixture
def commits(tmp_path: Path) -> Commits:
    return Commits(tmp_path)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"other.py": "x = 1\n"},
        {"kernels.py": "# another comment\nSIZE = (1)\n"},
        {"test_it.py": "import kernels, sys\n"},
    ],
    ids=["nothing", "a file that is not read", "a comment", "the test, of which today's runs"],
)
def test_a_commit_that_changes_nothing_that_was_read_needs_no_run(
    commits: Commits, changed: dict[str, str | None]
) -> None:
    assert commits.equal(changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"kernels.py": "SIZE = 2  # one\n"},
        {"kernels.py": '"""A docstring."""\nSIZE = 1\n'},
        {"kernels.py": "SIZE = \n"},
        {"data.json": "{ }"},
        {"kernels.py": None, "kernels/__init__.py": "SIZE = 1  # one\n"},
        {"sitecustomize.py": ""},
        {"other.py": None},
    ],
    ids=["code", "a docstring", "no Python", "data", "a renamed file", "an added file", "a removed file"],
)
def test_all_others_need_one(commits: Commits, changed: dict[str, str | None]) -> None:
    assert not commits.equal(changed)


def test_of_each_commits_own_tests_the_tests_count(commits: Commits) -> None:
    assert not commits.equal({"test_it.py": "import kernels, sys\n"}, own_tests=True)


def test_a_symbolic_link_that_points_elsewhere_counts(commits: Commits) -> None:
    def linked(to: str) -> BisectedVersion:
        (commits.folder / "link").unlink(missing_ok=True)
        (commits.folder / "link").symlink_to(to)
        return commits.commit({})

    commits.commit({**FIRST, "a/x.py": "1\n", "b/x.py": "2\n"})
    first, second = linked("a"), linked("b")
    equal = EqualCommits[str](BisectedProject(commits.folder, commits.folder, ("test_it.py",)))
    equal.learn(first, "found", frozenset({"link/x.py", "a/x.py"}))
    assert equal.known(second) is None


def test_what_was_read_is_not_known(commits: Commits) -> None:
    first = commits.commit(FIRST)
    equal = EqualCommits[str](BisectedProject(commits.folder, commits.folder, ("test_it.py",)))
    equal.learn(first, "found", None)
    assert equal.known(first) is None
    assert equal.different([first, BisectedVersion(), BisectedVersion("0" * 40)]) == [
        first, BisectedVersion(), BisectedVersion("0" * 40),
    ]  # fmt: skip


def test_what_another_triton_has_found_says_nothing(commits: Commits) -> None:
    first = commits.commit(FIRST)
    equal = EqualCommits[str](BisectedProject(commits.folder, commits.folder, ("test_it.py",)))
    equal.learn(first, "found", READ)
    other = BisectedVersion(first.commit, TritonChoice("3.8"))
    assert (equal.known(first), equal.known(other)) == ("found", None)
