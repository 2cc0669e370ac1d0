"""Kernels in Python and tuning by a rule, for the tests of compiled functions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from compiled_runs import Runs, in_python


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    """What compiled functions launch."""
    with in_python(monkeypatch) as found:
        yield found
