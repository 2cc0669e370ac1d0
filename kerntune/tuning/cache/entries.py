"""A folder of small files, one an entry: safe under many processes, damage set aside."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Generic, TypeVar

import filelock
import msgspec
import platformdirs

from kerntune.base import codec
from kerntune.errors import CacheError, StoreError
from kerntune.kernels import compat

LOCK_TIMEOUT_S = 30.0

T = TypeVar("T", bound=msgspec.Struct)


def default_folder() -> Path:
    """``KERNTUNE_CACHE_DIR`` if it is set. Else, where this process has given Triton's cache another folder itself, a
    part of that: who starts with an empty cache wants no winners either. Else the user's cache folder for kerntune."""
    if asked := os.environ.get("KERNTUNE_CACHE_DIR"):
        return Path(asked)
    moved = compat.cache_dir_set()
    return Path(moved, "kerntune") if moved else Path(platformdirs.user_cache_dir("kerntune"))


class Entries(Generic[T]):
    """Entries of one kind under ``folder/store``. Writers replace whole files, so readers need no lock.

    A damaged file is moved beside itself (``.damaged``) and told in ``damaged``; it never ends a run.
    """

    def __init__(self, folder: Path, store: str, kind: type[T], schema: str) -> None:
        self.folder, self.store = folder, store
        self._kind, self._schema = kind, schema
        self.damaged: list[str] = []

    def path(self, *parts: str) -> Path:
        """Where an entry lies."""
        return self.folder.joinpath(self.store, *parts[:-1], f"{parts[-1]}.json")

    def read(self, path: Path) -> T | None:
        """The entry; None if there is none or it was damaged."""
        try:
            data = codec.read_file(path, error=CacheError)
        except CacheError as exc:
            if not isinstance(exc.__cause__, NotADirectoryError):
                self.damaged.append(str(exc))
            return None
        if data is None:
            return None
        try:
            return codec.from_json(data, self._kind, self._schema, where=str(path), error=CacheError)
        except StoreError as exc:
            self._set_aside(path, data, str(exc))
            return None

    def write(self, path: Path, entry: T) -> None:
        """Store an entry in the place of what was there. :class:`CacheError` if the folder can't be written."""
        codec.write_atomic(path, codec.to_json(entry), error=CacheError)

    def paths(self, pattern: str = "**/*.json") -> list[Path]:
        """Files of entries, in a stable order."""
        return sorted((self.folder / self.store).glob(pattern))

    def all(self, pattern: str = "**/*.json") -> list[T]:
        """All entries that can be read."""
        return [entry for path in self.paths(pattern) if (entry := self.read(path)) is not None]

    def mentioning(self, text: str) -> list[T]:
        """All entries whose file holds a text: decodes only these, so a large folder is gone through quickly."""
        found = []
        for path in self.paths():
            with contextlib.suppress(OSError):
                if path.is_file() and text.encode() in path.read_bytes() and (entry := self.read(path)) is not None:
                    found.append(entry)
        return found

    def clear(self) -> int:
        """Remove all entries; how many there were."""
        paths = self.paths()
        for path in paths:
            path.unlink(missing_ok=True)
        return len(paths)

    def set_aside(self, path: Path, why: str) -> None:
        """Move an entry away that can be read but says what can't be."""
        with contextlib.suppress(OSError):
            self._set_aside(path, path.read_bytes(), why)

    def _set_aside(self, path: Path, seen: bytes, why: str) -> None:
        """Move a damaged file away, unless another process has put a good one there meanwhile. Never fatal."""
        self.damaged.append(why)
        lock = filelock.FileLock(str(self.folder / ".lock"), timeout=LOCK_TIMEOUT_S)
        with contextlib.suppress(OSError, filelock.Timeout), lock:
            if path.read_bytes() == seen:
                path.replace(path.with_suffix(".damaged"))
