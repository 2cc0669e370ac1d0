"""Reads the arguments of a traced kernel call: constants, and what the graph has to hand over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kerntune.kernels.compat import torch_private
from kerntune.tuning.torch_compile.argument_plan import (
    ArgumentPlan,
    Given,
    KnownValue,
    ListedValues,
    RebuiltFunction,
    TensorDescription,
    settle,
)


@dataclass
class ArgumentReader:
    """What the calls of one launch hand over, each value once: the graph's own tensors and numbers, and beside each the
    fake tensor or symbolic number that stands for it while the graph is made."""

    tensors: list[Any] = field(default_factory=list)
    ints: list[Any] = field(default_factory=list)
    floats: list[Any] = field(default_factory=list)
    examples: dict[Given, Any] = field(default_factory=dict)

    def plan_of(self, value: Any) -> ArgumentPlan:
        """How a value is made when the graph runs. :class:`torch_private.NoConstant` for one that can't be."""
        return settle(self._plan(value))

    def constant_of(self, value: Any) -> Any:
        """The value of a ``constexpr`` argument: a number is settled, so that another one is another graph."""
        raise NotImplementedError

    def _plan(self, value: Any) -> ArgumentPlan:
        raise NotImplementedError

    def _given(self, kind: str, value: Any, example: Any) -> Given:
        held = getattr(self, kind)
        index = next((i for i, other in enumerate(held) if other is value), len(held))
        if index == len(held):
            held.append(value)
        place = Given(kind, index)
        self.examples[place] = example
        return place


class TracingReader(ArgumentReader):
    """Arguments in a function that ``make_fx`` runs (``wrap_triton``): real values, fake tensors, symbolic numbers."""

    def constant_of(self, value: Any) -> Any:
        """As in the base class."""
        return _settled_number(value)

    def _plan(self, value: Any) -> ArgumentPlan:
        import torch

        if isinstance(value, torch.Tensor):
            return self._given("tensors", value, value)
        if isinstance(value, torch.SymInt):
            return self._given("ints", value, value)
        if isinstance(value, torch.SymFloat):
            return self._given("floats", value, value)
        if isinstance(value, (tuple, list)):
            return ListedValues(type(value), tuple(self._plan(item) for item in value))
        if hasattr(value, "block_shape") and hasattr(value, "base"):
            base = self._plan(value.base)
            assert isinstance(base, Given)
            return TensorDescription(base, tuple(map(int, value.block_shape)))
        if getattr(value, "__closure__", None) and hasattr(value, "__code__"):
            return self._function(value)
        return KnownValue(_settled_number(value))

    def _function(self, value: Any) -> ArgumentPlan:
        cells = tuple(self._plan(cell.cell_contents) for cell in value.__closure__)
        defaults = tuple(self._plan(v) for v in value.__defaults__ or ())
        keywords = tuple((k, self._plan(v)) for k, v in (value.__kwdefaults__ or {}).items())
        plan = RebuiltFunction(value.__code__, value.__globals__, cells, defaults, keywords)
        return plan if isinstance(settle(plan), RebuiltFunction) else KnownValue(value)


def _settled_number(value: Any) -> Any:
    import torch

    for kind, known in ((torch.SymInt, int), (torch.SymFloat, float), (torch.SymBool, bool)):
        if isinstance(value, kind):
            return known(value)
    return value


@dataclass
class DynamoReader(ArgumentReader):
    """Arguments in a function that Dynamo traces."""

    tx: Any = None

    def constant_of(self, value: Any) -> Any:
        """As in the base class."""
        variable = torch_private.real(value)
        if torch_private.is_number(variable):
            return torch_private.settled(variable)
        return torch_private.object_of(variable)

    def _plan(self, value: Any) -> ArgumentPlan:
        variable = torch_private.real(value)
        if torch_private.is_tensor(variable):
            return self._tensor(variable)
        if torch_private.is_number(variable):
            return self._number(variable)
        if (found := torch_private.descriptor_parts(variable)) is not None:
            tensor, shape = found
            sizes = tuple(self.constant_of(size) for size in torch_private.items_of(shape)[1])  # type: ignore[index]
            return TensorDescription(self._tensor(tensor), sizes)
        if (listed := torch_private.items_of(variable)) is not None:
            kind, items = listed
            return ListedValues(kind, tuple(self._plan(item) for item in items))
        if (function := torch_private.function_parts(variable, self.tx)) is not None:
            return self._function(function)
        return KnownValue(torch_private.object_of(variable))

    def _tensor(self, variable: Any) -> Given:
        return self._given("tensors", variable.as_proxy(), torch_private.example_of(variable))

    def _number(self, variable: Any) -> ArgumentPlan:
        example = torch_private.example_of(variable)
        kind = {"SymInt": "ints", "int": "ints", "SymFloat": "floats", "float": "floats"}.get(type(example).__name__)
        if kind is None:  # a symbolic truth value
            return KnownValue(torch_private.settled(variable))
        return self._given(kind, variable.as_proxy(), example)

    def _function(self, found: torch_private.TracedFunction) -> RebuiltFunction:
        code, defaults = found.code, found.defaults
        positional = code.co_varnames[1 : code.co_argcount]
        return RebuiltFunction(
            code,
            found.scope,
            tuple(self._plan(found.cells[name]) for name in code.co_freevars),
            tuple(self._plan(defaults[name]) for name in positional),
            tuple((name, self._plan(v)) for name, v in defaults.items() if name not in positional),
        )
