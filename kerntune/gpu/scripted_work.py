"""The effects of launches on a scripted GPU: time, and contents of buffers.

A content is an expression, so that gigabytes cost nothing: bytes are made when they are read. Equal contents have
equal ``key``s, unequal ones other bytes. What the kernels of :mod:`kerntune.gpu.result_kernels` do is done by numpy.
"""

from __future__ import annotations

import bisect
import itertools
import operator
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import hypot
from typing import Any, NamedTuple, Protocol
from weakref import WeakValueDictionary

import numpy as np

from kerntune.gpu.number_formats import ElementCounts, NumberFormat, count_differences, format_of
from kerntune.gpu.result_kernels import OUT, PREFIX

_MASK = (1 << 61) - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class BufferContent(Protocol):
    """What a piece of memory holds."""

    @property
    def key(self) -> int:
        """Equal for equal contents, in every process."""

    def read(self, start: int, count: int) -> bytes:
        """Some of its bytes."""


@dataclass(frozen=True)
class Scattered:
    """Bytes that differ from place to place and from seed to seed, in their three lowest bits: near ``byte``, whole
    memories of them are numbers of moderate size in every float format."""

    seed: int
    byte: int

    @property
    def key(self) -> int:
        return _scattered_key(self.seed, self.byte)

    def read(self, start: int, count: int) -> bytes:
        """By the finishing steps of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
        2014) of place and seed."""
        mixed = np.arange(start, start + count, dtype=np.uint64) * _GOLDEN
        mixed += np.uint64(hash((self.seed, 5)) & _MASK)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return bytes((mixed >> np.uint64(61)).astype(np.uint8) | np.uint8(self.byte & 0xF8))


