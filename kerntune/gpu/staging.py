"""Moves bytes of device memory to another process, which never sees the memory that they come from.

The sender copies into staging memory, the receiver copies out of it and lets go of it before it launches anything.
There are two kinds: ``ipc`` is device memory that the receiver maps for the time of the copy (CUDA driver API,
``cuIpcGetMemHandle`` and ``cuIpcOpenMemHandle``), ``host`` is an anonymous file of the host (``memfd_create``) that
both map, and that the receiver inherits when it starts.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Union

from kerntune.errors import BackendError, MeasurementError
from kerntune.gpu.base import Buffer, Executor

STAGING_BYTES = 64 << 20
"""Bytes that are under way at once: what is larger goes in several pieces."""

PAGE_BYTES = 2 << 20
"""Device memory is mapped in pages of so many bytes (CUDA driver API, ``cuMemGetAllocationGranularity``). What a
receiver maps is whole ones, so that nothing else lies in there."""

IPC, HOST = "ipc", "host"


class DeviceStaging:
    """The sender's side: device memory that another process may map by the ``handle``. :class:`BackendError` where the
    driver can't share it."""

    kind = IPC

    def __init__(self, gpu: Executor, nbytes: int) -> None:
        self._gpu = gpu
        self._buffer = gpu.allocate(max(1, -(-nbytes // PAGE_BYTES)) * PAGE_BYTES)
        self.handle = gpu.share(self._buffer)

    def put(self, source: Buffer, at: int) -> None:
        """Enqueue the copy of a buffer to place ``at``."""
        self._gpu.copy(self._gpu.part(self._buffer, at, source.nbytes), source)

    def flush(self) -> None:
        self._gpu.synchronize()


class HostStaging:
    """The sender's side: memory of the host. ``file`` is the descriptor that a receiver inherits."""

    kind, handle = HOST, b""

    def __init__(self, gpu: Executor) -> None:
        self._gpu = gpu
        self.file = os.memfd_create("kerntune-staging")
        os.ftruncate(self.file, STAGING_BYTES)  # pages exist once they are written
        self._map = mmap.mmap(self.file, STAGING_BYTES)

    def put(self, source: Buffer, at: int) -> None:
        """Read the device."""
        self._map[at : at + source.nbytes] = self._gpu.read(source)

    def flush(self) -> None:
        """It is there."""

    def close(self) -> None:
        self._map.close()
        os.close(self.file)


Staging = Union[DeviceStaging, HostStaging]


class StagedPiece(NamedTuple):
    """``nbytes`` of a storage from ``offset`` on lie at place ``at`` of the staging memory."""

    storage: int
    offset: int
    at: int
    nbytes: int


class Receiver:
    """The receiver's side; ``file`` is the inherited descriptor of the ``host`` kind."""

    def __init__(self, gpu: Executor, file: int) -> None:
        self._gpu, self._file = gpu, file

    def take(self, kind: str, handle: bytes, pieces: Sequence[tuple[StagedPiece, Buffer]]) -> None:
        """Copy pieces out of staging memory into buffers. What was mapped is unmapped again."""
        if kind == IPC:
            with self._gpu.shared(handle, STAGING_BYTES) as staging:
                for piece, target in pieces:
                    source = self._gpu.part(staging, piece.at, piece.nbytes)
                    self._gpu.copy(self._gpu.part(target, piece.offset, piece.nbytes), source)
                self._gpu.synchronize()
            return
        with mmap.mmap(self._file, STAGING_BYTES) as mapped:
            for piece, target in pieces:
                self._gpu.write(target, mapped[piece.at : piece.at + piece.nbytes], piece.offset)


def device_staging(gpu: Executor, nbytes: int) -> DeviceStaging | None:
    """None where the driver can't share memory between processes."""
    try:
        return DeviceStaging(gpu, min(nbytes, STAGING_BYTES))
    except (BackendError, MeasurementError):
        return None


PLACE_ALIGN = 256


def staged_bytes(sizes: Iterable[int]) -> int:
    """What storages of these sizes take in staging memory, together."""
    return sum(-(-size // PLACE_ALIGN) * PLACE_ALIGN for size in sizes)


def batches(sizes: Mapping[int, int], limit: int = STAGING_BYTES) -> Iterator[list[StagedPiece]]:
    """What goes together of storages with these sizes. Places are aligned to :data:`PLACE_ALIGN`."""
    batch: list[StagedPiece] = []
    at = 0
    for storage, size in sizes.items():
        offset = 0
        while offset < size:
            count = min(size - offset, limit - at)
            batch.append(StagedPiece(storage, offset, at, count))
            offset, at = offset + count, at + staged_bytes([count])
            if at >= limit:
                yield batch
                batch, at = [], 0
    if batch:
        yield batch
