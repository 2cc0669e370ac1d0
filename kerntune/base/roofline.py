"""A time against the rates that a device reaches: the roofline model (Williams, Waterman and Patterson, CACM 2009)."""

from __future__ import annotations

from dataclasses import dataclass

MEMORY, MATMUL = "memory", "matmul"


@dataclass(frozen=True)
class Roofline:
    """``time_ns`` of work that moves ``nbytes`` and does ``flops`` operations, on a device that copies ``bandwidth``
    bytes a second (read and written together) and multiplies matrices at ``matmul_peak`` operations a second, as
    measured there. Each is None where it isn't known, and so is what follows from it."""

    time_ns: float | None
    nbytes: float | None = None
    flops: float | None = None
    bandwidth: float | None = None
    matmul_peak: float | None = None

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes a second."""
        return self.nbytes / self.time_ns * 1e9 if self.nbytes and self.time_ns else None

    @property
    def flops_per_second(self) -> float | None:
        """Operations a second."""
        return self.flops / self.time_ns * 1e9 if self.flops and self.time_ns else None

    @property
    def of_bandwidth(self) -> float | None:
        """The share of the device's bandwidth that is used (1.0 is all a copy gets)."""
        rate = self.bytes_per_second
        return rate / self.bandwidth if rate is not None and self.bandwidth else None

    @property
    def of_matmul(self) -> float | None:
        """The share of the device's matmul peak that is used."""
        rate = self.flops_per_second
        return rate / self.matmul_peak if rate is not None and self.matmul_peak else None

    @property
    def intensity(self) -> float | None:
        """Operations per byte that is moved."""
        return self.flops / self.nbytes if self.flops and self.nbytes else None

    @property
    def roof(self) -> str:
        """What limits such work on this device: :data:`MEMORY` or :data:`MATMUL`, whichever alone takes longer; empty
        where neither is known."""
        times = self.alone_ns
        return max(times, key=lambda name: times[name]) if times else ""

    @property
    def of_roof(self) -> float | None:
        """The share of the time that its roof alone would take: 1.0 is as fast as the device's copies or products
        are."""
        times = self.alone_ns
        return max(times.values()) / self.time_ns if times and self.time_ns else None

    @property
    def alone_ns(self) -> dict[str, float]:
        """Nanoseconds that memory and tensor cores alone would take."""
        found = {}
        if self.nbytes and self.bandwidth:
            found[MEMORY] = self.nbytes / self.bandwidth * 1e9
        if self.flops and self.matmul_peak:
            found[MATMUL] = self.flops / self.matmul_peak * 1e9
        return found
