"""Memory plans: users of storages, copies, restores."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from fake_runs import increment_kernel, program_of, recorded, scale, scale_kernel
from host_gpu import HostGpu
from hypothesis import given
from hypothesis import strategies as st
from samples import H100, launch, recording

from kerntune.base.recording import Launch, Normal, Recording, Storage, Stored, Uniform, Zeros
from kerntune.errors import MeasurementError
from kerntune.gpu import memory as memory_module
from kerntune.gpu.memory import (
    Memory,
    Source,
    copies_allowed,
    in_place_storages,
    keep_at_home,
    make_source,
    pieces,
    require_memory,
    used_storages,
    written_storages,
)
from kerntune.gpu.program import Loader, Program
from kerntune.gpu.script import Script
from kerntune.gpu.scripted import FakeBackend
from kerntune.timing.sampling import slot_for

MAX_REPLICAS = 256


replace = msgspec.structs.replace
SMALL = replace(H100, l2_bytes=1 << 20)


# users of storages


def using(*launches: tuple[tuple[int, ...], tuple[int, ...]]) -> Recording:
    return recording(launches=tuple(launch(reads=reads, writes=writes) for reads, writes in launches))


@pytest.mark.parametrize(
    ("launches", "used", "written", "in_place"),
    [
        ([], [], [], []),
        ([((0,), (1,))], [0, 1], [1], []),
        ([((0, 1), (1,))], [0, 1], [1], [1]),
        ([((0,), (0,))], [0], [0], [0]),
        ([((0,), (1,)), ((1,), (1,))], [0, 1], [1], []),
        ([((0,), (1,)), ((1,), (0,))], [0, 1], [0, 1], [0]),
        ([((1,), ()), ((), (1,))], [1], [1], [1]),
        ([((), (1,)), ((), (1,)), ((0,), ())], [0, 1], [1], []),
    ],
)
def test_uses(
    launches: list[tuple[tuple[int, ...], tuple[int, ...]]], used: list[int], written: list[int], in_place: list[int]
) -> None:
    a = using(*launches)
    assert (used_storages(a), written_storages(a), in_place_storages(a)) == (used, written, in_place)


@pytest.mark.parametrize(
    ("free", "inputs", "held", "allowed"),
    [
        (1600, 0, 0, 100),
        (1600, 2000, 0, 180),
        (1600, 10_000, 0, 400),
        (1500, 0, 100, 0),
        (1540, 2000, 60, 120),
        (0, 2000, 0, 0),
    ],
    ids=["of free", "of inputs", "most", "all held", "some held", "full"],
)
def test_copies_may_take_a_share_of_what_the_call_holds_or_of_what_is_free(
    free: int, inputs: int, held: int, allowed: int
) -> None:
    copied: list[Any] = []
    gpu: Any = SimpleNamespace(
        free_bytes=lambda: free,
        allocate=lambda nbytes: ("device", nbytes),
        allocate_host=lambda nbytes: ("host", nbytes),
        copy=lambda *given: copied.append(given),
    )
    assert copies_allowed(gpu, inputs, held) == allowed
    for nbytes, where in (allowed, "device"), (allowed + 1, "host"):
        home: Any = SimpleNamespace(nbytes=nbytes)
        source: Any = Source((where, nbytes), shared=False, home=home, far=where == "host")  # type: ignore[arg-type]
        assert keep_at_home(gpu, home, inputs, held) == source
        assert copied.pop() == ((where, nbytes), home)


def test_an_empty_launch_writes_nothing() -> None:
    writes: Launch = launch(grid=(0, 1, 1), reads=(), writes=(1,))
    a = recording(launches=(writes, launch(reads=(1,), writes=(1,))))
    assert in_place_storages(a) == [1]


# copies


def memory(gpu: Any, *contents: tuple[bytes, bool]) -> Memory:
    storages = [Storage(len(data), "uint8", Zeros(), written=not shared) for data, shared in contents]
    sources = []
    for data, shared in contents:
        buffer = gpu.allocate(len(data))
        gpu.write(buffer, data)
        sources.append(Source(buffer, shared))
    return Memory(gpu, storages, sources)


def test_copy_zero_of_what_nobody_writes_is_the_users_memory() -> None:
    gpu: Any = HostGpu(SMALL)
    made = memory(gpu, (b"read", True), (b"written", False))
    made.ensure(3)
    assert made.replicas == 3
    assert made.buffer(0, 0) is made.sources[0].pristine
    assert made.buffer(0, 1) is not made.sources[1].pristine
    buffers = [made.buffer(r, s) for r in range(3) for s in range(2)]
    assert len({b.address for b in buffers}) == 6
    assert [gpu.read(b) for b in buffers] == [b"read", b"written"] * 3


def test_ensure_makes_only_what_is_missing() -> None:
    gpu: Any = HostGpu(SMALL)
    made = memory(gpu, (b"1234", False))
    first = made.buffer(0, 0)
    made.ensure(2)
    copies = gpu.copies
    made.ensure(2)
    made.ensure(1)
    assert gpu.copies == copies
    assert made.buffer(0, 0) is first


def test_restore_is_for_one_copy_and_some_storages() -> None:
    gpu: Any = HostGpu(SMALL)
    made = memory(gpu, (b"aa", False), (b"bb", False), (b"cc", True))
    made.ensure(2)
    for replica in range(2):
        for storage in range(2):
            gpu.fill(made.buffer(replica, storage), 0)
    made.restore(1, [1, 2])
    assert [gpu.read(made.buffer(0, s)) for s in range(2)] == [b"\0\0", b"\0\0"]
    assert [gpu.read(made.buffer(1, s)) for s in range(2)] == [b"\0\0", b"bb"]
    assert [gpu.read(s.pristine) for s in made.sources] == [b"aa", b"bb", b"cc"]
    copies = gpu.copies
    made.restore(0, [2])
    assert gpu.copies == copies, "the user's own memory is its own first content"


def test_no_room_for_a_copy_leaves_the_ones_there() -> None:
    gpu: Any = HostGpu(SMALL, memory_bytes=1000)
    made = memory(gpu, (bytes(300), False))
    made.ensure(5)
    for replica in (0, 1):
        made.buffer(replica, 0)
    with pytest.raises(MeasurementError):
        made.buffer(2, 0)
    assert gpu.read(made.buffer(1, 0)) == bytes(300)


def plan_of(sizes: list[int], **changes: Any) -> Recording:
    indices = tuple(range(len(sizes)))
    return recording(launches=(launch(reads=indices, writes=indices[-1:]),), **changes)


@pytest.mark.parametrize(
    ("sizes", "free", "replicas"),
    [
        ([4096], 1 << 30, MAX_REPLICAS),
        ([1 << 18, 1 << 18], 1 << 30, 4),
        ([1 << 20, 1], 1 << 30, 2),
        ([1 << 24], 1 << 30, 2),
        ([1 << 24], 4 << 24, 1),
        ([1 << 18, 1 << 18], 12 << 18, 1),
        ([1 << 20], 5 << 20, 2),
        ([1 << 20], (5 << 20) - 1, 1),
        ([300_000], 1 << 30, 7),
    ],
)
def test_rotation_holds_twice_the_cache_within_a_quarter_of_the_memory(
    sizes: list[int], free: int, replicas: int
) -> None:
    gpu: Any = HostGpu(SMALL, memory_bytes=free)
    made = memory(gpu, *[(bytes(n), True) for n in sizes])
    assert made.rotation(plan_of(sizes)) == replicas


@pytest.mark.parametrize(("sizes", "replicas"), [([1], 8), ([255, 1], 4), ([257], 8), ([256, 257], 4), ([300], 7)])
def test_rotation_counts_256_bytes_of_a_storage_at_least(sizes: list[int], replicas: int) -> None:
    gpu: Any = HostGpu(replace(H100, l2_bytes=1024))
    assert memory(gpu, *[(bytes(n), True) for n in sizes]).rotation(plan_of(sizes)) == replicas


def test_spaced_copies_need_room_for_their_zones() -> None:
    """One of 2 MiB and 512 bytes beside each storage."""
    zones, size = (2 << 20) + 512, 1 << 20
    for free, replicas in ((4 * 2 * (size + zones), 2), (4 * 2 * (size + zones) - 1, 1)):
        gpu: Any = HostGpu(SMALL, memory_bytes=free + 2 * size)
        sources = [Source(gpu.allocate(size), shared=True) for _ in range(2)]
        made = Memory(gpu, [Storage(size, "uint8", Zeros())] * 2, sources, spaced=True)
        assert made.rotation(plan_of([size, size])) == replicas


@pytest.mark.slow
def test_a_spaced_copy_lies_between_zones_of_its_own() -> None:
    gpu = FakeBackend(Script()).gpu
    source = gpu.allocate(100)
    gpu.fill(source, 7)
    made = Memory(gpu, [Storage(100, "uint8", Zeros())], [Source(source, shared=True)], spaced=True)
    before = gpu.free_bytes()
    buffer = made.buffer(0, 0)
    assert (buffer.nbytes, buffer.address % 512, gpu.read(buffer)) == (100, 0, b"\x07" * 100)
    assert before - gpu.free_bytes() >= 100 + (2 << 20) + 512
    front, back = made._spaces
    assert (front.address + front.nbytes, buffer.address + 100) == (buffer.address, back.address)
    assert min(front.nbytes, back.nbytes) >= 1 << 20
    made.give_back()
    del buffer, front, back
    gc.collect()
    assert gpu.free_bytes() == before


def test_hidden_pointers_forbid_rotation() -> None:
    made = memory(HostGpu(SMALL), (bytes(4096), True))
    assert made.rotation(plan_of([4096], hidden_pointers=True)) == 1


def test_nothing_to_rotate() -> None:
    made = memory(HostGpu(SMALL), (bytes(4096), True))
    assert made.rotation(recording(launches=())) == 1


@given(st.lists(st.integers(1, 1 << 16), min_size=1, max_size=4), st.integers(1 << 19, 1 << 24))
def test_rotation_always_fits(sizes: list[int], free: int) -> None:
    gpu: Any = HostGpu(SMALL, memory_bytes=free)
    made = memory(gpu, *[(bytes(n), True) for n in sizes])
    replicas = made.rotation(plan_of(sizes))
    assert 1 <= replicas <= MAX_REPLICAS
    made.ensure(replicas)
    assert gpu.free_bytes() >= 0


@pytest.mark.parametrize(
    ("content", "stored", "written", "data"),
    [
        (Zeros(), None, True, bytes(8)),
        (Stored("ab" * 32), b"12345678", False, b"12345678"),
        (Uniform(7, 7), None, False, b"\x07" * 8),
    ],
)
def test_sources_from_what_is_stored(content: Any, stored: bytes | None, written: bool, data: bytes) -> None:
    gpu: Any = HostGpu(SMALL)
    source = make_source(gpu, Storage(8, "uint8", content, written=written), stored)
    assert gpu.read(source.pristine) == data
    assert source.shared is not written


def test_require_memory_says_what_for_and_how_much() -> None:
    gpu: Any = HostGpu(SMALL, memory_bytes=1 << 30)
    require_memory(gpu, 1 << 30, "a copy")
    with pytest.raises(MeasurementError, match=r"a copy needs 1\.5 GiB, the device has 1\.0 GiB free"):
        require_memory(gpu, 3 << 29, "a copy")


def test_what_is_written_from_now_on_is_restored_too() -> None:
    gpu: Any = HostGpu(SMALL)
    made = memory(gpu, (b"aa", True))
    made.restore(0, [0])
    made.will_write([0])
    gpu.fill(made.buffer(0, 0), 0)
    made.restore(0, [0])
    assert gpu.read(made.buffer(0, 0)) == b"aa"


def test_what_repeats_is_repeated_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "TILE", 4)
    memory_module._standard_tile.cache_clear()
    gpu: Any = HostGpu(SMALL)
    data = gpu.read(make_source(gpu, Storage(40, "float32", Normal())).pristine)
    memory_module._standard_tile.cache_clear()
    assert data == (data[:16] * 3)[:40]
    assert any(data)


# what has no room


def frugal(gpu: HostGpu, dtype: str = "uint8", replicas: int = 1) -> Memory:
    """A written storage of 100 bytes, all 5."""
    source = Source(gpu.allocate(100), shared=False)
    gpu.fill(source.pristine, 5)
    made: Any = Memory(gpu, [Storage(100, dtype, Zeros(), written=True)], [source], frugal=True)  # type: ignore[arg-type]
    made.ensure(replicas)
    return made  # type: ignore[no-any-return]


@pytest.mark.parametrize(("free", "moved"), [(1600, False), (1599, True)])
def test_a_frugal_memory_works_in_place_where_a_copy_would_take_more_than_a_sixteenth(free: int, moved: bool) -> None:
    gpu: Any = HostGpu(SMALL, memory_bytes=100 + free)
    made = frugal(gpu)
    (before,) = made.sources
    assert (made.buffer(0, 0) is before.pristine) == moved
    if moved:
        assert made.sources == [Source(gpu.host[0], shared=False, home=before.pristine, far=True)]
        assert made.buffer(1, 0) is before.pristine
    gpu.fill(made.buffer(0, 0), 6)
    made.give_back()
    assert gpu.read(before.pristine) == b"\5" * 100
    assert made.replicas == 0


def test_other_copies_are_restored_in_place_once_the_first_one_is() -> None:
    gpu: Any = HostGpu(SMALL, memory_bytes=1699)
    made = frugal(gpu, replicas=2)
    made.restore(1, [0])
    home = made.buffer(0, 0)
    gpu.fill(home, 6)
    made.restore(1, [0])
    assert gpu.read(home) == b"\5" * 100


@pytest.mark.parametrize(
    ("dtype", "timing", "stays"), [("float32", True, True), ("float32", False, False), ("int32", True, False)]
)
def test_for_timing_the_host_s_numbers_stay_but_no_indices(dtype: str, timing: bool, stays: bool) -> None:
    gpu: Any = HostGpu(SMALL, memory_bytes=1699)
    made = frugal(gpu, dtype)
    gpu.fill(made.buffer(0, 0), 6)
    made.restore(0, [0], timing)
    assert gpu.read(made.buffer(0, 0)) == (b"\6" if stays else b"\5") * 100


@pytest.mark.parametrize(
    ("nbytes", "limit", "expected"),
    [
        (0, 10, []),
        (10, 10, [(0, 10)]),
        ((1 << 15) + 1, 1 << 15, [*((512 * i, 512) for i in range(63)), (63 * 512, 513)]),
        (1000, 1, [*[(0, 512)] * 63, (0, 1000)]),
        (127 << 10, (1 << 16) - 1, [*((2048 * i, 512) for i in range(63)), (253 * 512, 512)]),
    ],
)
def test_pieces_are_spread_evenly_up_to_the_end(nbytes: int, limit: int, expected: list[tuple[int, int]]) -> None:
    assert pieces(nbytes, limit) == expected


@pytest.mark.parametrize(("free", "limit"), [(1 << 40, (1 << 35) - 8), (1 << 30, 64 << 20)])
def test_what_is_kept_may_take_half_of_what_copies_may_or_64_mib(
    monkeypatch: pytest.MonkeyPatch, free: int, limit: int
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(memory_module, "pieces", lambda *given: asked.append(given) or [])
    made = memory(HostGpu(SMALL, memory_bytes=free + 32), (bytes(16), False))
    assert (made.keep(0), asked) == ([], [(16, limit)])


# on the scripted GPU


def test_copies_are_made_of_what_is_used(backend: FakeBackend) -> None:
    """A small kernel beside one on large tensors is rotated through many copies of the small ones only."""
    large = torch.empty(1 << 34, dtype=torch.uint8, device="cuda")

    def both() -> None:
        increment_kernel[(1,)](large, 64, BLOCK=64)
        scale(scale_kernel, BLOCK=64)

    found = recorded(backend, both)
    small = found.recording.only(1).pruned()
    made = Memory(backend.gpu, found.recording.storages, found.sources)
    before = backend.gpu.free_bytes()
    slot = slot_for(Program(Loader(backend.gpu), small, made, found.artifacts), 10_000.0)
    assert slot.protocol.replicas == MAX_REPLICAS
    assert before - backend.gpu.free_bytes() < 1 << 33


def test_a_program_on_described_memory_runs(backend: FakeBackend) -> None:
    found = recorded(backend, lambda: scale(scale_kernel, BLOCK=64))
    found.sources = [make_source(backend.gpu, s) for s in found.recording.storages]
    program = program_of(backend, found)
    program.enqueue()
    assert backend.gpu.read(program.memory.buffer(0, 1), 1) != b"\0"


def test_what_was_kept_counts_as_long_as_it_is_there() -> None:
    size = 1 << 20
    gpu = FakeBackend(Script(memory_bytes=64 * size)).gpu
    made = Memory(gpu, [Storage(size, "uint8", Zeros(), written=True)], [Source(gpu.allocate(size), shared=False)])
    for _ in range(20):
        made.keep(0)
    assert gpu.host_bytes == 0, "each was dropped at once"
    kept = [made.keep(0) for _ in range(20)]
    assert gpu.host_bytes > 0
    on_device = len(kept) - gpu.host_bytes // size
    assert 2 <= on_device <= 64 / 16
    del kept
    assert made.keep(0)
    assert gpu.host_bytes == 0
