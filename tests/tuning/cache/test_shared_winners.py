"""Machines that share a store: one winner a key, whatever each has found, and nothing lost while the store is away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kerntune.base import codec
from kerntune.base.config import Config
from kerntune.base.store_process import NamesRequest, ReadRequest
from kerntune.errors import UsageError
from kerntune.tuning.cache import Winner, WinnerCache
from kerntune.tuning.cache.keys import SCHEMA
from kerntune.tuning.cache.shared_store import (
    SharedWinnerCache,
    lease_name,
    open_winners,
    shared_store,
    store_folder,
    winner_folder,
    winner_name,
)
from kerntune.tuning.cache.store_client import check_url, store_url
from kerntune.tuning.cache.winners import add_shipped, file_name
from kerntune.tuning.stored_winners import nearest
from tuning.cache.made import ENVIRONMENT, LARGE, QUESTION, SMALL, WINNER, trial
from tuning.cache.stores import machine

MAX_ENTRY = 1 << 22


replace = msgspec.structs.replace


def key(number: int) -> Any:
    return replace(WINNER, arguments=f"n={number}")


def won(number: int = 0, config: Config = SMALL, **changes: Any) -> Winner:
    return Winner(SCHEMA, key(number), config, 1.0, ENVIRONMENT, **changes)


def client(cache: SharedWinnerCache) -> Any:
    return cache.store.client


def test_the_first_winner_stands_for_all(here: SharedWinnerCache, there: SharedWinnerCache) -> None:
    mine, other = won(config=SMALL), won(config=LARGE)
    assert here.offer(mine) is mine
    assert there.offer(other) == mine
    assert there.get(key(0)) == mine
    assert here.get(key(0)) == mine


def test_all_winners_of_a_kernel_come_by_two_requests(here: SharedWinnerCache, there: SharedWinnerCache) -> None:
    for number in range(30):
        here.offer(won(number))
    assert [there.get(key(number)) for number in range(30)] == [won(number) for number in range(30)]
    assert client(there).requests == [
        NamesRequest(winner_folder(key(0))),
        ReadRequest(tuple(sorted((winner_name(key(n), 1) for n in range(30)), key=own_first)), MAX_ENTRY),
    ]


def own_first(name: str) -> tuple[bool, str]:
    return key(0).digest() not in name, name


def test_a_lookup_of_a_kernel_asks_the_file_system_for_two_things(
    here: SharedWinnerCache, there: SharedWinnerCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever has been written of it: unfinished, refused and finished winners, and files of no use."""
    for number in range(40):
        here.offer(won(number, untried=(LARGE,)))
        here.offer(won(number), instead_of=won(number, untried=(LARGE,)))
    client(here).server.files.replace(winner_name(key(0), 3), b"{")
    client(here).server.files.replace(f"{winner_folder(key(0))}.json.gz", b"of an earlier version")
    files = CountedFiles(client(there).server.files)
    monkeypatch.setattr(client(there).server, "_files", files)
    assert [there.get(key(number)) for number in range(40)] == [won(number) for number in range(40)]
    assert [name for name, _ in files.calls] == ["names", "read_many"]
    assert there.get(key(41)) is None
    assert len(files.calls) == 2, "that there is none of this key is known"


class CountedFiles:
    """A store's files, and which of their methods were called."""

    def __init__(self, files: Any) -> None:
        self._files = files
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        def counted(*arguments: Any) -> Any:
            self.calls.append((name, arguments))
            return getattr(self._files, name)(*arguments)

        return counted


def test_what_is_known_of_the_store_needs_no_request(tmp_path: Path, here: SharedWinnerCache) -> None:
    here.offer(won())
    again = machine(tmp_path, "here")
    assert again.get(key(0)) == won()
    assert client(again).requests == []


def test_a_kernel_that_the_store_does_not_know_is_asked_for_once(here: SharedWinnerCache) -> None:
    for number in range(5):
        assert here.get(key(number)) is None
    assert len(client(here).requests) == 1


