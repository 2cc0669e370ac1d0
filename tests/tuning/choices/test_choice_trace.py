"""Choices in graphs of ``torch.compile``: the decided implementation is traced, and what is not decided is said."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kerntune
from kerntune.tuning.choices.choice_trace import traced_call


def doubled(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * 2


def added(x: torch.Tensor, n: int) -> torch.Tensor:
    return x + x


class Graphs:
    """A backend of ``torch.compile`` that keeps the graphs' functions by name."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def __call__(self, graph: Any, examples: Any) -> Any:
        self.seen.append(
            [getattr(n.target, "__name__", str(n.target)) for n in graph.graph.nodes if n.op == "call_function"]
        )
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
    operation.known.keep(operation.key_text(values), 1)
    return double


def test_the_decided_one_is_in_the_graph() -> None:
    double, graphs = decided(4), Graphs()
    compiled = torch.compile(lambda x: double(x, 1) - 1, backend=graphs, fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled(torch.ones(4)).tolist() == [1.0] * 4
    assert graphs.seen == [["add", "sub"]]


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
