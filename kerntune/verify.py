"""Holds what candidates write against what one of them, or the captured run, has written."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import Enum

from kerntune.backend.base import Buffer
from kerntune.backend.compare import is_float
from kerntune.errors import UsageError
from kerntune.launch import Program
from kerntune.recording import Recording

POISONS = (0x7F, 0x7B)
"""Fill memory that is only written, so that a missed element shows. 0x7F7F... and 0x7B7B... are huge or NaN in every
float format; two, because a kernel may rightly write one of them."""

TOLERANCE = {"float64": 1e-9, "float32": 1e-3, "float16": 1e-2, "bfloat16": 3e-2}
"""Relative to the largest element: another block size sums in another order. Wrong kernels are off by far more."""

ATOMIC_FACTOR = 10.0
"""Float atomics add in any order, in the output's own precision."""


class Verify(str, Enum):
    """Which candidates have to write what the reference writes: the winner, those of the last rounds, or all."""

    WINNER = "winner"
    FINALISTS = "finalists"
    ALL = "all"


def verify_mode(given: str | Verify | None = None) -> Verify:
    """What an argument says, else ``KERNTUNE_VERIFY``, else ``winner``. :class:`UsageError` for anything else."""
    text = given or os.environ.get("KERNTUNE_VERIFY") or Verify.WINNER
    try:
        return Verify(text)
    except ValueError:
        raise UsageError(f"verify is {text!r}; it can be winner, finalists or all") from None


def run_poisoned(program: Program, poison: int, only_written: frozenset[int]) -> None:
    """Run once on copy 0 from its first content, with ``only_written`` storages filled with ``poison``."""
    gpu = program.gpu
    program.reset()
    for index in sorted(only_written):
        gpu.fill(program.memory.buffer(0, index), poison)
    program.enqueue()
    gpu.synchronize()


Outputs = dict[int, list[tuple[int, Buffer]]]
"""Of each written storage, pieces with their offsets (all of it, unless it is too large to keep)."""


@dataclass
class Verifier:
    """What one program writes, once for each pattern of poison, and others held against it.

    The reference's own programs run on the same memory; copy 0 is as before after each call.
    """

    reference: Program
    _kept: dict[tuple[int, frozenset[int]], Outputs] = field(default_factory=dict)

    def disagreement(self, program: Program) -> str | None:
        """Where and by how much ``program`` writes something else; None if it agrees."""
        written = sorted({*self.reference.written, *program.written})
        program.memory.will_write(written)
        only_written = frozenset(written) - {*self.reference.in_place, *program.in_place}
        for poison in POISONS if only_written else POISONS[:1]:
            expected = self._expected(poison, only_written, written)
            run_poisoned(program, poison, only_written)
            text = self._difference(program, expected)
            program.memory.restore(0, written)
            if text is not None:
                return text
        return None

    def _expected(self, poison: int, only_written: frozenset[int], written: list[int]) -> Outputs:
        key = (poison, only_written)
        if key not in self._kept or set(self._kept[key]) != set(written):
            memory = self.reference.memory
            run_poisoned(self.reference, poison, only_written)
            self._kept[key] = {i: memory.keep(i) for i in written}
            memory.restore(0, written)
        return self._kept[key]

    def _difference(self, program: Program, expected: Outputs) -> str | None:
        gpu, memory = program.gpu, program.memory
        for index, offset, before in ((i, *piece) for i, kept in expected.items() for piece in kept):
            dtype = memory.storages[index].dtype
            after = gpu.part(memory.buffer(0, index), offset, before.nbytes)
            found = gpu.compare(before, after, dtype, tolerance(program.recording, dtype))
            if found is not None:
                where = f" from byte {offset} on" if offset else ""
                values = f"{found}, dtype {dtype}"
                return f"it wrote other values than the first candidate into storage {index}{where} ({values})"
        return None


def tolerance(recording: Recording, dtype: str) -> float:
    """How far numbers may be off, relative to the largest; 0 for what has to agree to the bit."""
    atomics = any(launch.float_atomics for launch in recording.launches)
    return TOLERANCE[dtype] * (ATOMIC_FACTOR if atomics else 1.0) if is_float(dtype) else 0.0
