"""Moving a module whose parameters are stand-ins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

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
