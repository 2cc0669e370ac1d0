"""The scripted GPU: its clock, its memory and its refusals follow the script."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator

import msgspec
import pytest
import torch
from fake_runs import N, active, block, program_of, recorded, scale, scale_kernel, script
from hypothesis import given, settings
from hypothesis import strategies as st

from kerntune.base.recording import Binary
from kerntune.capture.recorder import Recorded
from kerntune.errors import MeasurementError, OutOfResourcesError, UsageError
from kerntune.gpu.script import OUT_OF_MEMORY, Rule, Script
from kerntune.gpu.scripted import FakeBackend, FakeGpu
from kerntune.gpu.scripted_work import BufferContent, FakeBuffer, Flipped, Joined, Repeated, Scattered, Shifted, filled

RIGHT = 60
WRONG = 66


@pytest.fixture(scope="module")
def backend() -> Iterator[FakeBackend]:
    with active() as backend:
        yield backend


@pytest.fixture(scope="module")
def found(backend: FakeBackend) -> Recorded:
    """A launch of ``scale_kernel`` with blocks of 64."""
    return recorded(backend, lambda: scale(scale_kernel, BLOCK=64))


def run(gpu: FakeGpu, found: Recorded, times: int = 1) -> float:
    """Nanoseconds of some launches."""
    (binary,) = found.recording.binaries
    call = gpu.prepare(gpu.load(binary, b""), (1, 1, 1), [], [])
    start = gpu.event()
    for _ in range(times):
        call()
    return gpu.elapsed_ns(start, gpu.event())


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], 10_000.0),
        ([block(64, 5000.0)], 5000.0),
        ([block(128, 5000.0)], 10_000.0),
        ([Rule("scale_kernel", time_ns=1.0), block(64, 2.0)], 1.0),
        ([Rule("other_kernel", time_ns=1.0), block(64, 2.0)], 2.0),
        ([Rule(num_warps=8, time_ns=1.0), Rule(num_warps=4, time_ns=2.0)], 2.0),
        ([Rule("scale_kernel", {"BLOCK": 64}, 4, 3.0)], 3.0),
        ([Rule(constexprs={"NO_SUCH": 64}, time_ns=3.0)], 10_000.0),
    ],
)
def test_the_first_matching_rule_gives_the_time(
    backend: FakeBackend, found: Recorded, rules: list[Rule], expected: float
) -> None:
    assert run(script(backend, *rules, noise=0.0), found, 3) == pytest.approx(3 * expected)


def test_shift_multiplies_every_time(backend: FakeBackend, found: Recorded) -> None:
    assert run(script(backend, block(64, 100.0), noise=0.0, shift=1.25), found) == pytest.approx(125.0)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_noise_is_repeatable_and_of_its_size(backend: FakeBackend, found: Recorded, seed: int) -> None:
    gpu = script(backend, block(64, 100.0), noise=0.01, seed=seed)
    times = [run(gpu, found) for _ in range(200)]
    again = script(backend, block(64, 100.0), noise=0.01, seed=seed)
    assert times == [run(again, found) for _ in range(200)]
    mean = sum(times) / 200
    deviation = math.sqrt(sum((t - mean) ** 2 for t in times) / 199)
    assert 0.5 < deviation < 1.5
    assert abs(mean - 100) < 0.5


def test_a_script_can_refuse_to_load(backend: FakeBackend, found: Recorded) -> None:
    gpu = script(backend, block(64, fails="needs 300 KiB"))
    with pytest.raises(OutOfResourcesError, match="needs 300 KiB"):
        run(gpu, found)


def test_shared_memory_over_the_devices_is_refused(backend: FakeBackend, found: Recorded) -> None:
    gpu, limit = script(backend), backend.spec.shared_memory_per_block
    fits, too_much = (msgspec.structs.replace(found.recording.binaries[0], shared=limit + i) for i in (0, 1))
    assert gpu.load(fits, b"").binary is fits
    with pytest.raises(OutOfResourcesError, match=str(limit + 1)):
        gpu.load(too_much, b"")


@pytest.mark.parametrize(("wrong", "byte"), [(False, RIGHT), (True, WRONG)])
def test_launches_mark_the_memory_they_point_to(backend: FakeBackend, found: Recorded, wrong: bool, byte: int) -> None:
    gpu = script(backend, block(64, wrong=wrong))
    program = program_of(backend, recorded(backend, lambda: scale(scale_kernel, BLOCK=64)))
    program.enqueue()
    (written,) = program.written
    left = gpu.read(program.memory.buffer(0, written))
    assert len(left) == 4 * N
    assert {b & 0xF8 for b in left} == {byte & 0xF8}
    assert gpu.launches == 1


def test_memory_is_filled_copied_and_read(backend: FakeBackend) -> None:
    gpu = script(backend)
    a, b = gpu.allocate(8), gpu.allocate(8)
    gpu.fill(a, 7)
    gpu.copy(b, a)
    gpu.write(a, b"\x09\x08")
    assert (gpu.read(a), gpu.read(b), gpu.read(b, 100)) == (b"\x09\x08" + b"\x07" * 6, b"\x07" * 8, b"\x07" * 8)
    gpu.repeat(b, b"\x01\x02\x03")
    assert gpu.read(b) == b"\x01\x02\x03\x01\x02\x03\x01\x02"
    gpu.copy(b, a)
    gpu.copy(b, gpu.part(gpu.part(a, 1, 4), 0, 2))
    assert gpu.read(b) == b"\x08\x07" + gpu.read(a)[2:]


def test_memory_differs_from_place_to_place(backend: FakeBackend) -> None:
    """New memory, users' memory, and what a launch leaves: all differ, so that a mix-up of two places or buffers is
    detected."""
    gpu = script(backend)
    x, y = (gpu.borrow(torch.empty(100, device="cuda")) for _ in range(2))
    new, other = gpu.allocate(400), gpu.allocate(400)
    seen = [gpu.read(b) for b in (x, y, new, other)]
    assert len(set(seen)) == 4
    for data in seen:
        assert len(set(data)) == 8
        assert len({data[i : i + 16] for i in range(384)}) > 300
    assert gpu.read(gpu.part(new, 100, 50)) == seen[2][100:150]
    assert gpu.compare(new, other, "float32", 1e-3) is not None
    assert gpu.compare(gpu.part(new, 4, 100), gpu.part(new, 8, 100), "float32", 1e-3) is not None


def test_what_a_launch_leaves_depends_on_what_was_there(backend: FakeBackend, found: Recorded) -> None:
    """So a dropped restore shows; the same from the same is the same, in other memory as well."""
    gpu = script(backend)
    function = gpu.load(found.recording.binaries[0], b"")
    buffers = [gpu.allocate(512) for _ in range(4)]
    for buffer in buffers:
        gpu.fill(buffer, 1)
    once, twice, again, swapped = (gpu.prepare(function, (1, 1, 1), [], [None, b.address]) for b in buffers)
    swapped = gpu.prepare(function, (1, 1, 1), [], [buffers[3].address, None])
    for call in (once, twice, twice, again, swapped):
        call()
    first, second, same, elsewhere = map(gpu.read, buffers)
    assert first == same
    assert len({first, second, elsewhere}) == 3
    gpu.fill(buffers[1], 1)
    twice()
    assert gpu.read(buffers[1]) == first


@given(pieces=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6), seed=st.integers(0, 1 << 40))
def test_contents_are_as_bytes_in_memory(pieces: list[tuple[int, int]], seed: int) -> None:
    """Held against a bytearray: writes of the start, repetitions, parts."""
    buffer = FakeBuffer(0, 32, Scattered(seed, 0x40))
    memory = bytearray(buffer.read())
    assert bytes(memory) == b"".join(buffer.content.read(i, 1) for i in range(32))
    for size, start in pieces:
        data = bytes(range(start, start + size))[:32]
        if data:
            buffer.put(Repeated(data), len(data))
            memory[: len(data)] = data
        assert buffer.read() == bytes(memory)
        assert Shifted(buffer.content, start % 32).read(0, 32 - start % 32) == bytes(memory[start % 32 :])


def test_equal_contents_have_equal_keys() -> None:
    def made(last: int) -> list[BufferContent]:
        scattered, data = Scattered(last, 0x40), Repeated(bytes([1, last]))
        return [filled(last), scattered, data, Joined(data, 2, scattered), Shifted(scattered, last), Scattered(1, last)]

    keys = [[content.key for content in made(last)] for last in (2, 2, 3)]
    assert keys[0] == keys[1]
    assert len({*keys[0], *keys[2]}) == 12


def test_borrowed_memory_is_the_tensors_own(backend: FakeBackend) -> None:
    gpu, x = script(backend), torch.empty(100, device="cuda")
    gpu.fill(gpu.borrow(x[10:]), 5)
    buffer = gpu.borrow(x)
    assert (buffer.address, buffer.nbytes, gpu.read(buffer, 1)) == (x.data_ptr(), 400, b"\x05")


def test_graphs_repeat_what_was_recorded(backend: FakeBackend, found: Recorded) -> None:
    gpu = script(backend, block(64, 100.0), noise=0.0)
    call = gpu.prepare(gpu.load(found.recording.binaries[0], b""), (1, 1, 1), [], [])
    graph = gpu.graph(lambda: [call() for _ in range(3)])
    assert gpu.launches == 0
    start = gpu.event()
    graph.replay()
    graph.replay()
    assert gpu.launches == 6
    assert gpu.elapsed_ns(start, gpu.event()) == pytest.approx(600.0)


def test_a_graphs_time_scatters_as_that_of_its_launches(backend: FakeBackend, found: Recorded) -> None:
    """Of 16 launches with independent noise the sum scatters four times as far as one does."""
    gpu = script(backend, block(64, 100.0), noise=0.01)
    call = gpu.prepare(gpu.load(found.recording.binaries[0], b""), (1, 1, 1), [], [])
    graph = gpu.graph(lambda: [call() for _ in range(16)])
    marks = [gpu.event()]
    for _ in range(400):
        graph.replay()
        marks.append(gpu.event())
    times = [gpu.elapsed_ns(a, b) for a, b in itertools.pairwise(marks)]
    assert statistics.mean(times) == pytest.approx(1600.0, abs=1.0)
    assert statistics.stdev(times) == pytest.approx(4.0, rel=0.15)


def test_the_last_launch_of_a_graph_leaves_its_mark(backend: FakeBackend, found: Recorded) -> None:
    gpu = script(backend, block(64, wrong=True))
    wrong = gpu.load(found.recording.binaries[0], b"")
    right = gpu.load(msgspec.structs.replace(found.recording.binaries[0], constexprs={}), b"")
    buffer = gpu.allocate(64)
    calls = [gpu.prepare(f, (1, 1, 1), [], [buffer.address]) for f in (wrong, right)]
    graphs = [gpu.graph(lambda order=order: [call() for call in order]) for order in (calls, calls[::-1])]
    for graph, byte in zip(graphs, (RIGHT, WRONG), strict=True):
        graph.replay()
        assert {b & 0xF8 for b in gpu.read(buffer)} == {byte & 0xF8}


def test_a_failing_recording_ends_the_recording(backend: FakeBackend, found: Recorded) -> None:
    gpu = script(backend)
    call = gpu.prepare(gpu.load(found.recording.binaries[0], b""), (1, 1, 1), [], [])
    with pytest.raises(ZeroDivisionError):
        gpu.graph(lambda: 1 // 0)
    call()
    assert gpu.launches == 1


def test_the_environment_names_the_device(backend: FakeBackend) -> None:
    environment = backend.gpu.environment()
    assert environment.device == backend.spec.name == "Fake GPU"
    assert environment.triton
    assert environment.kerntune


def test_the_first_rule_decides_by_what_it_says() -> None:
    rules = [Rule("a", time_ns=1.0), Rule("b", time_ns=2.0)]
    assert Script(rules).rule(_binary("b")) is rules[1]
    assert Script(rules).rule(_binary("c")) == Rule()


def _binary(symbol: str) -> Binary:
    from samples import binary

    return binary(symbol=symbol)


def test_only_one_backend_is_active(backend: FakeBackend) -> None:
    with pytest.raises(UsageError, match="active already"), FakeBackend().activate():
        pass


def test_values_end_a_test_body(backend: FakeBackend) -> None:
    """Nothing was computed, so there is nothing to read."""
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - which one, the backend says
        torch.ones(3, device="cuda").tolist()
    assert backend.end_reason(caught.value)
    assert backend.end_reason(ValueError("the user's own")) is None


def test_marks_in_a_row_leave_what_each_leaves_after_the_other() -> None:
    """A replayed graph's launches are not made one by one."""
    from kerntune.gpu.scripted_work import Mark, content_after, filled

    marks = [Mark(7, 0), Mark(9, 1), Mark(9, 1, flips=((3, 1),)), Mark(7, 0), Mark(5, 2, skips=((0, 8),)), Mark(7, 1)]
    content = filled(3)
    for count in range(len(marks) + 1):
        after = content_after(filled(3), marks[:count])
        assert (after.key, after.read(0, 64)) == (content.key, content.read(0, 64))
        content = marks[count].left(content) if count < len(marks) else content


