"""A launch grid: three expressions, and what can be done with them.

Some grids have no formula of sizes and blocks. They are given as numbers, or computed per config beforehand.

A text that a user writes becomes a grid, and a Python grid function, followed with names for numbers.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kerntune.base.config import DEFAULT_NUM_WARPS, Scalar
from kerntune.base.device import DeviceSpec
from kerntune.base.grid_check import Triple, check_grid
from kerntune.errors import GridError
from kerntune.grids import expr
from kerntune.grids.expr import (
    Const,
    Expr,
    Name,
    Scope,
    Term,
    add,
    as_expr,
    ceil_div,
    maximum,
    minimum,
    mul,
    names_in,
    substitute,
)

Axes = tuple[Expr, Expr, Expr]

ONE = Const(1)

XNUMEL, YNUMEL, ZNUMEL, R0_NUMEL = Name("xnumel"), Name("ynumel"), Name("znumel"), Name("r0_numel")
XBLOCK, YBLOCK, ZBLOCK, R0_BLOCK = Name("XBLOCK", 1), Name("YBLOCK", 1), Name("ZBLOCK", 1), Name("R0_BLOCK", 1)
"""Sizes and blocks as Inductor names them. A config without a block means a block of one element (``GridExpr.ceildiv``
of torch 2.13), so these have a default. A name that a user gives has none, and it is an error if it is missing."""


class Grid(ABC):
    """A launch grid over sizes and blocks, usable as a Triton grid: ``kernel[grid](...)`` calls it with the arguments.

    Subclasses say what the axes are. Values are numbers of blocks; every grid is immutable.
    """

    @property
    @abstractmethod
    def axes(self) -> Axes:
        """The expressions of x, y and z."""

    @property
    def terms(self) -> tuple[Expr, ...]:
        """Every expression that the grid depends on: the axes, and what :meth:`validate` checks."""
        return self.axes

    def select(self, config: Scope, *, complete: bool) -> Axes:
        """The axes for these values; overridden only by grids that depend on the whole config
        (:class:`~kerntune.grids.PrecomputedGrid`)."""
        return self.axes

    def validate(self, values: Scope, *, complete: bool) -> None:
        """Raises :class:`GridError` for values that this grid forbids; ``complete``: nothing more will be given."""
        return

    def __call__(self, meta: Scope) -> Triple:
        """The grid for a launch's arguments and constexprs; limits of devices are not checked.

        Raises :class:`GridError` for a missing, negative or non-integer size, or a block below 1.
        """
        self.validate(meta, complete=True)
        x, y, z = self.select(meta, complete=True)
        return x.evaluate(meta), y.evaluate(meta), z.evaluate(meta)

    def resolve(
        self,
        meta: Scope,
        *,
        kernel: str,
        spec: DeviceSpec,
        num_ctas: int = 1,
        num_warps: int = DEFAULT_NUM_WARPS,
    ) -> Triple:
        """The grid of a launch, known to fit the device; every :class:`GridError` names the kernel."""
        try:
            triple = self(meta)
        except GridError as error:
            raise GridError(f"kernel {kernel}: {error}") from error
        return check_grid(triple, kernel=kernel, spec=spec, num_ctas=num_ctas, num_warps=num_warps)

    def bind(self, values: Scope) -> BoundGrid:
        """The grid with some sizes and blocks fixed, and folded; the others stay names."""
        return self._bound(self._given(values), complete=False)

    def specialize(self, config: Scope) -> BoundGrid:
        """As :meth:`bind` with a complete config: a block that the config lacks is fixed to one element."""
        defaults = {name.name: name.default for name in self._all_names() if name.default is not None}
        return self._bound({**defaults, **self._given(config)}, complete=True)

    @property
    def names(self) -> frozenset[str]:
        """The arguments that matter to the grid."""
        return frozenset(name.name for name in self._all_names())

    @property
    def constant(self) -> Triple | None:
        """The grid as numbers if no axis depends on a name, else None; raises the :class:`GridError` of a call."""
        return self({}) if all(isinstance(axis, Const) for axis in self.folded) else None

    def to_python(self, spelling: expr.Spelling | None = None) -> tuple[str, str, str]:
        """Python expressions of x, y and z; ``spelling`` maps names to the source's own."""
        return self._rendered(expr.to_python, spelling)

    def to_cpp(self, spelling: expr.Spelling | None = None) -> tuple[str, str, str]:
        """C++11 expressions of x, y and z, each an ``int64_t`` or a literal (see ``grids.expr.to_cpp``)."""
        return self._rendered(expr.to_cpp, spelling)

    def to_c(self, spelling: expr.Spelling | None = None) -> tuple[str, str, str]:
        """C99 expressions of x, y and z, each an ``int64_t`` or a literal (see ``grids.expr.to_c``)."""
        return self._rendered(expr.to_c, spelling)

    def _rendered(self, render: Callable[..., str], spelling: expr.Spelling | None) -> tuple[str, str, str]:
        x, y, z = (render(axis, spelling) for axis in self.folded)
        return x, y, z

    @property
    def folded(self) -> Axes:
        """The axes with their constants worked out."""
        x, y, z = (substitute(axis, {}) for axis in self.axes)
        return x, y, z

    def _all_names(self) -> frozenset[Name]:
        return frozenset().union(*(names_in(term) for term in self.terms))

    def _given(self, values: Scope) -> dict[str, Any]:
        return {name: values[name] for name in self.names if values.get(name) is not None}

    def _bound(self, values: Scope, *, complete: bool) -> BoundGrid:
        self.validate(values, complete=False)
        x, y, z = (substitute(axis, values) for axis in self.select(values, complete=complete))
        return BoundGrid((x, y, z), self, tuple(sorted(values.items())))


@dataclass(frozen=True)
class BoundGrid(Grid):
    """A grid with some values fixed. A launch must agree with them and with the rules of the original grid."""

    bound_axes: Axes
    origin: Grid
    values: tuple[tuple[str, Any], ...]

    @property
    def axes(self) -> Axes:
        """The folded expressions of x, y and z."""
        return self.bound_axes

    @property
    def terms(self) -> tuple[Expr, ...]:
        """The axes, and the terms of the original grid that aren't constant."""
        values = dict(self.values)
        return *self.bound_axes, *(substitute(term, values) for term in self.origin.terms)

    def validate(self, values: Scope, *, complete: bool) -> None:
        """Check the rules of the original grid on all values; :class:`GridError` also if a launch contradicts a fixed
        value."""
        for name, fixed in self.values:
            given = values.get(name)
            if given is not None and given != fixed:
                raise GridError(f"the grid was bound to {name}={fixed}, but the launch gives {name}={given}")
        self.origin.validate({**values, **dict(self.values)}, complete=complete)


def dimension(numel: Term, block: Term | None) -> Expr:
    """The number of blocks that cover one dimension; without a block size each block is one element."""
    return ceil_div(numel, 1 if block is None else block)


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
    _name: str

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raise _untraceable(f"asks the tensor {self._name} for its {attribute}")


def _untraceable(what: str) -> GridError:
    return GridError(f"the grid function {what}, which can't be followed: write the grid as text, of {ALLOWED}")
