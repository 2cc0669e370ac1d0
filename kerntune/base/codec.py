"""Strict JSON in and out of files: versioned, stable, atomic."""

from __future__ import annotations

import enum
import hashlib
import lzma
import math
import os
import re
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kerntune.errors import StoreError

T = TypeVar("T", bound=msgspec.Struct)


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
        return _plain(value, changed) if changed else value
    if isinstance(value, dict):
        found = {finite(k): finite(v) for k, v in value.items()}
        same = all(a is b and found[a] is value[b] for a, b in zip(found, value, strict=False))
        return value if same and len(found) == len(value) else found
    if isinstance(value, (list, tuple)):
        items = [finite(v) for v in value]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value


def _plain(value: msgspec.Struct, changed: dict[str, Any]) -> Any:
    """A copy that keeps what its class would make of the changed fields from happening again."""
    copy = msgspec.structs.replace(value)
    for name, new in changed.items():
        msgspec.structs.force_setattr(copy, name, new)
    return copy


_CONFLICT = re.compile(rb"^(<{7}|={7}|>{7})( |$)", re.MULTILINE)
_LFS = b"version https://git-lfs.github.com/spec/"


def _hint(data: bytes) -> str:
    """What became of a file that should be JSON, and what to do."""
    if _CONFLICT.search(data):
        return (
            "it has the conflict markers of a merge. Take one side whole (git checkout --ours or --theirs, then "
            "git add), and record it anew with --kerntune-update=all"
        )
    if data.startswith(_LFS):
        return "it is a pointer of Git LFS. Fetch its content with git lfs pull"
    return "the file may be cut off. Restore it or record it anew"


def from_json(data: bytes, kind: type[T], schema: str, *, where: str, error: type[StoreError] = StoreError) -> T:
    """Decode ``data`` as ``kind``, refusing another schema, unknown fields and damage.

    ``where`` names the file in the message of ``error``. Nothing is executed or guessed.
    """
    try:
        found = msgspec.json.decode(data, type=_Header).schema
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise error(f"{where}: not readable as JSON ({exc}); {_hint(data)}") from exc
    if found != schema:
        raise error(
            f"{where}: has schema {found or 'none'!r}, this kerntune reads {schema!r}. "
            "Record it anew with --kerntune-update=all, or use the kerntune that wrote it"
        )
    try:
        return msgspec.json.decode(data, type=kind, strict=True)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise error(f"{where}: {exc}. Restore the file or record it anew") from exc


def read_file(path: Path, *, error: type[StoreError] = StoreError) -> bytes | None:
    """The content of a file; None if there is none. ``error`` for what is no regular file, a FIFO say: to read it could
    take for ever, or never end."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISREG(mode):
                return file.read()
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        mode = stat.S_IFDIR
    except OSError as exc:
        raise error(f"{path}: can't be read ({exc.strerror})") from exc
    kind = _KINDS.get(stat.S_IFMT(mode), "something else")
    raise error(f"{path}: can't be read: it is {kind}, not a regular file; move it away")


_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFDIR: "a folder"}


def _without_waiting(path: str, flags: int) -> int:
    """Opening a FIFO waits for its writer."""
    return os.open(path, flags | os.O_NONBLOCK)


CHUNK = 1 << 20
"""Bytes that are unpacked at a time: what is too long is given up no later than that."""

MAX_MEMORY = 1 << 28
"""Bytes that the unpacker itself may take: 256 MiB, above the 65 MiB that xz's largest preset needs."""


def unpack(packed: bytes, sha256: str, limit: int) -> bytes:
    """The content of an xz file that has ``sha256`` for a checksum and at most ``limit`` bytes.

    :class:`ValueError` says in words what is wrong otherwise. Never holds much more than ``limit`` bytes: a file of
    1.5 MB can unpack to 10 GiB.
    """
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_MEMORY)
    chunks: list[bytes] = []
    size, digest, given = 0, hashlib.sha256(), packed
    while not unpacker.eof:
        try:
            chunk = unpacker.decompress(given, max_length=CHUNK)
        except lzma.LZMAError as exc:
            if packed.startswith(_LFS):
                raise ValueError("is a pointer of Git LFS, whose content git lfs pull fetches") from exc
            raise ValueError(f"is damaged ({exc})") from exc
        given, size = b"", size + len(chunk)
        if size > limit:
            raise ValueError(f"is damaged: it unpacks to more than the {limit} bytes that it can have")
        if not chunk and not unpacker.eof and unpacker.needs_input:
            raise ValueError("is damaged: it is cut off")
        chunks.append(chunk)
        digest.update(chunk)
    if unpacker.unused_data:
        raise ValueError("is damaged: it goes on behind its end")
    if digest.hexdigest() != sha256:
        raise ValueError("has another checksum than its name")
    return b"".join(chunks)


def _holds(path: Path, data: bytes) -> bool:
    try:
        same_kind = path.is_file() and not path.is_symlink() and path.stat().st_size == len(data)
        return same_kind and path.read_bytes() == data
    except OSError:
        return False


def write_atomic(path: Path, data: bytes, *, error: type[StoreError] = StoreError) -> None:
    """Write a whole file or none of it: a temporary file beside it, then one rename. A file that has these bytes is
    left alone."""
    if _holds(path, data):
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as exc:
        raise error(f"{path}: can't be written ({exc.strerror}); is the folder read-only?") from exc
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException as exc:
        os.unlink(name)
        if isinstance(exc, OSError):
            raise error(f"{path}: can't be written ({exc.strerror})") from exc
        raise
