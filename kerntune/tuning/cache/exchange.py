"""Carries a whole cache elsewhere: as one file, as a file per device, to a store and back.

One file goes to another machine. A file per device goes into a wheel.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kerntune.base import codec
from kerntune.base.store_process import Contents, NamesRequest, ReadRequest
from kerntune.base.url_files import check_packages, shown_url, without_password
from kerntune.errors import CacheError
from kerntune.tuning.cache import keys
from kerntune.tuning.cache import winners as shipped
from kerntune.tuning.cache.entries import MAX_ENTRY
from kerntune.tuning.cache.keys import Winner
from kerntune.tuning.cache.shared_store import (
    LAST_GENERATION,
    LAYOUT,
    WINNER_FILE,
    SharedStore,
    store_folder,
    trials_file,
    winner_name,
)
from kerntune.tuning.cache.store_client import DirectClient, check_url
from kerntune.tuning.cache.winners import TRIAL_SCHEMA, StoredTrial, TrialCache, WinnerCache

SCHEMA = "kerntune.cache/1"


class CacheFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole cache."""

    schema: str
    winners: tuple[Winner, ...]
    trials: tuple[StoredTrial, ...] = ()


@dataclass(frozen=True)
class CopiedEntries:
    """How much was exported, imported, pushed or pulled; ``kept`` counts what was there already and stayed;
    ``damaged`` tells what couldn't be read."""

    winners: int
    trials: int
    kept: int = 0
    damaged: tuple[str, ...] = ()


def export_cache(folder: Path, file: Path, *, with_trials: bool = True) -> CopiedEntries:
    """Write a cache folder as one JSON file. :class:`CacheError` if it can't be written."""
    cache, tried = WinnerCache(folder), TrialCache(folder)
    won = cache.entries()
    all_trials = tried.entries() if with_trials else []
    data = codec.to_json(CacheFile(SCHEMA, tuple(won), tuple(all_trials)))
    if len(data) > codec.MAX_REPORT or codec.values_at_most(data) > codec.MAX_REPORT_VALUES:
        raise CacheError(f"{file}: would have {len(data)} bytes, too many to be imported; {_SMALLER}")
    codec.write_atomic(file, data, error=CacheError, durable=True)
    return CopiedEntries(len(won), len(all_trials), damaged=(*cache.damaged, *tried.damaged))


def export_devices(folder: Path, to: Path) -> list[Path]:
    """Write a cache folder's winners as one file per device under ``to``; the files."""
    by_device: dict[tuple[str, str], list[Winner]] = {}
    for found in WinnerCache(folder).entries():
        by_device.setdefault((found.key.target, found.key.device), []).append(found)
    return [shipped.write_file(to, won) for _, won in sorted(by_device.items())]


def import_cache(folder: Path, file: Path, *, replace: bool = False) -> CopiedEntries:
    """Take a file of :func:`export_cache` or :func:`export_devices` into a cache folder.

    What is here already stays, unless ``replace``. All of a file is taken or, if it is damaged, nothing:
    :class:`CacheError`.
    """
    found = _read_cache_file(file)
    return _add(folder, found.winners, found.trials, replace)


def _add(
    folder: Path, winners: Iterable[Winner], of_trials: Iterable[StoredTrial], replace: bool = False
) -> CopiedEntries:
    cache, tried = WinnerCache(folder), TrialCache(folder)
    new_winners = new_trials = kept = 0
    for winner in winners:
        if replace or not cache.holds(winner.key):
            cache.add(winner)
            new_winners += 1
        else:
            kept += 1
    for trial in of_trials:
        if replace or not tried.holds(trial):
            tried.add(trial)
            new_trials += 1
        else:
            kept += 1
    return CopiedEntries(new_winners, new_trials, kept, (*cache.damaged, *tried.damaged))


def _read_cache_file(file: Path) -> CacheFile:
    data = codec.read_file(file, error=CacheError, limit=codec.MAX_REPORT)
    if data is None:
        raise CacheError(f"{file}: can't be read (No such file or directory)")
    most = codec.MAX_REPORT_VALUES
    if codec.values_at_most(data) <= most and codec.schema_of(data) == shipped.SHIPPED_SCHEMA:
        return CacheFile(SCHEMA, shipped.read_file(file).winners)
    found = codec.from_json(data, CacheFile, SCHEMA, where=str(file), error=CacheError, most_values=most)
    old = [w.schema for w in found.winners if w.schema != keys.SCHEMA]
    old += [t.schema for t in found.trials if t.schema != TRIAL_SCHEMA]
    if old:
        raise CacheError(f"{file}: holds entries of schema {old[0]!r}; export them anew with this kerntune")
    return found


_SMALLER = "leave the trials out (--winners-only), or write a file per device (--per-device)"

AT_ONCE = 64
"""Files that are read by one request."""

_TRIALS = re.compile(rf"{LAYOUT}/trials/[0-9a-f]{{64}}/[0-9a-f]{{32}}\.json")


