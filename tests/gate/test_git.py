"""A revision's files beside the user's checkout, which stays as it is."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from git_project import git
from source_path import source_path

from kerntune.errors import UsageError
from kerntune.gate import git as module
from kerntune.gate.git import commit_of, extract, git_output, top_of, worktree, worktree_environment


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "baselines" / "cuda-90").mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    (root / "baselines" / "cuda-90" / "a.json").write_text("first")
    (root / "code.py").write_text("x = 1\n")
    (root / ".gitattributes").write_text("baselines export-ignore\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    git(root, "tag", "v1")
    (root / "baselines" / "cuda-90" / "a.json").write_text("second")
    git(root, "commit", "-qam", "second")
    return root


def test_a_folder_is_read_from_a_revision(repository: Path, tmp_path: Path) -> None:
    found = extract("v1", repository / "baselines", tmp_path / "out")
    assert (found / "cuda-90" / "a.json").read_text() == "first", "though archives leave it out"
    assert (repository / "baselines" / "cuda-90" / "a.json").read_text() == "second"
    assert not (tmp_path / "out" / "code.py").exists()


def test_what_is_staged_stays_staged(repository: Path, tmp_path: Path) -> None:
    (repository / "code.py").write_text("x = 2\n")
    git(repository, "add", "code.py")
    before = git(repository, "status", "--porcelain")
    extract("HEAD", repository / "baselines", tmp_path / "out")
    with worktree("v1", repository / "baselines"):
        pass
    assert git(repository, "status", "--porcelain") == before == "M  code.py\n"


def test_a_revision_without_the_folder_has_an_empty_one(repository: Path, tmp_path: Path) -> None:
    found = extract("v1", repository / "later", tmp_path / "out")
    assert list(found.iterdir()) == []


def test_a_worktree_holds_the_revision_and_goes(repository: Path) -> None:
    with worktree("v1", repository) as root:
        assert (root / "baselines" / "cuda-90" / "a.json").read_text() == "first"
        assert root.name == repository.name
        assert len(git(repository, "worktree", "list").splitlines()) == 2
    assert not root.exists()
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_a_worktree_goes_whatever_happens(repository: Path) -> None:
    with pytest.raises(RuntimeError, match="broken"), worktree("v1", repository) as root:
        raise RuntimeError("broken")
    assert not root.exists()


def test_what_is_no_blob_is_left_out_of_several(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As git says of a name that it lacks, and of another repository's commit."""
    out = b"%s blob 2\nhi\nc:b 3 missing\n%s submodule\n%s blob 0\n\n" % ((b"a" * 40,) * 3)
    monkeypatch.setattr(module, "_must", lambda *args, **words: out)
    assert list(module.blobs(tmp_path, ["c:a", "c:b 3", "c:s", "c:e"])) == [("c:a", b"hi"), ("c:e", b"")]


def test_top_and_commit(repository: Path) -> None:
    assert top_of(repository / "baselines" / "not" / "there") == repository.resolve()
    assert commit_of(repository, "v1") == git(repository, "rev-parse", "v1").strip()


@pytest.mark.parametrize("name", ["v2", "--help", "main:code.py", ""])
def test_no_such_revision(repository: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no such commit, branch or tag"):
        extract(name, repository / "baselines", tmp_path / "out")


def test_no_repository(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="in no git repository"):
        extract("HEAD", tmp_path / "baselines", tmp_path / "out")


def test_a_folder_elsewhere(repository: Path, tmp_path: Path) -> None:
    (repository / "link").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="in no git repository"):
        extract("HEAD", repository / "link" / "baselines", tmp_path / "out")


HOLD = """
import sys, pathlib
from kerntune.gate.git import worktree
with worktree('v1', pathlib.Path(sys.argv[1])) as root:
    print(root, flush=True)
    input()
"""


