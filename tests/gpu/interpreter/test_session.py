"""What is replaced while an interpreter is active."""

from __future__ import annotations

import torch

from kerntune.base.device import TYPICAL_DEVICES
from kerntune.errors import InterpreterLimit
from kerntune.gpu.interpreter import Interpreter, limit_of


def test_nothing_is_compiled_meanwhile() -> None:
    def f(x: int) -> int:
        return x

    before = torch.compile
    with Interpreter(TYPICAL_DEVICES["cuda:90"]).activate():
        assert torch.compile(f, fullgraph=True) is f
        assert torch.compile(dynamic=True)(f) is f
    assert torch.compile is before


def test_a_limit_is_found_among_causes() -> None:
    limit = InterpreterLimit("no such instruction")
    error = RuntimeError("in a launch")
    error.__cause__ = limit
    assert (limit_of(None), limit_of(ValueError()), limit_of(error), limit_of(limit)) == (None, None, limit, limit)
