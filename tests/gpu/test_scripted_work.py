"""Contents of buffers on a scripted GPU, piece by piece: their bytes, their keys, and what is written into them."""

from __future__ import annotations

import math
import struct

import pytest

from kerntune.base.device import TYPICAL_DEVICES
from kerntune.errors import BackendError, MeasurementError
from kerntune.gpu.number_formats import NOWHERE, ElementCounts, format_of
from kerntune.gpu.result_kernels import OUT, PREFIX, START
from kerntune.gpu.script import Script
from kerntune.gpu.scripted_memory import FakeMemory
from kerntune.gpu.scripted_work import (
    BufferContent,
    BuffersByAddress,
    FakeBuffer,
    FakeWork,
    Flipped,
    Joined,
    Mark,
    Repeated,
    Scattered,
    Shifted,
    content_after,
    filled,
    run_result_kernel,
)

SCATTERED, TEXT = Scattered(3, 0x45), Repeated(b"abcd")

CONTENTS: dict[str, tuple[BufferContent, bytes, int]] = {
    "scattered": (SCATTERED, b"CCGFGB@@CFCA", 1099104721552652118),
    "repeated": (TEXT, b"abcdabcdabcd", 1021432531095665211),
    "joined": (Joined(SCATTERED, 3, TEXT), b"CCGdabcdabcd", 355617149398385929),
    "shifted": (Shifted(TEXT, 3), b"dabcdabcdabc", 1060980979274845024),
    "flipped": (Flipped(TEXT, ((1, 3), (11, 1))), b"aacdabcdabce", 2211129905683892180),
}
"""With the first twelve bytes and the key, which are the same in every process."""


@pytest.mark.parametrize("name", CONTENTS)
def test_a_content_has_the_same_bytes_and_key_in_every_process(name: str) -> None:
    content, data, key = CONTENTS[name]
    assert (content.read(0, 12), content.key) == (data, key)
    for start in range(13):
        for count in range(13 - start):
            assert content.read(start, count) == data[start : start + count], (start, count)


def test_marks_are_left_one_after_the_other() -> None:
    """What only decides over the next one isn't made; a launch that skips bytes leaves those of before."""
    plain, other = Mark(0x40, 0), Mark(0x50, 1)
    flipping, skipping = Mark(0x40, 0, flips=((2, 4),)), Mark(0x40, 0, skips=((1, 3), (5, 6)))
    assert plain.left(TEXT) == Scattered(plain.seed_after(TEXT.key), 0x40)
    assert plain.seed_after(7) != other.seed_after(7) != Mark(0x50, 0).seed_after(7)
    assert Mark(9, 1).seed_after(7) == 692707287673551713
    for marks in ([], [plain], [plain, other], [flipping, plain], [plain, flipping], [plain, skipping, other, plain]):
        left: BufferContent = TEXT
        for mark in marks:
            left = mark.left(left)
        assert content_after(TEXT, marks) == left
    data, clean = skipping.left(TEXT).read(0, 8), plain.left(TEXT).read(0, 8)
    assert data == clean[:1] + b"bc" + clean[3:5] + b"b" + clean[6:]
    flipped = flipping.left(TEXT).read(0, 8)
    assert flipped == bytes([*clean[:2], clean[2] ^ 4, *clean[3:]])


@pytest.mark.parametrize(("count", "data"), [(0, b"xxxx"), (3, b"abcx"), (4, b"abcd"), (5, b"abcd")])
def test_the_first_bytes_are_put(count: int, data: bytes) -> None:
    buffer = FakeBuffer(0, 4, filled(ord("x")))
    buffer.put(TEXT, count)
    assert (buffer.read(), buffer.read(2), buffer.read(9)) == (data, data[:2], data)
    assert isinstance(buffer.content, Joined) == (count < 4)


@pytest.mark.parametrize(("offset", "data"), [(0, b"12xx"), (1, b"x12x"), (2, b"xx12")])
def test_bytes_are_put_at_an_offset(offset: int, data: bytes) -> None:
    buffer = FakeBuffer(0, 4, filled(ord("x")))
    before = buffer.content
    buffer.put_at(offset, b"")
    assert buffer.content is before
    buffer.put_at(offset, b"12")
    assert buffer.read() == data


