"""What calls of compiled functions do besides launches of Triton kernels, and launches that can't be seen."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kerntune.capture.inductor.baseline_choices import InductorChoices
from kerntune.kernels.compat import inductor_parts

NO_WORK = frozenset(
    {
        "empty",
        "empty_like",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "detach",
        "set_",
        "resize_",
    }
)
"""ATen operators that run nothing on the device; views are known by themselves."""


@dataclass
class CompiledCalls:
    """The calls of compiled graphs while one call of the user's is captured.

    ``elsewhere`` counts operators that are no Triton launch (cuBLAS, cuDNN, ATen's own kernels), by name; ``unseen``
    has a sentence's part for each graph whose launches were made where a capture can't see them.
    """

    launches: Sequence[Any]
    """The capture's, which grow."""

    records: Callable[[], bool] = lambda: True
    """Whether what the calling thread does now is the call's."""

    elsewhere: Counter[str] = field(default_factory=Counter)
    unseen: list[str] = field(default_factory=list)
    choices: InductorChoices = field(default_factory=InductorChoices)
    """What Inductor chooses by timing for these calls, where there is a GPU."""

    def install(self, stack: contextlib.ExitStack) -> None:
        """Watch until ``stack`` closes."""
        original = inductor_parts.inductor_part("graph_call")

        def graph_call(graph: Any, inputs: Any) -> Any:
            before = len(self.launches)
            with self._counting():
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

    @contextlib.contextmanager
    def _counting(self) -> Iterator[None]:
        from torch.utils._python_dispatch import TorchDispatchMode

        calls = self

        class Counting(TorchDispatchMode):  # type: ignore[misc]  # torch's types are skipped
            """Counts the operators that a compiled graph calls."""

            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
            ) -> Any:
                before = len(calls.launches)
                result = func(*args, **(kwargs or {}))
                mine = calls.records() and len(calls.launches) == before
                if mine and _works(func) and _on_device(result, args, kwargs or {}):
                    calls.elsewhere[_word(func)] += 1
                return result

        with Counting():
            yield


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


def _works(func: Any) -> bool:
    """Whether an operator runs something: no view, no allocation."""
    if getattr(func, "is_view", False) or getattr(func, "namespace", "") in ("prim", "inductor"):
        return False
    return _word(func).partition(".")[2] not in NO_WORK


def _word(func: Any) -> str:
    """``aten.mm`` for any overload of it."""
    return str(getattr(func, "overloadpacket", func))


def _on_device(*values: Any) -> bool:
    from torch.utils._pytree import tree_leaves

    devices = (getattr(leaf, "device", None) for value in values for leaf in tree_leaves(value))
    return any(getattr(device, "type", "cpu") != "cpu" for device in devices)


def elsewhere_text(elsewhere: Mapping[str, int]) -> str:
    """What a compiled call runs besides Triton kernels, for the report; empty if nothing."""
    if not elsewhere:
        return ""
    names = ", ".join(name if count == 1 else f"{name} ({count}x)" for name, count in sorted(elsewhere.items()))
    count = sum(elsewhere.values())
    calls = "1 operation is" if count == 1 else f"{count} operations are"
    return f"{calls} no Triton launch, so not gated: {names}; scope='op' times the whole call on a GPU"
