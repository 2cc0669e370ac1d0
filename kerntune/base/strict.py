"""Structs that are frozen and refuse unknown fields: what is read from a file or a process, and what is handed on."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

S = TypeVar("S", bound="StrictStruct")


class StrictStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value that stays as it was made, and whose text has no field but its own."""

    def but(self: S, **changes: Any) -> S:
        """A copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class SparseStruct(StrictStruct, frozen=True, omit_defaults=True):
    """One that is written without the fields that have their default."""
