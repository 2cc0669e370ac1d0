"""Reads the arguments of a traced kernel call, and makes a launch's arguments of those of a graph's operator.

An argument is a constant, or the graph has to hand it over. Where a graph fixes all that matters, the call's winner may
be known already.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CellType, CodeType, FunctionType
from typing import Any, Union

from kerntune.base.policy import TuneMode
from kerntune.capture import Capture
from kerntune.kernels.compat import torch_private, tuners
from kerntune.tuning import context
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.cache.shared_store import with_store
from kerntune.tuning.context import engine_of
from kerntune.tuning.stored_winners import Winners
from kerntune.tuning.tune_call import late_of
from kerntune.tuning.tune_options import mode_of, options_of


@dataclass(frozen=True)
class Values:
    """What the operator is called with: tensors and numbers."""

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
class GraphValue:
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

    tensor: GraphValue
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


ArgumentPlan = Union[KnownValue, GraphValue, ListedValues, TensorDescription, RebuiltFunction]
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


def is_fixed(plan: ArgumentPlan) -> bool:
    """Whether the value is the same at every call of the graph."""
    return not any(isinstance(part, (GraphValue, TensorDescription)) for part in parts(plan))


def settle(plan: ArgumentPlan) -> ArgumentPlan:
    """A plan whose value is known as that value."""
    return KnownValue(plan.of(Values((), (), ()))) if is_fixed(plan) else plan


@dataclass
class ArgumentReader:
    """What the calls of one launch hand over, each value once: the graph's own tensors and numbers, and beside each the
    fake tensor or symbolic number that stands for it while the graph is made."""

    tensors: list[Any] = field(default_factory=list)
    ints: list[Any] = field(default_factory=list)
    floats: list[Any] = field(default_factory=list)
    examples: dict[GraphValue, Any] = field(default_factory=dict)

    def plan_of(self, value: Any) -> ArgumentPlan:
        """How a value is made when the graph runs. :class:`torch_private.NoConstant` for one that can't be."""
        return settle(self._plan(value))

    def constant_of(self, value: Any) -> Any:
        """The value of a ``constexpr`` argument: a number is settled, so that another one is another graph."""
        raise NotImplementedError

    def _plan(self, value: Any) -> ArgumentPlan:
        raise NotImplementedError

    def _given(self, kind: str, value: Any, example: Any) -> GraphValue:
        held = getattr(self, kind)
        index = next((i for i, other in enumerate(held) if other is value), len(held))
        if index == len(held):
            held.append(value)
        place = GraphValue(kind, index)
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
            assert isinstance(base, GraphValue)
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

    def _tensor(self, variable: Any) -> GraphValue:
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


class NotStatic(Exception):
    """A value isn't known while the graph is made."""


@dataclass(frozen=True)
class ExampleLayout:
    """What matters to a winner of a tensor with symbolic sizes, for its example's sizes."""

    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def stride(self, dim: int | None = None) -> Any:
        """Elements between neighbours, of one dimension or of all."""
        return self.strides if dim is None else self.strides[dim]

    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @staticmethod
    def data_ptr() -> int:
        """No address: aligned."""
        return 0


def winner_of(tuner: Any, examples: Mapping[str, Any], hints: bool) -> Any:
    """The config that has won for these arguments, from this process's winners or the stored ones; None if there is
    none, or if what the winner depends on differs from call to call. ``hints``: symbolic sizes are their examples'."""
    named = {name: _known(value, hints) for name, value in examples.items()}
    return _remembered(tuner, named) or _stored(tuner, named)


def _remembered(tuner: Any, named: Mapping[str, Any]) -> Any:
    """The winner in this process: what it depends on must be known, the rest need not."""
    needed = named if hasattr(tuner, "tuning_key") else [name for name in tuner.keys if name in named]
    if any(named[name] is UNKNOWN for name in needed):
        return None
    key = tuners.autotuner_key(tuner, named, {})
    return None if late_of(tuner, key) is not None else tuner.cache.get(key)


def _stored(tuner: Any, named: Mapping[str, Any]) -> Any:
    """The winner on disk: it is stored for the exact arguments."""
    engine, backend = engine_of(tuner), context.this_gpu()
    unknown = any(value is UNKNOWN or getattr(value, "dtype", None) is UNKNOWN for value in named.values())
    if engine is None or not engine.keep or unknown or backend is None or backend.gpu is None:
        return None
    mode = mode_of(tuner)
    if any(isinstance(value, OpenTensor) for value in named.values()) or mode is TuneMode.FORCE:
        return None
    lax = options_of(tuner).verification.lax
    winners = Winners(with_store(WinnerCache()), mode, backend.gpu, lax)
    given, names = list(named), tuner.arg_names
    count = next((i for i, name in enumerate(given) if i >= len(names) or name != names[i]), len(given))
    args, kwargs = [named[name] for name in given[:count]], {name: named[name] for name in given[count:]}
    try:
        site = Capture(backend, context.COMPILER).site_of(tuner, args, kwargs)
        index = winners.find(site)
    except Exception:  # no stored winner; or the user's pruning needs more of an argument than a traced graph has
        return None
    if index is None:
        return None
    site.settle(index)
    return site.originals[index]


UNKNOWN = object()
"""Stands for a value that differs from call to call."""


@dataclass(frozen=True)
class OpenTensor:
    """A tensor of which only the dtype is known."""

    dtype: Any


def _known(value: Any, hints: bool) -> Any:
    if hasattr(value, "dtype") and hasattr(value, "shape") and hasattr(value, "stride"):
        try:
            shape, strides = (tuple(_number(n, hints) for n in sizes) for sizes in (value.shape, value.stride()))
        except NotStatic:
            return OpenTensor(value.dtype)
        return ExampleLayout(value.dtype, shape, strides)
    try:
        return _number(value, hints)
    except NotStatic:
        return UNKNOWN


def _number(value: Any, hints: bool) -> Any:
    node = getattr(value, "node", None)
    if node is None or not hasattr(node, "expr"):
        return value
    if node.is_constant() or (hints and node.has_hint()):
        return node.hint if node.has_hint() else node.maybe_as_int()
    raise NotStatic