def test_what_launches_left_is_there_whoever_looks_and_gone_once_restored() -> None:
    """It is computed late, and must not be seen to be."""
    from kerntune.gpu.scripted_work import FakeBuffer, FakeWork, Joined, Mark, content_after, filled

    buffer, marks = FakeBuffer(0, 32, filled(3)), (Mark(7, 0), Mark(9, 1))
    both, first = (FakeWork(len(left), 0.0, 0.0, {buffer: left}) for left in (marks, marks[:1]))
    both.leave()
    once = marks[1].left(marks[0].left(filled(3)))
    assert buffer.read() == once.read(0, 32)
    both.leave()
    assert buffer.content.key == marks[1].left(marks[0].left(once)).key
    both.leave()
    buffer.put(filled(5), 32)
    assert buffer.read() == bytes([5]) * 32
    first.leave()
    buffer.put(filled(5), 16)
    assert buffer.read() == bytes([5]) * 16 + marks[0].left(filled(5)).read(16, 16)
    for work in (both, first, both):  # in this order, though each was done before
        work.leave()
    in_order = [*marks, *marks[:1], *marks]
    assert buffer.content.key == content_after(Joined(filled(5), 16, marks[0].left(filled(5))), in_order).key


def test_memory_is_found_by_any_of_its_addresses_while_something_refers_to_it() -> None:
    from kerntune.gpu.scripted_work import BuffersByAddress, FakeBuffer

    memory, made = BuffersByAddress(), {at: FakeBuffer(at, nbytes) for at, nbytes in ((0, 64), (512, 8), (1024, 512))}
    for one in reversed(made.values()):
        memory.add(one)
    assert (memory.at(512), memory.at(513)) == (made[512], None)
    assert list(memory.between(63, 1025)) == list(made.values())
    assert list(memory.between(64, 512)) == list(memory.between(520, 1024)) == []
    memory.forget(made[0])
    del one, made[512]
    assert list(memory.between(0, 1 << 20)) == [made[1024]]
    pieces = [FakeBuffer(1 << 20, 8) for _ in range(2)]
    for piece in pieces:  # the last one is there
        memory.add(piece)
    assert list(memory.between(1 << 20, 1 << 21)) == pieces[1:]


