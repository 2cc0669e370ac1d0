"""What a device can't launch, read from a binary alone: nothing is loaded."""

from __future__ import annotations

from kerntune.base.device import DeviceSpec
from kerntune.base.recording import Binary
from kerntune.compiling.binary.elf import cubin_resources
from kerntune.errors import StoreError
from kerntune.static.launch_limits import Violation, launch_violations

MAX_CLUSTER = 16
"""CTAs of a cluster, where sizes that aren't portable are allowed (CUDA C++ Programming Guide, "Clusters")."""


def misfit(binary: Binary, data: bytes, spec: DeviceSpec) -> str:
    """Why ``spec`` can't launch a kernel; empty if no limit is exceeded (the driver decides in the end)."""
    found = launch_violations(
        spec,
        registers=_registers(binary, data),
        shared_bytes=binary.shared,
        threads=binary.num_warps * binary.warp_size,
        tensor_memory_columns=binary.tmem,
    )
    if binary.num_ctas > MAX_CLUSTER:
        found += (Violation("cluster", binary.num_ctas, MAX_CLUSTER, "blocks"),)
    return "; ".join(map(str, found))


def _registers(binary: Binary, data: bytes) -> int:
    """Registers a thread; 0 where the file doesn't say."""
    if binary.kind != "cubin":
        return 0
    try:
        return cubin_resources(data, binary.symbol).registers
    except StoreError:
        return 0
