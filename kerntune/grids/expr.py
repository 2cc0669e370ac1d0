"""Expressions over sizes and blocks, which grid axes are made of, and their Python, C and C++ source."""

from __future__ import annotations

import keyword
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import index
from typing import Any, TypeVar, Union

from kerntune.errors import GridError

Scope = Mapping[str, Any]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Const:
    """A whole number, 0 or more; :class:`GridError` for a negative one."""

    value: int

    def __post_init__(self) -> None:
        if self.value < 0:
            raise GridError(f"a grid expression holds {self.value}; sizes and blocks are 0 or more")

    def evaluate(self, scope: Scope) -> int:
        """The number itself."""
        return self.value


@dataclass(frozen=True, slots=True)
class Name:
    """A size, block or other launch argument by name; ``default`` is its value where a launch doesn't give one.

    :class:`GridError` for a name that can't be that of an argument.
    """

    name: str
    default: int | None = None

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or keyword.iskeyword(self.name):
            raise GridError(f"{self.name!r} is no argument name; a grid expression holds identifiers only")

    def evaluate(self, scope: Scope) -> int:
        """The value under that name; :class:`GridError` if it is missing, no integer, or negative."""
        value = scope.get(self.name)
        if value is None:
            return self._missing(scope)
        try:
            number = index(value)
        except TypeError:
            raise GridError(f"{self.name} is {value!r}, not an integer, so it can't size a grid") from None
        if number < 0:
            raise GridError(f"{self.name} is {number}; sizes and blocks are 0 or more")
        return number

    def _missing(self, scope: Scope) -> int:
        if self.default is not None:
            return self.default
        given = ", ".join(sorted(scope)) or "nothing"
        raise GridError(f"the grid needs {self.name}, which the launch doesn't give (it gives {given})")


