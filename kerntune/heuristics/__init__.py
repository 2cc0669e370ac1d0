"""Launch configs as pure decisions: what is known of a kernel and a device in, candidates out."""

from __future__ import annotations

from kerntune.heuristics.cooperative import cooperative_reduction, rsplit
from kerntune.heuristics.persistent import persistent_reduction
from kerntune.heuristics.pointwise import pointwise
from kerntune.heuristics.presets import INDUCTOR_2_6, INDUCTOR_2_13, PRESETS, Preset
from kerntune.heuristics.reduction import reduction
from kerntune.heuristics.scan import split_scan

__all__ = [
    "INDUCTOR_2_6",
    "INDUCTOR_2_13",
    "PRESETS",
    "Preset",
    "cooperative_reduction",
    "persistent_reduction",
    "pointwise",
    "reduction",
    "rsplit",
    "split_scan",
]
