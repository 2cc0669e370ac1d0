"""Shared by the tests of dispatch."""

from __future__ import annotations

import pytest
from triton import knobs


@pytest.fixture(autouse=True)
def nobody_set_a_knob(monkeypatch: pytest.MonkeyPatch) -> None:
    """A knob that another test set and put back is still a set one, and the C front leaves those calls to Python."""
    for group in (knobs.runtime, knobs.compilation):
        for name in list(vars(group)):
            monkeypatch.delitem(vars(group), name)
