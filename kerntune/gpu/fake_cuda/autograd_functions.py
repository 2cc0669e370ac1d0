"""The arguments of a ``torch.autograd.Function``'s backward for outputs without a gradient: None, or zeros."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction, FunctionCtx

from kerntune.gpu.fake_cuda.patches import replace

_OUTPUTS = "kerntune.outputs"
"""Key in a node's ``metadata``: the layout of each output, ``None`` for one that is no tensor."""
_MATERIALIZES = "_kerntune_materializes"
"""Attribute of a node: the value given to its ``ctx.set_materialize_grads`` (torch's own attribute can't be read)."""


@dataclass(frozen=True)
class Layout:
    """The layout of an output, from which zeros for it are made."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


def install_functions(stack: contextlib.ExitStack) -> None:
    """Record for every ``torch.autograd.Function`` the data that torch's own engine has, until ``stack`` closes."""
    apply = inspect.getattr_static(torch.autograd.Function, "apply")  # a classmethod, from torch 2.14 on one in C
    replace(stack, torch.autograd.Function, "apply", classmethod(_recording(apply)))
    replace(stack, FunctionCtx, "set_materialize_grads", _recording_layouts(FunctionCtx.set_materialize_grads))


def filled(node: Any, gradients: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """The gradients that a function's backward is called with (torch's ``PyNode::apply``).

    An output that is no tensor gets ``None``, and so does every one without a gradient if the function called
    ``ctx.set_materialize_grads(False)``; any other without a gradient gets zeros, not differentiable ones too.
    """
    if not getattr(node, _MATERIALIZES, True):
        return list(gradients)
    layouts = node.metadata.get(_OUTPUTS) or [_of_metadata(meta) for meta in node._input_metadata]
    return [_zeros(layout) if given is None else given for given, layout in zip(gradients, layouts, strict=True)]


def _zeros(layout: Layout | None) -> torch.Tensor | None:
    return None if layout is None else torch.zeros(layout.shape, dtype=layout.dtype, device=layout.device)


def _of_metadata(meta: Any) -> Layout | None:
    """The layout for a function that was applied without being recorded. torch's metadata of an output that is no
    tensor are those of a number on the CPU."""
    shape = tuple(meta.shape)
    return None if not shape and meta.device.type == "cpu" else Layout(shape, meta.dtype, meta.device)


def _recording(apply: Any) -> Callable[..., Any]:
    """A function of a class and its arguments that calls the descriptor ``apply`` for that class."""

    def applied(cls: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = apply.__get__(None, cls)(*args, **kwargs)
        items = outputs if isinstance(outputs, tuple) else (outputs,)
        node = next((x.grad_fn for x in items if isinstance(x, torch.Tensor) and _is_of(x.grad_fn, cls)), None)
        if node is not None and len(node._input_metadata) == len(items):
            node.metadata[_OUTPUTS] = [_layout(item) for item in items]
        return outputs

    return applied


def _is_of(node: Any, function: Any) -> bool:
    return isinstance(node, BackwardCFunction) and node._forward_cls is function


def _layout(item: Any) -> Layout | None:
    return Layout(tuple(item.shape), item.dtype, item.device) if isinstance(item, torch.Tensor) else None


def _recording_layouts(set_materialize_grads: Callable[[Any, bool], None]) -> Callable[[Any, bool], None]:
    def noted(ctx: Any, value: bool) -> None:
        set_materialize_grads(ctx, value)
        setattr(ctx, _MATERIALIZES, value)

    return noted
