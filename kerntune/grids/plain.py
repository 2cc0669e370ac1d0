"""Grids that give each dimension of a kernel an axis. Formulas: the classes of the same names in torch 2.13."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from kerntune.base.device import MAX_GRID_YZ
from kerntune.grids.expr import Expr, Term, ceil_div, maximum
from kerntune.grids.grid import ONE, XBLOCK, XNUMEL, YBLOCK, YNUMEL, ZBLOCK, ZNUMEL, Axes, Grid, dimension


@dataclass(frozen=True)
class Grid1D(Grid):
    """x covers one dimension: ``Grid1D("n_elements", "BLOCK")``. A block of None is one element."""

    xnumel: Term = XNUMEL
    xblock: Term | None = XBLOCK

    @cached_property
    def axes(self) -> Axes:
        """(⌈x/X⌉, 1, 1)."""
        return dimension(self.xnumel, self.xblock), ONE, ONE


@dataclass(frozen=True)
class Grid2D(Grid):
    """x and y each cover a dimension."""

    xnumel: Term = XNUMEL
    ynumel: Term = YNUMEL
    xblock: Term | None = XBLOCK
    yblock: Term | None = YBLOCK

    @cached_property
    def axes(self) -> Axes:
        """(⌈x/X⌉, ⌈y/Y⌉, 1)."""
        return dimension(self.xnumel, self.xblock), dimension(self.ynumel, self.yblock), ONE


@dataclass(frozen=True)
class Grid3D(Grid):
    """x, y and z each cover a dimension."""

    xnumel: Term = XNUMEL
    ynumel: Term = YNUMEL
    znumel: Term = ZNUMEL
    xblock: Term | None = XBLOCK
    yblock: Term | None = YBLOCK
    zblock: Term | None = ZBLOCK

    @cached_property
    def axes(self) -> Axes:
        """(⌈x/X⌉, ⌈y/Y⌉, ⌈z/Z⌉)."""
        return (
            dimension(self.xnumel, self.xblock),
            dimension(self.ynumel, self.yblock),
            dimension(self.znumel, self.zblock),
        )


@dataclass(frozen=True)
class BatchMatmulGrid3D(Grid3D):
    """A 3-D grid whose batch (the kernel's x dimension) goes on z, so that neighbouring blocks share a batch."""

    @cached_property
    def axes(self) -> Axes:
        """(⌈z/Z⌉, ⌈y/Y⌉, ⌈x/X⌉)."""
        return (
            dimension(self.znumel, self.zblock),
            dimension(self.ynumel, self.yblock),
            dimension(self.xnumel, self.xblock),
        )


@dataclass(frozen=True)
class Grid2DWithYZOverflow(Grid2D):
    """A 2-D grid whose y dimension may need more blocks than an axis holds: y and z share them.

    It overshoots by design: the kernel takes ``y + z * (size of y)`` as its block and masks what lies past the end.
    """

    @cached_property
    def axes(self) -> Axes:
        """(⌈x/X⌉, then :func:`split_over_yz` of ⌈y/Y⌉)."""
        return dimension(self.xnumel, self.xblock), *split_over_yz(dimension(self.ynumel, self.yblock))


def split_over_yz(blocks: Expr) -> tuple[Expr, Expr]:
    """``blocks`` on two axes of at most 65535: z = ⌈blocks/65535⌉, y = ⌈blocks/z⌉.

    ``y * z`` covers the blocks and overshoots by less than z: 131071 blocks are 43691 × 3. None give 0 × 0.
    """
    z = ceil_div(blocks, MAX_GRID_YZ)
    return ceil_div(blocks, maximum(z, 1)), z
