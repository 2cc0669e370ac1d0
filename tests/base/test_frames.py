"""Messages come whole, in any pieces and in time; whatever else comes is an error of ours, and costs no memory."""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Union

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerntune.base import frames
from kerntune.base.frames import Reader, Timeout, decode, encode, receive_with, send, send_with
from kerntune.errors import FrameError, PeerClosed, PeerTimeout

MAX_FRAME = 1 << 30


class Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="words"):
    """A message."""

    text: str
    data: bytes = b""


class Numbers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="numbers"):
    """Another one."""

    many: tuple[int, ...] = ()
    nested: dict[str, list[float]] = {}


Either = Union[Words, Numbers]

FLOATS = st.floats(allow_nan=False)
MESSAGES = st.one_of(
    st.builds(Words, st.text(), st.binary()),
    st.builds(
        Numbers,
        st.lists(st.integers(-(2**63), 2**64 - 1)).map(tuple),
        st.dictionaries(st.text(), st.lists(FLOATS, max_size=4), max_size=4),
    ),
)


@contextlib.contextmanager
def pipe() -> Iterator[tuple[int, Any]]:
    """The end to read from, and the other one as an object that can be closed early."""
    read, write = os.pipe()
    try:
        with open(write, "wb", buffering=0) as other:
            yield read, other
    finally:
        os.close(read)


@given(MESSAGES)
def test_a_message_is_what_was_encoded(message: Either) -> None:
    assert decode(encode(message), Either) == message  # type: ignore[arg-type]


@pytest.mark.slow
@given(st.lists(MESSAGES, min_size=1, max_size=5), st.data())
def test_messages_come_whole_in_any_pieces(messages: list[Either], data: st.DataObject) -> None:
    stream = b"".join(map(encode, messages))
    found: list[Either] = []
    with pipe() as (read, write):
        reader: Reader[Either] = Reader(read, Either)
        while stream:
            cut = data.draw(st.integers(1, len(stream)))
            write.write(stream[:cut])
            stream = stream[cut:]
            found += reader.arrived()
    assert found == messages


@given(st.lists(MESSAGES, max_size=3), MESSAGES, st.data())
def test_what_is_cut_off_is_never_a_message(before: list[Either], last: Either, data: st.DataObject) -> None:
    whole = encode(last)
    cut = data.draw(st.integers(1, len(whole) - 1))
    with pipe() as (read, write):
        write.write(b"".join(map(encode, before)) + whole[:cut])
        write.close()
        reader: Reader[Either] = Reader(read, Either)
        assert [reader.receive() for _ in before] == before
        with pytest.raises(PeerClosed, match=f"closed its end after {cut} bytes of a message"):
            reader.receive()
    with pytest.raises(FrameError):
        decode(whole[:cut], Words)


@settings(max_examples=500)
@given(st.binary(max_size=200), st.booleans())
def test_garbage_is_an_error_of_ours(garbage: bytes, framed: bool) -> None:
    """As a whole stream, and as the body of a frame whose length is right."""
    data = struct.pack("<I", len(garbage)) + garbage if framed else garbage
    with pipe() as (read, write):
        write.write(data)
        write.close()
        reader: Reader[Either] = Reader(read, Either)
        try:
            found = reader.receive(Timeout(10))
        except FrameError:
            return
        assert isinstance(found, (Words, Numbers))


@given(MESSAGES, st.data())
def test_a_changed_byte_is_another_message_or_an_error(message: Either, data: st.DataObject) -> None:
    whole = encode(message)
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = decode(whole, Either)  # type: ignore[arg-type]
    except FrameError:
        return
    assert isinstance(found, (Words, Numbers))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ((MAX_FRAME + 1).to_bytes(4, "little"), f"{MAX_FRAME + 1} bytes, which is more than"),
        (b"\x01\0\0\0\xc1", "can't be read"),
        (encode({"type": "other"}), "can't be read"),
        (struct.pack("<I", 100_000) + b"\x91" * 100_000, "can't be read"),
        (encode(Words("x")) + b"more", "bytes where a message has"),
        (b"", "0 bytes where a message has more"),
    ],
    ids=["length", "body", "type", "nesting", "behind", "nothing"],
)
def test_damage_is_said(data: bytes, words: str) -> None:
    with pytest.raises(FrameError, match=re.escape(words)):
        decode(data, Either)  # type: ignore[arg-type]


