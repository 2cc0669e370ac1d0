"""Launch configs as pure decisions: what is known of a kernel and a device in, candidates out."""

from __future__ import annotations

from kerntune.heuristics.pointwise import pointwise
from kerntune.heuristics.presets import INDUCTOR_2_6, INDUCTOR_2_13, PRESETS, Preset

__all__ = ["INDUCTOR_2_6", "INDUCTOR_2_13", "PRESETS", "Preset", "pointwise"]
