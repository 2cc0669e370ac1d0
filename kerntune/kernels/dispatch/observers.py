"""What watches every launch of tuned kernels; while nothing does, prepared launches don't ask."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class ObservedLaunch:
    """A launch that is about to be made: the tuner, its key of the call, the config, and the call's arguments with the
    grid among the keywords."""

    tuner: Any
    key: Any
    config: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return str(self.tuner.base_fn.__name__)

    @property
    def named(self) -> dict[str, Any]:
        """All arguments by name, the config's too."""
        given = dict(zip(self.tuner.arg_names, self.args, strict=False))
        return {**given, **self.kwargs, **self.config.all_kwargs()}

    @property
    def grid(self) -> tuple[int, ...] | None:
        """The number of blocks; None where the grid function needs what only Triton computes at the launch."""
        grid = self.kwargs.get("grid")
        try:
            found = grid(self.named) if callable(grid) else grid
            return tuple(int(n) for n in (found if isinstance(found, (tuple, list)) else (found,)))
        except Exception:  # a user's function: Triton's own call of it decides what happens
            return None


class Observer(Protocol):
    """Something that watches launches."""

    def launch(self, seen: ObservedLaunch, run: Callable[[], Any]) -> Any:
        """Make the launch, ``run()``, exactly once, and return its result."""


class Droppable(Protocol):
    """A tuner's prepared launches."""

    def drop(self) -> None:
        """Drop all of them."""


_LOCK = threading.Lock()
_observers: tuple[Observer, ...] = ()
_paths: weakref.WeakSet[Any] = weakref.WeakSet()


def observers() -> tuple[Observer, ...]:
    """Those that watch now; while there are any, every launch takes the long way and none is prepared."""
    return _observers


def register(path: Droppable) -> None:
    """A tuner's launches that an observer will have to see."""
    _paths.add(path)


def watch(observer: Observer) -> None:
    """From now on ``observer`` sees every launch: what is prepared is dropped, also what users have stored."""
    global _observers
    with _LOCK:
        _observers = (*_observers, observer)
        paths = list(_paths)
    for path in paths:
        path.drop()


def unwatch(observer: Observer) -> None:
    """From now on it sees none; the next launch of each kind is prepared again."""
    global _observers
    with _LOCK:
        _observers = tuple(o for o in _observers if o is not observer)