def test_who_is_about_to_tune_sees_what_came_meanwhile(here: SharedWinnerCache, there: SharedWinnerCache) -> None:
    assert there.get(key(0)) is None
    here.offer(won())
    assert there.get(key(0)) is None
    assert there.refresh(key(0)) == won()
    assert there.get(key(0)) == won()


def test_a_winner_from_before_the_store_gives_way_to_the_stores(
    tmp_path: Path, here: SharedWinnerCache, there: SharedWinnerCache
) -> None:
    WinnerCache(tmp_path / "here").add(won(config=LARGE))
    there.offer(won(config=SMALL))
    assert here.get(key(0)) == won(config=SMALL)
    assert WinnerCache(tmp_path / "here").own(key(0)) == won(config=LARGE)  # nothing that was found is lost


def test_a_winner_from_before_the_store_gets_into_it(
    tmp_path: Path, here: SharedWinnerCache, there: SharedWinnerCache
) -> None:
    WinnerCache(tmp_path / "here").add(won(config=LARGE))
    assert here.get(key(0)) == won(config=LARGE)
    assert there.refresh(key(0)) == won(config=LARGE)


def test_while_the_store_is_away_a_machine_goes_on_with_its_own(
    tmp_path: Path, here: SharedWinnerCache, there: SharedWinnerCache
) -> None:
    client(here).is_away = True
    mine = won(config=LARGE)
    assert here.offer(mine) is mine
    assert here.get(key(0)) == mine
    there.offer(won(config=SMALL))
    back = machine(tmp_path, "here")
    assert back.get(key(0)) == won(config=SMALL)


def test_what_was_found_while_the_store_was_away_reaches_it(
    tmp_path: Path, here: SharedWinnerCache, there: SharedWinnerCache
) -> None:
    client(here).is_away = True
    here.offer(won(config=LARGE))
    assert machine(tmp_path, "here").get(key(0)) == won(config=LARGE)
    assert there.refresh(key(0)) == won(config=LARGE)


def test_a_folder_that_can_not_be_written_needs_no_tuning_either(
    tmp_path: Path, here: SharedWinnerCache, there: SharedWinnerCache
) -> None:
    """And it makes no process go on with another winner."""
    there.offer(won(0))
    client(there).finish()
    (tmp_path / "here").write_text("a file, not a folder")
    assert here.get(key(0)) == won(0)
    assert here.get(key(0)) == won(0)
    there.offer(won(1))
    assert here.offer(won(1, LARGE)) == won(1)
    assert here.offer(won(2)) == won(2)
    assert here.get(key(2)) == won(2)
    assert there.refresh(key(2)) == won(2)


def test_a_finished_winner_follows_an_unfinished_one(here: SharedWinnerCache, there: SharedWinnerCache) -> None:
    first, settled = won(config=SMALL, untried=(LARGE,)), won(config=LARGE)
    here.offer(first)
    assert there.refresh(key(0)) == first
    assert there.offer(settled, instead_of=first) == settled
    assert here.refresh(key(0)) == settled
    assert here.get(key(0)) == settled


def test_of_two_that_settle_the_first_stands(here: SharedWinnerCache, there: SharedWinnerCache) -> None:
    first = won(config=SMALL, untried=(LARGE,))
    here.offer(first)
    assert here.offer(won(config=LARGE), instead_of=first) == won(config=LARGE)
    assert there.offer(won(config=SMALL), instead_of=first) == won(config=LARGE)


def test_an_unfinished_winner_of_this_run_stands(here: SharedWinnerCache, there: SharedWinnerCache) -> None:
    """Another rank goes on with it already."""
    first = won(config=SMALL, untried=(LARGE,))
    here.offer(first)
    assert there.offer(won(config=LARGE)) == first


def test_an_unfinished_winner_of_this_machine_stands_while_the_store_is_away(here: SharedWinnerCache) -> None:
    """As in the store: another process goes on with it already. Whoever says so replaces it."""
    client(here).is_away = True
    first, settled = won(config=SMALL, untried=(LARGE,)), won(config=LARGE)
    here.offer(first)
    assert here.offer(settled) == first
    assert here.get(key(0)) == first
    assert here.offer(settled, first_stands=False) == settled


