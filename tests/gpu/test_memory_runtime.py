"""Memory plans made real on the scripted GPU: copies, rotation, first content, room."""

from __future__ import annotations

import msgspec
import pytest
import torch
from fake_runs import N, by_block, increment_kernel, program_of, recorded, scale, scale_kernel, script
from hypothesis import given, settings
from hypothesis import strategies as st

from kerntune.base.recording import Normal, Storage, Stored, Uniform, Zeros
from kerntune.capture.recorder import Recorded
from kerntune.errors import MeasurementError, ReplayError
from kerntune.gpu.memory import (
    Memory,
    Source,
    in_place_storages,
    make_source,
    require_memory,
    used_storages,
    written_storages,
)
from kerntune.gpu.program import Loader, Program
from kerntune.gpu.script import Script
from kerntune.gpu.scripted import FakeBackend, FakeGpu
from kerntune.timing.sampling import slot_for

MAX_REPLICAS = 256
MEMORY_SHARE = 0.25
ROTATION_FACTOR = 2.0


@pytest.fixture
def found(backend: FakeBackend) -> Recorded:
    return recorded(backend, lambda: scale(scale_kernel, BLOCK=64))


def memory_of(backend: FakeBackend, found: Recorded) -> Memory:
    return Memory(backend.gpu, found.recording.storages, found.sources)


# copies


def test_the_first_copy_reads_the_users_own_memory(backend: FakeBackend, found: Recorded) -> None:
    memory = memory_of(backend, found)
    assert memory.replicas == 1
    assert memory.buffer(0, 0) is found.sources[0].pristine
    assert memory.buffer(0, 1) is not found.sources[1].pristine


def test_later_copies_are_all_their_own_with_the_first_content(backend: FakeBackend, found: Recorded) -> None:
    gpu = backend.gpu
    gpu.fill(found.sources[0].pristine, 3)
    gpu.fill(found.sources[1].pristine, 4)
    memory = memory_of(backend, found)
    memory.ensure(3)
    memory.ensure(2)
    assert memory.replicas == 3
    buffers = [memory.buffer(r, s) for r in range(3) for s in range(2)]
    assert len({b.address for b in buffers}) == 6
    assert [gpu.read(b, 1) for b in buffers] == [b"\3", b"\4"] * 3


def test_restoring_never_writes_the_pristine_content(backend: FakeBackend, found: Recorded) -> None:
    memory = memory_of(backend, found)
    memory.ensure(2)
    first = [backend.gpu.read(source.pristine) for source in memory.sources]
    for replica in (0, 1):
        backend.gpu.fill(memory.buffer(replica, 1), 9)
        memory.restore(replica, [0, 1])
    assert backend.gpu.read(memory.buffer(0, 1)) == first[1]
    assert backend.gpu.read(found.sources[1].pristine) == first[1]


def test_no_room_for_a_copy(backend: FakeBackend, found: Recorded) -> None:
    memory = memory_of(backend, found)
    backend.gpu.script.memory_bytes = 0
    memory.ensure(2)
    with pytest.raises(MeasurementError, match="no room"):
        memory.buffer(1, 0)


def test_copies_are_made_of_what_is_used(backend: FakeBackend) -> None:
    """A small kernel beside one on large tensors is rotated through many copies of the small ones only."""
    large = torch.empty(1 << 34, dtype=torch.uint8, device="cuda")

    def both() -> None:
        increment_kernel[(1,)](large, 64, BLOCK=64)
        scale(scale_kernel, BLOCK=64)

    found = recorded(backend, both)
    small = found.recording.only(1).pruned()
    memory = memory_of(backend, found)
    before = backend.gpu.free_bytes()
    slot = slot_for(Program(Loader(backend.gpu), small, memory, found.artifacts), 10_000.0)
    assert slot.protocol.replicas == MAX_REPLICAS
    assert before - backend.gpu.free_bytes() < 1 << 33


def test_requiring_memory_says_how_much(backend: FakeBackend) -> None:
    gpu = script(backend, memory_bytes=1 << 30)
    require_memory(gpu, 1 << 30, "a copy")
    with pytest.raises(MeasurementError, match=r"a copy needs 2\.0 GiB, the device has 1\.0 GiB free"):
        require_memory(gpu, 1 << 31, "a copy")


