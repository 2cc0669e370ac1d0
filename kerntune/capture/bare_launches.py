"""Launches of kernels that nothing tunes, seen before they are made."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from kerntune.capture.replaced_functions import REPLACED, FunctionLayer, FunctionPlace


class _Launching(threading.local):
    tuned = 0


_launching = _Launching()


@contextlib.contextmanager
def launching_tuned() -> Iterator[None]:
    """What the calling thread launches meanwhile is a winner, or what stands for one: it isn't bare."""
    _launching.tuned += 1
    try:
        yield
    finally:
        _launching.tuned -= 1


class BareLaunches:
    """``before(jit, args, kwargs)`` is called before each launch by ``kernel[grid](...)`` that no tuner of ours makes,
    in whichever thread; what it raises is raised instead of the launch. Launches of compiled functions and of kernels
    that were compiled before (``compiled[grid](...)``) aren't seen."""

    def __init__(self, before: Callable[..., None]) -> None:
        from triton.runtime.jit import JITFunction

        self._before = before
        self._layers: dict[FunctionPlace, FunctionLayer] = {(JITFunction, "run"): self._over_jit}

    def begin(self) -> None:
        """From now on."""
        REPLACED.add(self, self._layers)

    def end(self) -> None:
        """No longer; nothing if it hasn't begun."""
        REPLACED.remove(self)

    def _over_jit(self, run_jit: Callable[..., Any]) -> Callable[..., Any]:
        before = self._before

        def jit_run(jit: Any, /, *args: Any, **kwargs: Any) -> Any:
            if not (_launching.tuned or kwargs.get("warmup")):
                before(jit, args, kwargs)
            return run_jit(jit, *args, **kwargs)

        return jit_run
