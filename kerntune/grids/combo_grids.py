"""Grids of combo kernels: several independent kernels in one launch. Formulas: torch 2.13, classes of these names."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

from kerntune.errors import GridError
from kerntune.grids.expr import Expr, Name, Term, add, maximum, mul
from kerntune.grids.grid import ONE, XBLOCK, YBLOCK, Axes, Grid, dimension
from kerntune.grids.plain import split_over_yz


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


@dataclass(frozen=True)
class SequentialComboKernelGrid(ComboKernelGrid):
    """The kernels lie one after the other on x; y and z (shared, overflowing) cover the tallest."""

    def x_blocks(self) -> Expr:
        """The sum of each kernel's ⌈x/X⌉."""
        return add(*(dimension(k.xnumel, None if k.no_x_dim else self.block(XBLOCK)) for k in self.kernels))


@dataclass(frozen=True)
class RoundRobinComboKernelGrid(ComboKernelGrid):
    """The kernels take turns on x, so each gets as many blocks as the widest; y and z as in the sequential grid."""

    def x_blocks(self) -> Expr:
        """Their number times the larger of the widest ``no_x_dim`` size and ⌈widest other size/X⌉."""
        widths = [kernel.xnumel for kernel in self.kernels if kernel.no_x_dim]
        others = [kernel.xnumel for kernel in self.kernels if not kernel.no_x_dim]
        if others:
            widths.append(dimension(maximum(*others), self.block(XBLOCK)))
        return mul(maximum(*widths), len(self.kernels))


@dataclass(frozen=True)
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
