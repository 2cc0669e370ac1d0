"""What every stored answer depends on, whatever was asked."""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec

Nanoseconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e15)]
"""A stored time: eleven days at most. Anything else is damage."""


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kernel by name and source, what it is compiled for and by which Triton, where it runs, and on what:
    ``arguments`` describes shapes, strides, dtypes and scalars."""

    kernel: str
    source: str
    target: str
    device: str
    triton: str
    arguments: str

    def digest(self) -> str:
        """SHA-256 over the whole question; entries are filed under it."""
        return hashlib.sha256(_ENCODER.encode(self)).hexdigest()


_ENCODER = msgspec.json.Encoder(order="sorted")
