"""Holds what one candidate wrote against what another did."""

from __future__ import annotations

import numpy as np

from kerntune.backend.base import Executor
from kerntune.launch import Program
from kerntune.memory import FLOATS, decode_floats
from kerntune.recording import Recording

POISON = 0x7F
"""Fills memory that is only written: 0x7F7F... is huge or NaN in every float format, so a missed element shows."""

TOLERANCE = {"float64": 1e-9, "float32": 1e-3, "float16": 1e-2, "bfloat16": 3e-2}
"""Relative to the largest element: another block size sums in another order. Wrong kernels are off by far more."""

ATOMIC_FACTOR = 10.0
"""Float atomics add in any order, in the output's own precision."""

Outputs = dict[int, bytes]
"""Bytes of each written storage."""


def outputs_of(program: Program) -> Outputs:
    """Run once on copy 0, with memory that is only written poisoned first; leaves copy 0 restored."""
    gpu: Executor = program.gpu
    program.reset()
    for index in program.written:
        if index not in program.in_place:
            gpu.fill(program.memory.buffer(0, index), POISON)
    program.enqueue()
    gpu.synchronize()
    found = {i: gpu.read(program.memory.buffer(0, i)) for i in program.written}
    program.reset()
    return found


def disagreement(recording: Recording, expected: Outputs, actual: Outputs) -> str | None:
    """Where and by how much two runs of the same work differ; None if they agree."""
    atomics = any(launch.float_atomics for launch in recording.launches)
    for index, before in expected.items():
        after = actual.get(index, b"")
        if before != after:
            text = _difference(before, after, recording.storages[index].dtype, atomics)
            if text:
                return f"it wrote other values than the first candidate into storage {index} ({text})"
    return None


def _difference(before: bytes, after: bytes, dtype: str, atomics: bool) -> str | None:
    if len(before) != len(after):
        return f"{len(after)} bytes instead of {len(before)}"
    if dtype not in FLOATS and dtype != "bfloat16":
        wrong = int(np.count_nonzero(np.frombuffer(before, "u1") != np.frombuffer(after, "u1")))
        return f"{wrong} of {len(before)} bytes, dtype {dtype}"
    a, b = (decode_floats(x, dtype, wide=dtype == "float64") for x in (before, after))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return None
    finite = np.isfinite(a)
    scale = float(np.abs(a[finite & (np.abs(a) < 1e30)]).max(initial=0.0)) or 1.0
    limit = TOLERANCE[dtype] * scale * (ATOMIC_FACTOR if atomics else 1.0)
    with np.errstate(invalid="ignore", over="ignore"):
        off = ~same & ~(np.abs(a - b) <= limit)
    if not off.any():
        return None
    worst = int(np.argmax(off))
    return (
        f"{int(off.sum())} of {off.size} elements, first at {worst}: {b[worst]:.6g}, not {a[worst]:.6g}, dtype {dtype}"
    )
