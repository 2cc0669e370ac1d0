"""Which tensors become stand-ins, and which values of an operator's result are known.

Values of small integer tensors are kept (lengths, labels, masks), since control flow depends on these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from kerntune.base.users_line import UsersLine, calling_line
from kerntune.errors import UsageError
from kerntune.gpu.base import tensors_in
from kerntune.gpu.fake_cuda.modes import StandInFakeMode, Watch
from kerntune.gpu.fake_cuda.patches import StandInEnd, static_reason
from kerntune.kernels.access import Access

KNOWN_ELEMENTS = 1 << 16
"""The largest tensor whose values are kept: labels and lengths have no more, and their arithmetic is fast."""

ROOTS = frozenset({"arange", "randint", "randperm", "scalar_tensor", "full", "zeros", "ones", "eye"})
"""Factories whose integer results are known. Not ``empty``, and no floating-point tensors: those are the data of
kernels."""

LIKES = frozenset({"ones_like", "zeros_like", "full_like", "new_ones", "new_zeros", "new_full"})
"""Factories that take a tensor for its layout, not for its values. ``loss.backward()`` begins with the first."""

Arguments = tuple[list[Any], dict[str, Any]]


class KnownValues:
    """The bytes of storages whose values follow from integers that the test itself made.

    They are kept on the CPU in addition to the stand-in, and operators run on both. A storage is dropped once a kernel
    may have written it, once users' code reads its address (anything may write it then), or once unknown values are
    written into it. So known values are correct.
    """

    def __init__(self) -> None:
        self._bytes: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._unanswered: list[tuple[UsersLine, str]] = []

    def note_unanswered(self, error: BaseException) -> None:
        """A value was asked for that isn't known, and ``error`` is about to be raised."""
        line, reason = calling_line(), static_reason(error)
        if line is not None and reason is not None:
            self._unanswered.append((line, reason))

    def take_unanswered(self) -> list[tuple[UsersLine, str]]:
        """The users' lines that have asked for unknown values since the last call of this, and the reasons why they got
        none."""
        taken, self._unanswered = self._unanswered, []
        return taken

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """A real CPU tensor over the known bytes, with the shape and strides of ``tensor``; ``None`` if not known."""
        if not self.knows(tensor):
            return None
        return self._view(tensor) if isinstance(tensor, FakeTensor) else tensor.detach()

    def _view(self, tensor: FakeTensor) -> torch.Tensor:
        known, shape, strides = self._bytes[tensor.untyped_storage()], tensor.shape, tensor.stride()
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():  # inside of a fake operator too
            return torch.empty(0, dtype=tensor.dtype).set_(known, tensor.storage_offset(), shape, strides)

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether the values of a tensor are known, and few."""
        if tensor.numel() > KNOWN_ELEMENTS:
            return False
        if isinstance(tensor, FakeTensor):
            return tensor.untyped_storage() in self._bytes
        return bool(tensor.device.type == "cpu")

    def storage_of(self, tensor: torch.Tensor) -> Any:
        """The known bytes of a tensor's whole storage, in the CPU's memory; ``None`` if not known."""
        return self._bytes.get(tensor.untyped_storage()) if isinstance(tensor, FakeTensor) else None

    def keep(self, stand_in: Any, real: Any, derived: bool = True) -> None:
        """Record ``real`` as the values of ``stand_in`` (tensors, or lists of equal length).

        Values ``derived`` from known stand-ins are always kept; of other tensors only integers and single numbers.
        """
        for fake, value in zip(_flat(stand_in), _flat(real), strict=True):
            if isinstance(fake, FakeTensor) and _laid_out_alike(fake, value) and (derived or _is_plain(value)):
                self._bytes.setdefault(fake.untyped_storage(), value.untyped_storage())

    def forget(self, value: Any) -> None:
        """Drop the values of the storages behind a tensor or a list of tensors."""
        for item in _flat(value):
            if isinstance(item, FakeTensor):
                self._bytes.pop(item.untyped_storage(), None)

    def launched(self, pointers: Sequence[Any], access: Callable[[], Access]) -> None:
        """Drop the values of what a launch may have written. ``pointers`` are its pointer-like arguments in their
        order; ``access()`` is what its kernel does with them, and is asked only if values of one of them are known.

        A kernel of which nothing can be said (it can't be compiled) may write all of them.
        """
        given = {k: x for k, x in enumerate(pointers) if self.storage_of(x) is not None}
        if not given:
            return
        try:
            found = access()
        except Exception:  # the launch's own errors are reported where it is judged
            found = Access.everything(len(pointers), (), follows=False)
        clear = found.pointer_count == len(pointers)
        self.forget([x for k, x in given.items() if not clear or k in found.writes or k in found.atomics])

    def supply(self, tensor: torch.Tensor, values: torch.Tensor) -> None:
        """From now on ``tensor`` has ``values``. :class:`UsageError` if they aren't known themselves or have another
        shape, if the tensor is known to hold others, or if it is a part of a storage whose other values aren't known.
        """
        real = self.of(values) if isinstance(values, FakeTensor) else values.detach().cpu()
        if real is None:
            raise UsageError("aren't known themselves: make them on the CPU")
        if real.shape != tensor.shape:
            raise UsageError(f"have the shape {tuple(real.shape)}, and the argument has {tuple(tensor.shape)}")
        if isinstance(tensor, FakeTensor):
            with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():  # as in ``of``
                self._supply(tensor, real.to(tensor.dtype))

    def _supply(self, tensor: FakeTensor, real: torch.Tensor) -> None:
        if self.storage_of(tensor) is not None:
            if not torch.equal(self._view(tensor), real):
                raise UsageError("aren't those that the argument has, and the kernel doesn't write it")
            return
        whole, storage = _laid_out_as(tensor), tensor.untyped_storage()
        if tensor.storage_offset() or whole.untyped_storage().nbytes() != storage.nbytes():
            raise UsageError("are those of a part of a tensor whose other values aren't known: launch on a whole one")
        self._bytes[storage] = whole.copy_(real).untyped_storage()

    def inputs(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments | None:
        """The arguments of an operator as real CPU tensors; ``None`` if one of them is not known."""
        if func.namespace != "aten":
            return None
        tensors = [i for i in _flat([*args, *kwargs.values()]) if isinstance(i, torch.Tensor)]
        if not tensors and func._schema.name.removeprefix("aten::") not in ROOTS:
            return None
        enough = small if is_like(func) else self.knows
        if not all(map(enough, tensors)):
            return None
        named = {name: self._real(value) for name, value in kwargs.items()}
        return [self._real(value) for value in args], named

    def _real(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._real(item) for item in value]
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if not isinstance(value, torch.Tensor):
            return value
        real = self.of(value)
        return _laid_out_as(value) if real is None else real


def is_like(func: Any) -> bool:
    """Whether an operator uses only the layout of its tensors."""
    return func.namespace == "aten" and func._schema.name.removeprefix("aten::") in LIKES


def small(value: Any) -> bool:
    """Whether an operator's result is small enough to compute on the CPU."""
    return all(i.numel() <= KNOWN_ELEMENTS for i in _flat(value) if isinstance(i, torch.Tensor))


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def _laid_out_alike(fake: torch.Tensor, real: torch.Tensor) -> bool:
    """Whether every view of the one is a view of the other."""
    whole = real.storage_offset() == fake.storage_offset() == 0
    return whole and (real.shape, real.stride(), real.dtype) == (fake.shape, fake.stride(), fake.dtype)


def _laid_out_as(tensor: torch.Tensor) -> torch.Tensor:
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():  # as in ``of``
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)


