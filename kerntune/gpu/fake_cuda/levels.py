"""The levels up to which a test body runs on stand-ins."""

from __future__ import annotations

import enum


class Level(enum.Enum):
    """The effect of reading a value that a stand-in doesn't have."""

    FIRST_VALUE = "first-value"
    """The first read ends the body; kernels launched after a comparison (most backward kernels) are not recorded."""
    COMPARISONS_PASS = "comparisons-pass"
    """Comparisons pass, so that the body continues; reads of other values (``.item()``) still end it."""
