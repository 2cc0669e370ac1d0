"""Grids by their formulas: an axis a dimension, split reductions and scans, combo kernels.

A combo kernel is several independent kernels in one launch. The formulas are those of the classes of the same names in
torch 2.13.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

from kerntune.base.device import MAX_GRID_YZ
from kerntune.errors import GridError
from kerntune.grids.expr import Expr, Name, Scope, Term, add, as_expr, ceil_div, maximum, mul, names_in
from kerntune.grids.grid import (
    ONE,
    R0_BLOCK,
    R0_NUMEL,
    XBLOCK,
    XNUMEL,
    YBLOCK,
    YNUMEL,
    ZBLOCK,
    ZNUMEL,
    Axes,
    Grid,
    dimension,
)


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


class BatchMatmulGrid3D(Grid3D):
    """A 3-D grid whose batch (the kernel's x dimension) goes on z, so that neighbouring blocks share a batch."""

    @cached_property
    def axes(self) -> Axes:
        """(⌈z/Z⌉, ⌈y/Y⌉, ⌈x/X⌉)."""
        x, y, z = super().axes
        return z, y, x


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


RSPLIT, RSPLIT_SIZE, REQUIRED_XBLOCK = Name("RSPLIT"), Name("RSPLIT_SIZE"), Name("XBLOCK")
"""Blocks that these kernels require: they have no defaults."""


@dataclass(frozen=True)
class MixOrderReductionGrid(Grid):
    """A kernel that reduces rows and columns in one pass: each block walks ``RSPLIT_SIZE`` rows, ``XBLOCK`` at a time.

    ``XBLOCK`` must divide ``RSPLIT_SIZE``, else a block's last step would reach into the next block's rows.
    """

    xnumel: Term = XNUMEL
    rsplit_size: Term = RSPLIT_SIZE
    xblock: Term = REQUIRED_XBLOCK

    @cached_property
    def axes(self) -> Axes:
        """(⌈x/RSPLIT_SIZE⌉, 1, 1)."""
        return dimension(self.xnumel, self.rsplit_size), ONE, ONE

    @property
    def terms(self) -> tuple[Expr, ...]:
        """The axes, and the block that must divide ``RSPLIT_SIZE``."""
        return *self.axes, as_expr(self.xblock)

    def validate(self, values: Scope, *, complete: bool) -> None:
        """:class:`GridError` unless ``XBLOCK`` is there and divides ``RSPLIT_SIZE``."""
        size = known(self.rsplit_size, values, complete=complete)
        block = known(self.xblock, values, complete=complete)
        if size == 0 or block == 0:
            raise GridError(f"RSPLIT_SIZE is {size} and XBLOCK is {block}; both must be at least 1")
        if size is not None and block is not None and size % block:
            raise GridError(f"RSPLIT_SIZE {size} is no multiple of XBLOCK {block}; take a block that divides it")


@dataclass(frozen=True)
class CooperativeReductionGrid(Grid):
    """``RSPLIT`` blocks reduce one row block together; all of them must be resident (a cooperative launch)."""

    xnumel: Term = XNUMEL
    xblock: Term | None = XBLOCK
    rsplit: Term = RSPLIT

    @cached_property
    def axes(self) -> Axes:
        """(RSPLIT, ⌈x/X⌉, 1)."""
        return as_expr(self.rsplit), dimension(self.xnumel, self.xblock), ONE


@dataclass(frozen=True)
class SplitScanGrid(Grid):
    """x covers the scanned dimension, y has one block a row: ``XBLOCK`` must be 1."""

    xnumel: Term = XNUMEL
    r0_numel: Term = R0_NUMEL
    r0_block: Term | None = R0_BLOCK
    xblock: Term = XBLOCK

    @cached_property
    def axes(self) -> Axes:
        """(⌈r0/R0⌉, x, 1)."""
        return dimension(self.r0_numel, self.r0_block), as_expr(self.xnumel), ONE

    @property
    def terms(self) -> tuple[Expr, ...]:
        """The axes, and the block that must be 1."""
        return *self.axes, as_expr(self.xblock)

    def validate(self, values: Scope, *, complete: bool) -> None:
        """:class:`GridError` for an ``XBLOCK`` other than 1."""
        block = known(self.xblock, values, complete=complete)
        if block not in (None, 1):
            raise GridError(f"XBLOCK is {block}; a split scan takes one row a block, so it must be 1")


def known(term: Term, values: Scope, *, complete: bool) -> int | None:
    """A term's value; None while a value that it depends on may still be given."""
    expr = as_expr(term)
    if not complete and any(values.get(name.name) is None for name in names_in(expr)):
        return None
    return expr.evaluate(values)


@dataclass(frozen=True)
class ComboGridPart:
    """One kernel of a combo; ``no_x_dim`` means a block per element of x. Without ``ynumel`` it is 1-D."""

    xnumel: Term
    ynumel: Term | None = None
    no_x_dim: bool = False


@dataclass(frozen=True)
class ComboKernelGrid(Grid):
    """What the combo grids share.

    ``min_blocks`` is the least number of blocks on x, 0 for no minimum (Inductor, for static shapes: the largest
    minimum of any kernel times their number); ``defaults`` are block sizes for blocks that the config lacks, as pairs.
    :class:`GridError` for a combo without kernels.
    """

    kernels: tuple[ComboGridPart, ...]
    min_blocks: int = 0
    defaults: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if not self.kernels:
            raise GridError("a combo kernel's grid needs at least one kernel")

    @cached_property
    def axes(self) -> Axes:
        """(blocks of all kernels but at least ``min_blocks``, then y and z of the tallest)."""
        x = maximum(self.x_blocks(), self.min_blocks)
        heights = [kernel.ynumel for kernel in self.kernels if kernel.ynumel is not None]
        if not heights:
            return x, ONE, ONE
        return x, *split_over_yz(dimension(maximum(*heights), self.block(YBLOCK)))

    @abstractmethod
    def x_blocks(self) -> Expr:
        """The blocks on x, before ``min_blocks`` is applied."""

    def block(self, name: Name) -> Name:
        """A block's name with the default that this combo gives it."""
        return Name(name.name, dict(self.defaults).get(name.name, name.default))


class SequentialComboKernelGrid(ComboKernelGrid):
    """The kernels lie one after the other on x; y and z (shared, overflowing) cover the tallest."""

    def x_blocks(self) -> Expr:
        """The sum of each kernel's ⌈x/X⌉."""
        return add(*(dimension(k.xnumel, None if k.no_x_dim else self.block(XBLOCK)) for k in self.kernels))


class RoundRobinComboKernelGrid(ComboKernelGrid):
    """The kernels take turns on x, so each gets as many blocks as the widest; y and z as in the sequential grid."""

    def x_blocks(self) -> Expr:
        """Their number times the larger of the widest ``no_x_dim`` size and ⌈widest other size/X⌉."""
        widths = [kernel.xnumel for kernel in self.kernels if kernel.no_x_dim]
        others = [kernel.xnumel for kernel in self.kernels if not kernel.no_x_dim]
        if others:
            widths.append(dimension(maximum(*others), self.block(XBLOCK)))
        return mul(maximum(*widths), len(self.kernels))


class SequentialFlattenComboKernelGrid(ComboKernelGrid):
    """The kernels lie one after the other on x, each with blocks of its own and its y dimension folded into x.

    The blocks are ``XBLOCK_0``, ``YBLOCK_0`` for the first kernel and so on; y and z stay 1, so nothing overflows.
    """

    @cached_property
    def axes(self) -> Axes:
        """(blocks of all kernels but at least ``min_blocks``, 1, 1)."""
        return maximum(self.x_blocks(), self.min_blocks), ONE, ONE

    def x_blocks(self) -> Expr:
        """The sum of each kernel's ⌈x/X⌉ · ⌈y/Y⌉."""
        return add(*(self._area(i, kernel) for i, kernel in enumerate(self.kernels)))

    def _area(self, i: int, kernel: ComboGridPart) -> Expr:
        width = dimension(kernel.xnumel, None if kernel.no_x_dim else self.block(Name(f"XBLOCK_{i}", 1)))
        if kernel.ynumel is None:
            return width
        return mul(width, dimension(kernel.ynumel, self.block(Name(f"YBLOCK_{i}", 1))))
