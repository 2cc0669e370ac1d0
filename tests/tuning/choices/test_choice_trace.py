"""Choices in graphs of ``torch.compile``: the decided implementation is traced, and what is not decided is said."""

from __future__ import annotations

import contextlib
import operator
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import kerntune
from kerntune import capture as captures
from kerntune.base.policy import TuneMode
from kerntune.capture.launch import RecordedChoices
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.choices import choice_place
from kerntune.tuning.choices.choice_place import ChoicePlace, choices_at
from kerntune.tuning.choices.decided_keys import DecidedKeys, traced_call


def doubled(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * 2


def added(x: torch.Tensor, n: int) -> torch.Tensor:
    return x + x


class Graphs:
    """A backend of ``torch.compile`` that keeps the graphs' arithmetic by name: torch 2.15 leaves sizes, which it has
    guarded, as ``getitem`` in the graph, though nothing uses them."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def __call__(self, graph: Any, examples: Any) -> Any:
        functions = [n.target for n in graph.graph.nodes if n.op == "call_function"]
        self.seen.append([getattr(f, "__name__", str(f)) for f in functions if f is not operator.getitem])
        return graph


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def decided(n: int) -> Any:
    """Both implementations, of which ``added`` is decided for ``n`` numbers."""
    double: Any = kerntune.choice([doubled, added], key=["x"])(lambda x, n: None)
    operation = double.operation
    values = {"x": torch.ones(n), "n": 1}
    operation.known.keep(None, operation.key_text(values), 1)
    return double


@pytest.mark.slow
def test_the_decided_one_is_in_the_graph() -> None:
    double, graphs = decided(4), Graphs()
    compiled = torch.compile(lambda x: double(x, 1) - 1, backend=graphs, fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled(torch.ones(4)).tolist() == [1.0] * 4
    assert graphs.seen == [["add", "sub"]]


@pytest.mark.slow
def test_what_is_not_decided_is_the_first_and_it_is_said() -> None:
    double, graphs = decided(4), Graphs()
    compiled = torch.compile(lambda x: double(x, 1), backend=graphs, fullgraph=True)
    with pytest.warns(RuntimeWarning, match="called undecided: torch.compile traces it"):
        compiled(torch.ones(5))
    assert graphs.seen == [["mul"]]


def test_sizes_in_the_key_are_guarded_where_graphs_are_dynamic() -> None:
    double, graphs = decided(4), Graphs()
    compiled = torch.compile(lambda x, n: double(x, n), backend=graphs, fullgraph=True, dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled(torch.ones(5), 2)
        compiled(torch.ones(4), 3)
    assert graphs.seen == [["mul"], ["add"]]


def test_sizes_that_are_not_in_the_key_stay_dynamic() -> None:
    found: list[Any] = []

    def find(values: Any) -> int:
        found.append(values)
        return 1

    traced: Callable[..., Any] = traced_call({"x": False, "n": False}, (doubled, added), find)
    graphs = Graphs()
    compiled = torch.compile(lambda x, n: traced(x, n), backend=graphs, fullgraph=True, dynamic=True)
    for n in (4, 6, 9):
        assert compiled(torch.ones(n), n).tolist() == [2.0] * n
    assert len(graphs.seen) == len(found) == 1


@pytest.fixture
def gated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """What a gated test's capture has of its choices. No race is possible there."""
    recording = SimpleNamespace(choices=RecordedChoices())
    monkeypatch.setattr(captures, "current", lambda: recording)
    backend: Any = SimpleNamespace(gpu=None, ordinal=0)
    with choices_at(ChoicePlace(backend, WinnerCache(tmp_path), TuneMode.AUTO)):
        yield recording.choices


def test_what_a_gated_test_traces_undecided_is_in_its_report(gated: RecordedChoices) -> None:
    double: Any = kerntune.choice([doubled, added], key=["x"])(lambda x, n: None)
    compiled = torch.compile(lambda x: double(x, 1), backend=Graphs(), fullgraph=True)
    with pytest.warns(RuntimeWarning, match="called undecided: torch.compile traces it"):
        compiled(torch.ones(4))
    assert [name.rpartition(".")[2] for name in gated.winners.values()] == ["doubled"]
    assert "doubled (undecided)" in gated.texts[0]


def test_what_a_gated_test_traces_is_what_the_program_has_decided(gated: RecordedChoices) -> None:
    """A call of it in the test, before autotune(...), is enough where the gate can decide nothing itself."""
    double, graphs = decided(4), Graphs()
    operation = double.operation
    assert operation.known.find(None, operation.key_text({"x": torch.ones(4), "n": 1})) is not None
    operation.known = DecidedKeys()
    with choices_nowhere():
        operation.known.keep(None, operation.key_text({"x": torch.ones(4), "n": 1}), 1)
    compiled = torch.compile(lambda x: double(x, 1), backend=graphs, fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(torch.ones(4))
    assert graphs.seen == [["add"]]
    assert "added (decided by the program)" in gated.texts[0]


@contextlib.contextmanager
def choices_nowhere() -> Iterator[None]:
    """Outside of gated tests."""
    places, choice_place._places[:] = list(choice_place._places), []
    try:
        yield
    finally:
        choice_place._places[:] = places
