"""The tensors among a call's arguments: what tells one case of a test from another."""

from __future__ import annotations

from typing import Any

from kerntune.gate.baselines import Argument
from kerntune.gpu.base import Backend


def tensor_arguments(backend: Backend, tree: Any) -> tuple[Argument, ...]:
    """The layouts of the tensors among a call's arguments, in order; partial functions and modules included."""
    return tuple(_argument(backend, leaf) for leaf in leaves(backend, tree))


def _argument(backend: Backend, leaf: Any) -> Argument:
    if not backend.tensors.is_tensor(leaf):
        return Argument(str(leaf).removeprefix("torch."), (), ())
    dtype = str(leaf.dtype).removeprefix("torch.")
    return Argument(dtype, tuple(map(int, leaf.shape)), tuple(map(int, leaf.stride())))


def leaves(backend: Backend, tree: Any) -> list[Any]:
    """The tensors and dtypes in it."""
    out: list[Any] = []

    def walk(value: Any, depth: int = 0) -> None:
        if backend.tensors.is_tensor(value) or type(value).__name__ == "dtype":
            out.append(value)
        elif depth < MAX_DEPTH:
            for child in _children(value):
                walk(child, depth + 1)

    walk(tree)
    return out


MAX_DEPTH = 6
"""Nesting of containers in which tensors are looked for."""


def _children(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    if hasattr(value, "func") and hasattr(value, "args") and hasattr(value, "keywords"):
        return [value.args, value.keywords]
    if callable(getattr(value, "parameters", None)) and hasattr(value, "buffers"):
        return [*value.parameters(), *value.buffers()]
    base = getattr(value, "base", None)
    return [base] if type(value).__name__ == "TensorDescriptor" else []
