"""Notes the operators of torch that run on a real GPU. Imported where a call is captured there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kerntune.gpu.base import OperatorListener

ACCUMULATION = "AccumulateGrad"
"""The node of autograd's graph that sums gradients in ``.grad``."""


class OperatorMode(TorchDispatchMode):  # type: ignore[misc]  # torch's types are skipped
    """Runs each operator, and has ``listener`` note it.

    ``torch.compile`` ignores it while it compiles, so graphs are those of a call without it; the compiled code runs
    under it.
    """

    supports_higher_order_operators = True

    def __init__(self, listener: OperatorListener) -> None:
        super().__init__()
        self._listener = listener

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """True: a frame is compiled all the same."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        begun = self._listener.begin()
        result = func(*args, **(kwargs or {}))
        node = torch._C._current_autograd_node()
        if node is None or node.name().rpartition("::")[2] != ACCUMULATION:  # no sum in ``.grad``
            self._listener.observe(func, args, kwargs or {}, result, begun)
        return result


@contextmanager
def noting(listener: OperatorListener) -> Iterator[None]:
    """``listener`` notes operators of this thread, of those that Python starts meanwhile, and of autograd's."""
    original = Thread.start

    def start(thread: Thread) -> None:
        run = thread.run

        def watched() -> None:
            with OperatorMode(listener):
                run()

        thread.run = watched  # type: ignore[method-assign]
        original(thread)

    Thread.start = start  # type: ignore[method-assign, assignment]
    try:
        with OperatorMode(listener):
            yield
    finally:
        Thread.start = original  # type: ignore[method-assign]
