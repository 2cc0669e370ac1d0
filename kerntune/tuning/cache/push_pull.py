"""Carries a whole cache to a store, and a store's to a cache."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kerntune.base import codec, store_bundle
from kerntune.base.store_requests import Contents, NamesRequest, ReadRequest
from kerntune.base.url_files import READ_ONLY, shown_url, without_password
from kerntune.errors import CacheError, StoreError, UsageError
from kerntune.tuning.cache.direct_client import DirectClient
from kerntune.tuning.cache.entries import MAX_ENTRY
from kerntune.tuning.cache.exchange import Moved
from kerntune.tuning.cache.shared_store import (
    LAYOUT,
    SharedStore,
    bundle_name,
    check_url,
    store_folder,
    trials_file,
    winner_name,
)
from kerntune.tuning.cache.trials import StoredTrial, TrialCache
from kerntune.tuning.cache.winner import Winner
from kerntune.tuning.cache.winners import WinnerCache

AT_ONCE = 64
"""Files that are read by one request."""

BUNDLE = ".json.gz"
_WINNER = re.compile(rf"{LAYOUT}/winners/.+/[0-9a-f]{{64}}\.[0-9]+\.json")
_TRIALS = re.compile(rf"{LAYOUT}/trials/[0-9a-f]{{64}}/[0-9a-f]{{32}}\.json")


def push_cache(folder: Path, url: str, *, with_trials: bool = True) -> Moved:
    """Store what a cache folder has. A winner that the store has of the same key stays, and replaces the one here when
    it is next asked for. :class:`CacheError` if the store can't be written."""
    check_url(url)
    cache, tried = WinnerCache(folder), TrialCache(folder)
    won = cache.entries()
    of_question = _by_question(tried.entries()) if with_trials else {}
    if url.partition("://")[0] in READ_ONLY:
        kept = _commit(url, won, of_question)
    else:
        kept = _offer(folder, url, won, of_question)
    count = sum(map(len, of_question.values()))
    return Moved(len(won) - kept, count, kept, (*cache.damaged, *tried.damaged))


def _offer(folder: Path, url: str, won: Iterable[Winner], of_question: dict[str, list[StoredTrial]]) -> int:
    """Of how many keys the store had a winner already."""
    client, kept = DirectClient(url), 0
    store = SharedStore(url, store_folder(folder, url), client)
    for mine in won:
        kept += store.offer(mine) not in (mine, None)
    for some in of_question.values():
        store.add_trials(some)
    client.finish()
    return kept


def pull_cache(folder: Path, url: str, *, with_trials: bool = True) -> Moved:
    """Take what a store has into a cache folder; what is here already stays. :class:`CacheError` if the store can't be
    read."""
    check_url(url)
    client = DirectClient(url)
    store = SharedStore(url, store_folder(folder, url), client)
    cache, tried, mirror = WinnerCache(folder), TrialCache(folder), WinnerCache(store.folder)
    new_winners = new_trials = kept = 0
    for found in _winners(store, client):
        mirror.add(found)
        if cache.holds(found.key):
            kept += 1
        else:
            cache.add(found)
            new_winners += 1
    for trial in _trials(store, client) if with_trials else ():
        if tried.holds(trial):
            kept += 1
        else:
            tried.add(trial)
            new_trials += 1
    return Moved(new_winners, new_trials, kept, (*cache.damaged, *tried.damaged, *store.damaged))


def _winners(store: SharedStore, client: DirectClient) -> list[Winner]:
    """The latest usable one of each key: from files of their own, or bundles where there are no others."""
    latest: dict[str, Winner] = {}
    listed = _names(client, f"{LAYOUT}/winners")
    single = [name for name in listed if _WINNER.fullmatch(name)]
    singles = list(_read(client, single, MAX_ENTRY)) if single else list(_members(store, client, listed))
    for name, data in sorted(singles, key=lambda one: int(one[0].split(".")[-2])):
        if (found := store.winner_of(name, data)) is not None:
            latest[found.key.digest()] = found
    return list(latest.values())


