"""Words of two recordings at two windows: which are addresses, which are the same, which differ otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

WORD = 8
MOST_LISTED = 8


@dataclass
class Words:
    """Offsets of addresses in bytes of recordings at two windows, and of words that differ in another way."""

    words: int = 0
    addresses: list[int] = field(default_factory=list)
    otherwise: list[int] = field(default_factory=list)

    def report(self) -> dict[str, Any]:
        return {
            "words": self.words,
            "addresses": len(self.addresses),
            "differ_otherwise": len(self.otherwise),
            "first_otherwise": self.otherwise[:MOST_LISTED],
        }


def compare(first: bytes, second: bytes, distance: int) -> Words:
    """Words of ``first`` and ``second`` (same layout) at multiples of 8 bytes, then at multiples of 4.

    A word is an address where the second is the first plus ``distance`` (mod 2**64). A tail of fewer than 8
    bytes holds no address.
    """
    if len(first) != len(second):
        raise ValueError(f"recordings differ in length: {len(first)} and {len(second)} bytes")
    whole = len(first) // WORD * WORD
    one, two = (np.frombuffer(data[:whole], dtype="<u8") for data in (first, second))
    differ = np.nonzero(one != two)[0]
    apart = (two[differ] - one[differ]) == np.uint64(distance % 2**64)
    found = Words(words=whole // WORD, addresses=(differ[apart] * WORD).tolist())
    for at in (differ[~apart] * WORD).tolist():
        straddling = _straddling(first, second, at, distance, found.addresses)
        if straddling is None:
            found.otherwise.append(at)
        elif straddling not in found.addresses:
            found.addresses.append(straddling)
    if first[whole:] != second[whole:] and not any(a + WORD > whole for a in found.addresses):
        found.otherwise.append(whole)
    return found


def _straddling(first: bytes, second: bytes, at: int, distance: int, known: list[int]) -> int | None:
    """The offset of an address that begins 4 bytes before or after ``at`` and accounts for the difference."""
    for start in (at - 4, at + 4):
        if start < 0 or start + WORD > len(first):
            continue
        one, two = (int.from_bytes(data[start : start + WORD], "little") for data in (first, second))
        outside = slice(at, start) if start > at else slice(start + WORD, at + WORD)
        if (two - one) % 2**64 == distance % 2**64 and first[outside] == second[outside]:
            return start
    return None


def relocated(data: bytes, addresses: list[int], by: int) -> bytes:
    """``data`` with ``by`` added to the words at ``addresses``."""
    moved = bytearray(data)
    aligned = np.array([a for a in addresses if a % WORD == 0], dtype=np.int64)
    if len(aligned):
        words = np.frombuffer(moved, dtype="<u8", count=len(moved) // WORD)
        words[aligned // WORD] += np.uint64(by % 2**64)
    for at in addresses:
        if at % WORD:
            value = (int.from_bytes(moved[at : at + WORD], "little") + by) % 2**64
            moved[at : at + WORD] = value.to_bytes(WORD, "little")
    return bytes(moved)


def values(data: bytes, addresses: list[int]) -> list[int]:
    """The words at ``addresses``."""
    return [int.from_bytes(data[at : at + WORD], "little") for at in addresses]


def inside(data: bytes, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Offsets and values of the aligned words of ``data`` that lie in one of ``ranges`` (start, bytes)."""
    found = []
    for at in range(0, len(data) // WORD * WORD, WORD):
        value = int.from_bytes(data[at : at + WORD], "little")
        if any(start <= value < start + size for start, size in ranges):
            found.append((at, value))
    return found
