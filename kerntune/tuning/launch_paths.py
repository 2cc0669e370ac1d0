"""Which tuners kerntune launches, and how: asked where a tuner is met that was made elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TunerEngine:
    """How a tuner launches: ``path.front(grid, *args, **kwargs)``, to be read at each call. ``keep``: its winners are
    on disk too."""

    path: Any
    keep: bool


class PlainPath:
    """A tuner that launches in its own way, as a path."""

    def __init__(self, tuner: Any) -> None:
        self._tuner = tuner

    def front(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """``kernel[grid](...)``."""
        return self._tuner[grid](*args, **kwargs)


Finder = Callable[[Any], "TunerEngine | None"]

_finders: list[Finder] = []


def find_engines_with(finder: Finder) -> Finder:
    """Ask a function too, from now on; a decorator."""
    _finders.append(finder)
    return finder


def engine_of(tuner: Any) -> TunerEngine | None:
    """How kerntune launches a tuner; None if it doesn't."""
    return next((found for find in _finders if (found := find(tuner)) is not None), None)
