"""Calls of compiled functions whose launches can't be seen, and CUDA graphs, which would hide them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kerntune.capture.inductor.baseline_choices import InductorChoices
from kerntune.kernels.compat import inductor_parts


@dataclass
class CompiledCalls:
    """The calls of compiled graphs while one call of the user's is captured.

    ``unseen`` has a sentence's part for each graph whose launches were made where a capture can't see them.
    """

    launches: Sequence[Any]
    """The capture's, which grow."""

    records: Callable[[], bool] = lambda: True
    """Whether what the calling thread does now is the call's."""

    unseen: list[str] = field(default_factory=list)
    choices: InductorChoices = field(default_factory=InductorChoices)
    """What Inductor chooses by timing for these calls, where there is a GPU."""

    def install(self, stack: contextlib.ExitStack) -> None:
        """Watch until ``stack`` closes."""
        original = inductor_parts.inductor_part("graph_call")

        def graph_call(graph: Any, inputs: Any) -> Any:
            before = len(self.launches)
            result = original(graph, inputs)
            if self.records() and len(self.launches) == before and inductor_parts.launches_kernels(graph):
                self._miss(inductor_parts.why_hidden(graph))
            return result

        cudagraphify = inductor_parts.inductor_part("cudagraphify")

        def switched(model: Any, *args: Any, **kwargs: Any) -> Any:
            return _Switch(model, lambda: cudagraphify(model, *args, **kwargs), self._live)

        inductor_parts.replace_part(stack, "graph_call", graph_call)
        inductor_parts.replace_part(stack, "cudagraphify", switched)
        stack.callback(self._end)
        if inductor_parts.INDUCTOR["package_call"].exists():
            package = inductor_parts.inductor_part("package_call")
            inductor_parts.replace_part(stack, "package_call", self._package(package))

    _running: bool = True

    def _live(self) -> bool:
        return self._running and self.records()

    def _end(self) -> None:
        self._running = False

    def _miss(self, what: str) -> None:
        if what not in self.unseen:
            self.unseen.append(what)

    def _package(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.records():
                self._miss("a package of AOTInductor, which launches from C++")
            return original(*args, **kwargs)

        return call


class _Switch:
    """A compiled graph that replays a CUDA graph, but not while a call is captured: then it launches its kernels."""

    def __init__(self, model: Callable[..., Any], make: Callable[[], Any], captured: Callable[[], bool]) -> None:
        self._model, self._make, self._captured = model, make, captured
        self._graphed: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._captured():
            return self._model(*args, **kwargs)
        if self._graphed is None:
            self._graphed = self._make()
        return self._graphed(*args, **kwargs)