def test_a_killed_process_leaves_a_worktree_for_the_next_to_remove(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder and what git has noted; the user's own worktree on a disk that isn't there now stays noted."""
    git(repository, "worktree", "add", "--quiet", "--detach", str(tmp_path / "mine"), "v1")
    (tmp_path / "mine").rename(tmp_path / "unmounted")
    place = tmp_path / "tmp"
    place.mkdir()
    env = {**os.environ, "TMPDIR": str(place), "PYTHONPATH": source_path(Path(__file__).parents[2])}
    held = subprocess.Popen([sys.executable, "-c", HOLD, str(repository)], stdin=-1, stdout=-1, text=True, env=env)
    assert held.stdout is not None
    root = Path(held.stdout.readline().strip())
    assert (root / ".git").exists()
    held.kill()
    held.communicate()
    assert root.exists()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    with worktree("v1", repository):
        assert not root.exists()
        assert str(root) not in git(repository, "worktree", "list")
    assert list(place.iterdir()) == []
    assert str(tmp_path / "mine") in git(repository, "worktree", "list")


def test_a_run_in_a_worktree_has_the_code_of_the_worktree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So has what PYTHONPATH names of the repository; other entries stay, and this kerntune comes last."""
    tree, top, other = tmp_path / "tree", tmp_path / "project", tmp_path / "other"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (top / "lib", other, top))))
    monkeypatch.setenv("PYTEST_ADDOPTS", "-x")
    found = worktree_environment(tree, top, tree / "sub", first=["triton"])
    assert "PYTEST_ADDOPTS" not in found
    ours = Path(__file__).resolve().parents[2]
    paths = [Path("triton"), tree / "sub", tree / "sub" / "src", tree / "lib", other, tree, ours]
    assert found["PYTHONPATH"].split(os.pathsep) == list(map(str, paths))


def test_an_error_names_gits_command_and_folder(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "commit_of", lambda top, revision: "nothing")
    with pytest.raises(UsageError, match=rf"git read-tree failed in {repository.resolve()}: fatal: "):
        extract("v1", repository / "baselines", tmp_path / "out")


def test_what_git_prints_counts_only_if_it_succeeds(repository: Path) -> None:
    name = hashlib.sha1(b"blob 1\0x", usedforsecurity=False).hexdigest()
    assert git_output(repository, "hash-object", "--stdin", given=b"x") == f"{name}\n".encode()
    assert git_output(repository, "no-such-command") is None
    assert git_output(repository, "diff", "--quiet", "v1") is None, "an exit code of 1"


def test_without_git_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="git is not installed"):
        git_output(tmp_path, "status")


def test_git_asks_for_no_password_and_speaks_english(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []

    def run(command: list[str], **words: Any) -> Any:
        seen.append(words["env"])
        return subprocess.CompletedProcess(command, 0, b"", b"")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("LC_ALL", "de_DE")
    module.run_git(tmp_path, "status")
    module.run_git(tmp_path, "status", env={"A": "b"})
    assert [(env["GIT_TERMINAL_PROMPT"], env["LC_ALL"], env.get("A")) for env in seen] == [
        ("0", "C", None),
        ("0", "C", "b"),
    ]
    assert "PATH" not in seen[1]


def test_python_looks_in_the_worktree_itself_unless_a_project_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    tree = tmp_path / "tree"
    paths = worktree_environment(tree, tmp_path / "project")["PYTHONPATH"].split(os.pathsep)
    assert paths == [str(tree), str(tree / "src"), module.own_path()]


@pytest.mark.parametrize(("before", "after"), [("/theirs", ["/theirs"]), ("", [])])
def test_another_run_of_the_same_tests_finds_this_kerntune_first(
    monkeypatch: pytest.MonkeyPatch, before: str, after: list[str]
) -> None:
    """It is no worker of pytest-xdist, though its options are the same."""
    own = {"PYTHONPATH": before, "PYTEST_ADDOPTS": "-x", "PYTEST_CURRENT_TEST": "a", "PYTEST_XDIST_WORKER": "gw0"}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    found = module.own_environment()
    assert found["PYTHONPATH"] == os.pathsep.join([module.own_path(), *after])
    assert own.keys() & found.keys() == {"PYTHONPATH", "PYTEST_ADDOPTS"}
