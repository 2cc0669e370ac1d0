"""Which tensors become stand-ins, and which values of an operator's result are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
)
from torch.utils._python_dispatch import TorchDispatchMode

from kerntune.gpu.fake_cuda.end_reasons import StandInEnd
from kerntune.gpu.fake_cuda.known_values import KNOWN_ELEMENTS, Arguments, KnownValues, is_like, small
from kerntune.gpu.fake_cuda.modes import StandInFakeMode, Watch, tensors_in

REAL_CPU_ELEMENTS = 1 << 22
"""A CPU tensor made with at most so many elements (16 MiB of float32) stays real; a larger one would take too long to
compute."""

LENGTH_ARGUMENTS = ("n", "m", "end", "steps")
"""The names of length arguments in the schemas of eye, randperm, arange, linspace."""

VALUE_OPERATORS = frozenset(
    {
        "_local_scalar_dense",
        "equal",
        "allclose",
        "nonzero",
        "masked_select",
        "index",
        "_unique2",
        "unique_dim",
        "unique_consecutive",
    }
)
"""Operators whose result depends on values, and is no larger than their arguments."""

MASKED_OPERATORS = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_unsafe_index"})
"""Operators that take a mask where they take positions."""


class Placement(TorchDispatchMode):  # type: ignore[misc]  # torch's types are skipped
    """Makes stand-ins of tensors that are created on or moved to CUDA, and of large CPU tensors. All others stay
    real."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: nothing is compiled here, and torch would import dynamo to make it skip this mode."""
        return False

    def __init__(
        self,
        fake: StandInFakeMode,
        known: KnownValues,
        implementation: Callable[[Any], Callable[..., Any] | None],
        watch: Watch | None = None,
    ) -> None:
        super().__init__()
        self._fake = fake
        self._known = known
        self._implementation = implementation
        self._watch = watch or Watch()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = _without_pinning(kwargs or {})
        if isinstance(func, HigherOrderOperator):
            return func(*args, **kwargs)
        on_stand_in = any(isinstance(tensor, FakeTensor) for tensor in tensors_in(args, kwargs))
        if not on_stand_in and not _wants_stand_in(func, args, kwargs):
            return func(*args, **kwargs)
        real_code = self._implementation(func)
        if real_code is not None:
            return real_code(*args, **kwargs)
        args = self._by_position(func, tuple(_without_history(value) for value in args))
        if on_stand_in:
            _refuse_writes_to_real(func, args, kwargs)
        if not self._watch.active() or _fake_mode_is_on():
            return self._outcome(func, args, kwargs)
        return self._watch.run(func, args, kwargs, lambda: self._outcome(func, args, kwargs))

    def _outcome(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """A stand-in for the result, with its values if they are known; a real result on the CPU, where possible."""
        inputs = None if _fake_mode_is_on() else self._known.inputs(func, args, kwargs)
        try:
            with self._fake:
                outcome = func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as exc:
            if inputs is None or not _bounded(func, inputs[0]):
                if not _fake_mode_is_on():  # an outer dispatch of the same operator may still have the answer
                    self._known.note_unanswered(exc)
                raise
            return self._faked(func(*inputs[0], **inputs[1]), _device(args))
        real = _computed(func, inputs) if inputs is not None and small(outcome) else None
        if real is None:
            self._known.forget(list(_written(func, args, kwargs)))
        elif isinstance(outcome, FakeTensor) and outcome.device.type == "cpu" and not func._schema.is_mutable:
            return real
        else:
            derived = not is_like(func) and any(isinstance(x, FakeTensor) for x in tensors_in(args, kwargs))
            self._known.keep(outcome, real, derived)
        return outcome

    def _by_position(self, func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """A known mask as the positions that it selects: then their number is known, although the selected values
        aren't."""
        if func._schema.name not in MASKED_OPERATORS:
            return args
        indices = [position for index in args[1] for position in self._positions(index, args[0].device)]
        return (args[0], indices, *args[2:])

    def _positions(self, index: Any, device: torch.device) -> tuple[Any, ...]:
        real = self._known.of(index) if index is not None and index.dtype == torch.bool else None
        return (index,) if real is None else tuple(self._faked(real.nonzero().unbind(1), device))

    def _faked(self, real: Any, device: torch.device) -> Any:
        """Stand-ins on ``device`` for real tensors whose shapes depend on values."""
        if isinstance(real, (list, tuple)):
            return tuple(self._faked(item, device) for item in real)
        if not isinstance(real, torch.Tensor) or device.type == "cpu":
            return real
        with self._fake:
            stand_in = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device=device)
        self._known.keep(stand_in, real)
        return stand_in


def _fake_mode_is_on() -> bool:
    """Whether torch is inside of a fake operator, or a test has entered another fake mode."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None


def _wants_stand_in(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    if _fake_mode_is_on():
        return False  # that mode decides: kerntune's, torch.compile's or a test's own
    device = kwargs.get("device")
    if device is not None and torch.device(device).type == "cuda":
        return True
    made_on_cpu = device is None or torch.device(device).type == "cpu"
    return made_on_cpu and _elements(func, args, kwargs) > REAL_CPU_ELEMENTS


def _elements(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """The number of elements that a factory will make; 0 for operators that take tensors."""
    if func.namespace != "aten" or next(tensors_in(args, kwargs), None) is not None:
        return 0
    given = {argument.name: value for argument, value in _bound(func, args, kwargs)}
    if "size" in given:
        return math.prod(given["size"])
    lengths = [given[name] for name in LENGTH_ARGUMENTS if isinstance(given.get(name), (int, float))]
    return int(math.prod(lengths)) if lengths else 0


def _bound(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """The given arguments of an operator, each with its entry in the schema."""
    for place, argument in enumerate(func._schema.arguments):
        if place < len(args):
            yield argument, args[place]
        elif argument.name in kwargs:
            yield argument, kwargs[argument.name]


def _written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """The tensors that an operator writes in place."""
    if not func._schema.is_mutable:
        return
    for argument, value in _bound(func, args, kwargs):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from tensors_in((value,), {})


def _refuse_writes_to_real(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise if a real tensor is written: it would silently keep its old values, and a later comparison would fail."""
    if not all(isinstance(tensor, FakeTensor) for tensor in _written(func, args, kwargs)):
        raise StandInEnd(f"{func} writes the values of a stand-in into a real CPU tensor")


def _computed(func: Any, inputs: Arguments) -> Any:
    """The real result on the CPU; ``None`` if the CPU doesn't support the operator."""
    try:
        return func(*inputs[0], **inputs[1])
    except (RuntimeError, NotImplementedError, IndexError):
        return None


def _bounded(func: Any, args: Sequence[Any]) -> bool:
    """Whether a result whose size depends on values stays small."""
    name = func._schema.name.removeprefix("aten::")
    if name == "repeat_interleave":
        return bool(args[0].sum() <= KNOWN_ELEMENTS)
    return name in VALUE_OPERATORS


def _device(args: Sequence[Any]) -> torch.device:
    """The device of a result: that of the first stand-in among the arguments."""
    return next(tensor.device for tensor in tensors_in(args, {}) if isinstance(tensor, FakeTensor))


def _without_history(value: Any) -> Any:
    """Real tensors detached (autograd is above): fake mode reads ``.grad`` of the tensors that it converts, and torch
    warns."""
    if isinstance(value, list):
        return [_without_history(item) for item in value]
    is_result = isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor) and not value.is_leaf
    return value.detach() if is_result else value


def _without_pinning(kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Pinned memory needs a driver; whether memory is pinned changes no kernel."""
    return {**kwargs, "pin_memory": False} if kwargs.get("pin_memory") else kwargs
