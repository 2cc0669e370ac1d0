"""A table of known configs: a kernel's config by the hash of its source and size hints."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from kerntune.base.codec import from_json, to_json, write_atomic
from kerntune.base.config import Config
from kerntune.errors import StoreError

SCHEMA = "kerntune.lookup/1"

HASHED_ORDER = ("z", "y", "x", "r0", "r1")
"""The order in which Inductor writes size hints; ours may come in any."""

_NAME = re.compile(r"\Adef [^(]+\(")


def kernel_hash(source: str, sizes: Mapping[str, int]) -> str:
    """SHA-256 over the size hints and the source without the function's name: a renamed kernel keeps its hash.

    ``source`` starts with ``def`` (as ``JITFunction.src`` does). The text hashed is torch 2.13's
    (generate_lookup_hash_from_source_code), reduced axes spelled ``r0_``, so the keys of its tables are valid here.
    """
    named = {f"{axis}_" if axis[0] == "r" else axis: sizes[axis] for axis in HASHED_ORDER if axis in sizes}
    nameless = _NAME.sub("(", source.strip(), count=1)
    return hashlib.sha256(f"{named}{nameless}".encode()).hexdigest()


class LookupTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Configs by :func:`kernel_hash`."""

    entries: dict[str, Config] = {}

    def find(self, source: str, sizes: Mapping[str, int]) -> Config | None:
        """The config in the table for a kernel of these sizes, or None."""
        return self.entries.get(kernel_hash(source, sizes))

    def with_entry(self, source: str, sizes: Mapping[str, int], config: Config) -> LookupTable:
        """A copy of the table with one more entry."""
        return LookupTable({**self.entries, kernel_hash(source, sizes): config})


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: str
    entries: dict[str, Config]


def read_table(path: Path) -> LookupTable:
    """A table from a JSON file; :class:`~kerntune.errors.StoreError` names the file and what is wrong with it."""
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise StoreError(f"{path}: the look-up table can't be read ({exc.strerror})") from exc
    found = from_json(data, _File, SCHEMA, where=str(path))
    for key, config in found.entries.items():
        _check_entry(path, key, config)
    return LookupTable(dict(found.entries))


def _check_entry(path: Path, key: str, config: Config) -> None:
    if not re.fullmatch(r"[0-9a-f]{64}", key):
        raise StoreError(f"{path}: {key!r} is no kernel hash (64 hex digits)")
    if config.num_warps < 1 or config.num_stages < 0 or config.num_ctas < 1:
        raise StoreError(f"{path}: entry {key[:12]} has an impossible config: {config}")


def write_table(path: Path, table: LookupTable) -> None:
    """Write a table as JSON, atomically, entries sorted."""
    write_atomic(path, to_json(_File(SCHEMA, table.entries)))
