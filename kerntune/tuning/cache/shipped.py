"""Winner files that packages carry: one per device, read only, found before anything is tuned.

A file that other users can write to is ignored, and so is one in a folder where they can replace it; both are reported.

A package calls ``kerntune.tuning.cache.add_shipped(Path(__file__).parent / "winners")``; ``KERNTUNE_WINNERS`` names
more folders, separated as in ``PATH``. Files are made by ``kerntune cache export --per-device DIR``.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
import stat
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
    return Path(_slug(target)) / f"{_slug(device)}.json"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:MAX_SLUG] or "unknown"


MAX_SLUG = 200
"""Characters of a name; most file systems end at 255 bytes."""


def find(key: WinnerKey, tell: Callable[[str], None]) -> Winner | None:
    """The first shipped winner for a key. Files are read once a process; a damaged one is reported and left
    unchanged."""
    digest = key.digest()
    for folder in folders():
        found = _winners(folder / file_name(key.target, key.device), tell).get(digest)
        if found is not None and found.key == key:
            return found
    return None


def of_device(target: str, device: str, tell: Callable[[str], None]) -> list[Winner]:
    """All shipped winners of a kind of device."""
    name = file_name(target, device)
    return [winner for folder in folders() for winner in _winners(folder / name, tell).values()]


def _winners(path: Path, tell: Callable[[str], None]) -> dict[str, Winner]:
    if path not in _read:
        try:
            if path.exists() and (who := writable_by_others(path)):
                raise CacheError(
                    f"{who}: other users can write to it, so its winners are not used; chmod go-w, or chown"
                )
            _read[path] = {w.key.digest(): w for w in read_file(path).winners}
        except FileNotFoundError:
            return {}
        except (StoreError, OSError) as exc:
            tell(str(exc))
            _read[path] = {}
    return _read[path]


def writable_by_others(path: Path) -> Path | None:
    """The first of a file, its folder and all above them that users beside this one and the superuser can change, None
    if there is none. A folder in which users may remove only their own files (``/tmp``) counts as safe."""
    real = path.resolve()
    return next((p for p in (real, *real.parents) if _others_can_write(p)), None)


def _others_can_write(path: Path) -> bool:
    found = path.stat()
    if found.st_uid not in (0, os.geteuid()):
        return True
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return False
    group = bool(found.st_mode & stat.S_IWGRP) and not _is_private(found.st_gid, found.st_uid)
    return group or bool(found.st_mode & stat.S_IWOTH)


def _is_private(group: int, user: int) -> bool:
    """Whether a group is a user's own, without members: many systems give each user one, and a umask of 002."""
    try:
        owner, found = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:
        return False
    return group == owner.pw_gid and set(found.gr_mem) <= {owner.pw_name}


def read_file(path: Path) -> DeviceWinners:
    """A device's file. :class:`CacheError` if it is damaged or can't be read, FileNotFoundError if there is none."""
    data = codec.read_file(path, error=CacheError, limit=codec.MAX_REPORT)
    if data is None:
        raise FileNotFoundError(path)
    most = codec.MAX_REPORT_VALUES
    found = codec.from_json(data, DeviceWinners, SCHEMA, where=str(path), error=CacheError, most_values=most)
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
