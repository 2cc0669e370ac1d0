"""The memory that a launch may touch: its tensors' storages. Anything else would crash the process, or not be noticed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from kerntune.errors import KernelFault

SHOWN = 3
"""Addresses that a message names."""


class Bounds:
    """Address ranges of one launch's tensors, views' whole storages included."""

    def __init__(self, kernel: str, arguments: Iterable[Any]) -> None:
        self._kernel = kernel
        ranges = sorted({_range(t) for value in arguments for t in tensors_in(value)})
        self._starts = np.array([start for start, _ in ranges], np.uint64)
        self._ends = np.array([end for _, end in ranges], np.uint64)

    def check(self, addresses: np.ndarray, mask: np.ndarray | None, size: int, does: str, program: Any) -> None:
        """:class:`KernelFault` if an active address, or the ``size`` bytes from it, is in none of the ranges."""
        active = addresses if mask is None else np.broadcast_to(addresses, mask.shape)[mask]
        at = active.ravel().astype(np.uint64)
        if at.size == 0:
            return
        owner = np.searchsorted(self._starts, at, side="right") - 1
        inside = owner >= 0
        if self._starts.size:
            inside &= at + np.uint64(size) <= self._ends[np.maximum(owner, 0)]
        if not inside.all():
            raise KernelFault(self._message(at[~inside], size, does, program))

    def _message(self, wrong: np.ndarray, size: int, does: str, program: Any) -> str:
        places = ", ".join(self._place(int(a)) for a in wrong[:SHOWN]) + (", ..." if wrong.size > SHOWN else "")
        return (
            f"kernel {self._kernel} {does} {wrong.size} elements of {size} bytes outside of its tensors in program "
            f"{tuple(program)}: {places}; a mask is missing or wrong, or an offset is"
        )

    def _place(self, address: int) -> str:
        """Where an address lies, said by the tensor before it."""
        before = int(np.searchsorted(self._starts, np.uint64(address), side="right")) - 1
        if before < 0:
            return f"{address:#x}"
        return f"{address - int(self._ends[before])} bytes after the end of a tensor"


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in an argument of a launch."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, TensorDescriptor) or hasattr(value, "data_ptr"):
        yield from tensors_in(value.base)  # a TensorWrapper (triton.reinterpret) has a base as well


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
