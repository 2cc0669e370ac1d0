"""Files behind URLs: bounded reads, and one winner among all who create a file."""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from doubles import raising

from kerntune.base import url_files
from kerntune.base.url_files import FolderFiles, UrlFiles, open_files
from kerntune.errors import UsageError

PROCESSES = 4


@pytest.fixture
def files(tmp_path: Path) -> UrlFiles:
    return open_files(f"file://{tmp_path}/store")


def test_a_folder_reads_what_was_written(files: UrlFiles) -> None:
    assert files.read("a/b.json", 10) is None
    assert files.names("a") == []
    assert files.create("a/b.json", b"1")
    assert files.read("a/b.json", 10) == b"1"
    assert files.read_many(["a/b.json", "a/c.json"], 10) == [b"1", None]
    files.replace("a/b.json", b"2")
    assert files.names() == ["a/b.json"]
    files.remove("a/b.json")
    files.remove("a/b.json")
    assert files.names() == []


def test_who_comes_second_changes_nothing(files: UrlFiles) -> None:
    assert files.create("a", b"1")
    assert not files.create("a", b"2")
    assert files.read("a", 10) == b"1"


def create(url: str, number: int, begin: Any, told: Any) -> None:
    files = open_files(url)
    begin.wait(60)
    told.put([files.create(f"k{key}", b"%d" % number) for key in range(50)])


def test_of_several_processes_one_creates(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    begin, told = context.Barrier(PROCESSES), context.Queue()
    args = [(f"file://{tmp_path}", number, begin, told) for number in range(PROCESSES)]
    crowd = [context.Process(target=create, args=one) for one in args]
    for process in crowd:
        process.start()
    answers = [told.get(timeout=60) for _ in crowd]
    for process in crowd:
        process.join()
    assert [sum(won) for won in zip(*answers, strict=True)] == [1] * 50


def test_what_a_url_needs_is_named() -> None:
    with pytest.raises(UsageError, match="nosuchprotocol"):
        open_files("nosuchprotocol://a")
    with pytest.raises(UsageError, match=r"file:///mnt/a"):
        open_files("/mnt/a")


def test_spaces_and_signs_in_a_folder(tmp_path: Path) -> None:
    files = open_files(f"file://{tmp_path}/a%20b")
    assert isinstance(files, FolderFiles)
    assert files.create("x", b"1")
    assert (tmp_path / "a b" / "x").read_bytes() == b"1"


# through fsspec


@pytest.fixture
def memory() -> UrlFiles:
    pytest.importorskip("fsspec")
    files = open_files("memory://kerntune-url-files")
    for name in files.names():
        files.remove(name)
    return files


def test_fsspec_reads_what_was_written(memory: UrlFiles) -> None:
    assert memory.names("a") == []
    assert memory.read("a/b", 10) is None
    memory.replace("a/b", b"12345")
    assert memory.read("a/b", 10) == b"12345"
    assert memory.read("a/b", 3) == b"1234"
    assert memory.read_many(["a/b", "a/c"], 10) == [b"12345", None]
    assert memory.read_many(["a/b"], 3) == [b"1234"]
    assert memory.names() == ["a/b"]
    memory.remove("a/b")
    memory.remove("a/b")
    assert memory.names() == []


def test_a_long_file_is_read_up_to_its_limit_and_a_fifo_is_not_waited_for(files: UrlFiles, tmp_path: Path) -> None:
    files.replace("long", b"x" * 100)
    assert files.read("long", 10) == b"x" * 11
    assert files.read_many(["long", "none"], 10) == [b"x" * 11, None]
    os.mkfifo(tmp_path / "store" / "fifo")
    assert files.read("fifo", 10) == b""


@pytest.mark.parametrize(
    ("url", "package"), [("sftp://me:secret@host/a", "paramiko"), ("s3://me:secret@host/a", "fsspec.core")]
)
def test_a_missing_package_is_named_without_the_password(
    url: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=r"^\w+://me@host/a: install ") as told:
        open_files(url)
    assert "secret" not in str(told.value)


class TurnedClock:
    """A second later at each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now


@pytest.mark.parametrize("kind", ["folder", "fsspec"])
def test_files_that_come_one_after_the_other_have_a_limit_together(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one who asks waits less than a second for a store, however many files a kernel has there."""
    if kind == "fsspec":
        pytest.importorskip("fsspec")
    url = f"file://{tmp_path}" if kind == "folder" else "memory://kerntune-in-turn"
    limited, patient = open_files(url, 2.0), open_files(url)
    names = ["a", "b", "c", "d"]
    for name in names:
        patient.replace(name, b"1")
    monkeypatch.setattr(url_files, "time", TurnedClock())
    assert limited.read_many(names, 10) == [b"1", b"1", None, None]
    assert patient.read_many(names, 10) == [b"1"] * 4


def test_folders_are_made_above_a_file_where_there_are_folders(
    memory: UrlFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    files: Any = memory
    monkeypatch.setattr(files._fs, "makedirs", lambda path, exist_ok: made.append((path, exist_ok)))
    memory.replace("a/b/c", b"1")
    memory.create("d/e", b"1")
    assert made == [(f"{files._root}/a/b", True), (f"{files._root}/d", True)]
    files._has_folders = False
    memory.replace("f/g", b"1")
    assert len(made) == 2


@pytest.mark.parametrize("error", ["InvalidRange: a byte of nothing", "416 Requested Range Not Satisfiable", "500"])
def test_a_service_that_refuses_a_range_has_an_empty_file(
    memory: UrlFiles, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    files: Any = memory
    monkeypatch.setattr(files._fs, "cat_file", raising(RuntimeError(error)))
    if error == "500":
        with pytest.raises(RuntimeError, match="500"):
            memory.read("a", 10)
    else:
        assert memory.read("a", 10) == b""


@pytest.mark.parametrize(
    ("protocol", "timeout", "found"),
    [
        ("memory", 2.0, {}), ("gs", None, {"use_listings_cache": False}), ("s3", None, {"use_listings_cache": False}),
        ("s3", 2.5, {"use_listings_cache": False, "config_kwargs": {
            "connect_timeout": 2.5, "read_timeout": 2.5, "retries": {"total_max_attempts": 1}}}),
    ],
)  # fmt: skip
def test_file_systems_keep_nothing_and_wait_as_long_as_they_may(protocol: str, timeout: Any, found: Any) -> None:
    assert url_files._options(protocol, timeout) == {"skip_instance_cache": True, **found}
