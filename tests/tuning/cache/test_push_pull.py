"""A cache that goes to a store and comes back."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

from kerntune.base.config import Config
from kerntune.base.store_process import Contents, ReadRequest
from kerntune.base.url_files import FolderFiles
from kerntune.errors import CacheError, UsageError
from kerntune.tuning.cache import TrialCache, Winner, WinnerCache, exchange
from kerntune.tuning.cache.exchange import pull_cache, push_cache
from kerntune.tuning.cache.keys import SCHEMA
from kerntune.tuning.cache.shared_store import winner_name
from tuning.cache.made import ENVIRONMENT, LARGE, SMALL, WINNER, trial
from tuning.cache.stores import machine

MAX_ENTRY = 1 << 22


replace = msgspec.structs.replace


def won(number: int = 0, config: Config = SMALL, **changes: Any) -> Winner:
    return Winner(SCHEMA, replace(WINNER, arguments=f"n={number}", **changes), config, 1.0, ENVIRONMENT)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A cache with winners of two kernels, and trials."""
    cache, tried = WinnerCache(tmp_path / "full"), TrialCache(tmp_path / "full")
    for number in range(3):
        cache.add(won(number))
        cache.add(won(number, kernel="mul_kernel"))
    for config in (SMALL, LARGE):
        tried.add(trial(config))
    return tmp_path / "full"


def test_what_is_pushed_can_be_pulled_and_push_counts_and_stores_what_is_new(
    full: Path, url: str, tmp_path: Path
) -> None:
    pushed = push_cache(full, url)
    assert (pushed.winners, pushed.trials, pushed.kept) == (6, 2, 0)
    WinnerCache(full).add(won(7))
    TrialCache(full).add(trial(Config({"BLOCK": 7})))
    pushed = push_cache(full, url)
    assert (pushed.winners, pushed.trials, pushed.kept) == (1, 1, 8)
    pulled = pull_cache(tmp_path / "other", url)
    assert (pulled.winners, pulled.trials, pulled.kept) == (7, 3, 0)
    assert WinnerCache(tmp_path / "other").entries() == WinnerCache(full).entries()
    assert TrialCache(tmp_path / "other").entries() == TrialCache(full).entries()


def test_doing_it_again_changes_nothing(full: Path, url: str, tmp_path: Path) -> None:
    push_cache(full, url)
    before = {p: p.read_bytes() for p in (tmp_path / "store").rglob("*") if p.is_file()}
    again = push_cache(full, url)
    assert (again.winners, again.trials, again.kept, again.damaged) == (0, 0, 8, ())
    assert {p: p.read_bytes() for p in (tmp_path / "store").rglob("*") if p.is_file()} == before
    assert pull_cache(full, url).kept == 8


def test_what_the_store_has_stays_and_is_used_by_all(full: Path, url: str, tmp_path: Path) -> None:
    machine(tmp_path, "first").offer(won(1, LARGE))
    pushed = push_cache(full, url)
    assert (pushed.winners, pushed.kept) == (5, 1)
    assert machine(tmp_path, "full").get(won(1).key) == won(1, LARGE)


def test_winners_only(full: Path, url: str, tmp_path: Path) -> None:
    assert push_cache(full, url, with_trials=False).trials == 0
    assert pull_cache(tmp_path / "other", url).trials == 0
    push_cache(full, url)
    assert pull_cache(tmp_path / "third", url, with_trials=False).trials == 0


def test_what_is_no_entry_is_named_and_left(full: Path, url: str, tmp_path: Path) -> None:
    push_cache(full, url)
    path = tmp_path / "store" / winner_name(won(1).key, 1)
    path.write_bytes(b"{")
    (path.parent / "notes.txt").write_text("not ours")
    pulled = pull_cache(tmp_path / "other", url)
    assert (pulled.winners, pulled.trials) == (5, 2)
    assert len(pulled.damaged) == 1
    assert path.name in pulled.damaged[0]
    assert path.read_bytes() == b"{"


def test_files_that_can_not_be_used_are_told_by_every_pull(full: Path, url: str, tmp_path: Path) -> None:
    push_cache(full, url, with_trials=False)
    paths = sorted((tmp_path / "store" / "v1" / "winners").rglob("*.1.json"))
    for path, data in zip(paths, (b"", b"{", b" " * (MAX_ENTRY + 1), b"[]", b"x", b"null"), strict=True):
        path.write_bytes(data)
    first, second = (pull_cache(tmp_path / "other", url) for _ in range(2))
    assert (first.winners, first.trials, first.kept) == (0, 0, 0)
    assert first.damaged == second.damaged
    for path in paths:
        assert sum(path.name in line for line in first.damaged) == 1


def test_files_that_are_listed_and_can_not_be_read_are_told(
    full: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push_cache(full, url)
    monkeypatch.setattr(FolderFiles, "read_many", lambda self, names, limit: [None for _ in names])
    pulled = pull_cache(tmp_path / "other", url, with_trials=False)
    assert pulled.winners == 0
    assert len(pulled.damaged) == 6
    assert all("can't be read, or was removed meanwhile" in line for line in pulled.damaged)


def test_damage_that_push_meets_is_told(full: Path, url: str, tmp_path: Path) -> None:
    push_cache(full, url)
    (tmp_path / "store" / winner_name(won(1).key, 1)).write_bytes(b"{")
    pushed = push_cache(full, url)
    assert (pushed.winners, pushed.kept) == (1, 7)
    assert len(pushed.damaged) == 1


@pytest.mark.parametrize(
    ("url", "package"),
    [
        ("s3://a/b", "s3fs"),
        ("gs://a/b", "gcsfs"),
        ("sftp://me:secret@host/a", "paramiko"),
        ("hf://datasets/a/b", "huggingface_hub"),
        ("s3://a/b", "fsspec.core"),
    ],
)
@pytest.mark.parametrize("carry", [push_cache, pull_cache])
def test_a_missing_package_is_named_before_anything_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, carry: Callable[..., Any], url: str, package: str
) -> None:
    if package == "fsspec.core":
        monkeypatch.setitem(sys.modules, "s3fs", ModuleType("s3fs"))
    monkeypatch.setitem(sys.modules, package, None)
    named = {"fsspec.core": "kerntune[store], which brings fsspec"}.get(package, package)
    with pytest.raises(UsageError, match=re.escape(f": install {named}")) as told:
        carry(tmp_path / "empty", url)
    assert "secret" not in str(told.value)