@dataclass(frozen=True)
class Repeated:
    """Some bytes over and over."""

    data: bytes

    @property
    def key(self) -> int:
        return hash((zlib.crc32(self.data), len(self.data), 2)) & _MASK

    def read(self, start: int, count: int) -> bytes:
        start %= len(self.data)
        return (self.data * (-(-(start + count) // len(self.data))))[start : start + count]


def filled(byte: int) -> Repeated:
    """One byte all over."""
    return Repeated(bytes([byte]))


@dataclass(frozen=True)
class Joined:
    """The first ``count`` bytes of one content, then those of another at their places."""

    first: BufferContent
    count: int
    rest: BufferContent

    @property
    def key(self) -> int:
        return hash((self.first.key, self.count, self.rest.key, 3)) & _MASK

    def read(self, start: int, count: int) -> bytes:
        of_first = max(0, min(self.count - start, count))
        return self.first.read(start, of_first) + self.rest.read(start + of_first, count - of_first)


@dataclass(frozen=True)
class Shifted:
    """What stands from ``offset`` on; a content that begins later, where that is negative."""

    content: BufferContent
    offset: int

    @property
    def key(self) -> int:
        return hash((self.content.key, self.offset, 4)) & _MASK

    def read(self, start: int, count: int) -> bytes:
        return self.content.read(self.offset + start, count) if count else b""


@dataclass(frozen=True)
class Flipped:
    """A content with other bits at some places: offsets in bytes, and the bits that are flipped there."""

    content: BufferContent
    flips: tuple[tuple[int, int], ...]

    @property
    def key(self) -> int:
        return hash((self.content.key, self.flips, 7)) & _MASK

    def read(self, start: int, count: int) -> bytes:
        found = bytearray(self.content.read(start, count))
        for offset, bits in self.flips:
            if start <= offset < start + count:
                found[offset - start] ^= bits
        return bytes(found)


class Mark(NamedTuple):
    """What a launch does to a buffer: near ``byte``, at ``place`` among the launch's pointers. The bytes depend on the
    earlier contents: a launch that runs twice without a restore, or from other memory, leaves others. ``flips`` are
    bits in which its results are unlike those of other launches, ``skips`` ranges of bytes that it doesn't write."""

    byte: int
    place: int
    flips: tuple[tuple[int, int], ...] = ()
    skips: tuple[tuple[int, int], ...] = ()

    def left(self, before: BufferContent) -> BufferContent:
        """What stands there afterwards."""
        left: BufferContent = Scattered(self.seed_after(before.key), self.byte)
        left = Flipped(left, self.flips) if self.flips else left
        for begin, end in self.skips:
            left = Joined(left, begin, Joined(before, end, left))
        return left

    def seed_after(self, key: int) -> int:
        """The seed of what stands there after a content of that key."""
        return hash((key, self.byte, self.place)) & _MASK


def content_after(content: BufferContent, marks: Sequence[Mark]) -> BufferContent:
    """What marks leave one after the other. Of those before the last only what the next one depends on is computed: a
    replayed graph has dozens."""
    seed, byte = None, 0
    for mark in marks:
        before = content.key if seed is None else _scattered_key(seed, byte)
        if type(mark) is Mark and not (mark.flips or mark.skips):  # tests have marks of their own
            seed, byte = mark.seed_after(before), mark.byte
        else:
            content, seed = mark.left(content if seed is None else Scattered(seed, byte)), None
    return content if seed is None else Scattered(seed, byte)


def _scattered_key(seed: int, byte: int) -> int:
    return hash((seed, byte, 1)) & _MASK


ZEROS = filled(0)

_next_turn = itertools.count().__next__
"""The order in which works are done, and contents are put."""


class FakeBuffer:
    """Memory with real contents. Launches leave ``users`` own as it is; ``whole`` is what it is a piece of, which is
    there as long.

    What launches leave is computed when it is read: a timed graph writes dozens of copies thousands of times, and
    nearly all of them are restored unread.
    """

    def __init__(
        self,
        address: int,
        nbytes: int,
        content: BufferContent = ZEROS,
        users: bool = False,
        whole: FakeBuffer | None = None,
    ) -> None:
        self.address, self.nbytes, self.users, self.whole = address, nbytes, users, whole
        self._settled, self._settled_at = content, _next_turn()
        self._works: list[tuple[list[int], tuple[Mark, ...]]] = []
        """When works were done that leave marks in it, and the marks. A work that is repeated notes its turn once, and
        not in each of its dozens of buffers."""

    @property
    def content(self) -> BufferContent:
        """What it holds."""
        left = [
            (turn, marks) for turns, marks in self._works for turn in turns[bisect.bisect(turns, self._settled_at) :]
        ]
        if left:
            left.sort(key=operator.itemgetter(0))
            self.content = content_after(self._settled, [m for _, marks in left for m in marks])
        return self._settled

    @content.setter
    def content(self, content: BufferContent) -> None:
        self._settled, self._settled_at = content, _next_turn()

    def written_by(self, turns: list[int], marks: tuple[Mark, ...]) -> None:
        """Let a work leave these marks in it at each of its ``turns``, which grow."""
        self._works.append((turns, marks))

    def read(self, limit: int | None = None) -> bytes:
        """Its bytes, or the first of them."""
        return self.content.read(0, self.nbytes if limit is None else min(limit, self.nbytes))

    def put(self, content: BufferContent, count: int) -> None:
        """Let the first ``count`` bytes be those of a content."""
        self.content = content if count >= self.nbytes else Joined(content, count, self.content)

    def put_at(self, offset: int, data: bytes) -> None:
        """Let the bytes from ``offset`` on be these."""
        if data:
            written, end = Shifted(Repeated(data), -offset), offset + len(data)
            self.content = Joined(self.content, offset, Joined(written, end, self.content))


class OwnBuffer(FakeBuffer):
    """Memory that counts until its last reference goes."""

    def __init__(self, address: int, nbytes: int, content: BufferContent, give_back: Callable[[int], None]) -> None:
        super().__init__(address, nbytes, content)
        self._give_back = give_back

    def __del__(self) -> None:
        self._give_back(self.nbytes)


class BuffersByAddress:
    """Memory that something still refers to. Looking for neighbours visits few of thousands of copies."""

    def __init__(self) -> None:
        self._alive: WeakValueDictionary[int, FakeBuffer] = WeakValueDictionary()
        self._addresses: list[int] = []
        """In order; some are of memory that is gone."""

        self._most = 1000
        """How many addresses there are before those of memory that is gone are left out."""

        self._longest = 0

    def add(self, buffer: FakeBuffer) -> None:
        """Find it from now on, and whatever was at its address no longer."""
        if buffer.address not in self._alive:
            bisect.insort(self._addresses, buffer.address)
        self._alive[buffer.address] = buffer
        self._longest = max(self._longest, buffer.nbytes)
        if len(self._addresses) > self._most:
            self._addresses = sorted(self._alive)
            self._most = 2 * len(self._addresses) + 1000

    def forget(self, buffer: FakeBuffer) -> None:
        """Find it no longer."""
        self._alive.pop(buffer.address, None)

    def at(self, address: int) -> FakeBuffer | None:
        """What begins there."""
        return self._alive.get(address)

    def between(self, begin: int, end: int) -> Iterator[FakeBuffer]:
        """What has some bytes in a range of addresses, each once, in the order of their addresses."""
        first = bisect.bisect_left(self._addresses, begin - self._longest)
        last = bisect.bisect_left(self._addresses, end)
        for address in dict.fromkeys(self._addresses[first:last]):
            buffer = self._alive.get(address)
            if buffer is not None and buffer.address + buffer.nbytes > begin:
                yield buffer


@dataclass(frozen=True)
class FakeWork:
    """Launches in a row, taken as one: how many, how long, and the marks that they leave in which buffers (kept alive).

    ``spread_ns`` times the script's noise is the standard deviation of ``time_ns``. Each launch has noise of its own,
    so the spreads of several add up as the sides of a right angle do.
    """

    launches: int
    time_ns: float
    spread_ns: float
    left: dict[FakeBuffer, tuple[Mark, ...]]

    @classmethod
    def of(cls, works: Sequence[FakeWork]) -> FakeWork:
        """The same, one after the other."""
        left: dict[FakeBuffer, tuple[Mark, ...]] = {}
        for work in works:
            for buffer, marks in work.left.items():
                left[buffer] = left.get(buffer, ()) + marks
        time_ns = sum(w.time_ns for w in works)
        spread_ns = hypot(*(w.spread_ns for w in works))
        return cls(sum(w.launches for w in works), time_ns, spread_ns, left)

    def leave(self) -> None:
        """Leave the marks. Users' own memory stays as it is."""
        self._turns.append(_next_turn())

    @cached_property
    def _turns(self) -> list[int]:
        turns: list[int] = []
        for buffer, marks in self.left.items():
            if not buffer.users:
                buffer.written_by(turns, marks)
        return turns


MOST = 1 << 21
"""Elements that are looked at: a scripted launch changes all of a buffer, or its start."""

BufferPlace = tuple[FakeBuffer, int]
"""A buffer, and an offset in it."""

KernelArguments = Mapping[str, Any]
"""Arguments by name: numbers, and places in buffers."""


def run_result_kernel(symbol: str, given: KernelArguments) -> None:
    """Run one of the kernels."""
    name = symbol.removeprefix(PREFIX)
    if name.startswith("equal"):
        _equal(given, int(name.removeprefix("equal")))
    elif name.startswith("mark"):
        _mark(given, int(name.removeprefix("mark")))
    else:
        _count(given, format_of({name.removeprefix("count_")}))


def _equal(given: KernelArguments, width: int) -> None:
    buffer, offset = given["out"]
    if _read(given, "a", width) != _read(given, "b", width):
        buffer.put_at(offset, (1).to_bytes(8, "little"))


def _mark(given: KernelArguments, width: int) -> None:
    kind = f"<u{width}"
    x, y = (np.frombuffer(_read(given, name, width), kind) for name in ("a", "b"))
    buffer, offset = given["mask"]
    before = np.frombuffer(buffer.content.read(offset, x.size), "u1")
    buffer.put_at(offset, (before | (x != y)).astype("u1").tobytes())


def _count(given: KernelArguments, kind: NumberFormat) -> None:
    mask = _read(given, "mask", 1) if isinstance(given["mask"], tuple) else None
    x, y = (_read(given, name, kind.width) for name in ("a", "b"))
    found = count_differences(x, y, mask, kind, bool(given["poisoned"]), given["wanted"])
    buffer, offset = given["out"]
    before = ElementCounts(*OUT.unpack(buffer.content.read(offset, OUT.size)))
    buffer.put_at(offset, OUT.pack(*before.with_later(found, 0)))


def _read(given: KernelArguments, name: str, width: int) -> bytes:
    buffer, offset = given[name]
    found: bytes = buffer.content.read(offset, min(given["count"], MOST) * width)
    return found
