"""What nvdisasm said of machine code, on disk, so that no later process starts it for the same code."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from kerntune.errors import CacheError
from kerntune.static.disassembly import Code, Listing
from kerntune.tuning.cache.entries import Entries, default_folder

SCHEMA = "kerntune.listing/2"
MOST = 4096
"""Entries that are kept, about 2 KB each."""


Accesses = tuple[tuple[str, int, int], ...]


class StoredListing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A listing of the code with this hash, as ``tool`` (nvdisasm, identified by its size) prints it.

    ``stack`` has opcode, offset in bytes and count of each access to the stack frame, ``repeated_stack`` those in
    loops; JSON has no pairs as keys.
    """

    schema: str
    arch: str
    sha256: str
    instructions: int
    tool: str
    opcodes: dict[str, int]
    stack: Accesses = ()
    stack_address_taken: bool = False
    repeated_stack: Accesses = ()

    def answers(self, code: Code) -> bool:
        """Whether this is of that code, and whole: every instruction has been counted."""
        same = (self.arch, self.sha256, self.instructions, self.tool) == (
            code.arch,
            code.sha256,
            code.instructions,
            code.tool,
        )
        return same and sum(self.opcodes.values()) == self.instructions

    def listing(self) -> Listing:
        """As it was counted."""
        return Listing(self.opcodes, _counts(self.stack), self.stack_address_taken, _counts(self.repeated_stack))


class ListingCache:
    """A file for each piece of machine code; the least recently used go when there are more than ``most``.

    A damaged entry is set aside and counts as none; a folder that can't be written remembers nothing.
    """

    def __init__(self, folder: Path | None = None, most: int = MOST) -> None:
        self.folder = folder or default_folder()
        self._most = most
        self._entries = Entries(self.folder, "listings", StoredListing, SCHEMA)

    @property
    def damaged(self) -> list[str]:
        """What was found damaged so far, a line each."""
        return self._entries.damaged

    def complete(self, codes: Sequence[Code], make: Callable[[list[Code]], dict[Code, Listing]]) -> dict[Code, Listing]:
        """The listings of these: those that are stored, and for the others what ``make`` gives, which is stored."""
        known = {code: found for code in codes if (found := self.find(code)) is not None}
        made = make([code for code in codes if code not in known])
        if made:
            self.add(made)
        return {**known, **made}

    def find(self, code: Code) -> Listing | None:
        """What is remembered of the code."""
        path = self._path(code)
        found = self._entries.read(path)
        if found is None:
            return None
        if not found.answers(code):
            self._entries.set_aside(path, f"{path}: isn't of the code that it is named after")
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # used just now: others go first
        return found.listing()

    def add(self, listings: dict[Code, Listing]) -> None:
        """Remember these, and forget those that have not been used for longest."""
        with contextlib.suppress(CacheError):
            for code, listing in listings.items():
                self._entries.write(self._path(code), _stored(code, listing))
            self._forget()

    def count(self) -> int:
        """How many there are."""
        return len(self._entries.paths())

    def clear(self) -> int:
        """Remove all; how many there were."""
        return self._entries.clear()

    def _forget(self) -> None:
        paths = self._entries.paths()
        if len(paths) > self._most:
            for path in sorted(paths, key=_used)[: len(paths) - self._most]:
                path.unlink(missing_ok=True)

    def _path(self, code: Code) -> Path:
        name = hashlib.sha256("\0".join((code.arch, code.sha256, code.tool)).encode()).hexdigest()
        return self._entries.path(name[:2], name[:32])


def _used(path: Path) -> float:
    """When an entry was used last; another process may have removed it meanwhile."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _stored(code: Code, listing: Listing) -> StoredListing:
    return StoredListing(
        SCHEMA,
        code.arch,
        code.sha256,
        code.instructions,
        code.tool,
        dict(listing.opcodes),
        _accesses(listing.stack),
        listing.stack_address_taken,
        _accesses(listing.repeated_stack),
    )


def _accesses(counts: Mapping[tuple[str, int], int]) -> Accesses:
    return tuple((opcode, offset, count) for (opcode, offset), count in sorted(counts.items()))


def _counts(accesses: Accesses) -> dict[tuple[str, int], int]:
    return {(opcode, offset): count for opcode, offset, count in accesses}
