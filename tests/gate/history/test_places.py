"""Folders, branches and URLs: what is added is there, whatever others add at the same time."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.errors import HistoryError, UsageError
from kerntune.gate.history import places
from kerntune.gate.history.index import Index
from kerntune.gate.history.places import Branch, Folder, Place, file_name, place_of
from kerntune.gate.history.points import SCHEMA, HistoryRun, encoded


def git(where: Path, *args: str) -> str:
    done = subprocess.run(["git", "-C", str(where), *args], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture(autouse=True)
def no_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in CI: git knows no name and no mail address."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "none"))


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of a repository that has one commit."""
    made = tmp_path / "origin.git"
    subprocess.run(["git", "init", "--quiet", "--bare", "-b", "main", str(made)], check=True)
    subprocess.run(["git", "clone", "--quiet", str(made), str(tmp_path / "clone")], check=True, capture_output=True)
    found = tmp_path / "clone"
    (found / "a.txt").write_text("a")
    git(found, "add", "a.txt")
    git(found, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "a")
    git(found, "push", "--quiet", "origin", "HEAD:main")
    return found


def texts(place: Place) -> dict[str, bytes]:
    return dict(place.read(place.names()))


def test_a_folder_has_what_was_added(tmp_path: Path) -> None:
    place = place_of("h", tmp_path)
    assert isinstance(place, Folder)
    assert texts(place) == {}
    place.add("2026/11/a.json", b"1")
    place.add("2026/11/b.json", b"2")
    (tmp_path / "h" / "2026" / "notes.txt").write_text("not ours")
    assert texts(place) == {"2026/11/a.json": b"1", "2026/11/b.json": b"2"}


def test_a_branch_has_what_was_added_and_nothing_else_is_touched(clone: Path, tmp_path: Path) -> None:
    (clone / "b.txt").write_text("staged")
    git(clone, "add", "b.txt")
    place = place_of("git:kerntune-history", clone)
    assert isinstance(place, Branch)
    assert texts(place) == {}
    before = git(clone, "status", "--porcelain", "--branch"), git(clone, "rev-parse", "HEAD")
    place.add("2026/11/a.json", b"1")
    place.add("2026/11/b.json", b'{"two": 2}\n')
    assert texts(place) == {"2026/11/a.json": b"1", "2026/11/b.json": b'{"two": 2}\n'}
    assert (git(clone, "status", "--porcelain", "--branch"), git(clone, "rev-parse", "HEAD")) == before
    assert git(tmp_path / "origin.git", "ls-tree", "-r", "--name-only", "kerntune-history").split() == [
        "2026/11/a.json",
        "2026/11/b.json",
    ]
    assert git(tmp_path / "origin.git", "rev-list", "--count", "kerntune-history") == "2"