def _is_plain(real: torch.Tensor) -> bool:
    return real.numel() == 1 or not (real.dtype.is_floating_point or real.dtype.is_complex)


REAL_CPU_ELEMENTS = 1 << 22
"""A CPU tensor made with at most so many elements (16 MiB of float32) stays real; a larger one would take too long to
compute."""

LENGTH_ARGUMENTS = ("n", "m", "end", "steps")
"""The names of length arguments in the schemas of eye, randperm, arange, linspace."""

VALUE_OPERATORS = frozenset((
    "_local_scalar_dense", "equal", "allclose", "nonzero", "masked_select", "index",
    "_unique2", "unique_dim", "unique_consecutive",
))  # fmt: skip
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
        on_stand_in = any(isinstance(t, FakeTensor) for t in tensors_in(args, kwargs.values()))
        inside = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
        if not on_stand_in and (inside or not _wants_stand_in(func, args, kwargs)):  # inside, that mode decides
            return func(*args, **kwargs)
        real_code = self._implementation(func)
        if real_code is not None:
            return real_code(*args, **kwargs)
        args = self._by_position(func, tuple(_without_history(value) for value in args))
        # A real tensor would silently keep its old values, and a later comparison would fail.
        if on_stand_in and not all(isinstance(tensor, FakeTensor) for tensor in _written(func, args, kwargs)):
            raise StandInEnd(f"{func} writes the values of a stand-in into a real CPU tensor")
        if inside or not self._watch.listeners:
            return self._outcome(func, args, kwargs, inside)
        return self._watch.run(func, args, kwargs, self._outcome)

    def _outcome(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], inside: bool = False) -> Any:
        """A stand-in for the result, with its values if they are known; a real result on the CPU, where possible.
        ``inside``: of another operator, or of a fake mode of the test's own."""
        inputs = None if inside else self._known.inputs(func, args, kwargs)
        try:
            with self._fake:
                outcome = func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as exc:
            if inputs is None or not _bounded(func, inputs[0]):
                if not inside:  # an outer dispatch of the same operator may still have the answer
                    self._known.note_unanswered(exc)
                raise
            return self._faked(func(*inputs[0], **inputs[1]), _device(args))
        real = _computed(func, inputs) if inputs is not None and small(outcome) else None
        if real is None:
            self._known.forget(list(_written(func, args, kwargs)))
        elif isinstance(outcome, FakeTensor) and outcome.device.type == "cpu" and not func._schema.is_mutable:
            return real
        else:
            derived = not is_like(func) and any(isinstance(x, FakeTensor) for x in tensors_in(args, kwargs.values()))
            self._known.keep(outcome, real, derived)
        return outcome

    def _by_position(self, func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """A known mask as the positions that it selects: then their number is known, although the selected values
        aren't."""
        if func._schema.name not in MASKED_OPERATORS:
            return args
        indices = [position for i in args[1] for position in self._positions(i, args[0].device)]
        return (args[0], indices, *args[2:])

    def _positions(self, index: Any, device: torch.device) -> tuple[Any, ...]:
        real = self._known.of(index) if index is not None and index.dtype == torch.bool else None
        return (index,) if real is None else tuple(self._faked(real.nonzero().unbind(1), device))

    def _faked(self, real: Any, device: torch.device) -> Any:
        if isinstance(real, (list, tuple)):
            return tuple(self._faked(item, device) for item in real)
        if not isinstance(real, torch.Tensor) or device.type == "cpu":
            return real
        with self._fake:
            stand_in = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device=device)
        self._known.keep(stand_in, real)
        return stand_in


