"""Grids of kernels that split a reduction or scan. Formulas: the classes of the same names in torch 2.13."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from kerntune.errors import GridError
from kerntune.grids.expr import Expr, Name, Scope, Term, as_expr, names_in
from kerntune.grids.grid import ONE, R0_BLOCK, R0_NUMEL, XBLOCK, XNUMEL, Axes, Grid, dimension

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
