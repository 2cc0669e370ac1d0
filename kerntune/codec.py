"""Strict JSON in and out of files: versioned, stable, atomic."""

from __future__ import annotations

import math
import os
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


def finite(value: Any) -> Any:
    """Infinities as the largest float, because JSON has none; NaN has no place in a file of ours."""
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            raise StoreError("a figure is not a number (NaN) and can't be stored")
        return math.copysign(sys.float_info.max, value)
    if isinstance(value, msgspec.Struct):
        fields = {f: getattr(value, f) for f in value.__struct_fields__}
        changed = {f: new for f, old in fields.items() if (new := finite(old)) is not old}
        return _plain(value, changed) if changed else value
    if isinstance(value, dict):
        found = {k: finite(v) for k, v in value.items()}
        return found if any(found[k] is not value[k] for k in value) else value
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


def from_json(data: bytes, kind: type[T], schema: str, *, where: str, error: type[StoreError] = StoreError) -> T:
    """Decode ``data`` as ``kind``, refusing another schema, unknown fields and damage.

    ``where`` names the file in the message of ``error``. Nothing is executed or guessed.
    """
    try:
        found = msgspec.json.decode(data, type=_Header).schema
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise error(
            f"{where}: not readable as JSON ({exc}); the file may be cut off. Restore it or record it anew"
        ) from exc
    if found != schema:
        raise error(
            f"{where}: has schema {found or 'none'!r}, this kerntune reads {schema!r}. "
            "Record it anew with --kerntune-update=all, or use the kerntune that wrote it"
        )
    try:
        return msgspec.json.decode(data, type=kind, strict=True)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise error(f"{where}: {exc}. Restore the file or record it anew") from exc


def write_atomic(path: Path, data: bytes, *, error: type[StoreError] = StoreError) -> None:
    """Write a whole file or none of it: a temporary file beside it, then one rename."""
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
