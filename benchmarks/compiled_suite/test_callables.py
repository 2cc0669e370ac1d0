"""The suite that ``benchmarks/compiled_callables.py`` runs: a test for each of the twenty functions."""

from __future__ import annotations

import os
from typing import Any

import pytest
from callables import CASES, EDITS, made

CHOSEN = [name for name in os.environ.get("CALLABLES_EDITS", "").split(";") if name]
"""Names of edits; the other functions stay as they are."""

assert set(CHOSEN) <= set(EDITS), f"CALLABLES_EDITS has {CHOSEN}: only {', '.join(EDITS)} exist"


@pytest.mark.parametrize("case", CASES)
def test_compiled(case: str, autotune: Any) -> None:
    function, args = made(case, CHOSEN)
    autotune(function, *args)
