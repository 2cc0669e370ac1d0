"""Winners of this machine's cache and of a store that several machines share: the store's come first."""

from __future__ import annotations

import contextlib
from pathlib import Path

from kerntune.errors import CacheError
from kerntune.tuning.cache.entries import default_folder
from kerntune.tuning.cache.shared_store import SharedStore, shared_store
from kerntune.tuning.cache.winner import Winner, WinnerKey
from kerntune.tuning.cache.winners import WinnerCache


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
        """In the folder, or for as long as this process lasts."""
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
