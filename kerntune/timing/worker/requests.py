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


Message = Union[Ready, PairRequest, PairReply, RequestFailed]

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
