"""Tells the user of damage in the cache: each line once a process."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable

_said: set[str] = set()


def report_damage(lines: Iterable[str]) -> None:
    """Warn of entries that were set aside or can't be read. Where warnings are errors, the line goes to the standard
    error stream instead: a damaged cache never ends a run."""
    for line in lines:
        if line in _said:
            continue
        _said.add(line)
        text = f"kerntune's cache: {line}; what it held is found anew"
        try:
            warnings.warn(text, RuntimeWarning, stacklevel=3)
        except RuntimeWarning:
            print(text, file=sys.stderr)
