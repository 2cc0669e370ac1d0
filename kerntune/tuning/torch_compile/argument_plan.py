"""How a launch's arguments are made of what a graph's operator is called with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import CellType, CodeType, FunctionType
from typing import Any, Union


@dataclass(frozen=True)
class Values:
    """What the operator is called with: tensors, those that are written first, and numbers."""

    tensors: Sequence[Any]
    ints: Sequence[int]
    floats: Sequence[float]


@dataclass(frozen=True)
class KnownValue:
    """A value that is known when the graph is made."""

    value: Any

    def of(self, values: Values) -> Any:
        """The value."""
        return self.value


@dataclass(frozen=True)
class Given:
    """A value that the graph hands over: the ``index``-th of ``tensors``, ``ints`` or ``floats``."""

    kind: str
    index: int

    def of(self, values: Values) -> Any:
        """The value."""
        return getattr(values, self.kind)[self.index]


@dataclass(frozen=True)
class ListedValues:
    """A tuple or list of values."""

    kind: type
    items: tuple[ArgumentPlan, ...]

    def of(self, values: Values) -> Any:
        """The tuple or list."""
        return self.kind(item.of(values) for item in self.items)


@dataclass(frozen=True)
class TensorDescription:
    """A host's tensor descriptor of a tensor."""

    tensor: Given
    block_shape: tuple[int, ...]

    def of(self, values: Values) -> Any:
        """The descriptor."""
        from triton.tools.tensor_descriptor import TensorDescriptor

        return TensorDescriptor.from_tensor(self.tensor.of(values), list(self.block_shape))


@dataclass(frozen=True)
class RebuiltFunction:
    """A function whose cells and defaults are values of their own: a grid that closes over sizes."""

    code: CodeType
    scope: dict[str, Any]
    cells: tuple[ArgumentPlan, ...]
    defaults: tuple[ArgumentPlan, ...]
    keywords: tuple[tuple[str, ArgumentPlan], ...]

    def of(self, values: Values) -> Callable[..., Any]:
        """The function."""
        cells = tuple(CellType(cell.of(values)) for cell in self.cells)
        made = FunctionType(self.code, self.scope, None, tuple(d.of(values) for d in self.defaults), cells)
        made.__kwdefaults__ = {name: plan.of(values) for name, plan in self.keywords} or None
        return made


ArgumentPlan = Union[KnownValue, Given, ListedValues, TensorDescription, RebuiltFunction]
"""How one value is made."""


def parts(plan: ArgumentPlan) -> Iterator[ArgumentPlan]:
    """A plan and all plans in it."""
    yield plan
    inside: tuple[ArgumentPlan, ...] = ()
    if isinstance(plan, ListedValues):
        inside = plan.items
    elif isinstance(plan, TensorDescription):
        inside = (plan.tensor,)
    elif isinstance(plan, RebuiltFunction):
        inside = (*plan.cells, *plan.defaults, *(p for _, p in plan.keywords))
    for one in inside:
        yield from parts(one)


def renumbered(plan: ArgumentPlan, places: Mapping[int, int]) -> ArgumentPlan:
    """A plan whose tensors have other numbers."""
    if isinstance(plan, Given):
        return Given(plan.kind, places[plan.index]) if plan.kind == "tensors" else plan
    if isinstance(plan, ListedValues):
        return replace(plan, items=tuple(renumbered(item, places) for item in plan.items))
    if isinstance(plan, TensorDescription):
        return replace(plan, tensor=Given("tensors", places[plan.tensor.index]))
    if isinstance(plan, RebuiltFunction):
        return replace(
            plan,
            cells=tuple(renumbered(cell, places) for cell in plan.cells),
            defaults=tuple(renumbered(default, places) for default in plan.defaults),
            keywords=tuple((name, renumbered(value, places)) for name, value in plan.keywords),
        )
    return plan


def is_fixed(plan: ArgumentPlan) -> bool:
    """Whether the value is the same at every call of the graph."""
    return not any(isinstance(part, (Given, TensorDescription)) for part in parts(plan))


def settle(plan: ArgumentPlan) -> ArgumentPlan:
    """A plan whose value is known as that value."""
    return KnownValue(plan.of(Values((), (), ()))) if is_fixed(plan) else plan
