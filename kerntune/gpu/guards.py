"""Memory between guard zones: what a launch writes beside a storage is seen, and harms nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from kerntune.errors import BackendError, MeasurementError, OutOfResourcesError
from kerntune.gpu.base import Buffer, Executor

if TYPE_CHECKING:
    from kerntune.gpu.result_kernels import ResultKernels

GUARD_BYTES = 1 << 20
"""Of each guard zone at least: an index that is off by a whole row or block mostly still lands in it."""

PATTERN = 0x3B
"""What every byte of a guard zone is: a small finite number in every float format (fp16 0.90, bf16 and fp32 0.0029,
fp8 e4m3 1.375), so that a load beside a tensor, which is legal, finds no NaN; and no number that many kernels write."""

BASE_ALIGN = 512
"""Bytes: storages keep their address modulo this, what torch aligns its own to. Kernels are compiled for alignments of
16, tensor maps need 64 and 128."""


@dataclass(frozen=True)
class GuardDamage:
    """Bytes of the guard zones around one storage that a launch has changed. ``first`` and ``last`` are offsets in
    bytes from the storage's begin: below zero, or its size and above. ``count`` bytes differ."""

    storage: int
    first: int
    last: int
    count: int


class GuardedBuffer:
    """Device memory of ``nbytes`` bytes at :attr:`buffer` whose address is ``residue`` modulo :data:`BASE_ALIGN`, with
    a guard zone on each side."""

    def __init__(self, gpu: Executor, nbytes: int, residue: int = 0) -> None:
        self._gpu, self.nbytes = gpu, nbytes
        front, self.buffer, back = between_zones(gpu, nbytes, residue)
        self.zones = ((-front.nbytes, front), (nbytes, back))
        """Each with its offset from the storage's begin."""

        self.mend()

    def mend(self) -> None:
        """Enqueue the pattern into both zones."""
        for _, zone in self.zones:
            self._gpu.fill(zone, PATTERN)


def between_zones(gpu: Executor, nbytes: int, residue: int = 0) -> list[Buffer]:
    """New device memory in three pieces: a zone, ``nbytes`` bytes at an address that is ``residue`` modulo
    :data:`BASE_ALIGN`, and another zone."""
    whole = gpu.allocate(nbytes + guards_bytes())
    begin = GUARD_BYTES + (residue - whole.address) % BASE_ALIGN
    return gpu.carve(whole, [begin, nbytes, whole.nbytes - begin - nbytes])


class GuardReader:
    """Looks at guard zones after launches. ``on_device`` the device compares them with the pattern, by a kernel that it
    loads first, and 8 bytes a zone come to the host. Where one has changed, and otherwise or where the device can't
    load that kernel, all zones come to the host themselves, which takes longer."""

    def __init__(self, gpu: Executor, on_device: bool = True) -> None:
        self._gpu = gpu
        from kerntune.gpu.result_kernels import ResultKernels  # few processes guard memory

        self._kernels: ResultKernels | None = ResultKernels(gpu) if on_device else None
        self._pattern: Buffer | None = None
        self._compared: list[GuardedBuffer] = []
        self._compare: Callable[[], list[bool]] = list

    def prepare(self) -> None:
        """Have the kernel compiled and loaded, by a first look at zones of its own: that takes the driver much longer
        than a look."""
        self.damages({0: GuardedBuffer(self._gpu, 1)})
        self.forget()

    def forget(self) -> None:
        """Let go of the zones that were looked at last."""
        self._compared, self._compare = [], list

    def damages(self, guarded: Mapping[int, GuardedBuffer]) -> list[GuardDamage]:
        """What has changed around storages, by number, since their zones were filled. Waits for enqueued work."""
        if not guarded or self._unchanged(list(guarded.values())):
            return []
        found: dict[int, GuardDamage] = {}
        for storage, guard in guarded.items():
            for offset, zone in guard.zones:
                if (damage := changed_bytes(self._gpu.read(zone), storage, offset)) is not None:
                    found[storage] = damage if storage not in found else _together(found[storage], damage)
        return list(found.values())

    def _unchanged(self, guarded: list[GuardedBuffer]) -> bool:
        """Whether the device finds the pattern in all zones."""
        if self._kernels is None:
            return False
        try:
            if self._pattern is None:
                self._pattern = self._gpu.allocate(GUARD_BYTES + BASE_ALIGN)
            pattern = self._pattern
            if self._compared != guarded:
                self._compare = self._kernels.equality([(z, pattern) for x in guarded for _, z in x.zones])
                self._compared = guarded
            self._gpu.fill(pattern, PATTERN)  # each time: what writes over a zone may have written over this too
            return all(self._compare())
        except (BackendError, MeasurementError, OutOfResourcesError):
            self._kernels = None
            self._gpu.synchronize()  # raises where the device is lost
            return False


def changed_bytes(data: bytes, storage: int, offset: int) -> GuardDamage | None:
    """What of a zone's bytes isn't the pattern; the zone begins at ``offset`` from the storage's begin."""
    if data == _untouched(len(data)):
        return None
    import numpy as np  # no good launch needs it, and a process is there sooner without

    at = np.flatnonzero(np.frombuffer(data, np.uint8) != PATTERN)
    return GuardDamage(storage, offset + int(at[0]), offset + int(at[-1]), int(at.size))


@lru_cache(maxsize=8)
def _untouched(nbytes: int) -> bytes:
    return bytes([PATTERN]) * nbytes


def _together(one: GuardDamage, other: GuardDamage) -> GuardDamage:
    first, last = min(one.first, other.first), max(one.last, other.last)
    return GuardDamage(one.storage, first, last, one.count + other.count)


def guards_bytes() -> int:
    """What the zones of one storage take."""
    return 2 * GUARD_BYTES + BASE_ALIGN


def damage_text(damage: GuardDamage, name: str, nbytes: int) -> str:
    """``4 bytes from byte 16 behind the end of y_ptr (4096 bytes)``: a change beside the storage of argument ``name``,
    which holds ``nbytes`` bytes."""
    many = "1 byte" if damage.count == 1 else f"{damage.count:,} bytes"
    if damage.first >= 0:
        where = f"from byte {damage.first - nbytes:,} behind the end of {name}"
    elif damage.last < 0:
        where = f"from {-damage.first:,} bytes before the begin of {name}"
    else:
        where = f"on both sides of {name}, from {-damage.first:,} bytes before its begin"
    return f"{many} {where} ({nbytes:,} bytes)"
