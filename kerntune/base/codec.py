"""Strict JSON in and out of files: versioned, stable, atomic."""

from __future__ import annotations

import enum
import errno
import hashlib
import io
import lzma
import math
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kerntune.base.folders import temporary_name
from kerntune.base.formatting import visible
from kerntune.errors import StoreError

T = TypeVar("T", bound=msgspec.Struct)

MAX_FILE = 1 << 24
"""Bytes that a file of ours may have if nothing else is said: 16 MiB. The largest of the examples has 18 KB."""

MAX_VALUES = 500_000
"""Values (numbers, texts, lists, objects) that a JSON file of ours may have: each takes up to 200 bytes of memory once
it is decoded, 100 MB for all. The largest baseline of the examples has 811."""

MAX_REPORT = 1 << 26
"""Bytes that a run's JSON or an exported cache may have: 64 MiB, some thousands of cases at 10 KB each."""

MAX_REPORT_VALUES = 1_000_000
"""Values that such a file may have."""

CHUNK = 1 << 20
"""Bytes that are read or unpacked at a time: what is too long is given up no later than that."""

MAX_UNPACKER = 80 << 20
"""Bytes that xz's unpacker itself may take: 80 MiB, above the 65 MiB that its largest preset needs."""

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for a text that is no JSON, or not of the type that was asked for."""


class _Header(msgspec.Struct):
    schema: str = ""


def to_json(value: Any) -> bytes:
    """Indented JSON with sorted keys and a final newline: equal values, equal bytes."""
    return msgspec.json.format(msgspec.json.encode(finite(value), order="sorted"), indent=1) + b"\n"


def encodable(text: str) -> str:
    """A text that UTF-8 can say. What Python kept as lone surrogates (PEP 383: a path under an ASCII locale) is read as
    UTF-8, so that the same path is the same text under every locale; what isn't UTF-8 either becomes ``\\xff``."""
    if text.isascii():
        return text
    try:
        found = text.encode(errors="surrogateescape").decode(errors="backslashreplace")
        return text if found == text else found
    except UnicodeEncodeError:  # half of a pair, which stands for no byte
        return text.encode(errors="backslashreplace").decode()


def finite(value: Any) -> Any:
    """Infinities as the largest float, because JSON has none, and texts as :func:`encodable` has them;
    :class:`StoreError` for NaN."""
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        return encodable(value)
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            raise StoreError("a figure is not a number (NaN) and can't be stored")
        return math.copysign(sys.float_info.max, value)
    if isinstance(value, msgspec.Struct):
        fields = {f: getattr(value, f) for f in value.__struct_fields__}
        changed = {f: new for f, old in fields.items() if (new := finite(old)) is not old}
        if changed:
            value = msgspec.structs.replace(value)
        for name, new in changed.items():
            msgspec.structs.force_setattr(value, name, new)  # what its class makes of these happened before
        return value
    if isinstance(value, dict):
        found = {finite(k): finite(v) for k, v in value.items()}
        same = all(a is b and found[a] is value[b] for a, b in zip(found, value, strict=False))
        return value if same and len(found) == len(value) else found
    if isinstance(value, (list, tuple)):
        items = [finite(v) for v in value]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value


_CONFLICT = re.compile(rb"^(<{7}|={7}|>{7})( |$)", re.MULTILINE)
_LFS = b"version https://git-lfs.github.com/spec/"


def _hint(data: bytes) -> str:
    if _CONFLICT.search(data):
        return (
            "it has the conflict markers of a merge. Take one side whole (git checkout --ours or --theirs, then "
            "git add), and record it anew with --kerntune-update=all"
        )
    if data.startswith(_LFS):
        return "it is a pointer of Git LFS. Fetch its content with git lfs pull"
    return "the file may be cut off. Restore it or record it anew"


def from_json(
    data: bytes,
    kind: type[T],
    schema: str,
    *,
    where: str,
    error: type[StoreError] = StoreError,
    most_values: int = MAX_VALUES,
) -> T:
    """Decode ``data`` as ``kind``, refusing another schema, unknown fields and damage.

    ``where`` names the file in the message of ``error``. Nothing is executed or guessed. What may hold more than
    ``most_values`` values isn't decoded: the memory that decoding takes is bounded by their number.
    """
    if (number := _LONG_NUMBER.search(data)) is not None:
        raise error(f"{where}: has a number of {len(number[0])} digits, which can't be; {_RESTORE}")
    if len(data) > most_values and values_at_most(data) > most_values:
        raise error(f"{where}: has more than the {most_values} values that a file of this kind may have; {_RESTORE}")
    try:
        found = msgspec.json.decode(data, type=kind, strict=True)
    except UNREADABLE as exc:
        raise _refused(data, schema, where, exc, error) from exc
    if (given := getattr(found, "schema", "")) != schema:
        raise error(_of_schema(where, given, schema))
    return found


