"""The warning category of verdicts."""

from __future__ import annotations

import pytest


class KerntuneWarning(pytest.PytestWarning):
    """A verdict that a person should look at but that fails no test: DRIFTED, INCONCLUSIVE, NEW, INCOMPLETE.

    ``filterwarnings = error::pytest_kerntune.warning.KerntuneWarning`` makes them failures.
    """
