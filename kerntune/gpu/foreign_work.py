"""Work of other processes on a device: gaps in the time of a kernel that only reads the device's clock.

Processes share a device in turns: while another one has it, nothing of this process runs, and a kernel that reads the
clock over and over finds that it jumps. NVML doesn't help: in a container it lists no process of others.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from kerntune.base.formatting import format_size, format_time
from kerntune.base.recording import Param
from kerntune.errors import BackendError, MeasurementError, OutOfResourcesError
from kerntune.gpu.base import Executor, Function, binary_of_ptx

GAP_NS = 50_000
"""A step of the clock that is longer is a gap. The kernel reads it every few tens of nanoseconds; a turn of another
process takes hundreds of microseconds at least, since the device's whole state is exchanged twice (not measured)."""

WATCH_NS = 3_000_000
"""One watch. Turns last 2 ms by default (``nvidia-smi compute-policy``), so there is a gap beside a busy process."""

FOREIGN_SHARE = 0.02
"""Of the time that was watched: what others take beyond that counts. Less moves a time by less than the tolerance."""

STEPS = 1 << 20
"""Readings in a watch at most, so that it ends where the clock stands still."""

COARSE = 4
"""A clock whose steps are longer than a gap divided by this can't be watched."""

SYMBOL = "kerntune_watch"

OUT = struct.Struct("<5Q")
"""What the kernel leaves: number of gaps, their nanoseconds, the longest step, steps, nanoseconds in all."""

PTX = f"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry {SYMBOL}(.param .u64 out, .param .u64 duration, .param .u64 limit, .param .u64 most)
{{
    .reg .pred %p<7>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<16>;
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p6, %r1, 0;
    @%p6 bra DONE;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd1, %rd1;
    ld.param.u64 %rd2, [duration];
    ld.param.u64 %rd3, [limit];
    ld.param.u64 %rd4, [most];
    mov.u64 %rd7, 0;
    mov.u64 %rd8, 0;
    mov.u64 %rd9, 0;
    mov.u64 %rd10, 0;
    mov.u64 %rd13, 0;
    mov.u64 %rd5, %globaltimer;
    mov.u64 %rd6, %rd5;
WATCH:
    mov.u64 %rd11, %globaltimer;
    sub.u64 %rd12, %rd11, %rd6;
    mov.u64 %rd6, %rd11;
    max.u64 %rd9, %rd9, %rd12;
    setp.gt.u64 %p1, %rd12, %rd3;
    @%p1 add.u64 %rd7, %rd7, 1;
    @%p1 add.u64 %rd8, %rd8, %rd12;
    setp.ne.u64 %p2, %rd12, 0;
    @%p2 add.u64 %rd13, %rd13, 1;
    add.u64 %rd10, %rd10, 1;
    sub.u64 %rd14, %rd11, %rd5;
    setp.lt.u64 %p3, %rd14, %rd2;
    setp.lt.u64 %p4, %rd10, %rd4;
    and.pred %p5, %p3, %p4;
    @%p5 bra WATCH;
    st.global.u64 [%rd1], %rd7;
    st.global.u64 [%rd1+8], %rd8;
    st.global.u64 [%rd1+16], %rd9;
    st.global.u64 [%rd1+24], %rd13;
    st.global.u64 [%rd1+32], %rd14;
DONE:
    ret;
}}
"""
"""``%globaltimer`` counts nanoseconds on all of the device (PTX ISA, special registers). The driver compiles this for
the device at hand and keeps that (CUDA's compute cache)."""


@dataclass(frozen=True)
class ForeignWork:
    """What others took of ``watched_ns`` nanoseconds: ``gaps`` times, ``lost_ns`` in all, ``longest_ns`` at once."""

    watched_ns: float = 0.0
    lost_ns: float = 0.0
    longest_ns: float = 0.0
    gaps: int = 0

    @property
    def share(self) -> float:
        """Of the time that was watched; 0 where it wasn't."""
        return self.lost_ns / self.watched_ns if self.watched_ns else 0.0

    @property
    def disturbs(self) -> bool:
        """Whether a time that was taken meanwhile may be others'."""
        return self.share >= FOREIGN_SHARE

    def __str__(self) -> str:
        return (
            f"other work ran on the GPU meanwhile: for {format_size(self.share)} of the {format_time(self.watched_ns)} "
            f"that were watched, {format_time(self.longest_ns)} at once"
        )


NONE_SEEN = ForeignWork()


def together(seen: Iterable[ForeignWork]) -> ForeignWork:
    """Several watches as one."""
    every = [(x.watched_ns, x.lost_ns, x.longest_ns, x.gaps) for x in (NONE_SEEN, *seen)]
    watched, lost, longest, gaps = zip(*every, strict=True)
    return ForeignWork(sum(watched), sum(lost), max(longest), sum(gaps))


class ClockWatch:
    """The kernel on one device, loaded at the first watch, until :meth:`close`."""

    def __init__(self, gpu: Executor) -> None:
        self._gpu = gpu
        self._function: Function | None = None
        self._usable = True

    def watch(self, ns: int = WATCH_NS) -> ForeignWork:
        """Watch for so long, after all enqueued work. Nothing is seen where the kernel can't be loaded or where the
        clock is too coarse."""
        if not self._usable:
            return NONE_SEEN
        try:
            gaps, lost, longest, steps, total = OUT.unpack(self._read(ns))
        except (BackendError, MeasurementError, OutOfResourcesError):
            self._usable = False
            self._gpu.synchronize()  # raises where the device is lost
            return NONE_SEEN
        self._usable = steps * GAP_NS >= total * COARSE
        return ForeignWork(total, lost, longest, gaps) if self._usable else NONE_SEEN

    def close(self) -> None:
        """Unload it."""
        function, self._function = self._function, None
        if function is not None:
            self._gpu.unload(function)

    def _read(self, ns: int) -> bytes:
        if self._function is None:
            self._function = self._gpu.load(binary_of_ptx(SYMBOL, 1), PTX.encode() + b"\0")
        out = self._gpu.allocate(OUT.size)
        words = {"duration": ns, "limit": GAP_NS, "most": STEPS}
        given = [Param("out", "*i64"), *(Param(name, "i64", value=v) for name, v in words.items())]
        addresses: list[int | None] = [out.address, None, None, None]
        self._gpu.synchronize()
        self._gpu.prepare(self._function, (1, 1, 1), given, addresses)()
        return self._gpu.read(out)
