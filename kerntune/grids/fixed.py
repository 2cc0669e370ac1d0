"""Grids that no formula of sizes and blocks gives: given as numbers, or computed per config beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from kerntune.base.config import Scalar
from kerntune.errors import GridError
from kerntune.grids.expr import Expr, Scope, Term, as_expr
from kerntune.grids.grid import Axes, Grid

GRID_ARGUMENTS = ("_grid_0", "_grid_1", "_grid_2")
"""Names under which Inductor's launchers take a grid as three further arguments (``FixedGrid.setup_grid_as_args``)."""


@dataclass(frozen=True)
class FixedGrid(Grid):
    """A grid given as numbers, or as arguments of the launch."""

    x: Term
    y: Term = 1
    z: Term = 1

    @cached_property
    def axes(self) -> Axes:
        """(x, y, z) as given."""
        return as_expr(self.x), as_expr(self.y), as_expr(self.z)

    @classmethod
    def from_arguments(cls) -> FixedGrid:
        """The grid that a launcher receives as three separate arguments."""
        return cls(*GRID_ARGUMENTS)


@dataclass(frozen=True)
class GridChoice:
    """The grid of one config: ``config`` are the values that a launch must have to get it."""

    config: tuple[tuple[str, Scalar], ...]
    grid: FixedGrid

    @classmethod
    def of(cls, config: Mapping[str, Scalar], x: Term, y: Term = 1, z: Term = 1) -> GridChoice:
        """A choice from a plain mapping and axes."""
        return cls(tuple(sorted(config.items())), FixedGrid(x, y, z))

    def matches(self, values: Scope) -> bool:
        """Whether a launch has all the values of this choice; it may have others too."""
        return all(values.get(name) == value for name, value in self.config)


@dataclass(frozen=True)
class PrecomputedGrid(Grid):
    """A grid per config, the first that matches; for kernels whose grid is known only as the outcome of user code."""

    choices: tuple[GridChoice, ...]

    @property
    def axes(self) -> Axes:
        """The axes of a single choice without conditions; otherwise :class:`GridError`: bind a config first."""
        return self.select({}, complete=False)

    @property
    def terms(self) -> tuple[Expr, ...]:
        """The axes of every choice."""
        return tuple(axis for choice in self.choices for axis in choice.grid.axes)

    @property
    def names(self) -> frozenset[str]:
        """The arguments in any choice's grid, and those that choose."""
        return super().names | {name for choice in self.choices for name, _ in choice.config}

    def select(self, config: Scope, *, complete: bool) -> Axes:
        """The axes of the first choice that matches.

        Raises :class:`GridError` if none does, or if an earlier one could still match because a value isn't given yet.
        """
        for choice in self.choices:
            if choice.matches(config):
                return choice.grid.axes
            missing = [name for name, value in choice.config if config.get(name) is None]
            if missing and not complete:
                raise GridError(f"the grid depends on {', '.join(missing)}: bind a config first")
        known = "; ".join(", ".join(f"{k}={v}" for k, v in choice.config) for choice in self.choices)
        given = ", ".join(f"{name}={config[name]}" for name in sorted(self.names & config.keys())) or "nothing"
        raise GridError(f"no grid was computed for {given}; there is one for: {known}")
