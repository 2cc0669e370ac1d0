"""Operators are told of wherever Python runs them, and graphs stay as they are."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from kerntune.gpu.operator_mode import noting


class Listener:
    def __init__(self) -> None:
        self.names: list[str] = []

    def begin(self) -> int:
        return 7

    def observe(self, func: Any, args: Any, kwargs: Any, result: Any, begun: int) -> None:
        assert begun == 7
        self.names.append(str(func.overloadpacket))


def test_threads_that_python_starts_are_told_of():
    listener, before = Listener(), threading.Thread.start
    with noting(listener):
        thread = threading.Thread(target=lambda: torch.ones(2).exp())
        thread.start()
        thread.join()
    assert listener.names == ["aten.ones", "aten.exp"]
    assert threading.Thread.start is before


def test_backward_passes_are_told_of_but_for_sums_of_gradients():
    listener, x = Listener(), torch.ones(4, requires_grad=True)
    (x * 1).sum().backward()
    with noting(listener):
        x.exp().sum().backward()
    assert "aten.mul" in listener.names
    assert not {"aten.add", "aten.add_"} & set(listener.names)


@pytest.mark.slow
def test_graphs_are_those_of_a_call_that_nobody_watches(monkeypatch):
    graphs: list[list[str]] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_method"])
        return graph.forward

    def function(x):
        y = x.exp()
        torch._dynamo.graph_break()
        return y.cos()

    compiled = torch.compile(function, backend=backend)
    expected = torch.compile(function, backend=backend)
    expected(torch.ones(3))
    alone = list(graphs)
    torch._dynamo.reset()
    graphs.clear()
    listener = Listener()
    with noting(listener):
        compiled(torch.ones(3))
    assert graphs == alone == [["exp"], ["cos"]]
    assert [name for name in listener.names if name != "aten.ones"] == ["aten.exp", "aten.cos"], "the graphs' operators"
