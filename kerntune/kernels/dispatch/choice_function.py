"""The function by which a choice is called: it finds the decided implementation, and calls it.

The decision is looked up by C where that can be compiled, else by Python.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kerntune.kernels.dispatch import native
from kerntune.kernels.dispatch.codegen import PREFIX, make

FUNCTION, FIND = f"{PREFIX}front", f"{PREFIX}find"


@dataclass(frozen=True)
class ChoiceFunction:
    """The parameters of a choice."""

    parameters: Sequence[inspect.Parameter]

    def text(self) -> str:
        """The function's source. A call that isn't found is a miss, which says why."""
        found = f"{PREFIX}found"
        arguments = ", ".join(f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else p.name for p in self.parameters)
        lines = [
            f"def {FUNCTION}({self._signature()}):",
            f"    if {PREFIX}compiling():",
            f"        return {PREFIX}traced({arguments})",
            f"    {found} = {FIND}({', '.join(p.name for p in in_order(self.parameters))})",
            f"    if {found} is not None:",
            f"        return {found}({arguments})",
            f"    return {PREFIX}miss({arguments})",
            "",
        ]
        return "\n".join(lines)

    def make(self, miss: Callable[..., Any], traced: Callable[..., Any], compiling: Callable[[], bool]) -> Any:
        """The function. ``traced`` is called while ``compiling`` is true, ``miss`` until :func:`find_by` is."""
        defaults = {f"{PREFIX}d{i}": p.default for i, p in enumerate(self.parameters)}
        named = {f"{PREFIX}miss": miss, f"{PREFIX}traced": traced, f"{PREFIX}compiling": compiling}
        return make(self.text(), FUNCTION, {FIND: _nothing, **named, **defaults})

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


def in_order(parameters: Sequence[inspect.Parameter]) -> list[inspect.Parameter]:
    """The parameters in the order in which the function passes them on: those by position first."""
    return sorted(parameters, key=lambda p: p.kind is p.KEYWORD_ONLY)


def find_by(function: Any, find: Callable[..., Any]) -> None:
    """Have a choice's function look calls up by ``find``, which takes the values :func:`in_order`."""
    function.__globals__[FIND] = find


def _nothing(*values: Any) -> None:
    """Nothing is decided yet."""


class ChoiceFinder(Protocol):
    """What was kept for values that are alike: of a tensor its dtype, device, whether it wants a gradient while they
    are recorded, and in the key shape and strides; of another value its class, and in the key the value; of tuples,
    lists and dicts what they hold; whether gradients are recorded, and autocast is on."""

    def __call__(self, *values: Any) -> Any:
        """What was kept, or None; also for values that can't be looked up."""

    def keep(self, found: Any, *values: Any) -> None:
        """Have values that are like these lead to ``found``; nothing where they can't be looked up."""

    def clear(self) -> None:
        """Keep nothing."""


def choice_finder(keyed: Sequence[bool]) -> ChoiceFinder:
    """An empty one; ``keyed`` says of each parameter, in the order of the values, whether it is in the key."""
    compiled = native.module() if len(keyed) <= native.MAX_PARAMETERS else None
    if compiled is None:
        return PythonFinder(keyed)
    found: ChoiceFinder = compiled.finder(part_of, torch.is_grad_enabled, torch.is_autocast_enabled, bytes(keyed))
    return found


class PythonFinder:
    """A :class:`ChoiceFinder` for where no C can be compiled."""

    def __init__(self, keyed: Sequence[bool]) -> None:
        self._keyed = tuple(keyed)
        self._table: dict[Hashable, Any] = {}
        self.clear: Callable[[], None] = self._table.clear

    def __call__(self, *values: Any) -> Any:
        try:
            return self._table.get(self._key(values))
        except TypeError:
            return None

    def keep(self, found: Any, *values: Any) -> None:
        """As of the protocol."""
        try:
            self._table[self._key(values)] = found
        except TypeError:  # a value that has no hash
            return

    def _key(self, values: Sequence[Any]) -> Hashable:
        parts = [part_of(value, keyed) for value, keyed in zip(values, self._keyed, strict=True)]
        return (torch.is_grad_enabled(), torch.is_autocast_enabled(), *parts)


def part_of(value: Any, keyed: bool) -> Hashable:
    """What an argument adds to the key. Tensors are never part of it: they would be kept alive."""
    if isinstance(value, torch.Tensor):
        layout = (value.shape, value.stride()) if keyed else ()
        wants = value.requires_grad and torch.is_grad_enabled()
        return (value.__class__, value.dtype, value.device, wants, *layout)
    if isinstance(value, (tuple, list)):
        return (value.__class__, *[part_of(one, keyed) for one in value])
    if isinstance(value, Mapping):
        return (value.__class__, *[(name, part_of(one, keyed)) for name, one in value.items()])
    return (value.__class__, value) if keyed else value.__class__
