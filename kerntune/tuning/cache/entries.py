"""Has a folder of small files, one an entry: safe under many processes, with damage set aside.

A warning names damage once a process. One such folder has what nvdisasm said of machine code, so that no later
process starts it for the same code.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import platformdirs

from kerntune.base import codec
from kerntune.base.folders import sweep_once, temporary_name
from kerntune.base.formatting import visible
from kerntune.errors import CacheError, StoreError
from kerntune.kernels.compat import tuners
from kerntune.static.disassembly import Code, Listing

_said: set[str] = set()


def report_damage(lines: Iterable[str]) -> None:
    """Warn of entries that were set aside or can't be read."""
    for line in lines:
        if line in _said:
            continue
        _said.add(line)
        tell_user(f"kerntune's cache: {line}; what it held is found anew")


def tell_user(text: str) -> None:
    """Warn of what must never end a user's call: of a folder or a store. Where warnings are errors, on the standard
    error stream."""
    shown = visible(text)
    try:
        warnings.warn(shown, RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        print(shown, file=sys.stderr)


T = TypeVar("T", bound=msgspec.Struct)

MAX_ENTRY = 1 << 22
"""Bytes that an entry may have: 4 MiB. A winner among 48 configs has 7 KB."""


def append(path: str | Path, data: bytes) -> None:
    """Add bytes to a file by one write: those of several processes don't mix. OSError if it can't be written."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        os.write(handle, data)
    finally:
        os.close(handle)


SET_ASIDE = ".damaged"
"""The suffix of an entry that could not be read."""


def default_folder() -> Path:
    """``KERNTUNE_CACHE_DIR`` if it is set. Else, where this process has given Triton's cache another folder itself, a
    part of that: who starts with an empty cache wants no winners either. Else the user's cache folder for kerntune."""
    if asked := os.environ.get("KERNTUNE_CACHE_DIR"):
        return Path(asked)
    moved = tuners.cache_dir_set()
    return Path(moved, "kerntune") if moved else Path(platformdirs.user_cache_dir("kerntune"))


class Entries(Generic[T]):
    """Entries of one kind under ``folder/store``. Writers replace whole files, so readers need no lock.

    An entry of a later schema counts as none and stays: two versions of kerntune may share a folder.
    A damaged file is renamed (``.damaged``) and listed in ``damaged``, once; it never ends a run. What a
    crash of the machine leaves, an empty or half a file, is such damage: entries are not flushed to the disk one by
    one, which would take 100 times as long as writing them.
    """

    def __init__(self, folder: Path, store: str, kind: type[T], schema: str) -> None:
        self.folder, self.place = folder, folder / store
        self._kind, self._schema = kind, schema
        self._damaged: list[str] = []

    @property
    def damaged(self) -> list[str]:
        """What was found damaged so far, a line each."""
        return self._damaged

    def path(self, *parts: str) -> Path:
        """Where an entry lies."""
        return self.place.joinpath(*parts[:-1], f"{parts[-1]}.json")

    def read(self, path: Path) -> T | None:
        """The entry; None if there is none or it was damaged."""
        try:
            data = codec.read_file(path, error=CacheError, limit=MAX_ENTRY)
        except CacheError as exc:
            if exc.__cause__ is None:
                self._set_aside(path, None, str(exc))
            elif not isinstance(exc.__cause__, NotADirectoryError):  # a file in the place of its folder has no entries
                self.tell(str(exc))
            return None
        if data is None:
            return None
        try:
            return codec.from_json(data, self._kind, self._schema, where=str(path), error=CacheError)
        except StoreError as exc:
            if not codec.is_newer(data, self._schema):
                self._set_aside(path, data, str(exc))
            return None

    def write(self, path: Path, entry: T) -> None:
        """Store an entry in the place of what was there. :class:`CacheError` if the folder can't be written."""
        data, standing = self._encoded(path, entry), None
        with contextlib.suppress(CacheError):
            standing = codec.read_file(path, error=CacheError, limit=MAX_ENTRY)
        if standing is None or not codec.is_newer(standing, self._schema):  # which stays: versions may share a folder
            codec.write_atomic(path, data, error=CacheError)
        sweep_once(path.parent)

    def write_new(self, path: Path, entry: T) -> bool:
        """Store an entry where there is none; whether there was none. As :meth:`write` otherwise."""
        made = codec.write_new(path, self._encoded(path, entry), error=CacheError)
        sweep_once(path.parent)
        return made

    def paths(self) -> list[Path]:
        """Files of entries, in a stable order."""
        return sorted(self.place.glob("**/*.json"))

    def within(self, *parts: str) -> list[T]:
        """All entries of one folder that can be read, in a stable order: of ``path(*parts, name)`` for any name."""
        folder = self.place.joinpath(*parts)
        try:
            names = sorted(name for name in os.listdir(folder) if name.endswith(".json") and name[0] != ".")
        except OSError:
            return []
        return [entry for name in names if (entry := self.read(folder / name)) is not None]

    def all(self) -> Iterator[T]:
        """All entries that can be read, one after another."""
        return (entry for path in self.paths() if (entry := self.read(path)) is not None)

    def clear(self) -> int:
        """Remove all entries; how many there were."""
        paths = self.paths()
        for path in paths:
            path.unlink(missing_ok=True)
        return len(paths)

    def set_aside(self, path: Path, why: str) -> None:
        """Move an entry away that can be read but says what can't be."""
        with contextlib.suppress(CacheError):
            self._set_aside(path, codec.read_file(path, error=CacheError, limit=MAX_ENTRY), why)

    def tell(self, why: str) -> None:
        """Remember a line on damage, once."""
        if why not in self._damaged:
            self._damaged.append(why)

    def _encoded(self, path: Path, entry: T) -> bytes:
        data = codec.to_json(entry)
        if len(data) > MAX_ENTRY or codec.values_at_most(data) > codec.MAX_VALUES:
            what = f"would have {len(data)} bytes, and may have {MAX_ENTRY}"
            raise CacheError(f"{path}: {what}; tune fewer configs")
        return data

    def _set_aside(self, path: Path, seen: bytes | None, why: str) -> None:
        """Move a damaged file away, unless another process has put a good one there meanwhile. Never fatal.

        ``seen`` is what was read, None for a file that can't be. Without a lock, since on some file systems locks do
        nothing: whatever lies there is taken away first, then looked at, and put back if it isn't what was read.
        """
        self.tell(why)
        taken = path.with_name(temporary_name(path.name))
        with contextlib.suppress(OSError):
            os.rename(path, taken)
            if _is_still(taken, seen):
                os.replace(taken, path.with_suffix(SET_ASIDE))
            else:
                _put_back(taken, path)


def _is_still(path: Path, seen: bytes | None) -> bool:
    try:
        return codec.read_file(path, error=CacheError, limit=MAX_ENTRY) == seen
    except CacheError:
        return seen is None


def _put_back(taken: Path, path: Path) -> None:
    """Where there is a still newer one, that stays."""
    with contextlib.suppress(FileExistsError):
        os.link(taken, path)
    os.unlink(taken)


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
        same = Code(self.arch, self.sha256, self.instructions, self.tool) == code
        return same and sum(self.opcodes.values()) == self.instructions

    def listing(self) -> Listing:
        """As it was counted."""
        return Listing(self.opcodes, _counts(self.stack), self.stack_address_taken, _counts(self.repeated_stack))


class ListingCache(Entries[StoredListing]):
    """A file for each piece of machine code; the least recently used go when there are more than ``most``.

    A damaged entry is set aside and counts as none; a folder that can't be written remembers nothing.
    """

    def __init__(self, folder: Path | None = None, most: int = MOST) -> None:
        super().__init__(folder or default_folder(), "listings", StoredListing, SCHEMA)
        self._most = most

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
        found = self.read(path)
        if found is None:
            return None
        if not found.answers(code):
            self.set_aside(path, f"{path}: isn't of the code that it is named after")
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # used just now: others go first
        return found.listing()

    def add(self, listings: dict[Code, Listing]) -> None:
        """Remember these, and forget those that have not been used for longest."""
        with contextlib.suppress(CacheError):
            for code, listing in listings.items():
                self.write(self._path(code), _stored(code, listing))
            self._forget()

    def count(self) -> int:
        """How many there are."""
        return len(self.paths())

    def _forget(self) -> None:
        paths = self.paths()
        if len(paths) > self._most:
            for path in sorted(paths, key=_used)[: len(paths) - self._most]:
                path.unlink(missing_ok=True)

    def _path(self, code: Code) -> Path:
        name = hashlib.sha256("\0".join((code.arch, code.sha256, code.tool)).encode()).hexdigest()
        return self.path(name[:2], name[:32])


def _used(path: Path) -> float:
    """When an entry was used last; another process may have removed it meanwhile."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _stored(code: Code, listing: Listing) -> StoredListing:
    return StoredListing(
        SCHEMA,
        **msgspec.structs.asdict(code),
        opcodes=dict(listing.opcodes),
        stack=_accesses(listing.stack),
        stack_address_taken=listing.stack_address_taken,
        repeated_stack=_accesses(listing.repeated_stack),
    )


def _accesses(counts: Mapping[tuple[str, int], int]) -> Accesses:
    return tuple((opcode, offset, count) for (opcode, offset), count in sorted(counts.items()))


def _counts(accesses: Accesses) -> dict[tuple[str, int], int]:
    return {(opcode, offset): count for opcode, offset, count in accesses}
