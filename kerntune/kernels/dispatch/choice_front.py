"""The function by which a choice is called: it looks the decided implementation up, and calls it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kerntune.kernels.dispatch.codegen import PREFIX, make

FRONT, FIND = f"{PREFIX}front", f"{PREFIX}find"


@dataclass(frozen=True)
class ChoiceFront:
    """The parameters of a choice."""

    parameters: Sequence[inspect.Parameter]

    def text(self) -> str:
        """The function's source. A call that isn't found is a miss, which says why."""
        found, arguments = f"{PREFIX}found", self._arguments()
        return "\n".join(
            [
                f"def {FRONT}({self._signature()}):",
                f"    if {PREFIX}compiling():",
                f"        return {PREFIX}traced({arguments})",
                f"    {found} = {FIND}({', '.join(p.name for p in in_order(self.parameters))})",
                f"    if {found} is not None:",
                f"        return {found}({arguments})",
                f"    return {PREFIX}miss({arguments})",
                "",
            ]
        )

    def make(self, miss: Callable[..., Any], traced: Callable[..., Any], compiling: Callable[[], bool]) -> Any:
        """The function. ``traced`` is called while ``compiling`` is true, ``miss`` until :func:`find_by` is."""
        defaults = {f"{PREFIX}d{i}": p.default for i, p in enumerate(self.parameters)}
        named = {f"{PREFIX}miss": miss, f"{PREFIX}traced": traced, f"{PREFIX}compiling": compiling}
        return make(self.text(), FRONT, {FIND: _nothing, **named, **defaults})

    def _signature(self) -> str:
        texts: list[str] = []
        for i, p in enumerate(self.parameters):
            if p.kind is p.KEYWORD_ONLY and "*" not in texts:
                texts.append("*")
            texts.append(p.name if p.default is p.empty else f"{p.name}={PREFIX}d{i}")
            after = self.parameters[i + 1 :]
            if p.kind is p.POSITIONAL_ONLY and not (after and after[0].kind is p.POSITIONAL_ONLY):
                texts.append("/")
        return ", ".join(texts)

    def _arguments(self) -> str:
        return ", ".join(f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else p.name for p in self.parameters)


def in_order(parameters: Sequence[inspect.Parameter]) -> list[inspect.Parameter]:
    """The parameters in the order in which the function passes them on: those by position first."""
    return sorted(parameters, key=lambda p: p.kind is p.KEYWORD_ONLY)


def find_by(front: Any, find: Callable[..., Any]) -> None:
    """Have a choice's function look calls up by ``find``, which takes the values :func:`in_order`."""
    front.__globals__[FIND] = find


def _nothing(*values: Any) -> None:
    """Nothing is decided yet."""
