"""Compiled functions: launches that a capture can't see, and the folders that are the gate's own meanwhile."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch_warnings import ignore_torchs_own

from kerntune.capture.inductor.compiled_calls import INDUCTOR, TRITON, CompiledCalls, gates_own_caches

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


# the folders of a capture on a GPU


def test_folders_are_the_gates_for_a_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INDUCTOR, "the user's")
    monkeypatch.delenv(TRITON, raising=False)
    with gates_own_caches(tmp_path, "triton's"):
        assert (os.environ[INDUCTOR], os.environ[TRITON]) == (str(tmp_path), "triton's")
    assert os.environ[INDUCTOR] == "the user's"
    assert TRITON not in os.environ


def test_what_inductor_sets_meanwhile_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(INDUCTOR, raising=False)
    monkeypatch.setenv(TRITON, "mine")
    with gates_own_caches(tmp_path, "triton's"):
        os.environ[TRITON] = "its own"
    assert INDUCTOR not in os.environ
    assert os.environ[TRITON] == "mine"


def test_a_folder_that_can_not_be_written_is_not_inductors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor would raise where it makes its first file."""
    monkeypatch.setenv(INDUCTOR, "the user's")
    (tmp_path / "file").touch()
    with gates_own_caches(tmp_path / "file" / "inductor", "triton's"):
        assert (os.environ[INDUCTOR], os.environ[TRITON]) == ("the user's", "triton's")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # a read-only file system, for root as well
    with gates_own_caches(tmp_path / "inductor", "triton's"):
        assert os.environ[INDUCTOR] == "the user's"
    assert not (tmp_path / "inductor").exists()
