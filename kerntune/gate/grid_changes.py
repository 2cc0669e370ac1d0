"""How many programs two launches of a kernel have, and what that comes to: work, bytes, the share of the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from kerntune.base.device import DeviceSpec
from kerntune.base.formatting import format_bytes
from kerntune.gate.static_figures import LaunchStatic, LaunchStatics, in_both
from kerntune.static.code_rules import Draft, change, moved_bytes, number

ARROW = " -> "
"""What stands between a text before and one after."""


def resident(launch: LaunchStatic, spec: DeviceSpec) -> float | None:
    """The share of the device's threads (0 to 1) that a launch has at a time: its occupancy, or less where it has too
    few programs for that."""
    if launch.metrics.occupancy is None:
        return None
    threads = prod(launch.grid) * launch.metrics.threads
    return min(launch.metrics.occupancy, threads / (spec.sm_count * spec.max_threads_per_sm))


def more_programs(before: LaunchStatic, after: LaunchStatic, threshold: float) -> Iterator[Draft]:
    """More programs than another tile explains."""
    old, new = prod(before.grid), prod(after.grid)
    # How many times as many the config's change may make: half the tile, twice the programs; four times the splits,
    # four times as many. Whatever a changed number is for, it doesn't explain more than its factor.
    changed = before.setting_changes(after).values()
    pairs = [(int(was), int(now)) for was, now in changed if _is_number(was) and _is_number(now)]
    explained = prod((max(p) / min(p) for p in pairs if min(p) > 0), start=1.0)
    if old and new > old * (1 + threshold) * explained:
        shapes = f"{shape(before.grid)}{ARROW}{shape(after.grid)}"
        text = f"{new / old:.3g} times as many programs: {change(old, new)} (grid {shapes})"
        yield Draft("fail", "grid", old, new, text, "grid")


def accessed_bytes(before: LaunchStatic, after: LaunchStatic, threshold: float) -> Iterator[Draft]:
    """Many more bytes that all programs of a launch ask for. That is known of a kernel without loops alone; what a mask
    leaves out counts, and each access counts, wherever it is answered."""
    sides = [before, after]
    if not all("straight_line" in x.metrics.instructions for x in sides):
        return
    if any(kind in x.metrics.instructions for x in sides for kind in ("tma", "tensor_core")):
        return  # hidden behind these
    old, new = (prod(x.grid) * x.metrics.threads * moved_bytes(x.metrics) for x in sides)
    if old and new > old * (1 + threshold):
        text = f"all programs together load and store {new / old:.3g} times as many bytes: " + (
            f"{format_bytes(old)}{ARROW}{format_bytes(new)} (grid {shape(before.grid)}{ARROW}{shape(after.grid)}, "
            f"{change(moved_bytes(before.metrics), moved_bytes(after.metrics))} bytes a thread)"
        )
        yield Draft("fail", "accessed_bytes", old, new, text, "work")


FEW_THREADS = 0.5
"""The share of a device's threads below which a launch is said to leave it idle, and what must be left of its share
before. Of the 15 edits of the corpus that do so, an H200 runs 11 slower, 2 as fast and 2 faster."""


def idle_device(before: LaunchStatic, after: LaunchStatic, spec: DeviceSpec | None) -> Iterator[Draft]:
    """Too few programs, or too small ones, to fill the device as before: a warning at most."""
    if spec is None:
        return
    old, new = resident(before, spec), resident(after, spec)
    if old is None or new is None or new > old * FEW_THREADS or new >= FEW_THREADS:
        return
    if new < (after.metrics.occupancy or 0.0):
        text = f"the launch has fewer of the device's threads at a time: {old:.1%}{ARROW}{new:.1%}, all its programs"
        yield Draft("warn", "resident", old, new, text, "occupancy")


def _is_number(value: str) -> bool:
    """Whether a setting is a number of 64 bits at most; a file may hold any text."""
    return value.isdecimal() and len(value) < 20


def shape(grid: Sequence[int]) -> str:
    """``1,024x8x1``."""
    return "x".join(number(n) for n in grid)


def fewer_programs(before: LaunchStatics, after: LaunchStatics) -> Iterator[str]:
    """A sentence for each launch of the same code in fewer programs than before, each once: on the same arguments it
    may leave work out."""
    texts = (
        f"fewer programs of the same code: {new.kernel}, grid {shape(old.grid)}{ARROW}{shape(new.grid)}; "
        "whether they do all of the work is not known without a GPU"
        for _, old, new in in_both(before, after)
        if old.code == new.code and prod(new.grid) < prod(old.grid)
    )
    yield from dict.fromkeys(texts)
