"""The grids of one launch in a graph, remembered by the integers that the graph hands over.

A call of a grid function takes 2 to 3 µs, most of it for the dictionary of all arguments that it gets; Inductor works a
grid out in the launcher's own code. A remembered grid is a tuple, and holds while the call's winner is the config that
it was made for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from kerntune.grids.grid import Grid
from kerntune.kernels import compat

MAX_REMEMBERED = 4096
"""Grids of one launch; at the limit all are dropped."""


class GlobalRead(NamedTuple):
    """A global name that a grid reads, and the object that it had."""

    scope: dict[str, Any]
    name: str
    value: Any

    def __repr__(self) -> str:
        return f"GlobalRead({self.name})"


class Remembered(NamedTuple):
    """A grid, the config that it holds for, and the globals that it was made of."""

    key: tuple[Any, ...]
    config: Any
    grid: tuple[int, ...]
    reads: tuple[GlobalRead, ...]


@dataclass(eq=False)
class GridMemo:
    """The grids of one tuner's launches; ``fixed`` are the arguments that can't differ among calls with equal
    integers. ``layouts``: tensors' strides can't differ either, on which a heuristic's winner depends."""

    tuner: Any
    fixed: frozenset[str]
    layouts: bool = False
    known: dict[tuple[int, ...], Remembered] = field(default_factory=dict)

    def finder(self, otherwise: Callable[[tuple[int, ...]], Any]) -> Callable[..., Any]:
        """``f(*ints)``: the grid of a call, if the winner is still the config that it was made for and no global has
        changed; else what ``otherwise(ints)`` gives. It runs at each launch: one function, few look-ups."""
        remembered, tuner = self.known.get, self.tuner

        def find(*ints: int) -> Any:
            found = remembered(ints)
            if found is not None:
                key, config, grid, reads = found
                if tuner.cache.get(key) is config:
                    for scope, name, value in reads:
                        if scope.get(name) is not value:
                            return otherwise(ints)
                    return grid
            return otherwise(ints)

        return find

    def noting(self, grid: Callable[[Any], Any], ints: tuple[int, ...]) -> Callable[[Any], Any]:
        """The grid function itself, which also remembers what it gives for the call's winner."""
        if (hasattr(self.tuner, "tuning_key") and not self.layouts) or reads_of(grid) is None:
            return grid

        def noted(meta: Mapping[str, Any]) -> Any:
            config, key = self._winner(meta)
            if config is None:
                return grid(meta)
            seen, reads = NotingMapping(meta), reads_of(grid)
            try:
                made = tuple(grid(seen))
            except Exception:  # a grid that needs a dictionary
                return grid(meta)
            if reads is not None and seen.read <= self.fixed | set(config.kwargs):
                self._keep(ints, Remembered(key, config, made, reads))
            return made

        return noted

    def _winner(self, meta: Mapping[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        """The config that has won for a launch, and its key; None where the launch is of another: a trial."""
        arguments = {name: meta[name] for name in self.tuner.arg_names if name in meta}
        listed = self.tuner.variety() if hasattr(self.tuner, "tuning_key") else self.tuner.configs
        config_names = set(listed[0].kwargs) if listed else set()
        key = compat.autotuner_key(self.tuner, {k: v for k, v in arguments.items() if k not in config_names}, {})
        config = self.tuner.cache.get(key)
        if config is None or any(meta.get(name) != value for name, value in config.kwargs.items()):
            return None, key
        return config, key

    def _keep(self, ints: tuple[int, ...], found: Remembered) -> None:
        if len(self.known) >= MAX_REMEMBERED:
            self.known.clear()
        self.known[ints] = found


class NotingMapping(Mapping[str, Any]):
    """A launch's arguments, and which of them were read."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values, self.read = values, set[str]()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        self.read.update(self._values)
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


PURE_MODULES = ("triton", "math", "builtins", "operator")
"""Modules whose functions a grid may call and still be a function of its argument alone."""


VALUES = (int, float, str, bool, type(None))
"""Types of globals of which a grid may be made: another value is another object."""


def reads_of(grid: Any) -> tuple[GlobalRead, ...] | None:
    """The globals that a grid is made of, besides its argument and the integers that it closes over, with which it is
    made anew. None where it may answer otherwise each time: it reads what can change in place, or calls it."""
    if isinstance(grid, Grid):
        return ()
    found: dict[tuple[int, str], GlobalRead] = {}
    return tuple(found.values()) if isinstance(grid, FunctionType) and _read(grid, found, closed=True) else None


def _read(function: FunctionType, found: dict[tuple[int, str], GlobalRead], closed: bool) -> bool:
    """Add what a function reads, and the functions that it calls; whether all of it is known. Cells of the grid's own
    function are made with it (``closed``), those of another can be bound anew."""
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    if held and not closed:
        return False
    for value in held:
        if type(value) is not int and not _is_steady(value) and not _is_read(value, found):
            return False
    scope = function.__globals__
    for name in _names(function.__code__):
        if name not in scope or _is_steady(value := scope[name]) or (id(scope), name) in found:
            continue
        found[id(scope), name] = GlobalRead(scope, name, value)
        if type(value) not in VALUES and not _is_read(value, found):
            return False
    return True


def _is_read(value: Any, found: dict[tuple[int, str], GlobalRead]) -> bool:
    """Whether it is a function of the user's, read in its turn; its defaults are no constants."""
    plain = isinstance(value, FunctionType) and not value.__defaults__ and not value.__kwdefaults__
    return plain and _read(value, found, closed=False)


def _names(code: CodeType) -> Iterator[str]:
    """The global names of code and of what is nested in it; attributes' names are among them."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_steady(value: Any) -> bool:
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0] in PURE_MODULES
    if isinstance(value, (FunctionType, BuiltinFunctionType, type)) or callable(value):
        return str(getattr(value, "__module__", "")).partition(".")[0] in PURE_MODULES
    return False
