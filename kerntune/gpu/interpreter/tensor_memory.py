"""The memory of an interpreted launch: copies of its tensors' storages, far apart, so that an access outside shows."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from kerntune.errors import KernelFault
from kerntune.gpu.emulator.elements import bytes_of
from kerntune.gpu.emulator.flat_memory import FlatMemory

GUARD = 1 << 20
"""Bytes around each storage that no access may reach."""

SHOWN = 3
"""Addresses that a message names."""

DOES = {"read": "reads", "written": "writes", "updated": "updates"}


class TensorMemory(FlatMemory):
    """Complete storages, shared by views as in the original. Each is given with an argument's name, which messages
    have. What isn't loaded is 0."""

    def __init__(self, storages: Iterable[tuple[str, Any]]) -> None:
        found: dict[int, tuple[str, Any]] = {}
        for name, storage in storages:
            found.setdefault(storage._cdata, (name, storage))
        self._numbers = {key: number for number, key in enumerate(found)}
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            self._originals = [_bytes(storage) for _, storage in found.values()]
        super().__init__(self._originals, b"\0", random.Random(0), GUARD)
        self.names = {number: name for number, (name, _) in enumerate(found.values())}
        bounds = sorted((self.address(i), self.address(i) + one.nbytes) for i, one in enumerate(self._originals))
        self._starts, self._ends = np.array(bounds, np.int64).reshape(-1, 2).T

    @property
    def count(self) -> int:
        """How many storages there are."""
        return len(self._originals)

    def write_back(self) -> None:
        """Copy the contents back to the original tensors."""
        for number, original in enumerate(self._originals):
            np.copyto(original, self.content(number))

    def storage_of(self, tensor: torch.Tensor) -> int:
        """A tensor's storage by number."""
        return self._numbers[tensor.untyped_storage()._cdata]

    def address_of(self, tensor: torch.Tensor) -> int:
        """Where a tensor's first element lies."""
        offset: int = tensor.storage_offset() * tensor.element_size()
        return self.address(self.storage_of(tensor)) + offset

    def pointer(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers as addresses: a tensor's ``data_ptr()`` leads to its copy here."""
        found = numbers
        for number, original in enumerate(self._originals):
            offset = numbers - original.ctypes.data
            found = np.where((offset >= 0) & (offset < original.nbytes), self.address(number) + offset, found)
        return found

    def check(self, addresses: np.ndarray, element: str, how: str) -> np.ndarray:
        """As there. :class:`KernelFault` for addresses in none of the storages, too."""
        size = bytes_of(element)
        owner = np.searchsorted(self._starts, addresses, side="right") - 1
        inside = owner >= 0
        if self._ends.size:
            inside &= addresses + size <= self._ends[owner]
        if not inside.all():
            wrong = addresses[~inside]
            some = [self._told_near(int(address)) for address in wrong[:SHOWN]] + ["..."] * (wrong.size > SHOWN)
            raise KernelFault(
                f"it {DOES[how]} {wrong.size} elements of {size} bytes outside of its tensors: {', '.join(some)}; a "
                "mask is missing or wrong, or an offset is"
            )
        return super().check(addresses, element, how)

    def _told_near(self, address: int) -> str:
        after = [(address - int(end), "bytes after the end of a tensor") for end in self._ends if address >= end]
        before = [(int(start) - address, "bytes before a tensor") for start in self._starts if address < start]
        return " ".join(map(str, min(after + before, default=(f"{address:#x}",))))


def _bytes(storage: Any) -> np.ndarray:
    everything = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))
    return np.asarray(everything.numpy())
