"""Gradient hooks: torch stores those of non-leaf tensors where Python can't read them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

from kerntune.gpu.fake_cuda.modes import Handler

_HOOKS = "kerntune.hooks"
_RETAINED = "kerntune.retained"
"""Keys in a node's ``metadata``: by output number, the hooks of a tensor and the tensor whose ``grad`` is retained."""


def hook_handlers() -> dict[Any, Handler]:
    """Handlers of torch functions that register a hook: torch registers it, and the graph's node records it for this
    engine."""
    return {torch.Tensor.register_hook: _register_hook, torch.Tensor.retain_grad: _retain_grad}


def apply_hooks(node: Any, inputs: dict[int, Any]) -> None:
    """Call a node's hooks with the gradients in ``inputs`` (by output number), replacing them in place."""
    for number, gradient in inputs.items():
        for hook in _hooks(node, number):
            changed = hook(gradient)
            gradient = gradient if changed is None else changed
        inputs[number] = gradient
        _keep(node, number, gradient)


def call_post_hooks(leaf: torch.Tensor) -> None:
    """Call the hooks that ``register_post_accumulate_grad_hook`` registered on a leaf."""
    for hook in tuple((getattr(leaf, "_post_accumulate_grad_hooks", None) or {}).values()):
        hook(leaf)


def _register_hook(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    handle = func(*args, **kwargs)
    if args[0].grad_fn is not None:
        _record(_HOOKS, args[0], args[0]._backward_hooks)  # torch's own dict: the handle removes from it
    return handle


def _retain_grad(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    func(*args, **kwargs)
    if args[0].grad_fn is not None:
        _record(_RETAINED, args[0], weakref.ref(args[0]))


def _record(key: str, tensor: torch.Tensor, what: Any) -> None:
    edge = get_gradient_edge(tensor)
    edge.node.metadata.setdefault(key, {})[edge.output_nr] = what


def _hooks(node: Any, number: int) -> tuple[Callable[[Any], Any], ...]:
    if hasattr(node, "variable"):
        return tuple((node.variable._backward_hooks or {}).values())
    return tuple(node.metadata.get(_HOOKS, {}).get(number, {}).values())


def _keep(node: Any, number: int, gradient: Any) -> None:
    reference = None if hasattr(node, "variable") else node.metadata.get(_RETAINED, {}).get(number)
    tensor = reference() if reference is not None else None
    if tensor is not None:
        tensor.grad = gradient if tensor.grad is None else tensor.grad + gradient