# rotation


def rotation(gpu: FakeGpu, found: Recorded) -> int:
    return Memory(gpu, found.recording.storages, found.sources).rotation(found.recording)


def test_copies_exceed_the_cache(backend: FakeBackend, found: Recorded) -> None:
    """50 MiB of L2 and 32 KiB a run would take 3,200 copies; no more than 256 are worth their memory."""
    assert rotation(backend.gpu, found) == MAX_REPLICAS
    backend.gpu.spec = msgspec.structs.replace(backend.spec, l2_bytes=1 << 20)
    assert rotation(backend.gpu, found) == ROTATION_FACTOR * (1 << 20) / (2 * 4 * N) == 64


def test_two_copies_at_least(backend: FakeBackend, found: Recorded) -> None:
    backend.gpu.spec = msgspec.structs.replace(backend.spec, l2_bytes=0)
    assert rotation(backend.gpu, found) == 2


def test_hidden_pointers_forbid_rotation(backend: FakeBackend, found: Recorded) -> None:
    found.recording = msgspec.structs.replace(found.recording, hidden_pointers=True)
    assert rotation(backend.gpu, found) == 1


def test_nothing_used_needs_no_rotation(backend: FakeBackend) -> None:
    assert rotation(backend.gpu, recorded(backend, lambda: None)) == 1


@settings(max_examples=40, deadline=None)
@given(free=st.integers(0, 1 << 30))
def test_rotation_leaves_the_device_most_of_its_memory(shared: FakeBackend, free: int) -> None:
    gpu = script(shared)
    found = recorded(shared, lambda: scale(scale_kernel, BLOCK=64))
    memory = memory_of(shared, found)
    gpu.script.memory_bytes = gpu._allocated + free
    copies = memory.rotation(found.recording)
    assert 1 <= copies <= MAX_REPLICAS
    assert (copies - 1) * 2 * 4 * N <= free * MEMORY_SHARE
    memory.ensure(copies)


# users of storages


def test_first_use_decides_what_is_in_place(backend: FakeBackend) -> None:
    def op() -> None:
        x, y, z = (torch.randn(N, device="cuda") for _ in range(3))
        scale_kernel[by_block](x, y, N, 2.0, BLOCK=64)  # y written, never read before
        increment_kernel[by_block](y, N, BLOCK=64)  # y read after it was written: no content of before matters
        increment_kernel[by_block](z, N, BLOCK=64)  # z read first
        scale_kernel[by_block](z, x, N, 2.0, BLOCK=64)  # x read first, written last

    recording = recorded(backend, op).recording
    assert used_storages(recording) == [0, 1, 2]
    assert written_storages(recording) == [0, 1, 2]
    assert in_place_storages(recording) == [0, 2]


# content of stored recordings


@pytest.mark.parametrize(
    ("content", "stored", "byte"),
    [(Zeros(), None, 0), (Stored("ab"), b"\x07" * 64, 7), (Uniform(5, 5), None, 5)],
    ids=["zeros", "stored", "uniform"],
)
def test_described_content_is_made_again(
    backend: FakeBackend, content: Zeros | Stored | Uniform, stored: bytes | None, byte: int
) -> None:
    source = make_source(backend.gpu, Storage(64, "uint8", content, read=True), stored)
    assert backend.gpu.read(source.pristine) == bytes([byte]) * 64
    assert source.shared


def test_written_content_is_not_shared(backend: FakeBackend) -> None:
    assert not make_source(backend.gpu, Storage(64, "float32", Normal(), read=True, written=True)).shared


@pytest.mark.parametrize("stored", [None, b"short"])
def test_missing_content_is_a_replay_error(backend: FakeBackend, stored: bytes | None) -> None:
    with pytest.raises(ReplayError, match="stored content abcdef of a storage is missing or has another size"):
        make_source(backend.gpu, Storage(64, "int32", Stored("abcdef"), read=True), stored)


def test_a_program_on_described_memory_runs(backend: FakeBackend, found: Recorded) -> None:
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
