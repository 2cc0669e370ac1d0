"""While one thread of a captured function decides a choice, launches of its other threads wait: they are the call's."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

from kerntune.capture.replaced_functions import REPLACED, FunctionLayer, FunctionPlace
from kerntune.kernels.compat.torch_private import runs_backward
from kerntune.kernels.source import kernel_name

PATIENCE_S = 30.0
"""So long a launch waits. The decision may itself wait for what the launching thread does, if that is one of a pool
which was there before: then it goes on, unrecorded."""


class Suspension:
    """``missed`` gets the names of kernels that were launched unrecorded in the end."""

    def __init__(self, missed: list[str]) -> None:
        from triton.compiler.compiler import CompiledKernel
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.jit import JITFunction

        self._missed, self._over = missed, threading.Event()
        self._helpers: weakref.WeakSet[threading.Thread] = weakref.WeakSet([threading.current_thread()])
        """The deciding thread, those that were started for it, and those that have waited in vain."""

        self._layers: dict[FunctionPlace, FunctionLayer] = {(threading.Thread, "start"): self._over_start}
        for place in ((JITFunction, "run"), (Autotuner, "run"), (CompiledKernel, "__getitem__")):
            self._layers[place] = functools.partial(self._over_launches, place)

    def begin(self, instead_of: object | None = None) -> None:
        """From now on, and in the place of a user of ``REPLACED``."""
        REPLACED.add(self, self._layers, instead_of=instead_of)

    def end(self) -> None:
        """Launches that come now are no longer held up; those that wait still do."""
        REPLACED.remove(self)

    def release(self) -> None:
        """Those that wait go on."""
        self._over.set()

    def wait(self, kernel: str) -> bool:
        """Whether the calling thread is one of the function's own, and has waited for the end."""
        if runs_backward() or (me := threading.current_thread()) in self._helpers:
            return False
        if self._over.wait(PATIENCE_S):
            return True
        self._missed.append(kernel)
        self._helpers.add(me)
        return False

    def _over_start(self, start: Callable[..., Any]) -> Callable[..., Any]:
        def started(thread: threading.Thread) -> None:
            if threading.current_thread() in self._helpers:
                self._helpers.add(thread)
            start(thread)

        return started

    def _over_launches(self, place: FunctionPlace, below: Callable[..., Any]) -> Callable[..., Any]:
        def launch(kernel: Any, /, *args: Any, **kwargs: Any) -> Any:
            waited = not kwargs.get("warmup") and self.wait(name_of(kernel))  # that compiles, and launches nothing
            return (getattr(*place) if waited else below)(kernel, *args, **kwargs)

        return launch


def name_of(kernel: Any) -> str:
    """The name of what is launched: of a kernel, a tuner of one, or a compiled one; or this name itself."""
    if isinstance(kernel, str):
        return kernel
    if (metadata := getattr(kernel, "metadata", None)) is not None:
        return str(metadata.name)
    base_fn = getattr(kernel, "base_fn", None)
    return kernel_name(kernel) if base_fn is None else str(base_fn.__name__)
