"""Grids from other forms: a text that a user writes, and a Python grid function followed with names for numbers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kerntune.errors import GridError
from kerntune.grids.expr import Const, Expr, Name, Term, add, as_expr, ceil_div, maximum, minimum, mul
from kerntune.grids.grid import FixedGrid, Grid

CALLS: Mapping[str, Callable[..., Expr]] = {
    "cdiv": ceil_div, "ceil_div": ceil_div, "min": minimum, "minimum": minimum, "max": maximum, "maximum": maximum,
}  # fmt: skip
"""What a text may call; a module before the name (``triton.cdiv``) is ignored."""

OPERATORS: Mapping[type, Callable[..., Expr]] = {ast.Add: add, ast.Mult: mul}

ALLOWED = "names, whole numbers, +, *, cdiv(a, b), min(...), max(...)"


def grid_of_text(text: str) -> FixedGrid:
    """``cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N), batch`` as a grid of one to three axes, for the names of arguments.

    :class:`GridError` for what a grid expression can't be; nothing of the text is executed.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise GridError(f"{text!r} is no grid; write one to three expressions of {ALLOWED}") from None
    axes = tree.elts if isinstance(tree, ast.Tuple) else [tree]
    if not 1 <= len(axes) <= 3:
        raise GridError(f"{text!r} has {len(axes)} axes; a grid has one to three")
    return FixedGrid(*(_read(axis, text) for axis in axes))


def _read(node: ast.expr, text: str) -> Expr:
    if isinstance(node, ast.Name):
        return Name(node.id)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Const(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_read(node.left, text), _read(node.right, text))
    if isinstance(node, ast.Call) and not node.keywords:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in CALLS:
            return CALLS[name](*(_read(arg, text) for arg in node.args))
    raise GridError(f"{ast.unparse(node)!r} can't stand in a grid; write {ALLOWED}")


def traced(function: Any, fixed: Mapping[str, Any], open_names: Collection[str], opaque: Collection[str]) -> Grid:
    """A launch's grid as an expression: ``function`` is a :class:`Grid`, a tuple, or a function of the arguments.

    A function is called once, with the ``fixed`` values, and a stand-in for each of the ``open_names``, whose sums,
    products and rounded-up quotients (``triton.cdiv``) are followed. :class:`GridError` for any other use of those, and
    for any use of the ``opaque`` names (tensors), whose shapes a launch from C doesn't have.
    """
    if isinstance(function, Grid):
        return function
    if not callable(function):
        return FixedGrid(*function)
    meta = {**fixed, **{name: Traced(Name(name)) for name in open_names}}
    found = function({**meta, **{name: _Opaque(name) for name in opaque}})
    axes = found if isinstance(found, (tuple, list)) else (found,)
    return FixedGrid(*(axis.expr() if isinstance(axis, Traced) else axis for axis in axes))


@dataclass(frozen=True, eq=False)  # else it would have a hash after all
class Traced:
    """The stand-in for a number: ``term`` plus ``offset``."""

    term: Term
    offset: int = 0

    def expr(self) -> Expr:
        """The expression; :class:`GridError` for one that may be negative."""
        if self.offset < 0:
            raise _untraceable(f"subtracts {-self.offset}")
        return add(self.term, self.offset)

    def __add__(self, other: Any) -> Traced:
        if isinstance(other, Traced):
            return Traced(add(self.term, other.term), self.offset + other.offset)
        return Traced(self.term, self.offset + int(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Traced:
        if isinstance(other, Traced):
            raise _untraceable("subtracts an argument")
        return self + -int(other)

    def __mul__(self, other: Any) -> Traced:
        return Traced(mul(self.expr(), other.expr() if isinstance(other, Traced) else int(other)))

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Traced:
        """Of a size plus the divisor less one only: that is the quotient, rounded up."""
        if isinstance(other, Traced) or self.offset != int(other) - 1:
            raise _untraceable("divides by anything but a rounding up")
        return Traced(ceil_div(as_expr(self.term), int(other)))

    def _refused(self, *args: Any) -> Any:
        raise _untraceable("compares or converts an argument")

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __bool__ = __int__ = __index__ = __float__ = _refused
    __truediv__ = __rtruediv__ = __rfloordiv__ = __rsub__ = __mod__ = __rmod__ = __neg__ = __pow__ = _refused
    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class _Opaque:
    """The stand-in for a tensor."""

    _name: str

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raise _untraceable(f"asks the tensor {self._name} for its {attribute}")


def _untraceable(what: str) -> GridError:
    return GridError(f"the grid function {what}, which can't be followed: write the grid as text, of {ALLOWED}")
