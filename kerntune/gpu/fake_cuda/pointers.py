"""Synthetic device addresses."""

from __future__ import annotations

import weakref

import torch
from torch._subclasses.fake_tensor import FakeTensor

ALIGNMENT = 256
"""Bytes. cudaMalloc aligns to at least 256 (CUDA C++ Programming Guide, device memory accesses)."""
FIRST_ADDRESS = 1 << 40
"""The address of the first storage; too large for a 32-bit check to treat it as a null or small pointer."""


class Addresses:
    """Gives every storage an address. A view's address includes its offset, so its alignment is correct too."""

    def __init__(self) -> None:
        self._bases: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()
        self._next = FIRST_ADDRESS

    def storage(self, tensor: torch.Tensor) -> int:
        """The address of a tensor's storage: real for a real tensor, else synthetic and a multiple of 256."""
        storage = tensor.untyped_storage()
        if not isinstance(tensor, FakeTensor):
            return int(storage.data_ptr())
        base = self._bases.get(storage)
        if base is None:
            base = self._bases[storage] = self._reserve(storage.nbytes())
        return base

    def tensor(self, tensor: torch.Tensor) -> int:
        """The address of a tensor's first element; 0 for an empty tensor, as torch answers."""
        if tensor.numel() == 0:
            return 0
        offset: int = tensor.storage_offset() * tensor.element_size()
        return self.storage(tensor) + offset

    def reserved(self, address: int) -> bool:
        """Whether an address has been given to a storage."""
        return FIRST_ADDRESS <= address < self._next

    def _reserve(self, size: int) -> int:
        base = self._next
        self._next += (size // ALIGNMENT + 1) * ALIGNMENT
        return base
