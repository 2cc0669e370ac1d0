"""What a stand-in does where torch would touch its memory: say so, or copy itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from kerntune.backend.standin.ends import StandInEnd
from kerntune.backend.standin.modes import Handler
from kerntune.backend.standin.patches import replace

MEMORY_METHODS = ("numpy", "tolist", "__array__", "__dlpack__", "__reduce_ex__")
"""Methods that read a tensor's memory: torch 2.13 crashes, or complains of subclasses, in some of them."""


def install_methods(stack: contextlib.ExitStack) -> None:
    """Give stand-ins methods of their own until ``stack`` closes."""
    for name in MEMORY_METHODS:
        replace(stack, FakeTensor, name, _ending(name))
    replace(stack, FakeTensor, "__format__", _format)
    replace(stack, FakeTensor, "__deepcopy__", _deepcopy)


def memory_handlers() -> dict[Any, Handler]:
    """Torch functions that only concern memory: they leave a stand-in as it is."""
    tensor = torch.Tensor
    return {tensor.pin_memory: _first, tensor.record_stream: _nothing, tensor.share_memory_: _first}


def _ending(name: str) -> Callable[..., Any]:
    def method(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        raise StandInEnd(f"needs the values of a stand-in (Tensor.{name})")

    return method


def _format(self: torch.Tensor, spec: str) -> str:
    """A print-out needs no value, and must not end a test body."""
    return f"<stand-in {tuple(self.shape)} {self.dtype}>"


def _deepcopy(self: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """``torch.Tensor.__deepcopy__`` decides by ``data_ptr() == 0``, which warns for fake tensors."""
    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        raise RuntimeError("Only Tensors created explicitly by the user support the deepcopy protocol at the moment")
    with torch.no_grad():
        copied = self.detach().clone()
    if isinstance(self, torch.nn.Parameter):
        copied = torch.nn.Parameter(copied, self.requires_grad)
    memo[id(self)] = copied.requires_grad_(self.requires_grad)
    return copied


def _first(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0]


def _nothing(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    return None
