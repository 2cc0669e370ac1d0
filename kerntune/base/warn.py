"""What is said to the user beside results: Python's warnings."""

from __future__ import annotations

import warnings


def warn(text: str) -> None:
    """A RuntimeWarning of the line that has called the caller of this."""
    warnings.warn(text, RuntimeWarning, stacklevel=3)
