"""Small integer tensors whose values are kept (lengths, labels, masks): control flow depends on these."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from kerntune.base.users_line import UsersLine, calling_line
from kerntune.errors import UsageError
from kerntune.gpu.fake_cuda.end_reasons import static_reason
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
        self._bytes: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
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
        return self._has(tensor) if isinstance(tensor, FakeTensor) else bool(tensor.device.type == "cpu")

    def _has(self, tensor: FakeTensor) -> bool:
        return tensor.untyped_storage() in self._bytes

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
        given = {k: x for k, x in enumerate(pointers) if isinstance(x, FakeTensor) and self._has(x)}
        if not given:
            return
        try:
            found = access()
        except Exception:  # the launch's own errors are reported where it is judged
            found = Access.everything(len(pointers), ())
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
        if self._has(tensor):
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
        tensors = [item for item in _flat([*args, *kwargs.values()]) if isinstance(item, torch.Tensor)]
        if not tensors and func._schema.name.removeprefix("aten::") not in ROOTS:
            return None
        enough = small if is_like(func) else self.knows
        if not all(map(enough, tensors)):
            return None
        return [self._real(value) for value in args], {name: self._real(value) for name, value in kwargs.items()}

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
    return all(item.numel() <= KNOWN_ELEMENTS for item in _flat(value) if isinstance(item, torch.Tensor))


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
    """A real CPU tensor of the same layout, with any values."""
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():  # as in ``of``
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)


def _is_plain(real: torch.Tensor) -> bool:
    return real.numel() == 1 or not (real.dtype.is_floating_point or real.dtype.is_complex)
