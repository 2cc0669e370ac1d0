"""``torch.load``, storages and modules that move to a GPU that isn't there: read on the CPU, recorded as the GPU's."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from kerntune.gpu.fake_cuda.patches import replace, replace_known

LOCATION = "cuda:0"
"""The name of the only device in files."""

FIRST = 0
"""The priority of these functions: before torch's own, which call a driver (``torch.serialization.register_package``:
10 and more)."""


def install_restoring(
    stack: contextlib.ExitStack, put: Callable[[Any], None], there: Callable[[Any], bool] = lambda storage: False
) -> None:
    """Until ``stack`` closes, a storage that belongs on the GPU stays on the CPU, and ``put`` is called with it. One
    for which ``there`` is true is saved as the GPU's."""

    def tag(storage: Any) -> str | None:
        return LOCATION if there(storage) else None

    def restore(storage: Any, location: str) -> Any:
        if not location.startswith("cuda"):
            return None
        put(storage)
        return storage

    entry = (FIRST, tag, restore)
    registry: list[Any] = torch.serialization._package_registry
    registry.insert(0, entry)
    stack.callback(registry.remove, entry)
    _install_moves(stack, put)


def _install_moves(stack: contextlib.ExitStack, put: Callable[[Any], None]) -> None:
    """Support ``map_location=lambda storage, location: storage.cuda()`` as well as a name."""
    base = torch.storage._StorageBase
    original = base.to

    def cuda(storage: Any, device: Any = None, non_blocking: bool = False) -> Any:
        copy = storage.clone()
        put(copy)
        return copy

    def to(storage: Any, *, device: Any, non_blocking: bool = False) -> Any:
        there = torch.device(device).type == "cuda"
        return cuda(storage) if there else original(storage, device=device, non_blocking=non_blocking)

    replace(stack, base, "cuda", cuda)
    replace(stack, base, "to", to)


class Loaded:
    """Makes stand-ins of the tensors that ``torch.load`` rebuilds over storages that belong on the GPU."""

    def __init__(self) -> None:
        self._moved: weakref.WeakKeyDictionary[Any, dict[torch.dtype, torch.Tensor]] = weakref.WeakKeyDictionary()
        self._read = True
        """Whether storages hold the file's contents already: the old format is read after tensors are rebuilt."""

    def install(self, stack: contextlib.ExitStack) -> None:
        """Until ``stack`` closes."""
        install_restoring(stack, self._put)
        before = torch._utils._restore_device_fake_mode  # all functions that rebuild a tensor call it last
        replace(stack, torch._utils, "_restore_device_fake_mode", lambda tensor: self._rebuilt(before(tensor)))
        legacy = getattr(torch.serialization, "_legacy_load", None)
        replace_known(
            stack, torch.serialization, "_legacy_load", lambda *args, **words: self._late(legacy, args, words)
        )

    def _put(self, storage: Any) -> None:
        self._moved[storage] = {}

    def _rebuilt(self, tensor: torch.Tensor) -> torch.Tensor:
        """A view of the one stand-in of its storage, so that tensors that share memory still do."""
        moved = self._moved.get(tensor.untyped_storage())
        if moved is None:
            return tensor
        if tensor.dtype not in moved:
            moved[tensor.dtype] = self._stand_in(tensor.detach())
        view = moved[tensor.dtype].as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
        return view.detach().requires_grad_(tensor.requires_grad)

    def _stand_in(self, tensor: torch.Tensor) -> torch.Tensor:
        """The stand-in of a tensor's whole storage."""
        count = tensor.untyped_storage().nbytes() // tensor.element_size()
        if not self._read:
            return torch.empty(count, dtype=tensor.dtype, device="cuda")
        return tensor.as_strided((count,), (1,), 0).to("cuda")

    def _late(self, load: Any, args: tuple[Any, ...], words: dict[str, Any]) -> Any:
        self._read = False
        try:
            return load(*args, **words)
        finally:
            self._read = True


Convert = Callable[[torch.Tensor], torch.Tensor]


def module_apply(original: Callable[..., Any]) -> Callable[..., Any]:
    """What replaces ``torch.nn.Module._apply``.

    torch swaps fake parameters in place, which fails as soon as something refers to them weakly (an optimizer, the
    fake mode itself). Here a moved parameter is a new one, unless it is on the device already.
    """

    def apply(self: torch.nn.Module, fn: Convert, recurse: bool = True) -> torch.nn.Module:
        own = (*self._parameters.values(), *self._buffers.values())
        if not any(isinstance(tensor, FakeTensor) for tensor in own):
            original(self, fn, recurse)
            return self
        if recurse:
            for child in self.children():
                child._apply(fn)
        self._parameters.update({name: _moved(value, fn) for name, value in self._parameters.items()})
        self._buffers.update({name: None if value is None else fn(value) for name, value in self._buffers.items()})
        return self

    return apply


def parse_to(original: Callable[..., Any]) -> Callable[..., Any]:
    """What replaces ``torch._C._nn._parse_to``: ``module.to(0)`` means the accelerator that torch lacks."""

    def parse(*args: Any, **kwargs: Any) -> Any:
        named = [torch.device("cuda", arg) if type(arg) is int else arg for arg in args]
        return original(*named, **kwargs)

    return parse


def _moved(parameter: Any, fn: Convert) -> Any:
    if parameter is None:
        return None
    with torch.no_grad():
        moved = fn(parameter)
        if moved is parameter or (moved.device == parameter.device and moved.dtype == parameter.dtype):
            return parameter
        result = torch.nn.Parameter(moved, parameter.requires_grad)
        result.grad = None if parameter.grad is None else fn(parameter.grad)
    return result
