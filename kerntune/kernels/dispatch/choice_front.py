"""The function by which a choice is called: it looks the decided implementation up, and calls it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import FunctionType
from typing import Any

from kerntune.kernels.dispatch.codegen import PREFIX, make

FRONT = f"{PREFIX}front"


class ArgumentKind(Enum):
    """What calls have passed for a parameter so far: always a tensor, sometimes, or never."""

    TENSOR = "tensor"
    MIXED = "mixed"
    OTHER = "other"


@dataclass(frozen=True)
class ChoiceFront:
    """The parameters of a choice, and which of them are in its ``key``; ``kinds`` is None before the first call."""

    parameters: Sequence[inspect.Parameter]
    key: frozenset[str]
    kinds: Mapping[str, ArgumentKind] | None = None

    def text(self) -> str:
        """The function's source. A call whose parts of the key can't be looked up is a miss, which says why."""
        found = f"{PREFIX}found"
        lines = [
            f"def {FRONT}({self._signature()}):",
            f"    if {PREFIX}compiling():",
            f"        return {PREFIX}traced({self._arguments()})",
        ]
        if self.kinds is not None:
            lines += [
                "    try:",
                f"        {found} = {PREFIX}get(({', '.join(self._parts())},))",
                "    except (AttributeError, TypeError):",
                f"        {found} = None",
                f"    if {found} is not None:",
                f"        return {found}({self._arguments()})",
            ]
        return "\n".join([*lines, f"    return {PREFIX}miss({self._arguments()})", ""])

    def make(self, namespace: Mapping[str, Any]) -> FunctionType:
        """The function. ``namespace`` has ``get``, ``miss``, ``traced``, ``compiling``, ``grad`` and ``autocast``."""
        defaults = {f"{PREFIX}d{i}": p.default for i, p in enumerate(self.parameters)}
        named = {f"{PREFIX}{name}": value for name, value in namespace.items()}
        return make(self.text(), FRONT, {f"{PREFIX}mixed": mixed_part, **named, **defaults})

    def key_of(self, values: Mapping[str, Any], grad: bool, autocast: bool) -> tuple[Any, ...]:
        """The key that the function looks up for a call with these values, by parameter; as :meth:`_parts`."""
        assert self.kinds is not None
        parts: list[Any] = [autocast]
        tensors = [p.name for p in self.parameters if self.kinds[p.name] is ArgumentKind.TENSOR]
        for p in self.parameters:
            value, kind, keyed = values[p.name], self.kinds[p.name], p.name in self.key
            if kind is ArgumentKind.TENSOR:
                parts += [value.dtype, *([value.shape, value.stride()] if keyed else [])]
            elif kind is ArgumentKind.MIXED:
                parts.append(mixed_part(value, keyed))
            else:
                parts += [value.__class__, *([value] if keyed else [])]
        parts += [values[name].get_device() for name in tensors[:1]]
        needs = tuple(values[name].requires_grad for name in tensors)
        parts.append(grad and any(needs) and needs)
        return tuple(parts)

    def _parts(self) -> list[str]:
        assert self.kinds is not None
        parts = [f"{PREFIX}autocast()"]
        tensors = [p.name for p in self.parameters if self.kinds[p.name] is ArgumentKind.TENSOR]
        for p in self.parameters:
            kind, keyed = self.kinds[p.name], p.name in self.key
            if kind is ArgumentKind.TENSOR:
                parts += [f"{p.name}.dtype", *([f"{p.name}.shape", f"{p.name}.stride()"] if keyed else [])]
            elif kind is ArgumentKind.MIXED:
                parts.append(f"{PREFIX}mixed({p.name}, {keyed})")
            else:
                parts += [f"{p.name}.__class__", *([p.name] if keyed else [])]
        parts += [f"{name}.get_device()" for name in tensors[:1]]
        needs = [f"{name}.requires_grad" for name in tensors] or ["False"]
        parts.append(f"{PREFIX}grad() and ({' or '.join(needs)}) and ({', '.join(needs)},)")
        return parts

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


def mixed_part(value: Any, keyed: bool) -> Any:
    """The part of the key of an argument that is a tensor in some calls only."""
    dtype = getattr(value, "dtype", None)
    if dtype is None or not hasattr(value, "stride"):
        return (value.__class__, value) if keyed else value.__class__
    layout = (value.shape, value.stride()) if keyed else ()
    return (dtype, value.requires_grad, *layout)
