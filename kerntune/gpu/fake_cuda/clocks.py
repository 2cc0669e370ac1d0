"""Clocks and memory of a target's typical device: performance models use them to order configs."""

from __future__ import annotations

from typing import NamedTuple

from kerntune.base.device import Target


class Clocks(NamedTuple):
    """The highest clock of the multiprocessors and of the memory, in MHz, and the width of the memory's bus in bits.

    The memory's clock is such that ``2 * clock * bits / 8`` (``triton.testing.get_dram_gbps``) is its bandwidth.
    """

    sm_mhz: int
    memory_mhz: int
    bus_bits: int

    @property
    def gbps(self) -> float:
        """Bandwidth in 10**9 bytes a second."""
        return 2 * self.memory_mhz * self.bus_bits / 8 / 1000


TYPICAL_CLOCKS = {
    "cuda:75": Clocks(1590, 5001, 256),  # T4: 320 GB/s
    "cuda:80": Clocks(1410, 1215, 5120),  # A100 40 GB: 1,555 GB/s
    "cuda:86": Clocks(1695, 6251, 384),  # A10: 600 GB/s
    "cuda:87": Clocks(1300, 3200, 256),  # Jetson AGX Orin 64 GB: 204.8 GB/s
    "cuda:89": Clocks(2520, 9001, 384),  # L40S: 864 GB/s
    "cuda:90": Clocks(1980, 2619, 5120),  # H100 SXM: 3.35 TB/s
    "cuda:100": Clocks(1965, 3996, 8192),  # B200: 8 TB/s
    "cuda:120": Clocks(2407, 14001, 512),  # RTX 5090: 1,792 GB/s
    "hip:gfx90a": Clocks(1700, 1600, 4096),  # MI250, one of its two dies: half of 3.2 TB/s
    "hip:gfx942": Clocks(2100, 2600, 8192),  # MI300X: 5.3 TB/s
    "hip:gfx950": Clocks(2400, 3906, 8192),  # MI355X: 8 TB/s
    "hip:gfx1100": Clocks(2500, 10000, 384),  # RX 7900 XTX: 960 GB/s
    "hip:gfx1201": Clocks(2970, 10000, 256),  # RX 9070 XT: 640 GB/s
}
"""Boost clock, bandwidth and bus width of the products' datasheets (NVIDIA, AMD); memory clocks follow from the latter
two. Hopper's and Blackwell's SXM boards have no clock in their datasheets: ``nvidia-smi -q -d CLOCK``'s maximum."""


def clocks_of(target: Target) -> Clocks:
    """A target's figures; of one that isn't listed those of the nearest listed one before it, of the same vendor."""
    same = [text for text in TYPICAL_CLOCKS if text.startswith(f"{target.backend}:")]
    before = [text for text in same if _order(text) <= _order(str(target))]
    return TYPICAL_CLOCKS[max(before or same[:1], key=_order)]


def _order(target: str) -> int:
    return int(target.partition(":")[2].removeprefix("gfx"), 16)
