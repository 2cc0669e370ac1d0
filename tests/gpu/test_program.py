"""Recordings run with the driver alone: loaded once, bound to memory, launched in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
import torch
from fake_runs import N, by_block, increment_kernel, program_of, recorded, scale, scale_kernel

from kerntune.base.recording import Binary, Param, Scratch
from kerntune.capture.recorder import Recorded
from kerntune.errors import OutOfResourcesError, ReplayError
from kerntune.gpu.base import Function
from kerntune.gpu.memory import Memory
from kerntune.gpu.program import Loader, Program
from kerntune.gpu.script import Rule, Script
from kerntune.gpu.scripted import FakeBackend, FakeBuffer, FakeGpu

Prepared = tuple[str, tuple[int, int, int], list[Param], list["int | None"]]


class Watched(FakeGpu):
    """Records what it loads, unloads, prepares and runs."""

    def __init__(self, backend: FakeBackend, *rules: Rule) -> None:
        super().__init__(backend.spec, Script(rules), backend.stand_ins)
        self.loaded: list[str] = []
        self.unloaded: list[str] = []
        self.prepared: list[Prepared] = []
        self.order: list[str] = []

    def load(self, binary: Binary, data: bytes) -> Function:
        self.loaded.append(binary.symbol)
        return super().load(binary, data)

    def unload(self, function: Function) -> None:
        self.unloaded.append(function.binary.symbol)

    def prepare(
        self, function: Any, grid: tuple[int, int, int], params: Sequence[Param], addresses: Sequence[int | None]
    ) -> Callable[[], None]:
        self.prepared.append((function.binary.symbol, grid, list(params), list(addresses)))
        call = super().prepare(function, grid, params, addresses)
        return lambda: (self.order.append(function.binary.symbol), call())[1]


@pytest.fixture
def gpu(shared: FakeBackend) -> Watched:
    gpu = shared.gpu = Watched(shared)
    return gpu


def two_kernels() -> None:
    x = torch.randn(N, device="cuda")
    scale_kernel[by_block](x, x[16:], N - 16, 2.0, BLOCK=64)
    increment_kernel[by_block](x, N, BLOCK=64)
    scale_kernel[by_block](x, x[16:], N - 16, 2.0, BLOCK=64)


def one_kernel() -> None:
    scale(scale_kernel, BLOCK=64)


def with_binary(found: Recorded, **changes: Any) -> Recorded:
    """A recording of one binary, that binary changed."""
    (binary,) = found.recording.binaries
    changed = msgspec.structs.replace(binary, **changes)
    found.recording = msgspec.structs.replace(found.recording, binaries=(changed,))
    return found


# loading


def test_each_binary_is_loaded_once_and_all_are_freed(shared: FakeBackend, gpu: Watched) -> None:
    found = recorded(shared, two_kernels)
    loader = Loader(gpu)
    memory = Memory(gpu, found.recording.storages, found.sources)
    for _ in range(2):
        Program(loader, found.recording, memory, found.artifacts).enqueue()
    assert sorted(gpu.loaded) == ["increment_kernel", "scale_kernel"]
    loader.close()
    assert sorted(gpu.unloaded) == ["increment_kernel", "scale_kernel"]
    loader.close()
    assert len(gpu.unloaded) == 2


def test_a_missing_binary_names_kernel_and_checksum(shared: FakeBackend, gpu: Watched) -> None:
    found = recorded(shared, one_kernel)
    (binary,) = found.recording.binaries
    del found.artifacts[binary.sha256]
    with pytest.raises(ReplayError, match=rf"scale_kernel: its binary {binary.sha256[:12]} is not stored here"):
        program_of(shared, found)


def test_what_cannot_be_replayed_says_why(shared: FakeBackend, gpu: Watched) -> None:
    found = with_binary(recorded(shared, one_kernel), unreplayable="it prints")
    with pytest.raises(ReplayError, match="scale_kernel: it prints"):
        program_of(shared, found)
    assert gpu.loaded == []


def test_a_refusal_is_not_remembered(shared: FakeBackend, gpu: Watched) -> None:
    found = recorded(shared, one_kernel)
    loader, (binary,) = Loader(gpu), found.recording.binaries
    gpu.script = Script([Rule(fails="too many registers")])
    with pytest.raises(OutOfResourcesError, match="too many registers"):
        loader.load(binary, found.artifacts)
    gpu.script = Script()
    assert loader.load(binary, found.artifacts).binary is binary


# binding


def test_launches_run_in_order_with_their_grids(shared: FakeBackend, gpu: Watched) -> None:
    program = program_of(shared, recorded(shared, two_kernels))
    program.enqueue()
    program.enqueue()
    assert gpu.order == ["scale_kernel", "increment_kernel", "scale_kernel"] * 2
    assert [grid for _, grid, _, _ in gpu.prepared] == [(64, 1, 1)] * 3, "bound once, run twice"


def test_pointers_are_storages_and_offsets(shared: FakeBackend, gpu: Watched) -> None:
    program = program_of(shared, recorded(shared, two_kernels))
    program.enqueue()
    _, _, params, addresses = gpu.prepared[0]
    base = program.memory.buffer(0, 0).address
    assert [p.name for p in params] == ["x_ptr", "y_ptr", "n", "factor", "global_scratch", "profile_scratch"]
    assert addresses == [base, base + 64, None, None, 0, 0]
    assert [p.value for p in params[2:4]] == [N - 16, 2.0]


def test_null_pointers_are_zero(shared: FakeBackend, gpu: Watched) -> None:
    found = recorded(shared, one_kernel)
    (launch,) = found.recording.launches
    params = (Param("x_ptr", "*fp32"), *launch.params[1:])
    found.recording = msgspec.structs.replace(
        found.recording, launches=(msgspec.structs.replace(launch, params=params),)
    )
    program_of(shared, found).enqueue()
    assert gpu.prepared[0][3][0] == 0


def test_each_copy_has_its_own_addresses(shared: FakeBackend, gpu: Watched) -> None:
    program = program_of(shared, recorded(shared, one_kernel))
    for replica in (0, 2, 1, 2):
        program.enqueue(replica)
    assert program.memory.replicas == 3
    assert len(gpu.prepared) == 3
    assert len({tuple(addresses) for *_, addresses in gpu.prepared}) == 3


@pytest.mark.parametrize(("num_ctas", "blocks"), [(1, 64), (2, 128)])
def test_scratch_is_for_every_block(shared: FakeBackend, gpu: Watched, num_ctas: int, blocks: int) -> None:
    found = with_binary(recorded(shared, one_kernel), global_scratch=Scratch(100, 128), num_ctas=num_ctas)
    program = program_of(shared, found)
    for storage in range(len(found.recording.storages)):
        program.memory.buffer(0, storage)
    before = gpu.free_bytes()
    program.enqueue()
    assert before - gpu.free_bytes() == 100 * blocks
    scratch, profile = gpu.prepared[0][3][-2:]
    assert scratch
    assert profile == 0


def test_zero_grids_are_not_launched(shared: FakeBackend, gpu: Watched) -> None:
    def op() -> None:
        x = torch.randn(N, device="cuda")
        increment_kernel[(0,)](x, N, BLOCK=64)
        increment_kernel[(1, 1, 0)](x, N, BLOCK=64)
        scale_kernel[by_block](x, x, N, 2.0, BLOCK=64)

    program_of(shared, recorded(shared, op)).enqueue()
    assert gpu.order == ["scale_kernel"]


# restoring


def bytes_of(program: Program) -> list[int]:
    buffers = [program.memory.buffer(0, i) for i in range(len(program.memory.storages))]
    assert all(isinstance(b, FakeBuffer) for b in buffers)
    return [program.gpu.read(b, 1)[0] for b in buffers]


def test_what_is_changed_in_place_is_restored(shared: FakeBackend, gpu: Watched) -> None:
    def op() -> None:
        x, y = torch.randn(N, device="cuda"), torch.empty(N, device="cuda")
        for tensor, byte in ((x, 1), (y, 2)):
            gpu.fill(gpu.borrow(tensor), byte)
        scale_kernel[by_block](x, y, N, 2.0, BLOCK=64)
        increment_kernel[by_block](x, N, BLOCK=64)

    program = program_of(shared, recorded(shared, op))
    assert (program.written, program.in_place) == ([0, 1], [0])
    program.enqueue()
    changed = bytes_of(program)
    assert 1 not in changed
    program.restore()
    assert bytes_of(program) == [1, changed[1]]
    program.reset()
    assert bytes_of(program) == [1, 2]


def test_restoring_one_copy_leaves_the_others(shared: FakeBackend, gpu: Watched) -> None:
    found = recorded(shared, lambda: increment_kernel[(64,)](torch.randn(N, device="cuda"), N, BLOCK=64))
    program = program_of(shared, found)
    first = gpu.read(program.memory.sources[0].pristine)
    program.enqueue(0)
    program.enqueue(1)
    program.restore(1)
    assert [gpu.read(program.memory.buffer(r, 0)) == first for r in (0, 1)] == [False, True]
