"""Forwarding of modules that have moved: earlier names work, with a DeprecationWarning that gives the new one."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any


def forward(old: str, new: str) -> Callable[[str], Any]:
    """A module's ``__getattr__`` that looks names up in ``new``, with a DeprecationWarning at the line that uses the
    name.

    Both are dotted module names. A name that ``new`` lacks is an AttributeError of ``old``.
    """

    def lookup(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        module = importlib.import_module(new)
        if not hasattr(module, name):
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        warnings.warn(f"{old}.{name} has moved: import it from {new}", DeprecationWarning, stacklevel=2)
        return getattr(module, name)

    return lookup
