"""Winner files that packages carry: one per device, read only, found before anything is tuned.

A package calls ``kerntune.tuning.cache.add_shipped(Path(__file__).parent / "winners")``; ``KERNTUNE_WINNERS`` names
more folders, separated as in ``PATH``. Files are made by ``kerntune cache export --per-device DIR``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from kerntune.base import codec
from kerntune.errors import CacheError, StoreError
from kerntune.tuning.cache.winner import SCHEMA as WINNER_SCHEMA
from kerntune.tuning.cache.winner import Winner, WinnerKey

SCHEMA = "kerntune.winners/1"


class DeviceWinners(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All winners of one kind of device."""

    schema: str
    target: str
    device: str
    winners: tuple[Winner, ...]


_folders: list[Path] = []
_read: dict[Path, dict[str, Winner]] = {}


def add_shipped(folder: Path) -> None:
    """Look for winners in a folder of per-device files too, after those that were added before."""
    if folder not in _folders:
        _folders.append(folder)


def folders() -> list[Path]:
    """Where shipped winners are looked for, in order."""
    named = os.environ.get("KERNTUNE_WINNERS", "")
    return [*_folders, *(Path(name) for name in named.split(os.pathsep) if name)]


def file_name(target: str, device: str) -> Path:
    """A device's file within a folder: ``cuda-90/nvidia-h200.json``."""
    slug = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") or "unknown"
    return Path(target.replace(":", "-")) / f"{slug}.json"


def find(key: WinnerKey, tell: Callable[[str], None]) -> Winner | None:
    """The first shipped winner for a key. Files are read once a process; a damaged one is told and left alone."""
    digest = key.digest()
    for folder in folders():
        found = _winners(folder / file_name(key.target, key.device), tell).get(digest)
        if found is not None and found.key == key:
            return found
    return None


def _winners(path: Path, tell: Callable[[str], None]) -> dict[str, Winner]:
    if path not in _read:
        try:
            if path.exists() and not path.is_file():  # a FIFO would be waited for
                raise CacheError(f"{path}: is no regular file")
            _read[path] = {w.key.digest(): w for w in read_file(path).winners}
        except FileNotFoundError:
            return {}
        except (StoreError, OSError) as exc:
            tell(str(exc))
            _read[path] = {}
    return _read[path]


def read_file(path: Path) -> DeviceWinners:
    """A device's file. :class:`CacheError` if it is damaged, OSError if it can't be read."""
    found = codec.from_json(path.read_bytes(), DeviceWinners, SCHEMA, where=str(path), error=CacheError)
    wrong = [w for w in found.winners if w.schema != WINNER_SCHEMA]
    if wrong:
        raise CacheError(f"{path}: holds winners of schema {wrong[0].schema!r}; export them anew")
    return found


def write_file(folder: Path, winners: Sequence[Winner]) -> Path:
    """Write winners that are all of one device; the file."""
    key = winners[0].key
    path = folder / file_name(key.target, key.device)
    ordered = tuple(sorted(winners, key=lambda w: w.key.digest()))
    codec.write_atomic(path, codec.to_json(DeviceWinners(SCHEMA, key.target, key.device, ordered)), error=CacheError)
    return path
