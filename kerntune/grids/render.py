"""Grid expressions as Python, C and C++ source."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kerntune.errors import GridError
from kerntune.grids.expr import Add, CeilDiv, Const, Expr, Max, Min, Mul, Name

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
