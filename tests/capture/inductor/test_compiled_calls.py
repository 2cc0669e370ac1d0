"""Launches of compiled functions that a capture can't see."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from torch_warnings import ignore_torchs_own

from kerntune.capture.inductor.compiled_calls import CompiledCalls

pytestmark = ignore_torchs_own


@pytest.mark.parametrize("records", [True, False])
def test_a_package_is_missed_where_the_call_itself_runs_it(records: bool) -> None:
    """Not where an implementation of a choice does, while that is decided."""
    calls = CompiledCalls([], lambda: records)
    package = calls._package(lambda x: x + 1)
    assert package(1) == 2
    assert bool(calls.unseen) is records


@pytest.mark.parametrize("records", [True, False])
def test_a_graph_is_missed_where_the_call_itself_runs_it(records: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another thread of the program runs meanwhile is not the call's."""
    pytest.importorskip("torch")
    from torch._inductor.output_code import CompiledFxGraph

    monkeypatch.setattr(CompiledFxGraph, "__call__", lambda graph, inputs: inputs)
    calls, graph = CompiledCalls([], lambda: records), SimpleNamespace(source_code="async_compile.triton(...)")
    with contextlib.ExitStack() as stack:
        calls.install(stack)
        run: Any = CompiledFxGraph.__call__
        assert run(graph, [1]) == [1]
    assert bool(calls.unseen) is records
