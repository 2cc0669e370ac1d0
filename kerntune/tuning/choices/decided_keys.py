"""Knows which implementation each key of a choice goes to in this process, and who decides one.

In a graph of ``torch.compile`` the decided implementation is traced, as if it were called.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakValueDictionary

import torch

from kerntune.gpu.base import Backend
from kerntune.kernels.compat import torch_private
from kerntune.tuning.choices.choice_place import current_place
from kerntune.tuning.choices.deciding import Decision

GpuKind = tuple[str, str] | None
"""A GPU's target and its model's name; None where nothing can be timed."""


class DecidedKeys:
    """By the kind of GPU and the text of a key an index among the implementations, and how it was found. What is
    decided for gated tests and what a program decides are kept apart: store and mode are others. What one kind of GPU
    has decided says nothing of another one in the same process."""

    def __init__(self) -> None:
        self._indices: dict[Hashable, int] = {}
        self._decisions: dict[Hashable, Decision] = {}

    def find(self, gpu: GpuKind, text: str) -> int | None:
        """The implementation, if it is known here."""
        return self._indices.get(_here(gpu, text))

    def find_outside(self, gpu: GpuKind, text: str) -> int | None:
        """The implementation that the program itself has decided for, wherever this is asked."""
        return self._indices.get((None, gpu, text))

    def keep(self, gpu: GpuKind, text: str, index: int) -> None:
        """It stays so, here."""
        self._indices[_here(gpu, text)] = index

    def tell(self, gpu: GpuKind, decision: Decision) -> None:
        """How a key was found here, last."""
        self._decisions[_here(gpu, decision.arguments)] = decision

    def decision(self, gpu: GpuKind, text: str) -> Decision | None:
        """What :meth:`tell` was given of a key."""
        return self._decisions.get(_here(gpu, text))


def _here(gpu: GpuKind, text: str) -> tuple[Hashable, GpuKind, str]:
    place = current_place()
    return (None if place is None else place.rules), gpu, text


def kind_of(backend: Backend | None) -> GpuKind:
    """The kind of a GPU as winners are stored by it."""
    return None if backend is None or backend.gpu is None else (str(backend.spec.target), backend.spec.name)


class KeyLocks:
    """One thread decides a key; others may decide other keys meanwhile, or wait for it. A lock lasts as long as a
    thread has it or waits for it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[str, Any] = WeakValueDictionary()

    def of(self, text: str) -> AbstractContextManager[Any]:
        """The lock of a key, the same for all that ask while one of them has it."""
        with self._guard:
            found: AbstractContextManager[Any] = self._locks.setdefault(text, threading.RLock())
            return found


Described = tuple[Any, ...]
"""Of an argument what Dynamo has as constants: a tensor's dtype, gradient, device, and in the key its layout; or the
value itself in the key."""


def traced_call(
    names: Mapping[str, bool], functions: Sequence[Callable[..., Any]], find: Callable[[Mapping[str, Any]], int]
) -> Callable[..., Any]:
    """What the choice calls while Dynamo traces it. ``names`` are the parameters, and whether each is in the key: sizes
    in the key become constants of the graph, others may stay dynamic. ``find`` gives an index among ``functions`` for
    values by parameter, in which tensors have no memory; it is asked while the graph is made, not when it runs."""
    keyed = tuple(names.values())

    def index(*described: Described) -> int:
        return find({name: _undescribed(one) for name, one in zip(names, described, strict=True)})

    torch_private.mark_constant(index)

    def traced(*args: Any, **kwargs: Any) -> Any:
        values = (*args, *kwargs.values())
        described = [_described(value, in_key) for value, in_key in zip(values, keyed, strict=True)]
        return functions[index(*described)](*args, **kwargs)

    return traced


def _described(value: Any, keyed: bool) -> Described:
    """``operator.index`` makes Dynamo take a size as a constant, and guard it."""
    if isinstance(value, torch.Tensor):
        layout = [[operator.index(n) for n in sizes] for sizes in (value.shape, value.stride())] if keyed else [[], []]
        device = value.device
        return ("tensor", value.dtype, (device.type, device.index), value.requires_grad, *layout)
    if isinstance(value, (tuple, list)):
        return ("values", *[_described(one, keyed) for one in value])
    if not keyed:
        return ("value", None) if value is None else ("kind", type(value).__name__)
    return ("value", operator.index(value) if isinstance(value, int) and not isinstance(value, bool) else value)


DEVICE = "kerntune_device"
"""The attribute of a tensor without memory that says which type of device it stands for, and that one's number."""


def device_type(tensor: torch.Tensor) -> str:
    """``cuda`` or ``cpu``, also of a tensor that stands for one of a graph."""
    return str(getattr(tensor, DEVICE, (tensor.device.type,))[0])


def device_number(tensor: torch.Tensor) -> int | None:
    """The number of the GPU that a tensor lies on, also of one that stands for one of a graph; None on the host."""
    stands_for: tuple[str, int | None] | None = getattr(tensor, DEVICE, None)
    if stands_for is not None:
        return stands_for[1] if stands_for[0] == "cuda" else None
    return tensor.get_device() if tensor.is_cuda else None


class KindOnly:
    """An argument of which only the class's name counts, and no more is known."""

    def __init__(self, kind: str) -> None:
        self.kind = kind


def _undescribed(described: Described) -> Any:
    what, *rest = described
    if what == "tensor":
        dtype, device, grad, shape, stride = rest
        found = torch.empty_strided(shape, stride, dtype=dtype, device="meta").requires_grad_(grad)
        setattr(found, DEVICE, device)
        return found
    if what == "kind":
        return KindOnly(rest[0])
    return [_undescribed(one) for one in rest] if what == "values" else rest[0]
