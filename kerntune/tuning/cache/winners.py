"""Winners of earlier runs on disk, so that what was tuned once is not tuned again."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kerntune.base.config import Config
from kerntune.base.device import Environment
from kerntune.tuning.cache import shipped
from kerntune.tuning.cache.entries import Entries, default_folder
from kerntune.tuning.cache.miss_reason import why_missed
from kerntune.tuning.cache.winner import SCHEMA, Winner, WinnerKey


class WinnerCache:
    """One small file a winner, safe under many processes. A damaged file is set aside, never fatal.

    What isn't in the folder is looked for among the winners that packages ship (:mod:`kerntune.tuning.cache.shipped`).
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_folder()
        self._entries = Entries(self.folder, "winners", Winner, SCHEMA)

    @property
    def damaged(self) -> list[str]:
        """What was found damaged so far, a line each."""
        return self._entries.damaged

    def get(self, key: WinnerKey) -> Winner | None:
        """The stored winner, else a shipped one, else None."""
        found = self._entries.read(self._path(key))
        if found is not None and found.key == key:
            return found
        return shipped.find(key, self.damaged)

    def put(
        self,
        key: WinnerKey,
        config: Config,
        time_ns: float,
        environment: Environment,
        untried: tuple[Config, ...] = (),
    ) -> None:
        """Store a winner. :class:`CacheError` if the folder can't be written."""
        self.add(Winner(SCHEMA, key, config, time_ns, environment, untried))

    def add(self, winner: Winner) -> None:
        """Store a winner as it is. :class:`CacheError` if the folder can't be written."""
        self._entries.write(self._path(winner.key), winner)

    def holds(self, key: WinnerKey) -> bool:
        """Whether the folder itself has a winner for a key."""
        found = self._entries.read(self._path(key))
        return found is not None and found.key == key

    def entries(self) -> list[Winner]:
        """All winners of the folder that can be read."""
        return self._entries.all()

    def of_other_configs(self, key: WinnerKey) -> list[Winner]:
        """Winners of the very same question among other configs, in a stable order."""
        found = self._entries.mentioning(key.source)
        return [w for w in found if w.key != key and _of_any(w.key) == _of_any(key)]

    def clear(self) -> int:
        """Remove all winners of the folder; how many there were."""
        return self._entries.clear()

    def why_missed(self, key: WinnerKey, environment: Environment | None = None) -> list[str]:
        """What differs between ``key`` and the nearest stored winner of the kernel, a line each; its environment too.

        Reads every winner: for explanations, not for the way to a launch.
        """
        return why_missed("winner", key, environment, [(w.key, w.environment) for w in self.entries()], self.folder)

    def _path(self, key: WinnerKey) -> Path:
        digest = key.digest()
        return self._entries.path(digest[:2], digest)


def _of_any(key: WinnerKey) -> WinnerKey:
    """The key without what was chosen from."""
    return msgspec.structs.replace(key, configs=(), search="")
