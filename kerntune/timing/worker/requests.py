"""What a parent and its worker say to each other, over the worker's own pipes: length-prefixed MessagePack."""

from __future__ import annotations

import struct
from typing import BinaryIO, Union

import msgspec

from kerntune.base.recording import Recording, Storage

HEADER = struct.Struct("<Q")


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The worker has its device."""

    device: str


class PairRequest(msgspec.Struct, frozen=True, tag="pair"):
    """Time ``a`` and ``b`` in turn on memory laid out as ``storages``, whose contents they describe.

    ``artifacts`` holds binaries and stored contents by checksum. ``seed`` decides the order of blocks, ``timer``
    is one of :data:`kerntune.base.policy.TIMERS`.
    """

    a: Recording
    b: Recording
    storages: tuple[Storage, ...]
    artifacts: dict[str, bytes]
    blocks: int
    seed: int
    timer: str = "auto"


class PairReply(msgspec.Struct, frozen=True, tag="paired"):
    """Times of both sides in nanoseconds, a block each."""

    a_ns: tuple[float, ...]
    b_ns: tuple[float, ...]


class RequestFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The request could not be carried out. ``replayable`` is False where no process could."""

    message: str
    replayable: bool = True


class StagedPiece(msgspec.Struct, frozen=True):
    """``count`` bytes of a storage from ``offset`` on lie at place ``at`` of the staging memory."""

    storage: int
    offset: int
    at: int
    count: int


class StageRequest(msgspec.Struct, frozen=True, tag="stage"):
    """Copy first contents of storages out of staging memory (:mod:`kerntune.gpu.staging`), and let go of that.

    ``layout`` has, by storage, its size in bytes and its address modulo :data:`kerntune.gpu.guards.BASE_ALIGN`.
    """

    kind: str
    handle: bytes
    layout: dict[int, tuple[int, int]]
    pieces: tuple[StagedPiece, ...]


class Staged(msgspec.Struct, frozen=True, tag="staged"):
    """They are there."""


class ForgetRequest(msgspec.Struct, frozen=True, tag="forget"):
    """Free all memory of storages; what is staged next is another call's."""


class LookRequest(msgspec.Struct, frozen=True, tag="look"):
    """Run a recording once on the staged storages. ``artifacts`` holds its binaries by checksum."""

    recording: Recording
    artifacts: dict[str, bytes]


class ChangedGuard(msgspec.Struct, frozen=True):
    """As :class:`kerntune.gpu.guards.GuardDamage`, with the launch's place among those that run."""

    launch: int
    storage: int
    first: int
    last: int
    count: int


class LookReply(msgspec.Struct, frozen=True, tag="looked"):
    """It ended within so many nanoseconds, and has changed these guard zones."""

    ns: float
    guards: tuple[ChangedGuard, ...] = ()


class LookFailed(msgspec.Struct, frozen=True, tag="look failed"):
    """It did not. ``spoiled``: the worker ends now. ``resources``: this device can't launch it, as a loader of this
    process would find as well. ``launch`` is the place of the launch that failed among those that run."""

    reason: str
    spoiled: bool = True
    resources: bool = False
    launch: int = 0


Message = Union[
    Ready,
    PairRequest,
    PairReply,
    RequestFailed,
    StageRequest,
    Staged,
    ForgetRequest,
    LookRequest,
    LookReply,
    LookFailed,
]

_DECODER: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def send(stream: BinaryIO, message: Message) -> None:
    """Write one frame."""
    data = msgspec.msgpack.encode(message)
    stream.write(HEADER.pack(len(data)) + data)
    stream.flush()


def receive(stream: BinaryIO) -> Message:
    """Read one frame; EOFError at the end."""
    (size,) = HEADER.unpack(_exactly(stream, HEADER.size))
    return _DECODER.decode(_exactly(stream, size))


def _exactly(stream: BinaryIO, size: int) -> bytes:
    """A buffered stream reads until it has all or meets the end, in one piece: contents can have 64 MiB."""
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("the other side closed its pipe")
    return data
