"""How many of a multiprocessor's threads a kernel can keep resident, and whether a device can launch it at all."""

from __future__ import annotations

import re

from kerntune.base.device import DeviceSpec
from kerntune.base.strict import StrictStruct
from kerntune.errors import TargetError

_REGISTER_UNIT = 256  # registers are given to a warp in this unit (cudaOccRegAllocationGranularity)
_SCHEDULERS = 4  # each has a quarter of the registers and of the warps (cudaOccSubPartitionsPerMultiprocessor)
_RESERVED_SHARED = 1024  # bytes of a block that sm_80 and later keep (reservedSharedMemPerBlock)
_BLOCKS = {75: 16, 80: 32, 86: 16, 87: 16, 88: 16, 89: 24, 90: 32, 100: 32, 101: 24, 103: 32, 110: 24, 120: 24, 121: 24}
"""Resident blocks per multiprocessor (cudaOccMaxBlocksPerMultiprocessor). These four and the arithmetic below are from
``cuda_occupancy.h`` (CUDA 13.1), NVIDIA's occupancy calculator as a header; the tests compare them with it."""

_AMD_GROUPS_PER_CU = 16
"""Work-groups of more than one wave that a compute unit can hold: it has that many barriers (LLVM,
``AMDGPU::IsaInfo::getMaxWorkGroupsPerCU``: 16 a compute unit, or 32 for the two that gfx10 and later pair up)."""


class Occupancy(StrictStruct, frozen=True):
    """Resident blocks per multiprocessor, the share of its warps that they use (0 to 1), and the limit that is reached
    first.

    ``limiter``: ``threads``, ``registers``, ``shared memory`` or ``blocks``; of several the first in this order.
    0 blocks: the kernel can't be launched.
    """

    blocks: int
    fraction: float
    limiter: str


