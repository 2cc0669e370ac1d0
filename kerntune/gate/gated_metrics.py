"""Static figures that a policy gates on a GPU: those of today's launches against the baseline's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from kerntune.base.formatting import format_share, format_size
from kerntune.gate.static_figures import LaunchStatic, paired
from kerntune.static.metrics import StaticMetrics

FIGURES: dict[str, tuple[str, Callable[[StaticMetrics], int]]] = {
    "registers": ("a thread", lambda m: m.registers),
    "spills": ("bytes a thread", lambda m: m.spill_store_bytes + m.spill_load_bytes),
    "shared_memory": ("bytes a block", lambda m: m.shared_bytes),
    "binary_size": ("bytes", lambda m: m.code_bytes),
    "instructions": ("in the code", lambda m: m.instructions.get("total", 0)),
}
"""Of each metric that :data:`kerntune.base.policy.METRIC_TOLERANCES` names: its unit, and where it is found. A binary's
size is that of its machine code: the file around it changes with a path."""


def exceeded(
    before: Sequence[LaunchStatic], after: Sequence[LaunchStatic], limits: Mapping[str, float]
) -> tuple[str, ...]:
    """A sentence for each launch and metric that grew by more than its share. Launches are paired by kernel; one that
    the baseline doesn't have is held against nothing."""
    found = []
    for index, (old, new) in enumerate(paired(before, after)):
        if old is not None and new is not None and old.code != new.code:
            found += [f"launch {index} ({new.kernel}): {text}" for text in _grown(old.metrics, new.metrics, limits)]
    return tuple(found)


def _grown(old: StaticMetrics, new: StaticMetrics, limits: Mapping[str, float]) -> Iterator[str]:
    for name, limit in limits.items():
        unit, figure = FIGURES[name]
        before, after = figure(old), figure(new)
        if after > before * (1 + limit):
            grown = f"{format_share(after / before - 1)}, " if before else ""
            yield f"{name} {before:,} -> {after:,} {unit} ({grown}{format_size(limit)} allowed)"