def test_tuning_by_force_replaces(here: SharedWinnerCache, there: SharedWinnerCache) -> None:
    here.offer(won(config=SMALL))
    here.add(won(config=LARGE))
    client(here).finish()
    assert here.get(key(0)) == won(config=LARGE)
    assert there.get(key(0)) == won(config=LARGE)


def test_what_was_tuned_by_force_is_in_this_machine_s_own_folder_too(
    tmp_path: Path, here: SharedWinnerCache, there: SharedWinnerCache
) -> None:
    """What is known of the store can be forgotten, and a store can be away."""
    here.add(won(0, LARGE))
    client(there).is_away = True
    there.add(won(1, LARGE))
    for name, number in (("here", 0), ("there", 1)):
        assert WinnerCache(tmp_path / name).own(key(number)) == won(number, LARGE)


def test_every_part_of_a_key_tells_winners_apart(here: SharedWinnerCache, there: SharedWinnerCache) -> None:
    here.offer(won())
    client(here).finish()
    for name in ("kernel", "source", "target", "device", "triton", "arguments"):
        assert there.get(replace(key(0), **{name: "other"})) is None
        assert there.refresh(replace(key(0), **{name: "other"})) is None


# what others put there


BAD = [
    b"",
    b"{",
    codec.to_json(won(1)),
    codec.to_json(replace(won(), schema="kerntune.winner/9")),
    b'{"schema": "kerntune.winner/1", "__reduce__": "os.system"}',
    b"x" * (1 << 22) + b"x",
]


@pytest.mark.parametrize("data", BAD, ids=range(len(BAD)))
def test_a_file_that_is_no_winner_is_left_and_the_next_one_counts(
    here: SharedWinnerCache, there: SharedWinnerCache, data: bytes
) -> None:
    name = winner_name(key(0), 1)
    client(here).server.files.replace(name, data)
    assert here.refresh(key(0)) is None
    assert here.offer(won(config=SMALL)) == won(config=SMALL)
    assert there.offer(won(config=LARGE)) == won(config=SMALL)
    assert client(here).server.files.read(name, 1 << 23) == data


def test_a_refused_file_is_told_once_for_what_it_holds(tmp_path: Path, here: SharedWinnerCache) -> None:
    files, name = client(here).server.files, winner_name(key(0), 1)
    for told, data in enumerate((b"{", b"[]"), 1):
        files.replace(name, data)
        here.refresh(key(0))
        here.refresh(key(0))
        assert len(here.damaged) == told
        assert all(name in line for line in here.damaged)
    files.replace(name, codec.to_json(won()))
    assert here.refresh(key(0)) == won(), "it was mended"
    again = machine(tmp_path, "here")
    files.replace(name, b"{")
    again.refresh(key(0))
    assert len(again.damaged) == 1


def test_a_kernel_s_files_of_other_kernels_are_left_out(here: SharedWinnerCache, there: SharedWinnerCache) -> None:
    foreign = replace(won(), key=replace(key(0), kernel="other_kernel"))
    files, folder = client(here).server.files, winner_folder(key(0))
    files.replace(winner_name(key(3), 1), codec.to_json(won(3)))
    files.replace(f"{folder}/{foreign.key.digest()}.1.json", codec.to_json(foreign))
    files.replace(f"{folder}/{'0' * 64}.1.json", codec.to_json(won(4)))
    assert there.get(key(3)) == won(3)
    assert [w.key for w in there.mirror.entries()] == [key(3)]


# trials


def test_trials_are_shared(here: SharedWinnerCache, there: SharedWinnerCache) -> None:
    found = [trial(SMALL), trial(LARGE, failure="no room")]
    here.store.add_trials(found)
    assert there.store.trials_of(QUESTION) == []
    client(here).finish()
    assert sorted(there.store.trials_of(QUESTION) or [], key=lambda t: t.name()) == sorted(
        found, key=lambda t: t.name()
    )


