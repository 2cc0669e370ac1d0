"""The call of a prepared launch in the code that Inductor generates, past torch's dispatcher."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kerntune.kernels.compat import torch_private
from kerntune.tuning.torch_compile.argument_plan import (
    ArgumentPlan,
    Given,
    KnownValue,
    ListedValues,
    RebuiltFunction,
    TensorDescription,
    is_fixed,
    parts,
)
from kerntune.tuning.torch_compile.graph_launch import GraphLaunch, launch_of
from kerntune.tuning.torch_compile.launch_op import WRITTEN_AS

LITERALS = (bool, int, str, float, type(None))
"""Types whose ``repr`` is their text in code, where it is finite."""

HELD = ("tensors", "floats")
"""What a grid is made of where it can't be kept by the integers alone."""

IMPORT = "from kerntune.tuning.torch_compile.graph_launch import launch_of as kerntune_launch_of"


def write_calls_directly() -> None:
    """Have Inductor write such calls from now on."""
    torch_private.set_generated_call(WRITTEN_AS, write_call)


def write_call(node: Any, write: Callable[[str], None]) -> None:
    """Write the call of one node; what a direct call can't express goes through :meth:`GraphLaunch.run`."""
    token, written, read, ints, floats = torch_private.texts_of_arguments(node)
    launch = launch_of(token)
    torch_private.write_once(IMPORT)
    torch_private.write_once(f"{token} = kerntune_launch_of({token!r})")
    call = GeneratedCall(token, launch, {"tensors": [*written, *read], "ints": ints, "floats": floats})
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
        named = self.launch.kwargs
        plans = [*self.launch.args, *(plan for _, plan in named)]
        texts = [self._text(plan, f"{self.token}_fixed[{i}]") for i, plan in enumerate(plans)]
        grid = self._grid()
        if grid is None or None in texts:
            return None
        words = [name for name, _ in named]
        place = len(texts) - len(words)
        arguments = [*texts[:place], *(f"{word}={text}" for word, text in zip(words, texts[place:], strict=True))]
        self._write_head()
        return f"{self.token}_path.front({', '.join([grid, *map(str, arguments)])})"

    def _text(self, plan: ArgumentPlan, kept: str) -> str | None:
        """A value in the code; ``kept`` is the name of one that is the same at every call."""
        if isinstance(plan, Given):
            return self.given[plan.kind][plan.index]
        if isinstance(plan, KnownValue) and _has_literal(plan.value):
            return repr(plan.value)
        if is_fixed(plan):
            return kept
        if isinstance(plan, ListedValues) and all(isinstance(item, (Given, KnownValue)) for item in plan.items):
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

    def _write_head(self) -> None:
        function = is_function(self.launch.grid)
        names = {"path": "path", "fixed": "fixed"} | ({"grid_of": "grid_of"} if function else {})
        if not function and is_fixed(self.launch.grid):
            names["grid"] = "fixed_grid"
        for name, source in names.items():
            torch_private.write_once(f"{self.token}_{name} = {self.token}.{source}")


def is_function(grid: ArgumentPlan) -> bool:
    """Whether a grid is called when the kernel is launched."""
    return isinstance(grid, RebuiltFunction) or (isinstance(grid, KnownValue) and callable(grid.value))


def _has_literal(value: Any) -> bool:
    finite = not isinstance(value, float) or math.isfinite(value)
    return type(value) in LITERALS and finite
