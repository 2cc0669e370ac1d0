"""Which implementation each key of a choice goes to in this process, and who decides one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakValueDictionary

from kerntune.gpu.base import Backend
from kerntune.tuning.choices.choice_place import place_now
from kerntune.tuning.choices.deciding import Decision

GpuKind = tuple[str, str] | None
"""A GPU's target and its model's name; None where nothing can be timed."""


class KnownKeys:
    """By the kind of GPU and the text of a key an index among the implementations, and how it was found. What is
    decided for gated tests and what a program decides are kept apart: store and mode are others. What one kind of GPU
    has decided says nothing of another one in the same process."""

    def __init__(self) -> None:
        self._indices: dict[Hashable, int] = {}
        self._decisions: dict[Hashable, Decision] = {}

    def find(self, gpu: GpuKind, text: str) -> int | None:
        """The implementation, if it is known here."""
        return self._indices.get(_here(gpu, text))

    def find_outside(self, gpu: GpuKind, text: str) -> int | None:
        """The implementation that the program itself has decided for, wherever this is asked."""
        return self._indices.get((None, gpu, text))

    def keep(self, gpu: GpuKind, text: str, index: int) -> None:
        """It stays so, here."""
        self._indices[_here(gpu, text)] = index

    def tell(self, gpu: GpuKind, decision: Decision) -> None:
        """How a key was found here, last."""
        self._decisions[_here(gpu, decision.arguments)] = decision

    def told(self, gpu: GpuKind, text: str) -> Decision | None:
        """What :meth:`tell` was given of it."""
        return self._decisions.get(_here(gpu, text))

    def clear(self) -> None:
        """Nothing is known any more."""
        self._indices.clear()
        self._decisions.clear()


def _here(gpu: GpuKind, text: str) -> tuple[Hashable, GpuKind, str]:
    place = place_now()
    return (None if place is None else place.rules), gpu, text


def kind_of(backend: Backend | None) -> GpuKind:
    """The kind of a GPU as winners are stored by it."""
    return None if backend is None or backend.gpu is None else (str(backend.spec.target), backend.spec.name)


class KeyLocks:
    """One thread decides a key; others may decide other keys meanwhile, or wait for it. A lock lasts as long as a
    thread has it or waits for it."""

    def __init__(self, make: Callable[[], Any] = threading.RLock) -> None:
        self._make, self._guard = make, threading.Lock()
        self._locks: WeakValueDictionary[str, Any] = WeakValueDictionary()

    def of(self, text: str) -> AbstractContextManager[Any]:
        """The lock of a key, the same for all that ask while one of them has it."""
        with self._guard:
            found: AbstractContextManager[Any] = self._locks.setdefault(text, self._make())
            return found
