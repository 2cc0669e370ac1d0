"""Messages between processes: MessagePack after its length, each of them whole within one time limit.

A message is any value that msgspec encodes. The receiver names the type that it expects, and gets a value of that
type or :class:`FrameError`, whatever the other process sends: nothing is executed, and the memory that is allocated
grows with the bytes that have arrived, not with a length that was announced.
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from kerntune.base.strict import SparseStruct
from kerntune.errors import FrameError, PeerClosed, PeerTimeout

if TYPE_CHECKING:
    import socket

T = TypeVar("T")

MAX_FRAME = 1 << 30
"""Bytes of one message. The stages of a large kernel are a few MB together, a stored content has up to 64 MiB; a length
above this comes from a damaged stream."""

MAX_PACKET = 1 << 16
"""Bytes of a message that descriptors travel with: a socket of packets takes or refuses it in one piece."""

PIECE = 1 << 20
"""Bytes that are read at a time, at most."""

LAST_SECONDS = 1.0
"""A process that finds its time up and bytes there goes on for so long: it may have been stopped itself, or had no
turn, while the other process answered."""

_LENGTH = struct.Struct("<I")
_ENCODER = msgspec.msgpack.Encoder()


class StrictMessage(SparseStruct, frozen=True):
    """A message between processes that know the same fields: an unknown one is an error, a default isn't sent."""


class Timeout:
    """A span of time that begins now and is shared by all that is sent and received under it; None has no end."""

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = seconds
        self._end = float("inf") if seconds is None else time.monotonic() + seconds
        self._is_last = False

    def wait(self, descriptor: int, event: int = select.POLLIN) -> None:
        """Until ``descriptor`` can be read, or written with ``select.POLLOUT``. :class:`PeerTimeout` at the end."""
        poll = select.poll()
        poll.register(descriptor, event)
        left = self._end - time.monotonic()
        if not poll.poll(None if self._seconds is None else max(left, 0.0) * 1000) or (left <= 0 and self._is_last):
            raise PeerTimeout(f"no whole message came or went within {self._seconds:.4g} s")
        if left <= 0:
            self._end, self._is_last = time.monotonic() + LAST_SECONDS, True


def encode(message: Any) -> bytearray:
    """A message after its length. TypeError for what is no plain data, :class:`FrameError` if it is too long."""
    buffer = bytearray(_LENGTH.size)
    _ENCODER.encode_into(message, buffer, _LENGTH.size)
    size = len(buffer) - _LENGTH.size
    if size > MAX_FRAME:
        raise FrameError(f"a message of {size} bytes is too long for another process, which takes {MAX_FRAME}")
    _LENGTH.pack_into(buffer, 0, size)
    return buffer


def decode(frame: bytes | bytearray, kind: type[T]) -> T:
    """The one message that ``frame`` is; :class:`FrameError` if it is anything else."""
    end = _end(frame)
    if end != len(frame):
        raise FrameError(f"{len(frame)} bytes where a message has {end or 'more'}")
    return _decoded(frame, end, msgspec.msgpack.Decoder(kind))


def send(descriptor: int, message: Any, limit: Timeout | None = None) -> None:
    """:func:`encode` a message and :func:`write` it."""
    write(descriptor, encode(message), limit)


def write(descriptor: int, frame: bytes | bytearray, limit: Timeout | None = None) -> None:
    """Write an encoded message. :class:`PeerClosed` if the other end is closed; :class:`PeerTimeout` if it isn't taken
    within ``limit``, for which the descriptor is set to non-blocking."""
    data = memoryview(frame)
    if limit is not None:
        os.set_blocking(descriptor, False)
    while data:
        if limit is not None:
            limit.wait(descriptor, select.POLLOUT)
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            continue
        except OSError as exc:
            raise PeerClosed(f"a message can't be sent ({exc.strerror})") from exc


class Reader(Generic[T]):
    """Messages of type ``kind`` from a descriptor, which it reads ahead of them and doesn't close."""

    def __init__(self, descriptor: int, kind: Any) -> None:
        self._descriptor = descriptor
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)
        self._buffer = bytearray()

    def receive(self, limit: Timeout | None = None) -> T:
        """The next message. :class:`PeerClosed` if the other process ends before it is whole, :class:`PeerTimeout` if
        ``limit`` does."""
        limit = limit or Timeout()
        while (end := _end(self._buffer)) is None:
            limit.wait(self._descriptor)
            self._fill()
        return self._taken(end)

    def arrived(self) -> list[T]:
        """Read once; all messages that are whole now. Waits unless the descriptor can be read."""
        self._fill()
        found = []
        while (end := _end(self._buffer)) is not None:
            found.append(self._taken(end))
        return found

    def __iter__(self) -> Iterator[T]:
        """Messages until the other process closes its end."""
        while True:
            try:
                message = self.receive()
            except PeerClosed:
                return
            yield message

    def _fill(self) -> None:
        try:
            data = os.read(self._descriptor, PIECE)
        except OSError as exc:
            raise PeerClosed(f"nothing can be read from the other process ({exc.strerror})") from exc
        if not data:
            within = f" after {len(self._buffer)} bytes of a message" if self._buffer else ""
            raise PeerClosed(f"the other process closed its end{within}")
        self._buffer += data

    def _taken(self, end: int) -> T:
        message = _decoded(self._buffer, end, self._decoder)
        del self._buffer[:end]
        return message


def _end(buffer: bytes | bytearray) -> int | None:
    if len(buffer) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack_from(buffer)
    if size > MAX_FRAME:
        raise FrameError(f"a message of {size} bytes, which is more than {MAX_FRAME}")
    end = int(_LENGTH.size + size)
    return end if len(buffer) >= end else None


def _decoded(buffer: bytes | bytearray, end: int, decoder: msgspec.msgpack.Decoder[T]) -> T:
    try:
        with memoryview(buffer) as view:
            return decoder.decode(view[_LENGTH.size : end])
    except (msgspec.MsgspecError, ValueError, RecursionError) as exc:
        raise FrameError(f"a message that can't be read ({exc})") from exc


def send_with(sock: socket.socket, message: Any, descriptors: Sequence[int] = ()) -> None:
    """Send a message and descriptors over a socket of packets (``SOCK_SEQPACKET``). :class:`FrameError` if it is too
    long, ``OSError`` as the socket's."""
    import socket

    data = encode(message)
    if len(data) > MAX_PACKET:
        raise FrameError(f"a message of {len(data)} bytes is too long for a packet")
    socket.send_fds(sock, [data], list(descriptors))


def receive_with(sock: socket.socket, kind: type[T], descriptors: int = 0) -> tuple[T, list[int]]:
    """A message and the ``descriptors`` that came with it, from a socket of packets. :class:`PeerClosed` if the other
    end is closed, :class:`FrameError` for another number of descriptors, ``OSError`` as the socket's."""
    import socket

    data, found, flags, _ = socket.recv_fds(sock, MAX_PACKET, descriptors)
    try:
        if not data:
            raise PeerClosed("the other process closed its end")
        if len(found) != descriptors or flags & socket.MSG_CTRUNC:
            raise FrameError(f"other descriptors came with a message than the {descriptors} that belong to it")
        return decode(data, kind), found
    except FrameError:
        for one in found:
            os.close(one)
        raise
