"""Many copies at once: by torch where they are on the device, each by itself elsewhere."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

from kerntune.gpu.cuda import CudaGpu
from kerntune.gpu.driver_gpu import HostBuffer

MANY = 16


class Bytes:
    """Host memory that stands for the device's."""

    def __init__(self, data: bytes, room: int = 0) -> None:
        self.memory = ctypes.create_string_buffer(data, len(data) + room)
        self.address, self.nbytes = ctypes.addressof(self.memory), len(data) + room

    def __bytes__(self) -> bytes:
        return self.memory.raw


class Gpu(CudaGpu):
    """A GPU without one: torch copies on the CPU, and single copies are noted."""

    def __init__(self) -> None:
        self._torch, self._capturing, self.ordinal = torch, False, 0
        self.singles: list[int] = []

    def _bytes(self, address: int, nbytes: int) -> Any:
        return torch.frombuffer((ctypes.c_ubyte * nbytes).from_address(address), dtype=torch.uint8)

    def copy(self, target: Any, source: Any) -> None:
        ctypes.memmove(target.address, source.address, source.nbytes)
        self.singles.append(source.nbytes)


def pairs_of(count: int) -> list[tuple[Bytes, Bytes]]:
    """Of unlike sizes; a target may be larger than its source."""
    return [(Bytes(bytes(i + 1), room=3), Bytes(bytes([i + 1]) * (i + 1))) for i in range(count)]


def test_many_are_one_call_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, pairs, calls = Gpu(), pairs_of(MANY), list[int]()
    foreach = torch._foreach_copy_
    monkeypatch.setattr(torch, "_foreach_copy_", lambda a, b: (calls.append(len(a)), foreach(a, b))[1])
    copy_all = gpu.copier(pairs)
    for _ in range(2):
        for target, _ in pairs:
            ctypes.memset(target.address, 0, target.nbytes)
        copy_all()
        assert [bytes(target) for target, _ in pairs] == [bytes(source) + bytes(3) for _, source in pairs]
    assert (calls, gpu.singles) == ([MANY, MANY], [])


@pytest.mark.parametrize("making", [False, True])
def test_they_are_copied_in_any_mode(making: bool) -> None:
    gpu, pairs = Gpu(), pairs_of(MANY)
    with torch.inference_mode(making):
        copy_all = gpu.copier(pairs)
    with torch.inference_mode(not making):
        copy_all()
    assert bytes(pairs[-1][0]).startswith(bytes(pairs[-1][1]))


def test_few_and_those_of_the_host_are_copied_one_by_one() -> None:
    gpu, few = Gpu(), pairs_of(MANY - 1)
    gpu.copier(few)()
    assert len(gpu.singles) == MANY - 1
    gpu.singles.clear()
    host = HostBuffer.__new__(HostBuffer)
    pinned = Bytes(b"host")
    host.address, host.nbytes = pinned.address, 4
    target = Bytes(bytes(4))
    gpu.copier([*pairs_of(MANY), (target, host)])()
    assert gpu.singles == [4]
    assert bytes(target) == b"host"
    host.address = 0  # not the driver's to free


def test_in_a_capture_each_is_a_node_of_its_graph() -> None:
    gpu, pairs = Gpu(), pairs_of(MANY)
    copy_all = gpu.copier(pairs)
    gpu._capturing = True
    copy_all()
    assert len(gpu.singles) == MANY