def test_bits_are_flipped_where_they_are_read_and_nowhere_else() -> None:
    content = Flipped(filled(0), ((4, 0x81),))
    assert [content.read(start, 4) for start in (0, 1, 4, 5)] == [b"\0" * 4, b"\0\0\0\x81", b"\x81\0\0\0", b"\0" * 4]


def test_a_shifted_content_is_read_from_its_offset_on() -> None:
    content = Repeated(bytes(range(32)))
    assert Shifted(content, 4).read(3, 5) == bytes([7, 8, 9, 10, 11])
    assert Shifted(content, 4).read(5, 3) == bytes([9, 10, 11])
    assert Shifted(content, -4).read(6, 2) == bytes([2, 3]), "it begins later"
    assert Shifted(content, 4).read(0, 0) == b""


@pytest.mark.parametrize(
    ("offset", "count", "written"),
    [
        (0, 4, {2: (0, 4)}), (4, 8, {2: (4, 8)}), (-4, 4, {0: (12, 4)}), (-8, 4, {0: (8, 4)}), (-4, 8, {0: (12, 4)}),
        (12, 8, {2: (12, 4)}),
    ],
)  # fmt: skip
def test_a_launch_that_writes_beside_its_memory_changes_what_lies_there(
    backend: FakeBackend, found: Recorded, offset: int, count: int, written: dict[int, tuple[int, int]]
) -> None:
    """From its last pointer's end on, or before its begin; its own memory it marks in any case."""
    gpu = script(backend, Rule(beside=(offset, count)))
    buffers = [FakeBuffer((1 << 30) + 16 * i, 16) for i in range(3)]
    for buffer in buffers:
        gpu._buffers.add(buffer)
    (binary,) = found.recording.binaries
    gpu.prepare(gpu.load(binary, b""), (1, 1, 1), [], [None, buffers[1].address])()
    for i in (0, 2):
        begin, length = written.get(i, (0, 0))
        left = buffers[i].content.read(0, 16)
        assert left == bytes(begin) + bytes([WRONG]) * length + bytes(16 - begin - length)
    assert buffers[1].content.read(0, 16) != bytes(16)