@dataclass(frozen=True, slots=True)
class CeilDiv:
    """``numel / block``, rounded up: the blocks that cover a size."""

    numel: Expr
    block: Expr

    def evaluate(self, scope: Scope) -> int:
        """Blocks that cover ``numel``; :class:`GridError` for a block below 1."""
        block = self.block.evaluate(scope)
        if block < 1:
            raise GridError(f"block {_label(self.block)} is {block}; a block holds at least 1 element")
        return -(-self.numel.evaluate(scope) // block)


@dataclass(frozen=True, slots=True)
class Add:
    """The sum of its items."""

    items: tuple[Expr, ...]

    def evaluate(self, scope: Scope) -> int:
        """The sum; 0 without items."""
        return sum(item.evaluate(scope) for item in self.items)


@dataclass(frozen=True, slots=True)
class Mul:
    """The product of its items."""

    items: tuple[Expr, ...]

    def evaluate(self, scope: Scope) -> int:
        """The product; 1 without items."""
        return math.prod(item.evaluate(scope) for item in self.items)


@dataclass(frozen=True, slots=True)
class Max:
    """The largest of its items (at least one)."""

    items: tuple[Expr, ...]

    def __post_init__(self) -> None:
        _some(self.items)

    def evaluate(self, scope: Scope) -> int:
        """The largest value."""
        return max(item.evaluate(scope) for item in self.items)


@dataclass(frozen=True, slots=True)
class Min:
    """The smallest of its items (at least one)."""

    items: tuple[Expr, ...]

    def __post_init__(self) -> None:
        _some(self.items)

    def evaluate(self, scope: Scope) -> int:
        """The smallest value."""
        return min(item.evaluate(scope) for item in self.items)


Expr = Union[Const, Name, CeilDiv, Add, Mul, Max, Min]
Term = Union[Expr, int, str]
"""What public functions accept as an expression: a number, an argument's name, or an expression."""

NODES = (Const, Name, CeilDiv, Add, Mul, Max, Min)


def as_expr(term: Term) -> Expr:
    """A term as an expression; :class:`GridError` if it is neither number, name nor expression."""
    if isinstance(term, NODES):
        return term
    if isinstance(term, str):
        return Name(term)
    try:
        return Const(index(term))
    except TypeError:
        raise GridError(
            f"{term!r} can't stand in a grid; write a number, an argument's name or an expression"
        ) from None


def ceil_div(numel: Term, block: Term) -> Expr:
    """``numel / block`` rounded up; a block of 1 leaves the size, two constants become one."""
    n, b = as_expr(numel), as_expr(block)
    if b == Const(1):
        return n
    node = CeilDiv(n, b)
    return Const(node.evaluate({})) if isinstance(n, Const) and isinstance(b, Const) else node


def add(*terms: Term) -> Expr:
    """The sum, its constants added up and a zero dropped."""
    items = _merged(Add, sum, terms, identity=0)
    return items[0] if len(items) == 1 else Add(items)


def mul(*terms: Term) -> Expr:
    """The product, its constants multiplied and a one dropped."""
    items = _merged(Mul, math.prod, terms, identity=1)
    return items[0] if len(items) == 1 else Mul(items)


def maximum(*terms: Term) -> Expr:
    """The largest, its constants merged, repeats and a zero dropped (no value is below 0)."""
    items = _merged(Max, max, _some(terms), identity=0, repeats=False)
    return items[0] if len(items) == 1 else Max(items)


def minimum(*terms: Term) -> Expr:
    """The smallest, its constants merged and repeats dropped."""
    items = _merged(Min, min, _some(terms), identity=None, repeats=False)
    return items[0] if len(items) == 1 else Min(items)


def substitute(expr: Expr, values: Scope) -> Expr:
    """The expression with the names in ``values`` replaced by their numbers, and folded; ``{}`` only folds."""
    if isinstance(expr, Const):
        return expr
    if isinstance(expr, Name):
        return Const(expr.evaluate(values)) if values.get(expr.name) is not None else expr
    if isinstance(expr, CeilDiv):
        return ceil_div(substitute(expr.numel, values), substitute(expr.block, values))
    fold: Callable[..., Expr] = _FOLDS[type(expr)]
    return fold(*(substitute(item, values) for item in expr.items))


def names_in(expr: Expr) -> frozenset[Name]:
    """Every name in an expression, with its default."""
    if isinstance(expr, Name):
        return frozenset({expr})
    if isinstance(expr, Const):
        return frozenset()
    children = (expr.numel, expr.block) if isinstance(expr, CeilDiv) else expr.items
    return frozenset().union(*(names_in(child) for child in children))


_FOLDS: dict[type, Callable[..., Expr]] = {Add: add, Mul: mul, Max: maximum, Min: minimum}


def _merged(
    node: type[Add | Mul | Max | Min],
    combine: Callable[[Iterable[int]], int],
    terms: Iterable[Term],
    *,
    identity: int | None,
    repeats: bool = True,
) -> tuple[Expr, ...]:
    """Items of a commutative node: nested ones opened, constants combined into one at the end, identity dropped."""
    flat: list[Expr] = []
    for expr in map(as_expr, terms):
        flat.extend(expr.items if isinstance(expr, node) else (expr,))
    rest: list[Expr] = [item for item in flat if not isinstance(item, Const)]
    numbers = [item.value for item in flat if isinstance(item, Const)]
    if not repeats:
        rest = list(dict.fromkeys(rest))
    constant = combine(numbers) if numbers else identity
    if constant is not None and (not rest or constant != identity):
        rest.append(Const(constant))
    return tuple(rest)


def _some(terms: tuple[T, ...]) -> tuple[T, ...]:
    if not terms:
        raise GridError("a maximum or minimum needs at least one item")
    return terms


def _label(expr: Expr) -> str:
    return expr.name if isinstance(expr, Name) else "of the grid"


Spelling = Mapping[str, str]
"""How the surrounding source spells a name: ``{"XBLOCK": "result.xblocks[0]"}``. Others are spelled as they are."""

PYTHON_BUILTINS = frozenset({"max", "min"})
"""The builtins that the rendering calls: an argument of that name would hide them."""


def to_python(expr: Expr, spelling: Spelling | None = None) -> str:
    """A Python expression of the same value, for any sizes of 0 or more and blocks of 1 or more."""
    return _render(expr, lambda name: _python_name(name, spelling or {}), _PYTHON)


def to_cpp(expr: Expr, spelling: Spelling | None = None) -> str:
    """A C++11 expression of the same value (``<algorithm>`` and ``<cstdint>`` needed).

    Every name is widened to ``int64_t``, so that it may be of any integer type; exact while no intermediate value
    reaches 2**63. Names may be negative or blocks zero only at the caller's risk: nothing is checked there.
    """
    return _render(expr, lambda name: f"int64_t({(spelling or {}).get(name.name, name.name)})", _CPP)


def to_c(expr: Expr, spelling: Spelling | None = None) -> str:
    """A C99 expression of the same value, as :func:`to_cpp`; a maximum or minimum calls :data:`C_HELPERS`."""
    return _render(expr, lambda name: f"((int64_t)({(spelling or {}).get(name.name, name.name)}))", _C)


C_HELPERS = """static inline int64_t grid_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t grid_min(int64_t a, int64_t b) { return a < b ? a : b; }
"""
"""What the C rendering of a maximum or a minimum calls."""


class _Language:
    """How one language writes the operators whose spelling differs."""

    def __init__(self, ceil_div: str, extreme: Callable[[str, list[str]], str]) -> None:
        self.ceil_div = ceil_div
        self.extreme = extreme


_PYTHON = _Language("(({n} + {b} - 1) // {b})", lambda name, items: f"{name}({', '.join(items)})")
_C = _Language("(({n} + ({b} - 1)) / {b})", lambda name, items: _in_pairs(f"grid_{name}", items))
_CPP = _Language("(({n} + ({b} - 1)) / {b})", lambda name, items: f"std::{name}<int64_t>({{{', '.join(items)}}})")


def _render(expr: Expr, spell: Callable[[Name], str], language: _Language) -> str:
    def text(child: Expr) -> str:
        return _render(child, spell, language)

    if isinstance(expr, Const):
        return str(expr.value)
    if isinstance(expr, Name):
        return spell(expr)
    if isinstance(expr, CeilDiv):
        return language.ceil_div.format(n=text(expr.numel), b=text(expr.block))
    items = [text(item) for item in expr.items]
    if isinstance(expr, (Max, Min)) and len(items) == 1:
        return items[0]  # Python's max(n) would iterate over n
    if isinstance(expr, (Max, Min)):
        return language.extreme("max" if isinstance(expr, Max) else "min", items)
    return _infix(expr, items)


def _in_pairs(function: str, items: list[str]) -> str:
    """A function of two arguments over many."""
    return items[0] if len(items) == 1 else f"{function}({items[0]}, {_in_pairs(function, items[1:])})"


def _infix(expr: Add | Mul, items: list[str]) -> str:
    sign, empty = ("+", "0") if isinstance(expr, Add) else ("*", "1")
    return f"({f' {sign} '.join(items)})" if items else empty


def _python_name(name: Name, spelling: Spelling) -> str:
    text = spelling.get(name.name, name.name)
    if text in PYTHON_BUILTINS:
        raise GridError(f"an argument named {text} hides the builtin that the rendered grid calls; spell it otherwise")
    return text if text.isidentifier() else f"({text})"
