"""Where choices are decided and kept while tests are gated; without torch, since the plugin loads it."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
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


_places: list[ChoicePlace] = []
"""Of the whole process, not of a context: a GPU's backward functions run in a thread of torch's."""

OPERATIONS: weakref.WeakSet[Any] = weakref.WeakSet()
"""All choices of this process."""


def place_now() -> ChoicePlace | None:
    """Where choices are decided now; None outside of gated tests."""
    return _places[-1] if _places else None


@contextlib.contextmanager
def choices_at(place: ChoicePlace) -> Iterator[None]:
    """Decide there meanwhile. Every choice asks again for each key, so that a capture sees its calls."""
    for operation in list(OPERATIONS):
        operation.forget_prepared()
    _places.append(place)
    try:
        yield
    finally:
        _places.pop()


def decide_choice(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Decide a call of a choice, without making it; nothing for any other function."""
    operation: Any = getattr(fn, "operation", None)
    if any(operation is one for one in OPERATIONS):
        operation.winner_of(*args, **kwargs)