@pytest.mark.parametrize(("unmapped", "lost"), [(True, True), (False, False)])
def test_a_write_where_no_memory_is_faults_on_some_devices(
    backend: FakeBackend, found: Recorded, unmapped: bool, lost: bool
) -> None:
    gpu = script(backend, Rule(beside=(0, 4)), unmapped=unmapped)
    alone = FakeBuffer(1 << 30, 16)
    gpu._buffers.add(alone)
    (binary,) = found.recording.binaries
    gpu.prepare(gpu.load(binary, b""), (1, 1, 1), [], [alone.address])()
    assert bool(gpu.lost) is lost


def test_a_device_fails_after_as_many_launches_as_it_may(backend: FakeBackend, found: Recorded) -> None:
    gpu = script(backend, Rule(fault="an illegal address", after=2))
    (binary,) = found.recording.binaries
    call = gpu.prepare(gpu.load(binary, b""), (1, 1, 1), [], [])
    for lost in ("", "", "an illegal address"):
        call()
        assert (gpu.lost or "") == lost


def test_a_device_without_room_says_so_in_its_own_words(backend: FakeBackend, found: Recorded) -> None:
    gpu = script(backend, Rule(fault=OUT_OF_MEMORY))
    (binary,) = found.recording.binaries
    with pytest.raises(MeasurementError, match=rf"^no room on {gpu.spec.name} for a workspace$"):
        gpu.prepare(gpu.load(binary, b""), (1, 1, 1), [], [])()


def test_memory_that_nobody_wrote_is_zero() -> None:
    assert FakeBuffer(1 << 20, 8).content.read(3, 5) == bytes(5)
