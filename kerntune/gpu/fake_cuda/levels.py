"""How far a test body may run on stand-ins."""

from __future__ import annotations

import enum


class Level(enum.Enum):
    """What happens to a question about values that a stand-in does not have."""

    FIRST_VALUE = "first-value"
    """The first question ends the body; kernels launched after a comparison (most backward kernels) stay unseen."""
    COMPARISONS_PASS = "comparisons-pass"
    """Comparisons pass, so that the body goes on; questions with an open answer (``.item()``) still end it."""
