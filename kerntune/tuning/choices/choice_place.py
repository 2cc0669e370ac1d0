"""Where choices are decided and kept while tests are gated; without torch, since the plugin loads it."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from kerntune.base.policy import TuneMode
from kerntune.gpu.base import Backend
from kerntune.tuning.cache import WinnerCache


@dataclass(frozen=True)
class ChoicePlace:
    """The device, the store and the mode that are used, in place of torch's GPU, the user's cache and each choice's
    own mode."""

    backend: Backend
    cache: WinnerCache
    mode: TuneMode
    apart: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    """Entered while a choice is decided that a captured call has met: the device is not shared then, and no launch is
    the call's."""

    verify: str | None = None
    verify_ignore: tuple[str, ...] | None = None
    """What the gate has verified, of choices that don't say so themselves; None leaves it to the environment."""

    baseline: Callable[[], Mapping[str, str]] = dict
    """Which implementations the case's baseline has, by choice as in
    :attr:`kerntune.capture.launch.RecordedChoices.winners`: they win ties where no earlier winner is stored."""

    @property
    def rules(self) -> tuple[object, ...]:
        """What tells it from other places: what is decided in one isn't in another."""
        return str(self.cache.folder), self.mode, self.verify, self.verify_ignore


_places: list[ChoicePlace] = []
"""Of the whole process, not of a context: a GPU's backward functions run in a thread of torch's."""

OPERATIONS: weakref.WeakSet[Any] = weakref.WeakSet()
"""All choices of this process."""


def current_place() -> ChoicePlace | None:
    """Where choices are decided now; None outside of gated tests."""
    return _places[-1] if _places else None


@contextlib.contextmanager
def choices_at(place: ChoicePlace) -> Iterator[None]:
    """Decide there meanwhile. Every choice asks again for each key, so that a capture sees its calls, and so that
    nothing decided there is used elsewhere."""
    forget_prepared()
    _places.append(place)
    try:
        yield
    finally:
        _places.pop()
        forget_prepared()


def forget_prepared() -> None:
    """Have every choice look its next call up the long way."""
    for operation in list(OPERATIONS):
        operation.forget_prepared()


def decide_choice(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Decide a call of a choice, without making it; nothing for any other function."""
    operation: Any = getattr(fn, "operation", None)
    if any(operation is one for one in OPERATIONS):
        operation.winner_of(*args, **kwargs)
