"""The cache as one file, to carry to another machine, or as a file per device, to ship in a wheel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from kerntune.base import codec
from kerntune.errors import CacheError
from kerntune.tuning.cache import shipped, trials, winner
from kerntune.tuning.cache.trials import StoredTrial, TrialCache
from kerntune.tuning.cache.winner import Winner
from kerntune.tuning.cache.winners import WinnerCache

SCHEMA = "kerntune.cache/1"


class CacheFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole cache."""

    schema: str
    winners: tuple[Winner, ...]
    trials: tuple[StoredTrial, ...] = ()


@dataclass(frozen=True)
class Moved:
    """How much was exported, imported, pushed or pulled; ``kept`` counts what was there already and stayed;
    ``damaged`` tells what couldn't be read."""

    winners: int
    trials: int
    kept: int = 0
    damaged: tuple[str, ...] = ()


def export_cache(folder: Path, file: Path, *, with_trials: bool = True) -> Moved:
    """Write a cache folder as one JSON file. :class:`CacheError` if it can't be written."""
    cache, tried = WinnerCache(folder), TrialCache(folder)
    won = cache.entries()
    all_trials = tried.entries() if with_trials else []
    data = codec.to_json(CacheFile(SCHEMA, tuple(won), tuple(all_trials)))
    if len(data) > codec.MAX_REPORT or codec.values_at_most(data) > codec.MAX_REPORT_VALUES:
        raise CacheError(f"{file}: would have {len(data)} bytes, too many to be imported; {_SMALLER}")
    codec.write_atomic(file, data, error=CacheError, durable=True)
    return Moved(len(won), len(all_trials), damaged=(*cache.damaged, *tried.damaged))


def export_devices(folder: Path, to: Path) -> list[Path]:
    """Write a cache folder's winners as one file per device under ``to``; the files."""
    by_device: dict[tuple[str, str], list[Winner]] = {}
    for found in WinnerCache(folder).entries():
        by_device.setdefault((found.key.target, found.key.device), []).append(found)
    return [shipped.write_file(to, won) for _, won in sorted(by_device.items())]


def import_cache(folder: Path, file: Path, *, replace: bool = False) -> Moved:
    """Take a file of :func:`export_cache` or :func:`export_devices` into a cache folder.

    What is here already stays, unless ``replace``. All of a file is taken or, if it is damaged, nothing:
    :class:`CacheError`.
    """
    found = _read(file)
    cache, tried = WinnerCache(folder), TrialCache(folder)
    won = [w for w in found.winners if replace or not cache.holds(w.key)]
    new_trials = [t for t in found.trials if replace or not tried.holds(t)]
    for one in won:
        cache.add(one)
    for trial in new_trials:
        tried.add(trial)
    kept = len(found.winners) + len(found.trials) - len(won) - len(new_trials)
    return Moved(len(won), len(new_trials), kept, (*cache.damaged, *tried.damaged))


def _read(file: Path) -> CacheFile:
    data = codec.read_file(file, error=CacheError, limit=codec.MAX_REPORT)
    if data is None:
        raise CacheError(f"{file}: can't be read (No such file or directory)")
    most = codec.MAX_REPORT_VALUES
    if codec.values_at_most(data) <= most and _schema_of(data) == shipped.SCHEMA:
        return CacheFile(SCHEMA, shipped.read_file(file).winners)
    found = codec.from_json(data, CacheFile, SCHEMA, where=str(file), error=CacheError, most_values=most)
    old = [w.schema for w in found.winners if w.schema != winner.SCHEMA]
    old += [t.schema for t in found.trials if t.schema != trials.SCHEMA]
    if old:
        raise CacheError(f"{file}: holds entries of schema {old[0]!r}; export them anew with this kerntune")
    return found


_SMALLER = "leave the trials out (--winners-only), or write a file per device (--per-device)"


class _Header(msgspec.Struct):
    schema: str = ""


def _schema_of(data: bytes) -> str:
    try:
        return msgspec.json.decode(data, type=_Header).schema
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