@pytest.mark.parametrize("body", [b"", b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdf\x3f\xff\xff\xff"])
def test_a_length_alone_allocates_nothing(body: bytes) -> None:
    """A peer that is broken announces a gigabyte, or a list of four thousand million items, and sends a few bytes."""
    with pipe() as (read, write):
        write.write(struct.pack("<I", MAX_FRAME if not body else len(body)) + body)
        reader: Reader[list[int]] = Reader(read, list[int])
        tracemalloc.start()
        try:
            with pytest.raises(FrameError):
                reader.receive(Timeout(0.05))
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
        finally:
            tracemalloc.stop()


def test_what_is_no_plain_data_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        encode({"x": object()})


def test_what_is_too_long_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_FRAME", 100)
    with pipe() as (read, write):
        with pytest.raises(FrameError, match="too long"):
            send(write.fileno(), Words("x" * 100))
        os.set_blocking(read, False)
        with pytest.raises(BlockingIOError):
            os.read(read, 1)


def test_messages_end_with_the_other_process() -> None:
    with pipe() as (read, write):
        for text in "ab":
            send(write.fileno(), Words(text))
        write.write(b"\x05\0\0")
        write.close()
        reader: Reader[Words] = Reader(read, Words)
        assert [message.text for message in reader] == ["a", "b"]


def test_a_peer_that_is_gone_takes_nothing() -> None:
    read, write = os.pipe()
    os.close(read)
    with pytest.raises(PeerClosed, match="can't be sent"):
        send(write, Words("x"))
    os.close(write)
    with pytest.raises(PeerClosed, match="nothing can be read"):
        Reader(read, Words).receive()


# the time limit


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read for long after the time is up."""
    monkeypatch.setattr(frames, "LAST_SECONDS", 0.1)


@pytest.mark.parametrize("sent", [0, 3, 4, 9])
def test_a_peer_that_stops_hits_the_limit(sent: int) -> None:
    """With nothing said, within the length, after it, and within the message."""
    with pipe() as (read, write):
        write.write(encode(Words("hello"))[:sent])
        with pytest.raises(PeerTimeout, match=r"within 0\.05 s"):
            Reader(read, Words).receive(Timeout(0.05))


def test_a_peer_that_goes_on_slowly_hits_the_limit(impatient: None) -> None:
    """Each byte came in time; the message doesn't."""
    ended = threading.Event()
    with pipe() as (read, write):

        def drip() -> None:
            write.write(struct.pack("<I", 1 << 20))
            while not ended.wait(0.01):
                write.write(b"\0")

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises(PeerTimeout):
                Reader(read, Words).receive(Timeout(0.2))
        finally:
            ended.set()
            thread.join()


def test_what_came_while_nobody_could_look_counts() -> None:
    """A process that was stopped (Ctrl-Z) finds its time up and the answer there, longer than a pipe holds."""
    message = Words("x", b"y" * 300_000)
    with pipe() as (read, write):
        thread = threading.Thread(target=send, args=(write.fileno(), message))
        thread.start()
        while not can_be_read(read):
            time.sleep(0.01)
        assert Reader(read, Words).receive(Timeout(-100.0)) == message
        thread.join()


def can_be_read(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def test_a_peer_that_takes_nothing_hits_the_limit(impatient: None) -> None:
    with pipe() as (_, write), pytest.raises(PeerTimeout):
        send(write.fileno(), Words("x", b"y" * 300_000), Timeout(0.05))


def test_one_limit_covers_all_that_is_done_under_it() -> None:
    limit = Timeout(0.2)
    with pipe() as (read, write):
        send(write.fileno(), Words("x"), limit)
        assert Reader(read, Words).receive(limit) == Words("x")
        time.sleep(0.25)
        with pytest.raises(PeerTimeout):
            Reader(read, Words).receive(limit)


@given(size=st.integers(0, 1 << 18))
@settings(max_examples=20, deadline=None)
def test_long_messages_pass_a_pipe_that_is_shorter(size: int) -> None:
    message = Words("x", os.urandom(size))
    with pipe() as (read, write):
        thread = threading.Thread(target=send, args=(write.fileno(), message, Timeout(60)))
        thread.start()
        assert Reader(read, Words).receive(Timeout(60)) == message
        thread.join()


# descriptors


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def open_count() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_descriptors_come_with_their_message(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    with pipe() as (read, write):
        send_with(ours, Words("one"), [read, write.fileno()])
        send_with(ours, Words("two"))
        message, (their_read, their_write) = receive_with(theirs, Words, 2)
        assert message == Words("one")
        os.write(their_write, b"through")
        assert os.read(their_read, 10) == b"through"
        os.close(their_read)
        os.close(their_write)
    assert receive_with(theirs, Words) == (Words("two"), [])


@pytest.mark.parametrize("expected", [0, 1, 3])
def test_other_descriptors_than_expected_are_closed(pair: tuple[socket.socket, socket.socket], expected: int) -> None:
    ours, theirs = pair
    with pipe() as (read, write):
        before = open_count()
        send_with(ours, Words("one"), [read, write.fileno()])
        with pytest.raises(FrameError, match="other descriptors came with a message"):
            receive_with(theirs, Words, expected)
        assert open_count() == before


def test_a_damaged_packet_leaves_no_descriptor_open(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    before = open_count()
    for data in (b"\xc1", encode(Words("x"))[:-1]):
        socket.send_fds(ours, [data], [0])
        with pytest.raises(FrameError):
            receive_with(theirs, Words, 1)
    assert open_count() == before


def test_the_end_of_a_socket_is_a_closed_peer(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    ours.close()
    with pytest.raises(PeerClosed):
        receive_with(theirs, Words, 1)


def test_a_packet_has_its_longest(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    long = Words("x" * (frames.MAX_PACKET - len(encode(Words(""))) - 2))
    send_with(ours, long)
    assert receive_with(theirs, Words) == (long, [])
    with pytest.raises(FrameError, match="too long for a packet"):
        send_with(ours, Words("x" * frames.MAX_PACKET))


def test_waits_are_as_long_as_what_is_left_of_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """In milliseconds; for ever without a limit, and not at all once it is over."""
    waited: list[Any] = []

    class Poll:
        def register(self, descriptor: int, event: int) -> None:
            waited.append((descriptor, event))

        def poll(self, milliseconds: float | None) -> list[int]:
            waited.append(milliseconds)
            return [1]

    monkeypatch.setattr(frames.select, "poll", Poll)
    now = iter([100.0, 101.5, 100.0, 200.0, 200.0])
    monkeypatch.setattr(frames.time, "monotonic", lambda: next(now, 300.0))
    Timeout(5.0).wait(7)
    Timeout(5.0).wait(7, select.POLLOUT)
    Timeout().wait(7)
    monkeypatch.undo()
    assert waited == [
        (7, select.POLLIN), 3500.0, (7, select.POLLOUT), 0.0, (7, select.POLLIN), None,
    ]  # fmt: skip


def test_a_limit_that_is_met_to_the_tick_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there then is read, for :data:`LAST_SECONDS` from then on, as after any later look."""
    poll = SimpleNamespace(register=lambda descriptor, event: None, poll=lambda milliseconds: [1])
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(frames.select, "poll", lambda: poll)
    monkeypatch.setattr(frames.time, "monotonic", lambda: now.seconds)
    limit = Timeout(5.0)
    now.seconds = 105.0
    limit.wait(7)
    now.seconds = 105.0 + frames.LAST_SECONDS / 2
    limit.wait(7)
    now.seconds = 105.0 + frames.LAST_SECONDS
    with pytest.raises(PeerTimeout):
        limit.wait(7)


def test_a_write_that_finds_no_room_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system said that there was some, and another writer has taken it meanwhile."""
    write, full = os.write, iter([True, False])

    def once_full(descriptor: int, data: Any) -> int:
        if next(full, False):
            raise BlockingIOError
        return write(descriptor, data)

    with pipe() as (read, other):
        monkeypatch.setattr(frames.os, "write", once_full)
        send(other.fileno(), Words("x"), Timeout(60))
        monkeypatch.undo()
        assert Reader(read, Words).receive(Timeout(60)) == Words("x")


def test_the_longest_message_and_the_longest_packet() -> None:
    """A gigabyte, announced alone, is waited for; a byte more is refused. Packets have 64 KiB."""
    with pytest.raises(FrameError, match="where a message has more"):
        decode((1 << 30).to_bytes(4, "little"), Words)
    with pytest.raises(FrameError, match="which is more than 1073741824"):
        decode(((1 << 30) + 1).to_bytes(4, "little"), Words)
    assert frames.MAX_PACKET == 65536


def test_a_message_may_be_as_long_as_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(encode(Words("x"))) - 4
    monkeypatch.setattr(frames, "MAX_FRAME", size)
    assert decode(encode(Words("x")), Words) == Words("x")
    monkeypatch.setattr(frames, "MAX_FRAME", size - 1)
    with pytest.raises(FrameError, match=f"{size} bytes is too long for another process, which takes {size - 1}"):
        encode(Words("x"))