_LONG_NUMBER = re.compile(rb"(?<=[:,\[ \n-])[0-9]{400,}(?=[,\]}\s])")
"""A whole number beyond the largest float. Those that are numbers of a text are found as well: none has as many."""


def values_at_most(data: bytes) -> int:
    """How many values a JSON text can have: each but the first follows a comma or a bracket. Commas within texts are
    counted as well."""
    return 1 + data.count(b",") + data.count(b"[") + data.count(b"{")


_RESTORE = "restore the file or record it anew"


def _refused(data: bytes, schema: str, where: str, exc: Exception, error: type[StoreError] = StoreError) -> StoreError:
    """Why a text could not be decoded: another schema before a field that doesn't fit."""
    try:
        given = msgspec.json.decode(data, type=_Header).schema
    except UNREADABLE as unreadable:
        return error(f"{where}: not readable as JSON ({visible(str(unreadable))}); {_hint(data)}")
    why = visible(str(exc).replace("\n", "\\n"))  # names of fields are the file's
    damaged = f"{where}: {why}. {_RESTORE.capitalize()}"
    return error(_of_schema(where, given, schema) if given != schema else damaged)


def schema_of(data: bytes) -> str:
    """What a text names as its schema; empty if it names none, or isn't JSON."""
    try:
        return msgspec.json.decode(data, type=_Header).schema
    except UNREADABLE:
        return ""


def is_newer(data: bytes, schema: str) -> bool:
    """Whether a text is of a later version of ``schema``: another kerntune's, which may read it again."""
    kind, _, version = schema_of(data).partition("/")
    known, _, number = schema.partition("/")
    return kind == known and version.isascii() and version.isdigit() and len(version) < 9 and int(version) > int(number)


def _of_schema(where: str, given: str, schema: str) -> str:
    """That a file is of another kind, or of another version, and what to do."""
    kind = schema.partition("/")[0]
    said = f"{where}: has schema {shortened(given or 'none')!r}, this kerntune reads {schema!r}. "
    if given.partition("/")[0] != kind:
        return f"{said}It is a file of another kind; name the right one"
    if kind in BASELINES:
        return f"{said}Record it anew with --kerntune-update=all, or use the kerntune that wrote it"
    return f"{said}Have it written anew, or use the kerntune that wrote it"


BASELINES = ("kerntune.time", "kerntune.static")
"""Schemas of what ``--kerntune-update`` writes."""


def shortened(text: str) -> str:
    """The beginning of a text that a file gave: enough to recognise it in a message."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


LONGEST_SHOWN = 80
"""Characters of a text from a damaged file that a message repeats."""


def read_file(path: Path, *, error: type[StoreError] = StoreError, limit: int = MAX_FILE) -> bytes | None:
    """The content of a file; None if there is none. ``error`` for what is no regular file, a FIFO say: to read it could
    take for ever, or never end; and for one of more than ``limit`` bytes, which isn't read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a FIFO would wait for its writer
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as exc:  # ValueError: a NUL in the name
        raise error(f"{shown(path)}: can't be read ({getattr(exc, 'strerror', None) or exc})") from exc
    try:
        found = os.fstat(handle)
        if stat.S_ISREG(found.st_mode) and found.st_size <= limit:
            return _whole(handle, limit)
    except OSError as exc:
        raise error(f"{shown(path)}: can't be read ({exc.strerror})") from exc
    finally:
        os.close(handle)
    if stat.S_ISREG(found.st_mode):
        raise error(f"{shown(path)}: has {found.st_size} bytes, and may have {limit}; {_RESTORE}")
    kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
    raise error(f"{shown(path)}: can't be read: it is {kind}, not a regular file; move it away")


def _whole(handle: int, limit: int) -> bytes:
    """What is in an open file, as far as ``limit``: it may grow while it is read."""
    chunks, left = [], limit
    while left and (chunk := os.read(handle, min(left, CHUNK))):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


