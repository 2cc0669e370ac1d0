"""Tells the user of damage in the cache: each line once a process."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable

from kerntune.base.formatting import visible

_said: set[str] = set()


def report_damage(lines: Iterable[str]) -> None:
    """Warn of entries that were set aside or can't be read."""
    for line in lines:
        if line in _said:
            continue
        _said.add(line)
        tell_user(f"kerntune's cache: {line}; what it held is found anew", stacklevel=4)


def tell_user(text: str, stacklevel: int = 3) -> None:
    """Warn of what must never end a user's call: of a folder or a store. Where warnings are errors, on the standard
    error stream."""
    shown = visible(text)
    try:
        warnings.warn(shown, RuntimeWarning, stacklevel=stacklevel)
    except RuntimeWarning:
        print(shown, file=sys.stderr)
