"""A GPU whose memory is the host's: real bytes, kernels written in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kerntune.base.device import DeviceSpec
from kerntune.base.recording import Binary, Param
from kerntune.errors import MeasurementError
from kerntune.gpu.base import Buffer
from kerntune.gpu.compare import Difference, compare_bytes


@dataclass(eq=False)
class HostBuffer:
    """Bytes at a made-up address."""

    address: int
    nbytes: int
    data: bytearray


@dataclass(frozen=True)
class HostFunction:
    binary: Binary
    registers: int = 0


Kernel = Callable[[list[bytearray]], None]
"""Gets the buffers of its pointer parameters, in order, and changes them in place."""


@dataclass
class HostGpu:
    """As much of a GPU as memory, launches and verification need. ``kernels`` are by code identity."""

    spec: DeviceSpec
    memory_bytes: int = 1 << 30
    kernels: dict[str, Kernel] = field(default_factory=dict)
    buffers: list[HostBuffer] = field(default_factory=list)
    host: list[HostBuffer] = field(default_factory=list)
    copies: int = 0

    def free_bytes(self) -> int:
        return self.memory_bytes - sum(b.nbytes for b in self.buffers)

    def allocate(self, nbytes: int) -> HostBuffer:
        if nbytes > self.free_bytes():
            raise MeasurementError("no room")
        address = sum(-(-max(b.nbytes, 1) // 256) * 256 for b in self.buffers) + (1 << 40)
        self.buffers.append(HostBuffer(address, nbytes, bytearray(b"\xcd" * nbytes)))
        return self.buffers[-1]

    def allocate_host(self, nbytes: int) -> HostBuffer:
        self.host.append(HostBuffer((1 << 50) + sum(b.nbytes for b in self.host), nbytes, bytearray(nbytes)))
        return self.host[-1]

    def part(self, buffer: Buffer, offset: int, nbytes: int) -> HostBuffer:
        assert isinstance(buffer, HostBuffer)
        return HostBuffer(buffer.address + offset, nbytes, buffer.data[offset : offset + nbytes])

    def compare(self, expected: Buffer, actual: Buffer, dtype: str, tolerance: float) -> Difference | None:
        return compare_bytes(self.read(expected), self.read(actual), dtype, tolerance)

    def copy(self, target: Buffer, source: Buffer) -> None:
        assert isinstance(target, HostBuffer)
        assert isinstance(source, HostBuffer)
        assert target is not source
        self.copies += 1
        target.data[: source.nbytes] = source.data

    def read(self, buffer: Buffer, limit: int | None = None) -> bytes:
        assert isinstance(buffer, HostBuffer)
        return bytes(buffer.data[:limit])

    def write(self, buffer: Buffer, data: bytes) -> None:
        assert isinstance(buffer, HostBuffer)
        buffer.data[: len(data)] = data

    def repeat(self, buffer: Buffer, data: bytes) -> None:
        assert isinstance(buffer, HostBuffer)
        buffer.data[:] = (data * (buffer.nbytes // len(data) + 1))[: buffer.nbytes]

    def fill(self, buffer: Buffer, byte: int) -> None:
        assert isinstance(buffer, HostBuffer)
        buffer.data[:] = bytes([byte]) * buffer.nbytes

    def load(self, binary: Binary, data: bytes) -> HostFunction:
        return HostFunction(binary)

    def unload(self, function: HostFunction) -> None:
        """Nothing to free."""

    def prepare(
        self,
        function: HostFunction,
        grid: tuple[int, int, int],
        params: Sequence[Param],
        addresses: Sequence[int | None],
    ) -> Callable[[], None]:
        at = {b.address: b.data for b in self.buffers}
        pointers = [at[a] for a in addresses if a]
        kernel = self.kernels[function.binary.code]
        return lambda: kernel(pointers)

    def synchronize(self) -> None:
        """Nothing is ever pending."""
