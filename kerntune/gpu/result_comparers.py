"""What compares pieces of device memory: the device's kernels, or the host where these can't be loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kerntune.errors import BackendError, OutOfResourcesError
from kerntune.gpu.base import Buffer, Executor
from kerntune.gpu.number_formats import NOWHERE, ElementCounts, NumberFormat, count_differences
from kerntune.gpu.result_kernels import ResultKernels

HOST_CHUNK = 64 << 20
"""Bytes that come to the host at once, where the device's kernels can't be loaded."""


class Comparing(Protocol):
    """Compares buffers: :class:`~kerntune.gpu.result_kernels.ResultKernels`, or :class:`OnHost`."""

    def equal(self, pairs: Sequence[tuple[Buffer, Buffer]]) -> list[bool]:
        """Of each two buffers of one size, whether they hold the same bits."""

    def new_mask(self, elements: int) -> Any:
        """A byte for each element, all zero."""

    def mark(self, a: Buffer, b: Buffer, mask: Any, kind: NumberFormat) -> None:
        """Note in ``mask`` which elements differ."""

    def count(
        self, a: Buffer, b: Buffer, mask: Any, kind: NumberFormat, poisoned: bool, wanted: int = NOWHERE
    ) -> ElementCounts:
        """As :func:`kerntune.gpu.number_formats.count_differences`."""

    def close(self) -> None:
        """Free what was loaded."""


class OnHost:
    """The same by numpy, chunk by chunk, where the device can't load the kernels."""

    def __init__(self, gpu: Executor) -> None:
        self._gpu = gpu
        self._places: list[Buffer] = []

    def equal(self, pairs: Sequence[tuple[Buffer, Buffer]]) -> list[bool]:
        """Chunk by chunk, up to the first that differs."""
        return [all(x == y for _, x, y in self._chunks(a, b)) for a, b in pairs]

    def new_mask(self, elements: int) -> bytearray:
        """In the host's memory."""
        return bytearray(elements)

    def mark(self, a: Buffer, b: Buffer, mask: bytearray, kind: NumberFormat) -> None:
        """By numpy."""
        import numpy as np

        seen = np.frombuffer(mask, "u1")
        for offset, x, y in self._chunks(a, b):
            differs = _elements(x, kind) != _elements(y, kind)
            begin = offset // kind.width
            seen[begin : begin + differs.size] |= differs

    def count(
        self, a: Buffer, b: Buffer, mask: bytearray | None, kind: NumberFormat, poisoned: bool, wanted: int = NOWHERE
    ) -> ElementCounts:
        """By numpy."""
        found = ElementCounts()
        for offset, x, y in self._chunks(a, b):
            begin, size = offset // kind.width, len(x) // kind.width
            varies = None if mask is None else bytes(memoryview(mask)[begin : begin + size])
            whole = size * kind.width
            later = count_differences(x[:whole], y[:whole], varies, kind, poisoned, wanted)
            found = found.with_later(later, begin)
        return found

    def close(self) -> None:
        """Give the host's memory back."""
        self._places.clear()

    def _chunks(self, a: Buffer, b: Buffer) -> Any:
        for offset in range(0, a.nbytes, HOST_CHUNK):
            size = min(HOST_CHUNK, a.nbytes - offset)
            yield offset, self._read(0, a, offset, size), self._read(1, b, offset, size)

    def _read(self, side: int, buffer: Buffer, offset: int, size: int) -> bytes:
        """Through pinned memory: what a storage held may be the host's already."""
        if not self._places or self._places[0].nbytes < size:
            self._places = [self._gpu.allocate_host(size) for _ in range(2)]
        (place, _) = self._gpu.carve(self._places[side], [size, self._places[side].nbytes - size])
        self._gpu.copy(place, self._gpu.part(buffer, offset, size))
        return bytes(self._gpu.host_view(place))


def _elements(data: bytes, kind: NumberFormat) -> Any:
    import numpy as np

    return np.frombuffer(data[: len(data) // kind.width * kind.width], f"<u{kind.width}")


class DeviceOrHost:
    """Compares on the device, and on the host from the first kernel on that can't be loaded. A lost device raises
    :class:`BackendError`."""

    def __init__(self, gpu: Executor) -> None:
        self._gpu = gpu
        self._by: Comparing = ResultKernels(gpu)

    def __enter__(self) -> DeviceOrHost:
        return self

    def __exit__(self, *_: object) -> None:
        self._by.close()

    def do(self, work: Callable[[Comparing], Any]) -> Any:
        """``work`` by one of them."""
        try:
            return work(self._by)
        except (BackendError, OutOfResourcesError):
            self._gpu.synchronize()  # raises where the device is lost
            if isinstance(self._by, OnHost):
                raise
        self._by.close()
        self._by = OnHost(self._gpu)
        return work(self._by)
