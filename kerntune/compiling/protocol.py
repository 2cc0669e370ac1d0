"""What the farm and its worker processes say to each other: typed frames of MessagePack, nothing executable."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, TypeVar, Union

import msgspec

from kerntune.kernels.access import Access

MAX_FRAME = 1 << 30
"""Bytes of one frame. The stages of a large kernel are a few MB together; more than this is a damaged stream."""

_LENGTH = struct.Struct("<I")


class Hello(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="hello"):
    """A worker's first words: it has imported ``triton`` of this version from ``path``."""

    triton: str
    path: str


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="job"):
    """A kernel after the front end: MLIR text after stage ``ext``, and what the other stages need.

    ``options`` are the fields of the backend's option object and ``options_hash`` its hash; ``metadata`` is the JSON
    object that Triton's stages add to.
    """

    ir: str
    ext: str
    language: str
    backend: str
    arch: int | str
    warp_size: int
    options: dict[str, Any]
    options_hash: str
    metadata: bytes


class Facts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What takes milliseconds to find out of a compiled kernel, and needs nothing of the parent's process.

    ``ttir`` is without source locations; ``bare`` the assembly text as a code identity sees it.
    """

    ttir: str
    bare: str
    access: Access


class Done(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="done"):
    """A compiled kernel: what each stage made (text as UTF-8), the grown metadata, microseconds by stage.

    ``address_space`` is the size in bytes that the worker has grown to.
    """

    stages: dict[str, bytes]
    metadata: bytes
    times: list[tuple[str, int]]
    address_space: int = 0
    facts: Facts | None = None

    @property
    def seconds(self) -> float:
        """Time that the stages took together."""
        return sum(us for _, us in self.times) / 1e6


class CompileFailed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="failed"):
    """The compiler raised an exception, or (``refused``) the worker can't compile this as the parent would.

    ``passing``: the system has refused something (a full disk, say), which says nothing of the job.
    """

    reason: str
    refused: bool = False
    passing: bool = False


Answer = Union[Hello, Done, CompileFailed]

_encoder = msgspec.msgpack.Encoder()
_answers = msgspec.msgpack.Decoder(Answer)
_jobs = msgspec.msgpack.Decoder(Job)


_Kind = TypeVar("_Kind", bound=msgspec.Struct)


def frame(message: msgspec.Struct) -> bytes:
    """A message with its length before it. Raises TypeError for an option that is not plain data."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


def answer_in(buffer: bytes | bytearray) -> Answer | None:
    """The answer at the start of ``buffer``; None while it is incomplete. ValueError if it is damaged."""
    if len(buffer) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack_from(buffer)
    if size > MAX_FRAME:
        raise ValueError(f"a frame of {size} bytes")
    end = _LENGTH.size + size
    return None if len(buffer) < end else _answers.decode(memoryview(buffer)[_LENGTH.size : end])


def frames_in(buffer: bytearray, kind: type[_Kind]) -> Iterator[_Kind]:
    """The complete messages at the start of ``buffer``, taken out of it. ValueError if one is damaged."""
    while len(buffer) >= _LENGTH.size:
        (size,) = _LENGTH.unpack_from(buffer)
        if size > MAX_FRAME:
            raise ValueError(f"a frame of {size} bytes")
        end = _LENGTH.size + size
        if len(buffer) < end:
            return
        body = bytes(buffer[_LENGTH.size : end])
        del buffer[:end]
        yield msgspec.msgpack.decode(body, type=kind)


def read_job(stream: BinaryIO) -> Job | None:
    """The next job from a worker's side; None at the end of the stream."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(head)
    body = stream.read(size)
    return None if len(body) < size else _jobs.decode(body)
