"""Messages between a process that tunes and the one that talks to its store."""

from __future__ import annotations

from typing import Union

import msgspec


class ReadRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Read files, at most ``limit`` bytes and one more of each."""

    names: tuple[str, ...]
    limit: int


class NamesRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """List all files below a folder."""

    prefix: str = ""


class CreateRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Write a file where there is none, else read what is there."""

    name: str
    data: bytes
    limit: int


class ReplaceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Write a file in the place of what is there."""

    name: str
    data: bytes


class WriteLaterRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Write a file some time later. There is no reply."""

    name: str
    data: bytes


class RemoveLaterRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Remove files some time later. There is no reply."""

    names: tuple[str, ...]


class RenewRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Write a file anew every ``seconds``, with another number each time, until :class:`EndRenewal`. No reply."""

    name: str
    text: str
    seconds: float


class EndRenewal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Stop renewing a file. There is no reply."""

    name: str


StoreRequest = Union[
    ReadRequest,
    NamesRequest,
    CreateRequest,
    ReplaceRequest,
    WriteLaterRequest,
    RemoveLaterRequest,
    RenewRequest,
    EndRenewal,
]


class Contents(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """What files hold, None for one that isn't there."""

    data: tuple[bytes | None, ...]


class Names(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Files, sorted."""

    names: tuple[str, ...]


class WriteReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """A write came to its end: whether the file is now as it was to be; ``other`` is what was there before."""

    won: bool
    other: bytes | None = None


class StoreReady(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """The process can be asked."""


class StoreFailed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """The store could not be asked, or refused."""

    message: str


StoreReply = Union[Contents, Names, WriteReply, StoreReady, StoreFailed]