def push_cache(folder: Path, url: str, *, with_trials: bool = True) -> CopiedEntries:
    """Store what a cache folder has. A winner that the store has of the same key stays, and replaces the one here when
    it is next asked for. :class:`UsageError` if a package is missing, :class:`CacheError` if the store can't be
    written."""
    store, client = _opened(folder, url)
    cache, tried = WinnerCache(folder), TrialCache(folder)
    won = cache.entries()
    mine: dict[str, list[StoredTrial]] = {}
    for trial in tried.entries() if with_trials else ():
        mine.setdefault(trial.key.digest(), []).append(trial)
    names = [name for name in _trial_names(client) if name.split("/")[-2] in mine] if mine else []
    files = _read(client, names)
    known = {codec.to_json(trial) for name, data in files for trial in store.trials_in(name, data)}
    new = {q: [t for t in some if codec.to_json(t) not in known] for q, some in mine.items()}
    lacking = {question: some for question, some in new.items() if some}
    if store.is_read_only:
        added = _commit(url, store, client, won, lacking)
    else:  # of how many winners the store had none of their key
        added = sum(store.offer(winner) is winner for winner in won)
        for some in lacking.values():
            store.add_trials(some)
        client.finish()
    count = sum(map(len, lacking.values()))
    kept = len(won) - added + sum(map(len, mine.values())) - count
    return CopiedEntries(added, count, kept, (*cache.damaged, *tried.damaged, *store.damaged))


def _opened(folder: Path, url: str) -> tuple[SharedStore, DirectClient]:
    check_url(url)
    check_packages(url)
    client = DirectClient(url)
    return SharedStore(url, store_folder(folder, url), client), client


def pull_cache(folder: Path, url: str, *, with_trials: bool = True) -> CopiedEntries:
    """Take what a store has into a cache folder; what is here already stays. :class:`UsageError` if a package is
    missing, :class:`CacheError` if the store can't be read. ``damaged`` names its files that can't be used
    each time."""
    store, client = _opened(folder, url)
    mirror, unread = WinnerCache(store.folder), list[str]()
    names = [name for name in _names(client, f"{LAYOUT}/winners") if WINNER_FILE.fullmatch(name)]
    winners = store.latest(dict(_read(client, names, unread)))
    for winner in winners:
        mirror.add(winner)
    copied = _add(folder, winners, _trials(store, client, unread) if with_trials else ())
    lost = (f"{shown_url(url)}/{name}: can't be read, or was removed meanwhile" for name in unread)
    return dataclasses.replace(copied, damaged=(*copied.damaged, *store.damaged, *lost))


def _trials(store: SharedStore, client: DirectClient, unread: list[str]) -> Iterator[StoredTrial]:
    for name, data in _read(client, _trial_names(client), unread):
        yield from store.trials_in(name, data)


def _trial_names(client: DirectClient) -> list[str]:
    return [name for name in _names(client, f"{LAYOUT}/trials") if _TRIALS.fullmatch(name)]


def _names(client: DirectClient, folder: str) -> tuple[str, ...]:
    names: tuple[str, ...] = getattr(client.ask(NamesRequest(folder)), "names", ())
    return names


def _read(client: DirectClient, names: list[str], unread: list[str] | None = None) -> Iterator[tuple[str, bytes]]:
    """Files that can be read, of one too long a byte more than :data:`MAX_ENTRY`; names of the others go to
    ``unread``."""
    for begin in range(0, len(names), AT_ONCE):
        some = tuple(names[begin : begin + AT_ONCE])
        reply = client.ask(ReadRequest(some, MAX_ENTRY))
        assert isinstance(reply, Contents)
        for name, data in zip(some, reply.data, strict=True):
            if data is not None:
                yield name, data
            elif unread is not None:
                unread.append(name)


# Hugging Face: one commit


def _commit(
    url: str, store: SharedStore, client: DirectClient, won: Iterable[Winner], of_question: dict[str, list[StoredTrial]]
) -> int:
    """Add to a repository what it hasn't, in one commit: winners and files of trials. Of how many keys it had no
    winner."""
    from huggingface_hub import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
        CommitOperationAdd,
        HfApi,
        HfFileSystem,
    )

    winners = _lacking_winners(store, client, won)
    files = winners | dict(trials_file(some) for some in of_question.values())
    try:
        place = HfFileSystem().resolve_path(url.removeprefix("hf://"))
        root = f"{place.path_in_repo}/" if place.path_in_repo else ""
        in_order = sorted(files.items())
        operations: list[Any] = [CommitOperationAdd(f"{root}{name}", data) for name, data in in_order]
        if operations:
            HfApi().create_commit(
                repo_id=place.repo_id, repo_type=place.repo_type, revision=place.revision, operations=operations,
                commit_message=f"kerntune: {len(winners)} winners, trials of {len(of_question)} questions",
            )  # fmt: skip
    except Exception as exc:  # of the hub, of requests, of the network
        raise CacheError(f"{shown_url(url)}: {type(exc).__name__}: {without_password(str(exc), url)}") from exc
    return len(winners)


def _lacking_winners(store: SharedStore, client: DirectClient, won: Iterable[Winner]) -> dict[str, bytes]:
    places = {one.key.digest(): [winner_name(one.key, g) for g in range(1, LAST_GENERATION + 1)] for one in won}
    mine = {name for names in places.values() for name in names}
    taken = dict(_read(client, [name for name in _names(client, f"{LAYOUT}/winners") if name in mine]))
    known = {one.key.digest() for one in store.latest(taken)}
    open_places = ((digest, names) for digest, names in places.items() if digest not in known)
    free = {digest: [n for n in names if n not in taken] for digest, names in open_places}
    return {free[w.key.digest()][0]: codec.to_json(w) for w in won if free.get(w.key.digest())}
