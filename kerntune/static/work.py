"""Whether the same work takes many more instructions, and whether anything hides them.

The same work means per byte that a thread moves. Accesses are in the code as often as the instructions around them, so
the number of iterations and unrolling cancel. A kernel that waits for memory has free issue slots, so more instructions
are reported as a loss only where they exceed those: else a fused activation would be one.
"""

from __future__ import annotations

from collections.abc import Iterator

from kerntune.static.access_width import moved_bytes
from kerntune.static.finding import Draft, change, percent
from kerntune.static.metrics import StaticMetrics

ISSUED_PER_BYTE = 6.0
"""Instructions that a thread may issue per byte it moves while it waits for DRAM: 4 schedulers of 32 lanes a
cycle over 20 bytes a cycle and multiprocessor of an H200 (A100 12.8, H100 9, B200 4.3; data sheets)."""

SLOTS_PER_BYTE = 64.0
"""Tensor core slots (:func:`kerntune.static.instructions.nvidia_classes`: two for a 16-bit multiply-add) per byte from
L2 under which a matrix product waits for memory: half of the 4,096 slots over 32 bytes that a multiprocessor of sm_90
does in a cycle, since neither reaches its full rate."""

FURTHER_SLOTS = {"mufu": 7, "convert": 1, "shared_load": 3, "shared_store": 3}
"""Issue slots that an instruction of a class takes beyond one: of a multiprocessor's 128 lanes, 16 for special
functions, 64 for conversions, 32 for shared memory (CUDA C++ Programming Guide, "Arithmetic Instructions", sm_80 to
sm_100)."""


def heavier(before: StaticMetrics, after: StaticMetrics, threshold: float) -> Iterator[Draft]:
    """Findings where the same work takes more than the share ``threshold`` more of issue slots, or of tensor cores."""
    yield from _issue(before, after, threshold)
    yield from _matrix(before, after, threshold)


def _issue(before: StaticMetrics, after: StaticMetrics, threshold: float) -> Iterator[Draft]:
    if any(kind in m.instructions for kind in ("tensor_core", "tma") for m in (before, after)):
        return  # hidden behind the tensor cores, which have rules of their own; or the bytes aren't known
    if after.instructions.get("slow_path", 0) > before.instructions.get("slow_path", 0):
        return  # code that ordinary arguments don't execute
    moved = moved_bytes(before), moved_bytes(after)
    old, new = issue_slots(before), issue_slots(after)
    if not all(moved) or not old:
        return
    more = min(new / old, new / moved[1] / (old / moved[0])) - 1
    if more > threshold and new / moved[1] > ISSUED_PER_BYTE:
        per = f"{old / moved[0]:,.1f} -> {new / moved[1]:,.1f} per byte that a thread moves"
        counted = change(before.instructions.get("total", 0), after.instructions.get("total", 0))
        slots = f"{change(old, new)} slots{percent(old, new)} for {counted} instructions in the code"
        yield Draft(
            "fail", "issue_slots", old, new, f"the same work takes many more issue slots: {per} ({slots})", "work"
        )


def _matrix(before: StaticMetrics, after: StaticMetrics, threshold: float) -> Iterator[Draft]:
    old, new = (m.instructions.get("tensor_core_slots", 0) * _lanes(m) for m in (before, after))
    moved = moved_bytes(before) * before.threads, moved_bytes(after) * after.threads
    if not old or not new or new <= old * (1 + threshold):
        return
    if all(moved) and (new / moved[1] <= old / moved[0] * (1 + threshold) or new / moved[1] < SLOTS_PER_BYTE):
        return
    if not all(moved) and before.instructions.get("tma", 0) != after.instructions.get("tma", 0):
        return  # another number of tiles: unrolled, or another product as well
    told = f"{change(old, new)} slots{percent(old, new)}"
    text = f"the same work takes tensor cores longer: {told}; look for operands of a wider type, or more products"
    yield Draft("fail", "tensor_core_slots", old, new, text, "work")


def issue_slots(metrics: StaticMetrics) -> int:
    """Slots of the schedulers that a thread's instructions take, loops once."""
    counts = metrics.instructions
    return counts.get("total", 0) + sum(counts.get(kind, 0) * more for kind, more in FURTHER_SLOTS.items())


def _lanes(metrics: StaticMetrics) -> float:
    """How often a block executes a tensor core instruction: once per warp, or per warpgroup of four warps."""
    grouped = metrics.instructions.get("warpgroup_mma", 0) == metrics.instructions.get("tensor_core", 0)
    return metrics.threads / (128 if grouped else 32)
