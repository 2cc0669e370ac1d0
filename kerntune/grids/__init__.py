"""Launch grids: how many blocks a kernel is launched with.

Expressions over sizes and blocks, Inductor's grid classes, and the rendering of a grid as Python and C++ text. The
limits of devices, which a plain triple of numbers has too, are in :mod:`kerntune.base.grid_check`. No launch happens
here, and no config is chosen: that is :mod:`kerntune.heuristics`.
"""

from __future__ import annotations

from kerntune.base.grid_check import check_grid, grid_triple
from kerntune.grids.expr import Name, add, ceil_div, maximum, minimum, mul
from kerntune.grids.formulas import (
    BatchMatmulGrid3D,
    CooperativeReductionGrid,
    Grid1D,
    Grid2D,
    Grid2DWithYZOverflow,
    Grid3D,
    MixOrderReductionGrid,
    RoundRobinComboKernelGrid,
    SequentialComboKernelGrid,
    SequentialFlattenComboKernelGrid,
    SplitScanGrid,
)
from kerntune.grids.formulas import ComboGridPart as SubKernel
from kerntune.grids.grid import BoundGrid, FixedGrid, Grid, PrecomputedGrid
from kerntune.grids.grid import GridChoice as Choice

__all__ = [
    "BatchMatmulGrid3D", "BoundGrid", "Choice", "CooperativeReductionGrid", "FixedGrid", "Grid",
    "Grid1D", "Grid2D", "Grid2DWithYZOverflow", "Grid3D", "MixOrderReductionGrid", "Name",
    "PrecomputedGrid", "RoundRobinComboKernelGrid", "SequentialComboKernelGrid",
    "SequentialFlattenComboKernelGrid", "SplitScanGrid", "SubKernel", "add", "ceil_div",
    "check_grid", "grid_triple", "maximum", "minimum", "mul",
]  # fmt: skip
