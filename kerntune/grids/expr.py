"""Expressions over sizes and blocks, which grid axes are made of, and their Python, C and C++ source."""

from __future__ import annotations

import keyword
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import index
from typing import Any, ClassVar, NamedTuple, Union

from kerntune.errors import GridError

Scope = Mapping[str, Any]


@dataclass(frozen=True)
class Const:
    """A whole number, 0 or more; :class:`GridError` for a negative one."""

    value: int

    def __post_init__(self) -> None:
        if self.value < 0:
            raise GridError(f"a grid expression holds {self.value}; sizes and blocks are 0 or more")

    def evaluate(self, scope: Scope) -> int:
        """The number itself."""
        return self.value


@dataclass(frozen=True)
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
        value = self.default if scope.get(self.name) is None else scope[self.name]
        if value is None:
            given = ", ".join(sorted(scope)) or "nothing"
            raise GridError(f"the grid needs {self.name}, which the launch doesn't give (it gives {given})")
        try:
            number = index(value)
        except TypeError:
            raise GridError(f"{self.name} is {value!r}, not an integer, so it can't size a grid") from None
        if number < 0:
            raise GridError(f"{self.name} is {number}; sizes and blocks are 0 or more")
        return number


@dataclass(frozen=True)
class CeilDiv:
    """``numel / block``, rounded up: the blocks that cover a size."""

    numel: Expr
    block: Expr

    def evaluate(self, scope: Scope) -> int:
        """Blocks that cover ``numel``; :class:`GridError` for a block below 1."""
        block = self.block.evaluate(scope)
        if block < 1:
            name = self.block.name if isinstance(self.block, Name) else "of the grid"
            raise GridError(f"block {name} is {block}; a block holds at least 1 element")
        return -(-self.numel.evaluate(scope) // block)


@dataclass(frozen=True)
class Combination:
    """What a subclass makes of its items, in any order."""

    items: tuple[Expr, ...]

    combine: ClassVar[Callable[..., int]]
    word: ClassVar[str]
    """The operator, or the name of the function, in all languages."""

    identity: ClassVar[int | None] = 0
    """What changes nothing, since no value is below 0."""

    extreme: ClassVar[bool] = False
    """Whether it is one of its items, of which it needs one at least."""

    def __post_init__(self) -> None:
        _require_items(type(self), self.items)

    def evaluate(self, scope: Scope) -> int:
        """The value of all items together; without items that of ``identity``."""
        return type(self).combine(item.evaluate(scope) for item in self.items)

    @classmethod
    def of(cls, *terms: Term) -> Expr:
        """The operation, folded: nested ones opened, constants combined into one at the end, repeats that change
        nothing and the identity dropped; what is left alone stands for itself."""
        _require_items(cls, terms)
        flat: list[Expr] = []
        for expr in map(as_expr, terms):
            flat.extend(expr.items if isinstance(expr, cls) else (expr,))
        rest: list[Expr] = [item for item in flat if not isinstance(item, Const)]
        rest = list(dict.fromkeys(rest)) if cls.extreme else rest
        numbers = [item.value for item in flat if isinstance(item, Const)]
        constant = cls.combine(numbers) if numbers else cls.identity
        if constant is not None and (not rest or constant != cls.identity):
            rest.append(Const(constant))
        return rest[0] if len(rest) == 1 else cls(tuple(rest))


def _require_items(kind: type[Combination], items: tuple[object, ...]) -> None:
    if kind.extreme and not items:
        raise GridError("a maximum or minimum needs at least one item")


class Add(Combination):
    """The sum of its items."""

    combine, word = sum, "+"


class Mul(Combination):
    """The product of its items."""

    combine, word, identity = math.prod, "*", 1


class Max(Combination):
    """The largest of its items (at least one)."""

    combine, word, extreme = staticmethod(max), "max", True


class Min(Combination):
    """The smallest of its items (at least one)."""

    combine, word, identity, extreme = staticmethod(min), "min", None, True


Expr = Union[Const, Name, CeilDiv, Combination]
Term = Union[Expr, int, str]
"""What public functions accept as an expression: a number, an argument's name, or an expression."""


def add(*terms: Term) -> Expr:
    """The sum, folded (:meth:`Combination.of`)."""
    return Add.of(*terms)


def mul(*terms: Term) -> Expr:
    """The product, folded."""
    return Mul.of(*terms)


def maximum(*terms: Term) -> Expr:
    """The largest, folded."""
    return Max.of(*terms)


def minimum(*terms: Term) -> Expr:
    """The smallest, folded."""
    return Min.of(*terms)


def as_expr(term: Term) -> Expr:
    """A term as an expression; :class:`GridError` if it is neither number, name nor expression."""
    if isinstance(term, (Const, Name, CeilDiv, Combination)):
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


def substitute(expr: Expr, values: Scope) -> Expr:
    """The expression with the names in ``values`` replaced by their numbers, and folded; ``{}`` only folds."""
    if isinstance(expr, Const):
        return expr
    if isinstance(expr, Name):
        return Const(expr.evaluate(values)) if values.get(expr.name) is not None else expr
    if isinstance(expr, CeilDiv):
        return ceil_div(substitute(expr.numel, values), substitute(expr.block, values))
    return expr.of(*(substitute(item, values) for item in expr.items))


def names_in(expr: Expr) -> frozenset[Name]:
    """Every name in an expression, with its default."""
    if isinstance(expr, Name):
        return frozenset({expr})
    if isinstance(expr, Const):
        return frozenset()
    children = (expr.numel, expr.block) if isinstance(expr, CeilDiv) else expr.items
    return frozenset().union(*(names_in(child) for child in children))


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


class _Language(NamedTuple):
    """How one language writes the operators whose spelling differs."""

    ceil_div: str
    extreme: Callable[[str, list[str]], str]


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
    match items:
        case [only] if expr.extreme:  # max(n) would iterate over n
            return only
        case []:
            return str(expr.identity)
    return language.extreme(expr.word, items) if expr.extreme else f"({f' {expr.word} '.join(items)})"


def _in_pairs(function: str, items: list[str]) -> str:
    first, *rest = items
    return f"{function}({first}, {_in_pairs(function, rest)})" if rest else first


def _python_name(name: Name, spelling: Spelling) -> str:
    text = spelling.get(name.name, name.name)
    if text in PYTHON_BUILTINS:
        raise GridError(f"an argument named {text} hides the builtin that the rendered grid calls; spell it otherwise")
    return text if text.isidentifier() else f"({text})"
