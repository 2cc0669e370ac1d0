"""Launch grids: how many blocks a kernel is launched with.

Expressions over sizes and blocks, Inductor's grid classes, and the rendering of a grid as Python and C++ text. The
limits of devices, which a plain triple of numbers has too, are in :mod:`kerntune.base.grid_check`. No launch happens
here, and no config is chosen: that is :mod:`kerntune.heuristics`.
"""

from __future__ import annotations

from kerntune.base.grid_check import check_grid, grid_triple
from kerntune.base.grid_limits import GridLimits, grid_limits
from kerntune.grids.combo_grids import (
    ComboGridPart as SubKernel,
)
from kerntune.grids.combo_grids import (
    RoundRobinComboKernelGrid,
    SequentialComboKernelGrid,
    SequentialFlattenComboKernelGrid,
)
from kerntune.grids.expr import Name, add, ceil_div, maximum, minimum, mul
from kerntune.grids.fixed import FixedGrid, PrecomputedGrid
from kerntune.grids.fixed import GridChoice as Choice
from kerntune.grids.grid import BoundGrid, Grid
from kerntune.grids.plain import BatchMatmulGrid3D, Grid1D, Grid2D, Grid2DWithYZOverflow, Grid3D
from kerntune.grids.reductions import CooperativeReductionGrid, MixOrderReductionGrid, SplitScanGrid

__all__ = [
    "BatchMatmulGrid3D",
    "BoundGrid",
    "Choice",
    "CooperativeReductionGrid",
    "FixedGrid",
    "Grid",
    "Grid1D",
    "Grid2D",
    "Grid2DWithYZOverflow",
    "Grid3D",
    "GridLimits",
    "MixOrderReductionGrid",
    "Name",
    "PrecomputedGrid",
    "RoundRobinComboKernelGrid",
    "SequentialComboKernelGrid",
    "SequentialFlattenComboKernelGrid",
    "SplitScanGrid",
    "SubKernel",
    "add",
    "ceil_div",
    "check_grid",
    "grid_limits",
    "grid_triple",
    "maximum",
    "minimum",
    "mul",
]
