"""Has a store that several machines share, with winners and trials beside this machine's cache.

A winner of the store comes before one of this machine. Files of a store that can't be used are left where they are.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import msgspec

from kerntune.base import codec
from kerntune.base.store_process import (
    Contents,
    CreateRequest,
    Names,
    NamesRequest,
    ReadRequest,
    RemoveLaterRequest,
    ReplaceRequest,
    WriteLaterRequest,
    WriteReply,
)
from kerntune.base.url_files import READ_ONLY, shown_url
from kerntune.errors import CacheError, StoreError
from kerntune.tuning.cache import keys
from kerntune.tuning.cache.entries import MAX_ENTRY, default_folder
from kerntune.tuning.cache.keys import Question, Winner, WinnerKey
from kerntune.tuning.cache.store_client import DirectClient, StoreClient, store_url
from kerntune.tuning.cache.winners import TRIAL_SCHEMA, StoredTrial, TrialKey, WinnerCache, file_name

LAST_GENERATION = 8
"""A key's winner has a file of its own for each time it was found unfinished or refused, this many at most."""

LAYOUT = "v1"
"""The folder below the URL; another layout will have another."""

MOST_WINNER_FILES = 128
"""Files of a kernel's winners that are read by one request: fsspec reads as many at once (its
``gather_batch_size``)."""

WINNER_FILE = re.compile(rf"{LAYOUT}/winners/.+/[0-9a-f]{{64}}\.[1-{LAST_GENERATION}]\.json")

TRIALS_SCHEMA = "kerntune.trials/1"

MOST_TRIAL_FILES = 64
"""Files of trials of one question that are read."""

File = TypeVar("File", bound=msgspec.Struct)
"""What a file of the store holds."""


class TrialsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one tuning gave: trials of one question."""

    schema: str
    trials: tuple[StoredTrial, ...]


class SharedStore:
    """What is behind a URL. ``folder`` keeps what is known of it on this machine.

    No method raises for what the store does or holds: it answers None where it can't be asked, and what can't be used
    counts as not there, which is said once.
    """

    def __init__(self, url: str, folder: Path, client: StoreClient | DirectClient | None = None) -> None:
        self.url, self.client = url, client or StoreClient(url)
        self.folder = folder
        self.is_read_only = url.partition("://")[0] in READ_ONLY
        self.damaged: list[str] = []
        """What can't be used of the store's files, a line each."""

        self._refused: set[tuple[str, str]] = set()
        """The names of those files, with checksums of what they hold."""

        self.unread: dict[str, frozenset[str]] = {}
        """Of each kernel's folder that this process has read, the files that it has left out."""

        self.unwritten: dict[str, Winner] = {}
        """Winners by their keys' digests that the folder, which can't be written, doesn't have."""

    # winners

    def of_kernel(self, key: WinnerKey) -> list[Winner] | None:
        """Winners of a kernel's source, on this kind of device under this Triton, that this process hasn't read: the
        key's own, and others as far as one request gives them.

        Two requests, a listing and a read. A later call reads once more if it left out the key's own, else it asks for
        nothing. None if the store can't be asked.
        """
        folder = winner_folder(key)
        left = self.unread.get(folder)
        if left is None:
            listed = self.client.ask(NamesRequest(folder))
            if not isinstance(listed, Names):
                return None
            left = frozenset(filter(WINNER_FILE.fullmatch, listed.names))
        elif not any(_digest(name) == key.digest() for name in left):
            return []
        ordered = sorted(left, key=lambda name: (_digest(name) != key.digest(), name))
        rest = {_digest(name) for name in ordered[MOST_WINNER_FILES:][:1]}  # of a key with more names, none is read
        names = tuple(name for name in ordered[:MOST_WINNER_FILES] if _digest(name) not in rest)
        read = self.client.ask(ReadRequest(names, MAX_ENTRY)) if names else Contents(())
        if not isinstance(read, Contents):
            return None
        files = dict(zip(names, read.data, strict=True))
        cut_off = {_digest(name) for name, data in files.items() if data is None} - {key.digest()}
        whole = {name: data for name, data in files.items() if data is not None}
        found = {name: data for name, data in whole.items() if _digest(name) not in cut_off}
        self.unread[folder] = left - {name for name in names if _digest(name) not in cut_off}
        return [one for one in self.latest(found) if one.key.subject == key.subject]

    def latest(self, files: Mapping[str, bytes]) -> list[Winner]:
        """The usable winner with the highest number of each key."""
        found: dict[str, Winner] = {}
        for name in sorted(files, key=lambda name: (generation_of(name), name)):
            if (one := self.winner_of(name, files[name])) is not None:
                found[one.key.digest()] = one
        return list(found.values())

    def find(self, key: WinnerKey) -> Winner | None:
        """The winner of one key, whatever is known of its kernel."""
        found = None
        for generation in range(1, LAST_GENERATION + 1):
            name = winner_name(key, generation)
            reply = self.client.ask(ReadRequest((name,), MAX_ENTRY))
            if not isinstance(reply, Contents) or (data := reply.data[0]) is None:
                break
            one = self.winner_of(name, data, key)
            found = one or found
            if one is not None and not one.untried:
                break
        return found

    def offer(self, mine: Winner, instead_of: Winner | None = None) -> Winner | None:
        """Store a winner where there is none; the one that stands then. None if the store can't be asked.

        An unfinished winner that stood when the tuning began, ``instead_of``, is followed by a finished one.
        """
        if self.is_read_only:
            return None
        data = codec.to_json(mine)
        for generation in range(1, LAST_GENERATION + 1):
            name = winner_name(mine.key, generation)
            reply = self.client.ask(CreateRequest(name, data, MAX_ENTRY))
            if not isinstance(reply, WriteReply):
                return None
            if reply.won:
                return mine
            other = self.winner_of(name, reply.other or b"", mine.key)
            if other is not None and not (other.untried and other == instead_of and not mine.untried):
                return other
        return None

    def replace(self, mine: Winner) -> bool:
        """Store a winner in the place of all others of its key; of several processes the last one's stays."""
        if self.is_read_only:
            return False
        reply = self.client.ask(ReplaceRequest(winner_name(mine.key, 1), codec.to_json(mine)))
        if not isinstance(reply, WriteReply):
            return False
        if not mine.untried:
            later = range(2, LAST_GENERATION + 1)
            self.client.tell(RemoveLaterRequest(tuple(winner_name(mine.key, g) for g in later)))
        return True

    def winner_of(self, name: str, data: bytes, key: WinnerKey | None = None) -> Winner | None:
        """What a file says, if it is what its name says."""

        def check(found: Winner) -> None:
            if found.key.digest() != _digest(name) or (key or found.key) != found.key:
                raise CacheError(f"{self._shown(name)}: is of another key than its name says")

        return self._usable(name, data, Winner, keys.SCHEMA, check)

    # trials

    def trials_of(self, key: TrialKey) -> list[StoredTrial] | None:
        """What others have stored of a question: two requests."""
        listed = self.client.ask(NamesRequest(trials_folder(key)))
        if not isinstance(listed, Names):
            return None
        names = tuple(name for name in listed.names if name.endswith(".json"))[:MOST_TRIAL_FILES]
        if not names:
            return []
        read = self.client.ask(ReadRequest(names, MAX_ENTRY))
        if not isinstance(read, Contents):
            return None
        found = (self.trials_in(name, data, key) for name, data in zip(names, read.data, strict=True) if data)
        return [trial for some in found for trial in some]

    def add_trials(self, found: Sequence[StoredTrial]) -> None:
        """Store trials of one question, some time later."""
        if found and not self.is_read_only:
            self.client.tell(WriteLaterRequest(*trials_file(found)))

    def trials_in(self, name: str, data: bytes, key: TrialKey | None = None) -> Iterable[StoredTrial]:
        """What a file has, if that is what its name says."""
        asked = key.digest() if key is not None else name.split("/")[-2]

        def check(found: TrialsFile) -> None:
            if any(t.key.digest() != asked or t.schema != TRIAL_SCHEMA for t in found.trials):
                raise CacheError(f"{self._shown(name)}: has trials of another question than its name says")

        found = self._usable(name, data, TrialsFile, TRIALS_SCHEMA, check)
        return () if found is None else found.trials

    def _usable(
        self, name: str, data: bytes, kind: type[File], schema: str, check: Callable[[File], None]
    ) -> File | None:
        """What a file holds. None for one that is refused, now (:class:`StoreError`, or what ``check`` raises) or
        before, and for one of a later schema."""
        file, where = (name, hashlib.sha256(data).hexdigest()), self._shown(name)
        if file in self._refused:
            return None
        try:
            if len(data) > MAX_ENTRY:
                raise CacheError(f"{where}: has more than the {MAX_ENTRY} bytes that it may have")
            found = codec.from_json(data, kind, schema, where=where, error=CacheError)
            check(found)
        except StoreError as exc:
            if not codec.is_newer(data, schema):
                self._refused.add(file)
                self.damaged.append(str(exc))
            return None
        return found

    def _shown(self, name: str) -> str:
        return f"{shown_url(self.url)}/{name}"


def winner_folder(key: Question) -> str:
    """Where the winners of a kernel's source are: by a name that people know, and what tells kernels apart."""
    device = file_name(key.target, key.device).with_suffix("").as_posix()
    digest = hashlib.sha256("\0".join(key.subject).encode()).hexdigest()[:32]
    known = re.sub(r"[^A-Za-z0-9_]+", "-", key.kernel)[:80] or "kernel"
    return f"{LAYOUT}/winners/{device}/{known}-{digest}"


def winner_name(key: WinnerKey, generation: int) -> str:
    """A winner's file."""
    return f"{winner_folder(key)}/{key.digest()}.{generation}.json"


