"""Puts kerntune between torch's compiler and calls of tuned kernels.

The code that Inductor generates calls a prepared launch past torch's dispatcher.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kerntune.base.warn import warn
from kerntune.capture.launch import is_plain
from kerntune.kernels.compat import torch_private
from kerntune.kernels.compat.torch_private import PrivatePart
from kerntune.tuning.torch_compile.graph_launch import PLAIN, WRITTEN_AS, GraphLaunch, launch_of
from kerntune.tuning.torch_compile.kernel_calls import KernelCall, is_ours, traceable_grid
from kerntune.tuning.torch_compile.launch_arguments import (
    ArgumentPlan,
    GraphValue,
    KnownValue,
    ListedValues,
    RebuiltFunction,
    TensorDescription,
    is_fixed,
    parts,
)


def teach_tracing() -> None:
    """Have calls of tuned kernels traced by kerntune, in Dynamo and under ``wrap_triton``."""
    loaded = {torch_private.WRAP, torch_private.FUNCTIONS}  # the rest of Dynamo is still being imported
    if not lacks([part for part in torch_private.GRAPH_PARTS if part.module in loaded]):
        _wrap(torch_private.hopifier(), "init_variable", _init_variable)
        _wrap(torch_private.hopifier(), "call_triton_kernel", _call_triton_kernel)
        torch_private.set_generated_call(WRITTEN_AS, write_call)  # Inductor writes such calls from now on


def teach_cache() -> None:
    """Have AOTAutograd store no graph with a ``triton_op`` that launches a tuned kernel: its key has the kernel's
    source alone, and so can't tell who chooses the config."""
    if not lacks([part for part in torch_private.GRAPH_PARTS if part.module == torch_private.AOT_CACHE]):
        _wrap(torch_private.cache_details(), "get_triton_source_codes_from_gm", _source_codes)


def lacks(parts: Sequence[PrivatePart]) -> bool:
    """Whether this torch lacks one of these parts; then it is said by name, once."""
    missing = torch_private.missing_parts(parts, load=False)
    for part in missing:
        warn(f"kerntune: this torch has no {part.name} as {part.user} knows it: {part.breaks}")
    return bool(missing)


def _wrap(owner: Any, name: str, replacement: Any) -> None:
    before = getattr(owner, name)

    @functools.wraps(before)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return replacement(functools.partial(before, self), self, *args, **kwargs)

    setattr(owner, name, method)


def _init_variable(before: Any, hopifier: Any, variable: Any, kernel: Any, kernel_idx: Any, grid: Any) -> None:
    """torch refuses tuners with hooks and other options here; kerntune needs none of that."""
    if is_ours(kernel):
        torch_private.accept(variable, kernel, grid)
    else:
        before(variable, kernel, kernel_idx, grid)


def _call_triton_kernel(before: Any, hopifier: Any, variable: Any, args: Any, kwargs: Any, tx: Any) -> Any:
    if is_ours(variable.kernel):
        call = KernelCall(hopifier, variable, args, kwargs, tx)
        try:
            return call.trace()
        except (AttributeError, ImportError, TypeError) as exc:
            why = f"this torch is read wrongly ({type(exc).__name__}: {exc}); please report it with torch's version"
        raise call.refused(why)
    variable.grid = traceable_grid(variable.grid, tx)
    return before(variable, args, kwargs, tx)


def _source_codes(before: Any, details: Any, gm: Any) -> Any:
    for kernels in torch_private.kernels_in_operators(gm):
        if not kernels or any(map(is_ours, kernels)):
            raise torch_private.no_cache_entry("a triton_op may launch a kernel whose config kerntune chooses")
    return before(gm)


HELD = ("tensors", "floats")
"""What a grid is made of where it can't be kept by the integers alone."""

IMPORT = "from kerntune.tuning.torch_compile.graph_launch import launch_of as kerntune_launch_of"


def write_call(node: Any, write: Callable[[str], None]) -> None:
    """Write the call of one node; what a direct call can't express goes through :meth:`GraphLaunch.run`."""
    token, written, read, ints, floats = torch_private.texts_of_arguments(node)
    launch = launch_of(token)
    torch_private.write_once(IMPORT)
    torch_private.write_once(f"{token} = kerntune_launch_of({token!r})")
    call = GeneratedCall(token, launch, {"tensors": launch.in_order(written, read), "ints": ints, "floats": floats})
    write(call.direct() or call.whole())


@dataclass(frozen=True)
class GeneratedCall:
    """The text of one call. ``given`` are the texts of what the graph hands over, by kind."""

    token: str
    launch: GraphLaunch
    given: Mapping[str, Sequence[str]]

    def whole(self) -> str:
        """A call that makes all arguments when it runs."""
        return f"{self.token}.run({self._lists()})"

    def _lists(self) -> str:
        return ", ".join(f"[{', '.join(self.given[kind])}]" for kind in ("tensors", "ints", "floats"))

    def direct(self) -> str | None:
        """A call of the prepared launch with the graph's own values; None if an argument is made at each call."""
        texts = [self._text(plan, f"{self.token}_fixed[{i}]") for i, plan in enumerate(self.launch.plans)]
        grid = self._grid()
        if grid is None or None in texts:
            return None
        words = [name for name, _ in self.launch.kwargs]
        place = len(texts) - len(words)
        arguments = [*texts[:place], *(f"{word}={text}" for word, text in zip(words, texts[place:], strict=True))]
        function = is_function(self.launch.grid)
        names = {"path": "path", "fixed": "fixed"} | ({"grid_of": "grid_of"} if function else {})
        if not function and is_fixed(self.launch.grid):
            names["grid"] = "fixed_grid"
        for name, source in names.items():
            torch_private.write_once(f"{self.token}_{name} = {self.token}.{source}")
        return f"{self.token}_path.launch({', '.join([grid, *map(str, arguments)])})"

    def _text(self, plan: ArgumentPlan, kept: str) -> str | None:
        """A value in the code; ``kept`` is the name of one that is the same at every call."""
        if isinstance(plan, GraphValue):
            return self.given[plan.kind][plan.index]
        if isinstance(plan, KnownValue) and type(plan.value) in PLAIN and is_plain(plan.value):
            return repr(plan.value)
        if is_fixed(plan):
            return kept
        if isinstance(plan, ListedValues) and all(isinstance(item, (GraphValue, KnownValue)) for item in plan.items):
            items = [self._text(item, "") for item in plan.items]
            return f"({', '.join(map(str, items))},)" if all(items) and plan.kind is tuple else None
        return None

    def _grid(self) -> str | None:
        """The grid; a function may close over integers of the graph, and is remembered by them."""
        if not is_function(self.launch.grid):
            return self._text(self.launch.grid, f"{self.token}_grid")
        grid = self.launch.grid
        if any(isinstance(part, TensorDescription) or getattr(part, "kind", "ints") in HELD for part in parts(grid)):
            return f"{self.token}.made_grid({self._lists()})"
        return f"{self.token}_grid_of({', '.join(self.given['ints'])})"


def is_function(grid: ArgumentPlan) -> bool:
    """Whether a grid is called when the kernel is launched."""
    return isinstance(grid, RebuiltFunction) or (isinstance(grid, KnownValue) and callable(grid.value))
