"""The grids of one launch in a graph, remembered by the integers that the graph hands over.

A call of a grid function takes 2 to 3 µs, most of it for the dictionary of all arguments that it gets; Inductor works a
grid out in the launcher's own code. A remembered grid is a tuple, and holds while the call's winner is the config that
it was made for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple

from kerntune.grids.grid import Grid
from kerntune.kernels import compat

MAX_REMEMBERED = 4096
"""Grids of one launch; at the limit all are dropped."""


class Remembered(NamedTuple):
    """A grid, and the config that it holds for."""

    key: tuple[Any, ...]
    config: Any
    grid: tuple[int, ...]


@dataclass(eq=False)
class GridMemo:
    """The grids of one tuner's launches; ``fixed`` are the arguments that can't differ among calls with equal
    integers."""

    tuner: Any
    fixed: frozenset[str]
    known: dict[tuple[int, ...], Remembered] = field(default_factory=dict)

    def find(self, ints: tuple[int, ...]) -> tuple[int, ...] | None:
        """The grid of a call, if the winner is still the config that it was made for."""
        found = self.known.get(ints)
        if found is None or self.tuner.cache.get(found.key) is not found.config:
            return None
        return found.grid

    def noting(self, grid: Callable[[Any], Any], ints: tuple[int, ...]) -> Callable[[Any], Any]:
        """The grid function itself, which also remembers what it gives for the call's winner."""
        if hasattr(self.tuner, "tuning_key") or not is_pure(grid):
            return grid

        def noted(meta: Mapping[str, Any]) -> Any:
            config, key = self._winner(meta)
            if config is None:
                return grid(meta)
            seen = NotingMapping(meta)
            try:
                made = tuple(grid(seen))
            except Exception:  # a grid that needs a dictionary
                return grid(meta)
            if seen.read <= self.fixed | set(config.kwargs):
                self._keep(ints, Remembered(key, config, made))
            return made

        return noted

    def _winner(self, meta: Mapping[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        """The config that has won for a launch, and its key; None where the launch is of another: a trial."""
        arguments = {name: meta[name] for name in self.tuner.arg_names if name in meta}
        config_names = set(self.tuner.configs[0].kwargs) if self.tuner.configs else set()
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


def is_pure(grid: Any) -> bool:
    """Whether a grid is a function of its argument and what it closes over, which is made anew with other integers. One
    that reads a global number, or calls a function of the user's, may answer otherwise each time."""
    if isinstance(grid, Grid):
        return True
    if not isinstance(grid, FunctionType):
        return False
    named = [grid.__globals__[name] for name in grid.__code__.co_names if name in grid.__globals__]
    closed = [cell.cell_contents for cell in grid.__closure__ or ()]
    closed = [value for value in closed if type(value) is not int]
    nested = any(hasattr(constant, "co_code") for constant in grid.__code__.co_consts)
    return not nested and all(map(_is_steady, [*named, *closed]))


def _is_steady(value: Any) -> bool:
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0] in PURE_MODULES
    if isinstance(value, (FunctionType, BuiltinFunctionType, type)) or callable(value):
        return str(getattr(value, "__module__", "")).partition(".")[0] in PURE_MODULES
    return False
