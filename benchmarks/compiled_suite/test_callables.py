"""The suite that ``benchmarks/compiled_callables.py`` runs: a test for each of the twenty functions."""

from __future__ import annotations

import os
from typing import Any

import pytest
from callables import CASES, EDITS, made

EDIT = os.environ.get("CALLABLES_EDIT", "")
"""The name of an edit; the other functions stay as they are."""

assert not EDIT or EDIT in EDITS, f"CALLABLES_EDIT is {EDIT!r}, which is none of {', '.join(EDITS)}"


@pytest.mark.parametrize("case", CASES)
def test_compiled(case: str, autotune: Any) -> None:
    function, args = made(case, EDIT)
    autotune(function, *args)
