"""Whether a device can launch a compiled kernel."""

from __future__ import annotations

import re

import msgspec

from kerntune.base.device import DeviceSpec
from kerntune.static.occupancy import registers_per_block

MAX_REGISTERS_PER_THREAD = 255
"""CUDA's limit since sm_35 (CUDA C++ Programming Guide, table of technical specifications)."""

MAX_TENSOR_MEMORY_COLUMNS = 512
"""The tensor memory of a multiprocessor of sm_100 (PTX ISA, "Tensor Memory": 128 rows of 512 columns of 32 bits)."""


class Violation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
