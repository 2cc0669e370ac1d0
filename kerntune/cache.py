"""Winners of earlier runs on disk, so that what was tuned once is not tuned again."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import filelock
import msgspec
import platformdirs

from kerntune import codec
from kerntune.config import Config
from kerntune.device import Environment
from kerntune.errors import CacheError, StoreError

SCHEMA = "kerntune.winner/1"
LOCK_TIMEOUT_S = 30.0


class WinnerKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that may change which config wins. ``arguments`` describes shapes, strides, dtypes and scalars."""

    kernel: str
    source: str
    target: str
    device: str
    triton: str
    arguments: str
    configs: tuple[Config, ...]

    def digest(self) -> str:
        """SHA-256 over the key."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()


class Winner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stored winner: the config, its time in nanoseconds, and the environment it was found in."""

    schema: str
    key: WinnerKey
    config: Config
    time_ns: float
    environment: Environment


def default_folder() -> Path:
    """``KERNTUNE_CACHE_DIR`` if it is set, else the user's cache folder for kerntune."""
    return Path(os.environ.get("KERNTUNE_CACHE_DIR") or platformdirs.user_cache_dir("kerntune"))


class WinnerCache:
    """One small file a winner, safe under many processes. A damaged file is set aside, never fatal."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_folder()
        self.damaged: list[str] = []

    def get(self, key: WinnerKey) -> Winner | None:
        """The stored winner, or None."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        try:
            found = codec.from_json(data, Winner, SCHEMA, where=str(path), error=CacheError)
        except StoreError as exc:
            self._set_aside(path, data, str(exc))
            return None
        return found if found.key == key else None

    def put(self, key: WinnerKey, config: Config, time_ns: float, environment: Environment) -> None:
        """Store a winner. :class:`CacheError` if the folder can't be written."""
        winner = Winner(SCHEMA, key, config, time_ns, environment)
        codec.write_atomic(self._path(key), codec.to_json(winner), error=CacheError)

    def entries(self) -> list[Winner]:
        """All winners that can be read."""
        out = []
        for path in sorted(self.folder.glob("winners/*/*.json")):
            try:
                data = path.read_bytes()
            except OSError as exc:
                self.damaged.append(f"{path}: can't be read ({exc.strerror})")
                continue
            try:
                out.append(codec.from_json(data, Winner, SCHEMA, where=str(path), error=CacheError))
            except StoreError as exc:
                self._set_aside(path, data, str(exc))
        return out

    def clear(self) -> int:
        """Remove all winners; how many there were."""
        paths = list(self.folder.glob("winners/*/*.json"))
        for path in paths:
            path.unlink(missing_ok=True)
        return len(paths)

    def _path(self, key: WinnerKey) -> Path:
        digest = key.digest()
        return self.folder / "winners" / digest[:2] / f"{digest}.json"

    def _set_aside(self, path: Path, seen: bytes, why: str) -> None:
        """Move a damaged file away, unless another process has put a good one there meanwhile. Never fatal."""
        self.damaged.append(why)
        lock = filelock.FileLock(str(self.folder / ".lock"), timeout=LOCK_TIMEOUT_S)
        with contextlib.suppress(OSError, filelock.Timeout), lock:
            if path.read_bytes() == seen:
                path.replace(path.with_suffix(".damaged"))
