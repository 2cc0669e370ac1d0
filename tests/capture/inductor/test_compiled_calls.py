"""Launches of compiled functions that a capture can't see."""

from __future__ import annotations

import pytest

from kerntune.capture.inductor.compiled_calls import CompiledCalls


@pytest.mark.parametrize("records", [True, False])
def test_a_package_is_missed_where_the_call_itself_runs_it(records: bool) -> None:
    """Not where an implementation of a choice does, while that is decided."""
    calls = CompiledCalls([], lambda: records)
    package = calls._package(lambda x: x + 1)
    assert package(1) == 2
    assert bool(calls.unseen) is records