def _members(store: SharedStore, client: DirectClient, listed: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    for name, data in _read(client, [n for n in listed if n.endswith(BUNDLE)], store_bundle.MAX_PACKED):
        try:
            members = store_bundle.unpack(data, name)
        except StoreError as exc:
            store.refused.add(name, data, str(exc))
            continue
        paths = {f"{name.removesuffix(BUNDLE)}/{member}.json": text for member, text in members.items()}
        yield from ((path, text) for path, text in paths.items() if _WINNER.fullmatch(path))


def _trials(store: SharedStore, client: DirectClient) -> Iterator[StoredTrial]:
    names = [name for name in _names(client, f"{LAYOUT}/trials") if _TRIALS.fullmatch(name)]
    for name, data in _read(client, names, MAX_ENTRY):
        yield from store.trials_in(name, data)


def _names(client: DirectClient, folder: str) -> tuple[str, ...]:
    names: tuple[str, ...] = getattr(client.ask(NamesRequest(folder)), "names", ())
    return names


def _read(client: DirectClient, names: list[str], limit: int) -> Iterator[tuple[str, bytes]]:
    """Files that can be read and aren't too long."""
    for begin in range(0, len(names), AT_ONCE):
        some = tuple(names[begin : begin + AT_ONCE])
        reply = client.ask(ReadRequest(some, limit))
        assert isinstance(reply, Contents)
        yield from ((n, data) for n, data in zip(some, reply.data, strict=True) if data and len(data) <= limit)


def _by_question(found: Iterable[StoredTrial]) -> dict[str, list[StoredTrial]]:
    groups: dict[str, list[StoredTrial]] = {}
    for trial in found:
        groups.setdefault(trial.key.digest(), []).append(trial)
    return groups


# Hugging Face: one commit


def _commit(url: str, won: Iterable[Winner], of_question: dict[str, list[StoredTrial]]) -> int:
    """Add to a repository what it hasn't, in one commit: bundles and files of trials. Of how many keys it had a
    winner already."""
    try:
        from huggingface_hub import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
            CommitOperationAdd,
            HfApi,
            HfFileSystem,
        )
    except ImportError:
        raise UsageError(f"{shown_url(url)}: install huggingface_hub") from None
    client = DirectClient(url)
    files, kept = _bundles(client, won)
    files |= dict(trials_file(some) for some in of_question.values())
    try:
        place = HfFileSystem().resolve_path(url.removeprefix("hf://"))
        root = f"{place.path_in_repo}/" if place.path_in_repo else ""
        operations: list[Any] = [CommitOperationAdd(f"{root}{name}", data) for name, data in sorted(files.items())]
        if operations:
            HfApi().create_commit(
                repo_id=place.repo_id, repo_type=place.repo_type, revision=place.revision, operations=operations,
                commit_message=f"kerntune: winners of {len(files)} kernels and questions",
            )  # fmt: skip
    except Exception as exc:  # of the hub, of requests, of the network
        raise CacheError(f"{shown_url(url)}: {type(exc).__name__}: {without_password(str(exc), url)}") from exc
    return kept


def _bundles(client: DirectClient, won: Iterable[Winner]) -> tuple[dict[str, bytes], int]:
    """Bundles with what they have and what is new; of how many keys they had a winner."""
    by_bundle: dict[str, list[Winner]] = {}
    for one in won:
        by_bundle.setdefault(bundle_name(one.key), []).append(one)
    found, kept = {}, 0
    for name, winners in by_bundle.items():
        data = dict(_read(client, [name], store_bundle.MAX_PACKED)).get(name)
        before = store_bundle.unpack(data, name) if data else {}
        mine = {winner_name(w.key, 1).rpartition("/")[2].removesuffix(".json"): codec.to_json(w) for w in winners}
        kept += len(mine.keys() & before.keys())
        if mine.keys() - before.keys():
            found[name] = store_bundle.pack({**mine, **before})
    return found, kept
