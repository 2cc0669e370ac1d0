"""The memory of a scripted GPU: stand-ins' own, and what is allocated, with contents that launches and copies leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from kerntune.base.device import DeviceSpec
from kerntune.errors import BackendError, MeasurementError
from kerntune.gpu.base import Buffer
from kerntune.gpu.compare import Difference, compare_bytes
from kerntune.gpu.script import FIRST, GARBAGE, Script
from kerntune.gpu.scripted_work import BuffersByAddress, FakeBuffer, OwnBuffer, Repeated, Scattered, Shifted, filled

if TYPE_CHECKING:
    from kerntune.gpu.fake_cuda import StandIns

COMPARED = 1 << 12
"""Bytes of a buffer that a comparison looks at: a launch changes all of it."""


class FakeMemory:
    """Memory of a device that doesn't exist, by addresses that are never used twice. The methods are those of an
    :class:`~kerntune.gpu.base.Executor`; all is done at once."""

    def __init__(self, spec: DeviceSpec, script: Script, stand_ins: StandIns | None) -> None:
        self.spec, self.script = spec, script
        self._stand_ins = stand_ins
        self._next = 1 << 44
        self._allocated = 0
        self.peak_bytes = 0
        """The most device memory of our own that was held at once; users' tensors don't count."""

        self.host_bytes = 0
        """Pinned host memory held now."""

        self._buffers = BuffersByAddress()
        self._users: dict[int, FakeBuffer] = {}
        """Users' own memory."""

        self.lost = ""
        """The error that every call gets from now on; empty on a device that works."""

    def free_bytes(self) -> int:
        """What the script gives, less what was allocated."""
        return self.script.memory_bytes - self._allocated

    def allocate(self, nbytes: int) -> Buffer:
        """Addresses are never used twice."""
        if nbytes > self.free_bytes():
            raise MeasurementError(f"no room on {self.spec.name} for {nbytes} bytes")
        self._allocated += nbytes
        self.peak_bytes = max(self.peak_bytes, self._allocated)
        return self._at_new_address(nbytes, self._free)

    def _free(self, nbytes: int) -> None:
        self._allocated -= nbytes

    def allocate_host(self, nbytes: int) -> Buffer:
        """Counted by itself."""
        self.host_bytes += nbytes
        return self._at_new_address(nbytes, self._free_host)

    def _free_host(self, nbytes: int) -> None:
        self.host_bytes -= nbytes

    def _at_new_address(self, nbytes: int, give_back: Callable[[int], None]) -> FakeBuffer:
        address, self._next = self._next, self._next + -(-max(nbytes, 1) // 512) * 512
        garbage = Scattered(address, GARBAGE)
        buffer = OwnBuffer(address, nbytes, garbage, give_back)
        self._buffers.add(buffer)
        return buffer

    def carve(self, buffer: Buffer, sizes: Sequence[int]) -> list[Buffer]:
        """Each has a content of its own; the whole counts as before, and is found no longer."""
        whole, address, found = _fake(buffer), buffer.address, list[Buffer]()
        self._buffers.forget(whole)
        for size in sizes:
            content = Shifted(whole.content, address - whole.address)
            piece = FakeBuffer(address, size, content, whole=whole)
            if size:
                self._buffers.add(piece)
            found.append(piece)
            address += size
        return found

    def share(self, buffer: Buffer) -> bytes:
        """There is nothing that another process could map."""
        raise BackendError("a scripted GPU's memory is this process's alone")

    def shared(self, handle: bytes, nbytes: int) -> AbstractContextManager[Buffer]:
        raise BackendError("a scripted GPU's memory is this process's alone")

    def part(self, buffer: Buffer, offset: int, nbytes: int) -> Buffer:
        return FakeBuffer(buffer.address + offset, nbytes, Shifted(_fake(buffer).content, offset))

    def compare(self, expected: Buffer, actual: Buffer, dtype: str, tolerance: float) -> Difference | None:
        """Of the start: where there is a difference, there is one too."""
        return compare_bytes(self.read(expected, COMPARED), self.read(actual, COMPARED), dtype, tolerance)

    def reaches(self, address: int) -> bool:
        """Stand-ins' memory, also that of dead ones: it is never released."""
        assert self._stand_ins is not None
        return self._stand_ins.addresses.reserved(address)

    def borrow(self, tensor: Any) -> Buffer:
        """The stand-in's synthetic address."""
        assert self._stand_ins is not None
        self._stand_ins.known_values.forget(tensor)
        address = self._stand_ins.storage_address(tensor)
        nbytes = int(tensor.untyped_storage().nbytes())
        if address not in self._users:
            first = Scattered(len(self._users), FIRST)  # not by address: what is stored of it is the same in every run
            self._users[address] = FakeBuffer(address, nbytes, first, users=True)
            self._buffers.add(self._users[address])
        return self._users[address]

    def copy(self, target: Buffer, source: Buffer) -> None:
        self.synchronize()
        _fake(target).put(_fake(source).content, source.nbytes)

    def read(self, buffer: Buffer, limit: int | None = None) -> bytes:
        """What a launch, a copy or a fill has left."""
        self.synchronize()
        return _fake(buffer).read(limit)

    def write(self, buffer: Buffer, data: bytes, offset: int = 0) -> None:
        if (end := offset + len(data)) > buffer.nbytes:  # as a driver does
            raise BackendError(f"writing memory: {end:,} bytes into {buffer.nbytes:,}")
        _fake(buffer).put_at(offset, data)

    def repeat(self, buffer: Buffer, data: bytes) -> None:
        _fake(buffer).content = Repeated(data)

    def fill(self, buffer: Buffer, byte: int) -> None:
        _fake(buffer).content = filled(byte)

    def _containing(self, address: int) -> FakeBuffer | None:
        exact = self._buffers.at(address)
        return exact if exact is not None else next(self._buffers.between(address, address + 1), None)

    def synchronize(self) -> None:
        """Nothing is ever pending; a device that is lost says so."""
        if self.lost:
            raise BackendError(f"waiting for the device: {self.lost}")


def _fake(buffer: Buffer) -> FakeBuffer:
    assert isinstance(buffer, FakeBuffer)
    return buffer