def generation_of(name: str) -> int:
    """The number in the name of a winner's file."""
    return int(name.split(".")[-2])


def lease_name(key: WinnerKey, number: int) -> str:
    """The file of a key's lease: who creates it holds it."""
    return f"{LAYOUT}/leases/{key.digest()}.{number}"


def trials_folder(key: TrialKey) -> str:
    """Where the trials of a question are."""
    return f"{LAYOUT}/trials/{key.digest()}"


def trials_file(found: Sequence[StoredTrial]) -> tuple[str, bytes]:
    """A file of trials of one question: its name says what is in it."""
    data = codec.to_json(TrialsFile(TRIALS_SCHEMA, tuple(sorted(found, key=StoredTrial.name))))
    return f"{trials_folder(found[0].key)}/{hashlib.sha256(data).hexdigest()[:32]}.json", data


def _digest(name: str) -> str:
    return name.rpartition("/")[2].partition(".")[0]


def store_folder(folder: Path, url: str) -> Path:
    """Where a cache folder keeps what it has of a store."""
    return folder / "stores" / hashlib.sha256(url.encode()).hexdigest()[:16]


def forget_stores(folder: Path) -> None:
    """Remove what a cache folder has of any store."""
    shutil.rmtree(folder / "stores", ignore_errors=True)


def shared_store(folder: Path) -> SharedStore | None:
    """The store of ``KERNTUNE_STORE`` for a cache folder; None if none is set."""
    url = store_url()
    return _opened(url, folder) if url else None


@lru_cache(maxsize=8)
def _opened(url: str, folder: Path) -> SharedStore:
    return SharedStore(url, store_folder(folder, url), _client(url))


@lru_cache(maxsize=8)
def _client(url: str) -> StoreClient:
    """One process a store, whatever cache folders there are."""
    return StoreClient(url)


class SharedWinnerCache(WinnerCache):
    """A cache folder and a store. ``mirror``, a part of the folder, has the winners that the store is known to have:
    one that is there is used without a request.

    Any other winner of the folder, of an outage say or from before there was a store, is offered to the store before
    it is used, and the one that stands there then is used instead. Where the store can't be asked it is used as it is.
    """

    def __init__(self, folder: Path, store: SharedStore) -> None:
        super().__init__(folder)
        self.store = store
        self.mirror = WinnerCache(store.folder)

    @property
    def damaged(self) -> list[str]:
        return [*super().damaged, *self.mirror.damaged, *self.store.damaged]

    def get(self, key: WinnerKey) -> Winner | None:
        found = self._known(key)
        if found is None and self._fetch(key):
            found = self._known(key)
        if found is None and (mine := super().get(key)) is not None:
            found = self._confirmed(mine, self.store.offer(mine)) or mine
        return found

    def refresh(self, key: WinnerKey) -> Winner | None:
        """As :meth:`get`, by a request for this very key, whatever was known before: for who is about to tune it."""
        found = self.store.find(key)
        return self.get(key) if found is None else self._confirmed(found, found)

    def offer(self, winner: Winner, instead_of: Winner | None = None, *, first_stands: bool = True) -> Winner:
        standing = self.store.offer(winner, instead_of)
        if standing is None:
            return super().offer(winner, instead_of, first_stands=first_stands)
        if standing == winner:
            with contextlib.suppress(CacheError):  # the store has it
                super().add(winner)
        return self._confirmed(winner, standing) or winner

    def add(self, winner: Winner) -> None:
        if self.store.replace(winner):
            self._remember(winner)
        super().add(winner)

    def of_other_configs(self, key: WinnerKey) -> list[Winner]:
        return [*self.mirror.of_other_configs(key), *super().of_other_configs(key)]

    def _confirmed(self, mine: Winner, standing: Winner | None) -> Winner | None:
        """Remember what the store has; ``mine`` itself where they are equal, so that callers can tell."""
        if standing is None:
            return None
        self._remember(standing)
        return mine if standing == mine else standing

    def _fetch(self, key: WinnerKey) -> bool:
        """Take a kernel's winners that this process hasn't read; whether there are any."""
        found = self.store.of_kernel(key) or []
        for one in found:
            self._remember(one)
        return bool(found)

    def _known(self, key: WinnerKey) -> Winner | None:
        return self.mirror.own(key) or self.store.unwritten.get(key.digest())

    def _remember(self, found: Winner) -> None:
        try:
            self.mirror.add(found)
        except CacheError:
            self.store.unwritten[found.key.digest()] = found


def open_winners(folder: Path | None = None) -> WinnerCache:
    """A cache folder, with the store of ``KERNTUNE_STORE`` if there is one."""
    return with_store(WinnerCache(folder or default_folder()))


def with_store(cache: WinnerCache) -> WinnerCache:
    """A cache with the store of ``KERNTUNE_STORE``; the cache itself if none is set."""
    store = shared_store(cache.folder)
    return cache if store is None else SharedWinnerCache(cache.folder, store)