def cuda_occupancy(spec: DeviceSpec, *, registers: int, shared_bytes: int, threads: int) -> Occupancy:
    """Occupancy of a kernel with ``registers`` a thread, ``shared_bytes`` and ``threads`` a block.

    ``shared_bytes`` is ``shared`` of Triton's metadata; the reserved kibibyte is added here. Left out:
    named barriers, which can limit warp-specialized kernels, tensor memory, and clusters, which must fit as a whole.

    Raises :class:`TargetError` for an architecture whose limits aren't known here.
    """
    if spec.target.backend != "cuda" or int(spec.target.arch) not in _BLOCKS:
        known = ", ".join(f"cuda:{c}" for c in _BLOCKS)
        raise TargetError(f"no occupancy limits are known for {spec.target}; they are for {known}")
    capability = int(spec.target.arch)
    warps = -(-threads // spec.warp_size)
    limits = {
        "threads": spec.max_threads_per_sm // (warps * spec.warp_size) if threads <= spec.max_threads_per_block else 0,
        "registers": _blocks_by_registers(spec, registers, warps),
        "shared memory": _blocks_by_shared(spec, shared_bytes, capability),
        "blocks": _BLOCKS[capability],
    }
    return _tightest(spec, limits, warps)


def amd_occupancy(spec: DeviceSpec, *, waves_by_registers: int, shared_bytes: int, warps: int) -> Occupancy:
    """Occupancy of a kernel for an AMD GPU, of the waves that a compute unit can hold.

    ``waves_by_registers`` is the waves per SIMD that the compiler gives in its ``; Occupancy`` comment; it leaves out
    shared memory (LDS), which Triton requests at launch, so that limit is added here.
    """
    simds = 4 if spec.target.arch.startswith("gfx9") else 2
    limits = {
        "threads": spec.max_threads_per_sm // (warps * spec.warp_size),
        "registers": waves_by_registers * simds // warps,
        "shared memory": _groups_by_lds(spec, shared_bytes),
        "blocks": _AMD_GROUPS_PER_CU if warps > 1 else spec.max_threads_per_sm // spec.warp_size,
    }
    return _tightest(spec, limits, warps)


def _tightest(spec: DeviceSpec, limits: dict[str, int], warps: int) -> Occupancy:
    limiter = min(limits, key=lambda name: limits[name])
    most = spec.max_threads_per_sm // spec.warp_size
    return Occupancy(limits[limiter], limits[limiter] * warps / most, limiter)


def registers_per_block(spec: DeviceSpec, registers: int, warps: int) -> int:
    """Registers that one block takes at ``registers`` a thread: whole units a warp, and warps in fours, since a warp's
    registers come from its scheduler's quarter."""
    return _round_up(registers * spec.warp_size, _REGISTER_UNIT) * _round_up(warps, _SCHEDULERS)


def _blocks_by_registers(spec: DeviceSpec, registers: int, warps: int) -> int:
    if registers_per_block(spec, registers, warps) > spec.registers_per_sm:
        return 0
    per_warp = _round_up(registers * spec.warp_size, _REGISTER_UNIT)
    per_scheduler = spec.registers_per_sm // _SCHEDULERS
    return per_scheduler // max(per_warp, _REGISTER_UNIT) * _SCHEDULERS // warps


def _blocks_by_shared(spec: DeviceSpec, shared_bytes: int, capability: int) -> int:
    unit, reserved = (128, _RESERVED_SHARED) if capability >= 80 else (256, 0)
    if shared_bytes > spec.shared_memory_per_block:
        return 0
    taken = _round_up(shared_bytes + reserved, unit)
    return spec.shared_memory_per_sm // taken if taken else spec.max_threads_per_sm


def _groups_by_lds(spec: DeviceSpec, shared_bytes: int) -> int:
    """LDS comes in units of 512 bytes, of 1280 where there are 160 KiB of it (LLVM, ``getLdsDwGranularity``)."""
    if shared_bytes > spec.shared_memory_per_block:
        return 0
    unit = 1280 if spec.shared_memory_per_block == 160 << 10 else 512
    return spec.shared_memory_per_sm // max(_round_up(shared_bytes, unit), unit)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


MAX_REGISTERS_PER_THREAD = 255
"""CUDA's limit since sm_35 (CUDA C++ Programming Guide, table of technical specifications)."""

MAX_TENSOR_MEMORY_COLUMNS = 512
"""The tensor memory of a multiprocessor of sm_100 (PTX ISA, "Tensor Memory": 128 rows of 512 columns of 32 bits)."""


class Violation(StrictStruct, frozen=True):
    """A limit of the device that a kernel exceeds. ``needed`` and ``limit`` are in the same unit."""

    resource: str
    needed: int
    limit: int
    unit: str

    def __str__(self) -> str:
        over = self.needed - self.limit
        return f"{self.resource}: needs {self.needed:,} {self.unit}, the device has {self.limit:,} ({over:,} too many)"

    @classmethod
    def from_text(cls, text: str) -> Violation | None:
        """The violation that a text begins with, as :meth:`__str__` writes it; None if it begins with anything else."""
        found = _TEXT.match(text)
        if found is None:
            return None
        resource, needed, unit, limit = found.groups()
        return cls(resource, int(needed.replace(",", "")), int(limit.replace(",", "")), unit)


_TEXT = re.compile(r"([a-z ]+): needs ([\d,]+) ([a-z ]+), the device has ([\d,]+) \(")


def launch_violations(
    spec: DeviceSpec, *, registers: int, shared_bytes: int, threads: int, tensor_memory_columns: int = 0
) -> tuple[Violation, ...]:
    """Limits of ``spec`` that a launch would break: empty if it can be launched.

    ``registers`` are per thread, ``shared_bytes`` and ``threads`` per block. On AMD GPUs registers are not checked: the
    compiler stays within what the work-group's size allows, and spills.
    """
    needs = [
        Violation("shared memory", shared_bytes, spec.shared_memory_per_block, "bytes a block"),
        Violation("threads", threads, spec.max_threads_per_block, "a block"),
        Violation("tensor memory", tensor_memory_columns, MAX_TENSOR_MEMORY_COLUMNS, "columns a block"),
    ]
    if spec.target.backend == "cuda":
        warps = -(-threads // spec.warp_size)
        needs += [
            Violation("registers", registers, MAX_REGISTERS_PER_THREAD, "a thread"),
            Violation("registers", registers_per_block(spec, registers, warps), spec.registers_per_sm, "a block"),
        ]
    return tuple(need for need in needs if need.needed > need.limit)
