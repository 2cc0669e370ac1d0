"""Memory between guard zones: what a launch writes beside a storage is seen, and harms nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kerntune.gpu.base import Buffer, Executor

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
        whole = gpu.allocate(nbytes + guards_bytes())
        begin = GUARD_BYTES + (residue - whole.address) % BASE_ALIGN
        sizes = [begin, nbytes, whole.nbytes - begin - nbytes]
        self._gpu, self.nbytes = gpu, nbytes
        self._front, self.buffer, self._back = gpu.carve(whole, sizes)
        self.mend()

    def mend(self) -> None:
        """Enqueue the pattern into both zones."""
        self._gpu.fill(self._front, PATTERN)
        self._gpu.fill(self._back, PATTERN)

    def damage(self, storage: int) -> GuardDamage | None:
        """What has changed in the zones since they were filled, after all enqueued work; ``storage`` names it."""
        changed = [*self._changed(self._front, -self._front.nbytes), *self._changed(self._back, self.nbytes)]
        if not changed:
            return None
        count = sum(n for _, _, n in changed)
        return GuardDamage(storage, min(a for a, _, _ in changed), max(b for _, b, _ in changed), count)

    def _changed(self, zone: Buffer, begin: int) -> list[tuple[int, int, int]]:
        """First and last offset, and number, of a zone's bytes that aren't the pattern's."""
        at = np.flatnonzero(np.frombuffer(self._gpu.read(zone), np.uint8) != PATTERN)
        return [(begin + int(at[0]), begin + int(at[-1]), int(at.size))] if at.size else []


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
