"""Many small JSON files as one: gzip over JSON, unpacked within limits."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping

import msgspec

from kerntune.base import codec
from kerntune.errors import StoreError

SCHEMA = "kerntune.members/1"

MAX_PACKED = 1 << 23
"""Bytes that a bundle may have: 8 MiB. 200 winners among 48 configs have 30 KB."""

MAX_UNPACKED = codec.MAX_REPORT

_GZIP = 31
"""zlib's window bits for a gzip header."""


class Members(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """JSON texts by name."""

    schema: str
    members: dict[str, msgspec.Raw]


def pack(members: Mapping[str, bytes]) -> bytes:
    """A bundle of these; equal members, equal bytes. The first ones are left out where all would be too many."""
    kept = dict(sorted(members.items()))
    while True:
        raw = {name: msgspec.Raw(msgspec.json.format(data, indent=0)) for name, data in kept.items()}
        text = msgspec.json.encode(Members(SCHEMA, raw), order="sorted")
        packed = gzip.compress(text, 6, mtime=0)
        if len(packed) <= MAX_PACKED and len(text) <= MAX_UNPACKED and _values(text) <= codec.MAX_REPORT_VALUES:
            return packed
        kept = dict(list(kept.items())[len(kept) // 2 :])


def unpack(packed: bytes, where: str) -> dict[str, bytes]:
    """The members; :class:`StoreError` for what is no bundle, or a longer one than there may be."""
    if len(packed) > MAX_PACKED:
        raise StoreError(f"{where}: has more than the {MAX_PACKED} bytes that it may have")
    unpacker = zlib.decompressobj(_GZIP)
    try:
        text = unpacker.decompress(packed, MAX_UNPACKED)
    except zlib.error as exc:
        raise StoreError(f"{where}: is damaged ({exc})") from exc
    if not unpacker.eof or unpacker.unused_data:
        raise StoreError(f"{where}: is damaged: it is cut off, too long, or goes on behind its end")
    found = codec.from_json(text, Members, SCHEMA, where=where, most_values=codec.MAX_REPORT_VALUES)
    return {name: bytes(data) for name, data in found.members.items()}


def _values(text: bytes) -> int:
    return codec.values_at_most(text)
