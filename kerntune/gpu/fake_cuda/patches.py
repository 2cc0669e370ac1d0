"""Attributes that are replaced temporarily and restored exactly."""

from __future__ import annotations

import contextlib
from typing import Any

_ABSENT = object()


def replace(stack: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    """Set ``owner.name`` to ``value`` until ``stack`` closes.

    The attribute is restored as it was: a static method as a static method, an inherited attribute as inherited.
    """
    before = vars(owner).get(name, _ABSENT)
    setattr(owner, name, value)
    stack.callback(_put_back, owner, name, before)


def replace_known(stack: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    """:func:`replace`, but only what this version of ``owner`` has: a stub never adds a name that torch lacks."""
    if hasattr(owner, name):
        replace(stack, owner, name, value)


def _put_back(owner: Any, name: str, before: Any) -> None:
    if before is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, before)
