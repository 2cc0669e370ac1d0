"""Attributes that are replaced temporarily and restored exactly."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

_ABSENT = object()


class Replacements(contextlib.ExitStack):
    """An exit stack that knows which attributes were replaced on it, so that they can be put back for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[Any, str, Any]] = []
        """Owner, name and what was there before, in the order in which they were replaced."""

    @contextlib.contextmanager
    def lifted(self) -> Iterator[None]:
        """Every attribute as it was before: for an import of code that keeps what it finds."""
        values = [vars(owner).get(name, _ABSENT) for owner, name, _ in self.made]
        for owner, name, before in reversed(self.made):
            _put_back(owner, name, before)
        try:
            yield
        finally:
            for (owner, name, _), value in zip(self.made, values, strict=True):
                _put_back(owner, name, value)


def replace(stack: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    """Set ``owner.name`` to ``value`` until ``stack`` closes.

    The attribute is restored as it was: a static method as a static method, an inherited attribute as inherited.
    """
    before = vars(owner).get(name, _ABSENT)
    setattr(owner, name, value)
    stack.callback(_put_back, owner, name, before)
    if isinstance(stack, Replacements):
        stack.made.append((owner, name, before))


def replace_known(stack: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    """:func:`replace`, but only what this version of ``owner`` has: a stub never adds a name that torch lacks."""
    if hasattr(owner, name):
        replace(stack, owner, name, value)


def _put_back(owner: Any, name: str, before: Any) -> None:
    if before is _ABSENT:
        if name in vars(owner):
            delattr(owner, name)
    else:
        setattr(owner, name, before)