def shown(path: Path) -> str:
    """A path for a message: what can't be printed is escaped."""
    return visible(encodable(str(path)).replace("\n", "\\n"))


_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFDIR: "a folder"}


@lru_cache(maxsize=32)  # a case's file and its bundle have the same artifacts
def pack(data: bytes) -> bytes:
    """``data`` as an xz file, by xz's own preset (6). On a binary of 5 KB it took 2 ms where preset 9 took 52 ms (it
    clears 64 MiB first), for the same size; a run packs every case."""
    return lzma.compress(data)


def unpack(packed: bytes, sha256: str, limit: int) -> bytes:
    """The content of an xz file that has ``sha256`` for a checksum and at most ``limit`` bytes.

    :class:`ValueError` says in words what is wrong otherwise. Never holds much more than ``limit`` bytes: a file of
    1.5 MB can unpack to 10 GiB.
    """
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_UNPACKER)
    found, digest, at = io.BytesIO(), hashlib.sha256(), 0
    while not unpacker.eof:
        given = packed[at : at + CHUNK] if unpacker.needs_input else b""
        at += len(given)
        if unpacker.needs_input and not given:
            raise ValueError("is damaged: it is cut off")
        try:
            chunk = unpacker.decompress(given, max_length=CHUNK)
        except lzma.LZMAError as exc:
            if packed.startswith(_LFS):
                raise ValueError("is a pointer of Git LFS, whose content git lfs pull fetches") from exc
            raise ValueError(f"is damaged ({exc})") from exc
        if found.tell() + len(chunk) > limit:
            raise ValueError(f"is damaged: it unpacks to more than the {limit} bytes that it can have")
        found.write(chunk)
        digest.update(chunk)
    if unpacker.unused_data or at < len(packed):
        raise ValueError("is damaged: it goes on behind its end")
    if digest.hexdigest() != sha256:
        raise ValueError("has another checksum than its name")
    return found.getvalue()


def _holds(path: Path, data: bytes) -> bool:
    try:
        found = path.lstat()
        return stat.S_ISREG(found.st_mode) and found.st_size == len(data) and path.read_bytes() == data
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return False


def write_atomic(path: Path, data: bytes, *, error: type[StoreError] = StoreError, durable: bool = False) -> None:
    """Write a whole file or none of it: a temporary file beside it, then one rename. A file that has these bytes is
    left alone; a new one has the mode that the umask leaves.

    A ``durable`` file is on the disk when this returns, and whole after a power cut. Any other may then be empty or
    gone, which its reader takes for damage.
    """
    if _holds(path, data):
        return
    with _beside(path, data, error, durable) as unnamed:
        os.replace(unnamed, path)
        if durable:
            with suppress(OSError):  # some file systems have nothing to do for it, and refuse
                handle = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)


def write_new(path: Path, data: bytes, *, error: type[StoreError] = StoreError) -> bool:
    """As :func:`write_atomic`, but a file that is there already stays: whether it was written. Of several processes
    that do this at once one succeeds."""
    if path.exists():
        return False
    with _beside(path, data, error, durable=False) as unnamed:
        try:
            os.link(unnamed, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without hard links
            if path.exists():
                return False
            os.replace(unnamed, path)
    return True


@contextmanager
def _beside(path: Path, data: bytes, error: type[StoreError], durable: bool) -> Iterator[Path]:
    """A temporary file in ``path``'s folder that has the content; it is gone afterwards. ``error`` for what the system
    refuses meanwhile."""
    unnamed = path.with_name(temporary_name(path.name))
    try:
        _write(unnamed, data, durable)
        yield unnamed
    except (OSError, ValueError) as exc:  # ValueError: a NUL in the name
        reason = getattr(exc, "strerror", None) or str(exc)
        refused = "; is the folder read-only?" if getattr(exc, "errno", None) in _REFUSALS else ""
        raise error(f"{shown(path)}: can't be written ({reason}){refused}") from exc
    finally:
        with suppress(OSError, ValueError):
            os.unlink(unnamed)


def _write(path: Path, data: bytes, durable: bool) -> None:
    """Make a file. ``open`` leaves to the umask who may read it."""
    how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        handle = os.open(path, how, 0o666)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, how, 0o666)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(handle, left) :]
        if durable:
            os.fsync(handle)
    finally:
        os.close(handle)


_REFUSALS = {errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.EEXIST}
