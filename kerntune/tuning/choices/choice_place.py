"""Where choices are decided and kept while tests are gated; without torch, since the plugin loads it."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
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


PLACE: ContextVar[ChoicePlace | None] = ContextVar("PLACE", default=None)
"""Where choices are decided now; None outside of gated tests."""

OPERATIONS: weakref.WeakSet[Any] = weakref.WeakSet()
"""All choices of this process."""


@contextlib.contextmanager
def choices_at(place: ChoicePlace) -> Iterator[None]:
    """Decide there meanwhile. Every choice asks again for each key, so that a capture sees its calls."""
    for operation in list(OPERATIONS):
        operation.forget_prepared()
    token = PLACE.set(place)
    try:
        yield
    finally:
        PLACE.reset(token)


def decide_choice(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Decide a call of a choice, without making it; nothing for any other function."""
    operation: Any = getattr(fn, "operation", None)
    if any(operation is one for one in OPERATIONS):
        operation.winner_of(*args, **kwargs)
