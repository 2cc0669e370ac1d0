"""Grids of :mod:`kerntune.grids` as plain functions, which torch's tracers follow without settling any size."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from kerntune.errors import GridError
from kerntune.grids.expr import Add, CeilDiv, Const, Expr, Max, Min, Mul, Name
from kerntune.grids.fixed import PrecomputedGrid
from kerntune.grids.grid import Grid

Meta = Mapping[str, Any]
GridOfMeta = Callable[[Meta], Any]


def as_function(grid: Grid) -> GridOfMeta:
    """A grid as a function of a launch's arguments. What a grid checks of its values is checked where it is called
    outside of graphs: here sizes may be symbols."""
    if not isinstance(grid, PrecomputedGrid):
        return _triple(grid.axes)
    choices = [(choice.config, _triple(choice.grid.axes)) for choice in grid.choices]

    def chosen(meta: Meta) -> Any:
        for config, triple in choices:
            if all(meta.get(name) == value for name, value in config):
                return triple(meta)
        raise GridError("no grid was computed for these arguments")

    return chosen


def _triple(axes: tuple[Expr, Expr, Expr]) -> GridOfMeta:
    x, y, z = map(_function, axes)
    return lambda meta: (x(meta), y(meta), z(meta))


def _function(expr: Expr) -> GridOfMeta:
    if isinstance(expr, Const):
        number = expr.value
        return lambda meta: number
    if isinstance(expr, Name):
        name, default = expr.name, expr.default
        return (lambda meta: meta[name]) if default is None else (lambda meta: meta.get(name, default))
    if isinstance(expr, CeilDiv):
        numel, block = _function(expr.numel), _function(expr.block)
        return lambda meta: -(-numel(meta) // block(meta))
    items = [_function(item) for item in expr.items]
    fold = _FOLDS[type(expr)]
    return lambda meta: fold([item(meta) for item in items])


_FOLDS: dict[type, Callable[[list[Any]], Any]] = {Add: sum, Mul: math.prod, Max: max, Min: min}