def test_foreign_trials_are_left_out(here: SharedWinnerCache) -> None:
    other = trial(key=replace(QUESTION, arguments="other"))
    files = client(here).server.files
    here.store.add_trials([other])
    client(here).finish()
    (name,) = files.names("v1/trials")
    data = files.read(name, 1 << 20)
    files.replace(f"v1/trials/{QUESTION.digest()}/{'0' * 32}.json", data)
    files.replace(f"v1/trials/{QUESTION.digest()}/{'1' * 32}.json", b"{")
    assert here.store.trials_of(QUESTION) == []
    assert len(here.damaged) == 2


# which store


def test_no_store_is_no_store(tmp_path: Path) -> None:
    assert store_url() == ""
    assert shared_store(tmp_path) is None
    assert type(open_winners(tmp_path)) is WinnerCache


def test_the_variable_names_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNTUNE_STORE", f"file://{tmp_path}/store/")
    found = open_winners(tmp_path / "cache")
    assert isinstance(found, SharedWinnerCache)
    assert found.store.folder == store_folder(tmp_path / "cache", f"file://{tmp_path}/store")
    assert shared_store(tmp_path / "cache") is found.store


@pytest.mark.parametrize("url", ["http://a/b", "memory://a", "ftp://a", "abfs://a/b", "/mnt/store", "store"])
def test_where_nobody_knows_who_was_first_is_refused_by_name(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNTUNE_STORE", url)
    with pytest.raises(UsageError, match=url):
        store_url()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://a", "nothing is known there"),
        ("/mnt/store", "no URL; for a folder write file:///path"),
        ("s3://", "names no place; a bucket"),
        ("file://store", "names no absolute path on this machine"),
    ],
)
def test_what_can_be_no_store_is_named_once_with_the_variable_that_it_is_from_if_any(
    url: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNTUNE_STORE", url)
    with pytest.raises(UsageError) as told:
        store_url()
    assert str(told.value).startswith(f"KERNTUNE_STORE is {url!r}: {why}")
    with pytest.raises(UsageError) as told:
        check_url(url)
    assert str(told.value).startswith(f"{url}: {why}")


def test_a_repository_of_hugging_face_is_only_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNTUNE_STORE", "hf://datasets/a/b")
    found = shared_store(tmp_path)
    assert found is not None
    assert found.is_read_only
    assert found.offer(won()) is None
    assert not found.replace(won())


def test_names_of_files_have_no_odd_characters() -> None:
    odd = replace(key(0), kernel="a/../b kernel", device="../NVIDIA H200", target="cuda:90/..")
    for name in (winner_name(odd, 1), lease_name(odd, 1)):
        assert ".." not in name
        assert all(c.isalnum() or c in "-_./" for c in name)


def test_a_store_that_is_away_is_asked_again_for_a_kernel(here: SharedWinnerCache, there: SharedWinnerCache) -> None:
    """What has no answer is not known to be missing."""
    there.offer(won())
    client(there).finish()
    client(here).is_away = True
    assert not here._fetch(key(0))
    assert here.store.unread == {}
    client(here).is_away = False
    assert here._fetch(key(0))
    assert here.store.unread == {winner_folder(key(0)): frozenset()}
    assert not here._fetch(key(0)), "once a process"
    assert here.get(key(0)) == won()


def test_a_kernel_without_winners_has_no_new_ones(here: SharedWinnerCache) -> None:
    assert not here._fetch(key(0))
    assert here.store.unread == {winner_folder(key(0)): frozenset()}


def test_all_cache_folders_share_one_process_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = []
    for url in ("a", "a", "b"):
        monkeypatch.setenv("KERNTUNE_STORE", f"file://{tmp_path}/{url}")
        found = shared_store(tmp_path / str(len(clients)))
        assert found is not None
        clients.append(found.client)
    assert clients[0] is clients[1]
    assert clients[0] is not clients[2]


def test_a_damaged_shipped_file_is_told_where_there_is_a_store_too(here: SharedWinnerCache, tmp_path: Path) -> None:
    """Also where no winner of the very key is asked for, but the nearest one."""
    path = tmp_path / "wheel" / file_name(WINNER.target, WINNER.device)
    path.parent.mkdir(parents=True)
    path.write_text("{")
    add_shipped(tmp_path / "wheel")
    assert nearest(here, key(0), lambda config: True) is None
    assert [line.partition(":")[0] for line in here.damaged] == [str(path)]