def test_a_new_buffer_holds_zeros_and_is_nobody_s() -> None:
    buffer = FakeBuffer(16, 4)
    assert (buffer.read(), buffer.users, buffer.whole) == (bytes(4), False, None)


@pytest.mark.parametrize(
    ("begin", "end", "found"),
    [(0, 100, []), (0, 101, [100]), (99, 100, []), (149, 200, [100]), (150, 200, []), (150, 201, [200]),
     (100, 300, [100, 200]), (209, 210, [200]), (210, 400, [])],
)  # fmt: skip
def test_what_has_bytes_in_a_range_is_found(begin: int, end: int, found: list[int]) -> None:
    memory, kept = BuffersByAddress(), [FakeBuffer(200, 10), FakeBuffer(100, 50)]
    for buffer in kept:
        memory.add(buffer)
    assert [buffer.address for buffer in memory.between(begin, end)] == found
    assert (memory.at(100), memory.at(101)) == (kept[1], None)
    again = FakeBuffer(100, 50)
    memory.add(again)
    assert memory.at(100) is again
    memory.forget(again)
    memory.forget(again)
    assert [buffer.address for buffer in memory.between(begin, end)] == [at for at in found if at != 100]


def test_what_is_gone_is_left_out_of_the_addresses() -> None:
    memory, kept = BuffersByAddress(), [FakeBuffer(8 * i, 8) for i in range(600)]
    for buffer in kept:
        memory.add(buffer)
    for i in range(1000):
        memory.add(FakeBuffer((1 << 20) + i, 1))
    assert len(memory._addresses) < 1300
    assert [buffer.address for buffer in memory.between(0, 1 << 30)] == [8 * i for i in range(600)]


def test_works_in_a_row_are_one() -> None:
    one, other, users = FakeBuffer(0, 4), FakeBuffer(8, 4), FakeBuffer(16, 4, users=True)
    first, second = Mark(1, 0), Mark(2, 1)
    works = [
        FakeWork(1, 10.0, 3.0, {one: (first,), users: (first,)}),
        FakeWork(2, 5.0, 4.0, {one: (second,), other: (first,)}),
    ]
    whole = FakeWork.of(works)
    assert (whole.launches, whole.time_ns, whole.spread_ns) == (3, 15.0, math.hypot(3.0, 4.0))
    assert whole.left == {one: (first, second), other: (first,), users: (first,)}
    for times in (1, 2):
        whole.leave()
        expected = content_after(filled(0), [first, second] * times)
        assert (one.content.key, users.content) == (expected.key, filled(0))


# kernels that compare


def words(a: bytes, b: bytes, count: int, at: int = 0, **more: object) -> dict[str, object]:
    """Arguments of a kernel, whose ``a`` and ``b`` begin at an offset."""
    pieces = {name: (buffer_of(bytes(at) + data), at) for name, data in (("a", a), ("b", b))}
    return {**pieces, "count": count, **more}


def buffer_of(data: bytes) -> FakeBuffer:
    return FakeBuffer(0, len(data), Repeated(data))


@pytest.mark.parametrize(("count", "differs"), [(1, 0), (2, 1)])
def test_bits_are_compared_up_to_the_count(count: int, differs: int) -> None:
    out = buffer_of(b"\7" * 24)
    run_result_kernel(f"{PREFIX}equal4", words(b"12345678", b"12345679", count, 3, out=(out, 8)))  # type: ignore[arg-type]
    assert out.read() == b"\7" * 8 + (b"\1" + bytes(7) if differs else b"\7" * 8) + b"\7" * 8


def test_elements_that_differ_are_marked_beside_those_that_are_so_already() -> None:
    mask = buffer_of(b"\0\0\1\0\0")
    run_result_kernel(f"{PREFIX}mark2", words(b"aabbccdd", b"aabxccdx", 3, mask=(mask, 1)))  # type: ignore[arg-type]
    assert mask.read() == b"\0\0\1\0\0"
    run_result_kernel(f"{PREFIX}mark2", words(b"aabbccdd", b"xabbccdx", 4, mask=(mask, 1)))  # type: ignore[arg-type]
    assert mask.read() == b"\0\1\1\0\1"


