"""The memory of a launch: copies of its tensors' storages, far apart, so that an access outside of them is detected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from triton.runtime.jit import TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from kerntune.errors import KernelFault

GUARD = 1 << 20
"""Bytes before and after each storage that no access may reach; they are never written, so they take no memory."""

SHOWN = 3
"""Addresses that a message names."""


class LaunchMemory:
    """One launch's complete storages, shared by views as in the original. Without them, an access outside of a tensor
    would crash the process or, inside another tensor, not be detected."""

    def __init__(self, kernel: str) -> None:
        self._kernel = kernel
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._starts = self._ends = np.zeros(0, np.uint64)

    def moved(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with their tensors' contents here."""
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            out = {name: self._moved(value) for name, value in arguments.items()}
        bounds = sorted((copy.data_ptr(), copy.data_ptr() + copy.numel()) for _, copy in self._copies.values())
        self._starts = np.array([start for start, _ in bounds], np.uint64)
        self._ends = np.array([end for _, end in bounds], np.uint64)
        return out

    def write_back(self) -> None:
        """Copy the contents back to the original tensors."""
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            for original, copy in self._copies.values():
                original.copy_(copy)

    def check(self, addresses: np.ndarray, mask: np.ndarray | None, size: int, does: str, program: Any) -> None:
        """:class:`KernelFault` if an active address, or the ``size`` bytes from it, is in none of the storages."""
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

    def _moved(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._moved_tensor(value)
        if isinstance(value, TensorWrapper):
            return TensorWrapper(self._moved(value.base), value.dtype)
        if isinstance(value, TensorDescriptor):
            words = {name: getattr(value, name) for name in value.__dataclass_fields__}
            return type(value)(**{**words, "base": self._moved(value.base)})
        if isinstance(value, tuple):
            parts = [self._moved(item) for item in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        return value

    def _moved_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._copies:
            original = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))
            room = torch.empty(storage.nbytes() + 2 * GUARD, dtype=torch.uint8)
            self._copies[key] = (original, room[GUARD : GUARD + storage.nbytes()].copy_(original))
        copy = self._copies[key][1]
        offset = tensor.storage_offset() + GUARD // tensor.element_size()
        made = torch.empty(0, dtype=tensor.dtype)
        return made.set_(copy.untyped_storage(), offset, tensor.size(), tensor.stride())

    def _message(self, wrong: np.ndarray, size: int, does: str, program: Any) -> str:
        places = ", ".join(self._place(int(a)) for a in wrong[:SHOWN]) + (", ..." if wrong.size > SHOWN else "")
        return (
            f"kernel {self._kernel} {does} {wrong.size} elements of {size} bytes outside of its tensors in program "
            f"{tuple(program)}: {places}; a mask is missing or wrong, or an offset is"
        )

    def _place(self, address: int) -> str:
        """A text for the place of an address, relative to the nearest tensor's memory."""
        after = [address - int(end) for end in self._ends if address >= int(end)]
        before = [int(start) - address for start in self._starts if address < int(start)]
        if after and (not before or min(after) < min(before)):
            return f"{min(after)} bytes after the end of a tensor"
        return f"{min(before)} bytes before a tensor" if before else f"{address:#x}"