def test_a_store_that_can_not_be_written_is_an_error(full: Path, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    with pytest.raises(CacheError, match="store"):
        push_cache(full, f"file://{tmp_path}/store")


@pytest.mark.parametrize("carry", [push_cache, pull_cache])
@pytest.mark.parametrize("url", ["memory://a", "/mnt/store"])
def test_what_is_no_store_is_refused_by_name_either_way(full: Path, carry: Callable[..., Any], url: str) -> None:
    with pytest.raises(UsageError, match=url):
        carry(full, url)


# Hugging Face


class Hub:
    """What huggingface_hub does, on a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.commits = folder, list[dict[str, Any]]()

    def create_commit(self, *, operations: Any, **words: Any) -> None:
        self.commits.append(words)
        for path, data in operations:
            FolderFiles(self.folder).replace(path, data)

    def module(self) -> ModuleType:
        found: Any = ModuleType("huggingface_hub")
        found.HfApi = lambda: self
        found.CommitOperationAdd = lambda path, data: (path, data)
        place = SimpleNamespace(repo_id="a/b", repo_type="dataset", revision="main", path_in_repo="tuned")
        found.HfFileSystem = lambda: SimpleNamespace(resolve_path=lambda path: place)
        return found


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    found = Hub(tmp_path / "repo")
    monkeypatch.setitem(sys.modules, "huggingface_hub", found.module())
    local = exchange.DirectClient(f"file://{tmp_path}/repo/tuned")
    monkeypatch.setattr(exchange, "DirectClient", lambda url: local)
    return found


def test_a_repository_gets_one_commit(full: Path, hub: Hub, tmp_path: Path) -> None:
    pushed = push_cache(full, "hf://datasets/a/b/tuned")
    assert (pushed.winners, pushed.trials, pushed.kept) == (6, 2, 0)
    assert len(hub.commits) == 1
    assert hub.commits[0]["repo_id"] == "a/b"
    pulled = pull_cache(tmp_path / "other", "hf://datasets/a/b/tuned")
    assert (pulled.winners, pulled.trials) == (6, 2)


def test_a_repository_keeps_the_winners_that_it_has(full: Path, hub: Hub, tmp_path: Path) -> None:
    cache = WinnerCache(tmp_path / "first")
    cache.add(won(1, LARGE))
    push_cache(tmp_path / "first", "hf://datasets/a/b/tuned")
    assert push_cache(full, "hf://datasets/a/b/tuned").kept == 1
    again = push_cache(full, "hf://datasets/a/b/tuned")
    assert (again.winners, again.trials, again.kept) == (0, 0, 8)
    assert len(hub.commits) == 2
    pull_cache(tmp_path / "other", "hf://datasets/a/b/tuned")
    assert WinnerCache(tmp_path / "other").own(won(1).key) == won(1, LARGE)
    assert len(WinnerCache(tmp_path / "other").entries()) == 6


def test_without_its_package_it_is_named(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UsageError, match="huggingface_hub"):
        push_cache(full, "hf://datasets/a/b")


@pytest.mark.parametrize(("count", "requests"), [(0, []), (1, [1]), (64, [64]), (65, [64, 1]), (130, [64, 64, 2])])
def test_files_are_read_64_at_a_time(count: int, requests: list[int]) -> None:
    asked: list[int] = []

    def ask(request: ReadRequest) -> Contents:
        asked.append(len(request.names))
        return Contents(tuple(name.encode() for name in request.names))

    client: Any = SimpleNamespace(ask=ask)
    names = [f"{i}" for i in range(count)]
    assert list(exchange._read(client, names)) == [(name, name.encode()) for name in names]
    assert asked == requests


def test_files_that_can_not_be_read_are_noted() -> None:
    client: Any = SimpleNamespace(ask=lambda request: Contents((b"1234", None, b"", b"12345")))
    unread: list[str] = []
    found = list(exchange._read(client, ["a", "b", "c", "d"], unread))
    assert found == [("a", b"1234"), ("c", b""), ("d", b"12345")]
    assert unread == ["b"]


def test_a_repository_s_winner_that_can_not_be_used_is_named_and_followed(full: Path, hub: Hub, tmp_path: Path) -> None:
    push_cache(full, "hf://datasets/a/b/tuned")
    path = tmp_path / "repo" / "tuned" / winner_name(won().key, 1)
    path.write_bytes(b"damage")
    pulled = pull_cache(tmp_path / "other", "hf://datasets/a/b/tuned")
    assert (pulled.winners, pulled.trials, pulled.kept) == (5, 2, 0)
    assert len(pulled.damaged) == 1
    assert path.name in pulled.damaged[0]
    assert push_cache(full, "hf://datasets/a/b/tuned").winners == 1
    assert path.read_bytes() == b"damage"
    assert pull_cache(tmp_path / "other", "hf://datasets/a/b/tuned").winners == 1