def test_a_repository_without_remotes_keeps_it_for_itself(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", "-b", "main", str(tmp_path)], check=True)
    place = place_of("git:h", tmp_path)
    place.add("a.json", b"1")
    place.add("b.json", b"2")
    assert texts(place) == {"a.json": b"1", "b.json": b"2"}
    assert git(tmp_path, "rev-list", "--count", "h") == "2"


@pytest.mark.slow
def test_jobs_that_push_at_once_lose_nothing(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kerntune.gate.history.places.FIRST_WAIT_S", 0.01)
    clones = []
    for i in range(4):
        subprocess.run(["git", "clone", "--quiet", str(tmp_path / "origin.git"), str(tmp_path / f"c{i}")], check=True)
        clones.append(tmp_path / f"c{i}")
    errors: list[Exception] = []

    def add(i: int) -> None:
        try:
            for j in range(2):
                Branch(clones[i], "h").add(f"{i}-{j}.json", str(i).encode())
        except Exception as exc:
            errors.append(exc)

    threads = [threading.Thread(target=add, args=(i,)) for i in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert errors == []
    assert sorted(Branch(clone, "h").names()) == sorted(f"{i}-{j}.json" for i in range(4) for j in range(2))


def test_a_push_that_is_refused_for_good_is_an_error_at_once(clone: Path, tmp_path: Path) -> None:
    hook = tmp_path / "origin.git" / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho this branch is protected >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(HistoryError, match=r"git:h of .*could not change the history.*protected"):
        Branch(clone, "h").add("a.json", b"1")


def test_jobs_wait_longer_and_longer_and_give_up(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At random between half of it and all of it."""
    waits: list[float] = []
    monkeypatch.setattr(places.time, "sleep", waits.append)
    monkeypatch.setattr(places.secrets, "SystemRandom", lambda: SimpleNamespace(uniform=lambda low, high: low / high))
    branch = Branch(clone, "h")
    monkeypatch.setattr(branch, "_publish", lambda commit, tip: "fetch first")
    with pytest.raises(HistoryError, match=r"'Run a' could not be added in 12 attempts: fetch first$"):
        branch.add("2026/a.json", b"1")
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, *[5.0] * 6])


def test_files_are_read_a_few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is removed meanwhile is left out, and one that is too long is never asked for."""
    sizes = {"a": 6, "gone": None, "long": 11, "b": 3, "c": 1, "d": 10}
    asked: list[list[str]] = []
    branch = object.__new__(Branch)
    branch._top, branch._local = Path("/top"), "h"
    monkeypatch.setattr(places, "MAX_BYTES", 10)
    monkeypatch.setattr(places, "AT_ONCE", 2)
    monkeypatch.setattr(branch, "_sizes", lambda names: [sizes[name] for name in names])
    monkeypatch.setattr(places, "blobs", lambda top, names: asked.append(names) or ((name, b"") for name in names))
    found = list(branch.read(iter(sizes)))
    assert asked == [["h:a", "h:b"], ["h:c"], ["h:d"]], "no more bytes than one may have, either"
    assert found == [("long", bytes(11)), ("a", b""), ("b", b""), ("c", b""), ("d", b"")]


@pytest.mark.parametrize(("name", "fits"), [("a" * 1_000, True), ("a" * 1_001, False), ("a\nb", False)])
def test_a_name_is_printable_and_no_longer_than_a_path(name: str, fits: bool) -> None:
    assert places.is_name(name) is fits


def test_a_url_of_fsspec(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    place = place_of(f"file://{tmp_path}/h", tmp_path)
    assert texts(place) == {}
    place.add("2026/a.json", b"1")
    assert texts(place) == {"2026/a.json": b"1"}


@pytest.mark.parametrize("text", ["git:", "git:-x", "git:a..b"])
def test_names_that_no_branch_has(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no name of a branch"):
        place_of(text, tmp_path)


def test_a_url_that_nothing_understands(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nosuch"):
        place_of("nosuch://x", tmp_path)


def test_names_of_files_are_in_order_of_time_and_equal_for_equal_runs() -> None:
    run = HistoryRun(SCHEMA, "2026-11-22T10:15:00+00:00", (), commit="c65088f0a1")
    one, again, other = file_name(run, b"1"), file_name(run, b"1"), file_name(run, b"2")
    assert one == again != other
    assert one == "2026/11/20261122T101500-c65088f0-6b86b273.json"
    nothing = HistoryRun(SCHEMA, "2026-11-22T10:15:00.123456Z", (), commit="unknown!")
    assert file_name(nothing, b"1") == "2026/11/20261122T101500-none-6b86b273.json"


@pytest.mark.parametrize("kind", ["folder", "branch", "local branch", "url"])
def test_what_is_removed_is_gone_and_nothing_else(kind: str, clone: Path, tmp_path: Path) -> None:
    if kind == "local branch":
        git(clone, "remote", "remove", "origin")
    where = {"folder": "h", "url": f"file://{tmp_path}/u"}.get(kind, "git:kerntune-history")
    place = place_of(where, clone)
    for name in ("2026/11/a.json", "2026/11/b.json"):
        place.add(name, name.encode())
    for _ in range(2):
        place.remove("2026/11/a.json")
        assert texts(place) == {"2026/11/b.json": b"2026/11/b.json"}


def test_a_local_branch_loses_nothing_that_another_process_adds(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It moves the branch from what it has read, and begins again where that isn't its tip any more."""
    git(clone, "remote", "remove", "origin")
    one, other = (place_of("git:kerntune-history", clone) for _ in range(2))
    commit = Branch._commit
    one.add("first.json", b"0")

    def slowly(self: Branch, *given: Any) -> str:
        monkeypatch.setattr(Branch, "_commit", commit)
        other.add("theirs.json", b"1")
        return commit(self, *given)

    monkeypatch.setattr(Branch, "_commit", slowly)
    monkeypatch.setattr("kerntune.gate.history.places.FIRST_WAIT_S", 0.0)
    one.add("mine.json", b"2")
    assert set(texts(one)) == {"first.json", "mine.json", "theirs.json"}


def test_a_name_with_a_line_feed_hides_no_other_run(clone: Path) -> None:
    """Git keeps such a name, and its output has a line a name."""
    place = place_of("git:kerntune-history", clone)
    for name in ("2026/11/a.json", "2026/11/b\n.json", "2026/11/c.json"):
        run_of_name = HistoryRun(SCHEMA, "2026-11-22T10:15:00Z", (), commit=name[8])
        if "\n" in name:
            _with_name(clone, name.encode())
        else:
            place.add(name, encoded(run_of_name))
    index = Index(place, clone / "index")
    (problem,) = index.update()
    assert problem == "2026/11/b\\n.json: no file of a history is called so; remove it"
    assert [info.code for info in index.runs().values()] == ["a", "c"]


def _with_name(clone: Path, name: bytes) -> None:
    """Put a file of any name on the branch of the remote, as another user of it can."""
    at = ["git", "-C", str(clone)]
    git(clone, "fetch", "--quiet", "origin", "kerntune-history:history")
    blob = subprocess.run([*at, "hash-object", "-w", "--stdin"], input=b"{}", capture_output=True, check=True).stdout
    listed = subprocess.run([*at, "ls-tree", "-r", "-z", "history"], capture_output=True, check=True).stdout
    listed += b"100644 blob " + blob.strip() + b"\t" + name + b"\0"
    env = {**os.environ, "GIT_INDEX_FILE": str(clone / "other.index")}
    subprocess.run([*at, "update-index", "-z", "--index-info"], input=listed, check=True, env=env)
    tree = subprocess.run([*at, "write-tree"], capture_output=True, check=True, env=env, text=True).stdout.strip()
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    commit = git(clone, *who, "commit-tree", tree, "-p", "history", "-m", "theirs")
    git(clone, "push", "--quiet", "origin", f"{commit}:refs/heads/kerntune-history")


def test_a_file_that_is_too_long_is_not_read(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = place_of("git:kerntune-history", clone)
    place.add("2026/11/a.json", b"x" * 300)
    place.add("2026/11/b.json", b"y" * 20)
    place.add("2026/11/c.json", b"z" * 90)
    monkeypatch.setattr(places, "MAX_BYTES", 100)
    found = texts(place)
    assert found == {"2026/11/a.json": bytes(101), "2026/11/b.json": b"y" * 20, "2026/11/c.json": b"z" * 90}


def test_a_run_that_is_removed_while_it_is_read_hides_no_other(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = place_of("git:kerntune-history", clone)
    place.add("2026/11/b.json", b"y")
    assert place.names() == ["2026/11/b.json"]
    monkeypatch.setattr(Branch, "_sizes", lambda self, names: [1 for _ in names])
    assert dict(place.read(["2026/11/a.json", "2026/11/b.json"])) == {"2026/11/b.json": b"y"}
