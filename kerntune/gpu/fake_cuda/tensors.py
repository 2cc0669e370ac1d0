"""Methods of stand-ins where torch would access their memory: they raise, or copy the stand-in."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor

from kerntune.gpu.fake_cuda.end_reasons import StandInEnd
from kerntune.gpu.fake_cuda.known_values import KnownValues
from kerntune.gpu.fake_cuda.patches import replace, replace_known

MEMORY_METHODS = ("numpy", "tolist", "__array__", "__dlpack__", "__reduce_ex__")
"""Methods that read a tensor's memory: in some of them torch crashes, or raises an error about subclasses."""


def install_methods(stack: contextlib.ExitStack, known: KnownValues) -> None:
    """Give stand-ins methods of their own until ``stack`` closes."""
    for name in MEMORY_METHODS:
        replace(stack, FakeTensor, name, _ending(name, known))
    replace(stack, FakeTensor, "__format__", _format)
    replace_known(stack, fake_tensor, "init_gpu_context", _allocate_nothing)
    replace(stack, FakeTensor, "__deepcopy__", _deepcopy)
    replace(stack, FakeTensor, "__copy__", _copy)
    replace(stack, FakeTensor, "record_stream", _record_stream)


def _allocate_nothing(device: torch.device) -> None:
    """Does nothing, in place of torch's function that allocates on an available device, for torch's own engine."""


def _ending(name: str, known: KnownValues) -> Callable[..., Any]:
    def method(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        real = known.of(self)
        if real is not None and name == "tolist":
            return real.tolist()
        error = StandInEnd(f"needs the values of a stand-in (Tensor.{name})")
        known.note_unanswered(error)
        raise error

    return method


def _format(self: torch.Tensor, spec: str) -> str:
    """The representation of a stand-in: printing needs no values, and must not end a test body."""
    return f"<stand-in {tuple(self.shape)} {self.dtype}>"


def _deepcopy(self: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """``torch.Tensor.__deepcopy__`` decides by ``data_ptr() == 0``, which warns for fake tensors."""
    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        raise RuntimeError("Only Tensors created explicitly by the user support the deepcopy protocol at the moment")
    memo[id(self)] = _like(self, self.detach().clone())
    return memo[id(self)]


def _like(original: torch.Tensor, detached: torch.Tensor) -> torch.Tensor:
    """``detached`` as the same kind of tensor as ``original``: a parameter, a leaf that requires gradients, or
    neither."""
    if isinstance(original, torch.nn.Parameter):
        return torch.nn.Parameter(detached, original.requires_grad)
    return detached.requires_grad_(original.requires_grad)


def _copy(self: torch.Tensor) -> torch.Tensor:
    """A tensor over the same storage."""
    return _like(self, self.detach())


def _record_stream(self: torch.Tensor, stream: Any) -> None:
    """Does nothing, since there is no memory. (torch's own parses its argument before a mode is called.)"""
