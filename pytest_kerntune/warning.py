"""The warning category of verdicts."""

from __future__ import annotations

import pytest


class KerntuneWarning(pytest.PytestWarning):
    """What a person should look at but fails no test: a verdict (DRIFTED, INCONCLUSIVE, NEW, INCOMPLETE), and what
    static rules that warn have found, one warning a case.

    ``filterwarnings = error::pytest_kerntune.warning.KerntuneWarning`` makes them failures.
    """