@pytest.mark.parametrize("poisoned", [0, 1])
def test_differences_are_counted_on_top_of_those_before(poisoned: int) -> None:
    kind = format_of({"float32"})
    ones, poison = struct.pack("<3f", 1, 1, 1), kind.poison.to_bytes(4, "little")
    out, changed = buffer_of(bytes(8) + START), ones[:4] + poison + struct.pack("<f", 2)
    given = words(ones, changed, 3, out=(out, 8), mask=0, wanted=NOWHERE, poisoned=poisoned)
    masked = {**given, "mask": (buffer_of(b"xx\0\1\0"), 2)}
    for arguments, differing, unwritten in ((given, 2, 1), (given, 4, 2), (masked, 5, 2)):
        run_result_kernel(f"{PREFIX}count_{kind.name}", arguments)  # type: ignore[arg-type]
        found = ElementCounts(*OUT.unpack(out.read()[8:]))
        assert (found.differing, found.unwritten, found.first) == (differing, unwritten * poisoned, 1)
    assert (found.varying, out.read()[:8]) == (1, bytes(8))


# memory


def memory(free: int = 1 << 20) -> FakeMemory:
    return FakeMemory(TYPICAL_DEVICES["cuda:90"], Script(memory_bytes=free), None)


def test_addresses_are_new_and_aligned_and_bytes_are_counted() -> None:
    gpu = memory(1600)
    made = [gpu.allocate(n) for n in (0, 1, 512, 513)]
    assert [buffer.address - (1 << 44) for buffer in made] == [0, 512, 1024, 1536]
    assert (gpu.free_bytes(), gpu.peak_bytes, gpu.host_bytes) == (574, 1026, 0)
    with pytest.raises(MeasurementError, match=r"^no room on .* for 575 bytes$"):
        gpu.allocate(575)
    made.append(gpu.allocate_host(9))
    assert (gpu.free_bytes(), gpu.host_bytes, made[-1].address - (1 << 44)) == (574, 9, 2560)
    del made
    assert (gpu.free_bytes(), gpu.peak_bytes, gpu.host_bytes) == (1600, 1026, 0)
    assert gpu.allocate(1600).address - (1 << 44) == 3072


def test_new_memory_is_no_zeros_and_pieces_have_its_content() -> None:
    gpu = memory()
    whole, other = gpu.allocate(12), gpu.allocate(12)
    data = gpu.read(whole)
    assert 0 not in data
    assert data != gpu.read(other)
    assert gpu.read(gpu.part(whole, 3, 4)) == data[3:7]
    first, empty, last = gpu.carve(whole, [5, 0, 7])
    assert [gpu.read(one) for one in (first, empty, last)] == [data[:5], b"", data[5:]]
    assert (first.address, last.address) == (whole.address, whole.address + 5)
    assert (gpu._containing(last.address + 6), gpu._containing(whole.address + 4)) == (last, first)
    assert gpu._containing(last.address + 7) is None


def test_what_is_written_is_read() -> None:
    gpu = memory()
    one, other = gpu.allocate(6), gpu.allocate(4)
    gpu.fill(one, 7)
    gpu.write(one, b"")
    gpu.write(one, b"ab")
    gpu.write(one, b"c", 4)
    for beyond in (lambda: gpu.write(one, b"1234567"), lambda: gpu.write(one, b"123", 4)):
        with pytest.raises(BackendError, match="7 bytes into 6"):
            beyond()
    assert (gpu.read(one), gpu.read(one, 3)) == (b"ab\7\7c\7", b"ab\7")
    gpu.repeat(other, b"xyz")
    gpu.copy(one, other)
    assert gpu.read(one) == b"xyzxc\7"


@pytest.mark.parametrize(("place", "seen"), [(4095, True), (4096, False)])
def test_the_start_of_memory_is_compared(place: int, seen: bool) -> None:
    gpu = memory()
    one, other = gpu.allocate(5000), gpu.allocate(5000)
    gpu.fill(one, 0)
    gpu.fill(other, 0)
    gpu.write(other, b"\1", place)
    assert (gpu.compare(one, other, "int8", 0.0) is not None) == seen


def test_a_lost_device_says_so_at_every_wait() -> None:
    gpu = memory()
    one, other = gpu.allocate(4), gpu.allocate(4)
    gpu.lost = "gone"
    for wait in (gpu.synchronize, lambda: gpu.read(one), lambda: gpu.copy(one, other)):
        with pytest.raises(BackendError, match=r"^waiting for the device: gone$"):
            wait()  # type: ignore[operator]
