"""Launch grids: how many blocks a kernel is launched with."""

from __future__ import annotations

from kerntune.grids.check import check_grid, grid_triple
from kerntune.grids.limits import GridLimits, grid_limits

__all__ = ["GridLimits", "check_grid", "grid_limits", "grid_triple"]