def _wants_stand_in(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    device = kwargs.get("device")
    if device is not None and torch.device(device).type == "cuda":
        return True
    made_on_cpu = device is None or torch.device(device).type == "cpu"
    return made_on_cpu and _elements(func, args, kwargs) > REAL_CPU_ELEMENTS


def _elements(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """The number of elements that a factory will make; 0 for operators that take tensors."""
    if func.namespace != "aten" or next(tensors_in(args, kwargs.values()), None) is not None:
        return 0
    given = {argument.name: value for argument, value in _bound(func, args, kwargs)}
    if "size" in given:
        return prod(given["size"])
    lengths = [given[n] for n in LENGTH_ARGUMENTS if isinstance(given.get(n), (int, float))]
    return int(prod(lengths)) if lengths else 0


def _bound(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    for place, argument in enumerate(func._schema.arguments):
        if place < len(args):
            yield argument, args[place]
        elif argument.name in kwargs:
            yield argument, kwargs[argument.name]


def _written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    if not func._schema.is_mutable:
        return
    for argument, value in _bound(func, args, kwargs):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from tensors_in((value,))


def _computed(func: Any, inputs: Arguments) -> Any:
    try:
        return func(*inputs[0], **inputs[1])
    except (RuntimeError, NotImplementedError, IndexError):
        return None


def _bounded(func: Any, args: Sequence[Any]) -> bool:
    name = func._schema.name.removeprefix("aten::")
    if name == "repeat_interleave":
        return bool(args[0].sum() <= KNOWN_ELEMENTS)
    return name in VALUE_OPERATORS


def _device(args: Sequence[Any]) -> torch.device:
    return next(tensor.device for tensor in tensors_in(args) if isinstance(tensor, FakeTensor))


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
