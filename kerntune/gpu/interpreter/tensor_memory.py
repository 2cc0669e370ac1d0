"""The memory of an interpreted launch: copies of its tensors' storages, far apart, so that an access outside shows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
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
    """Complete storages, shared by views as in the original; what isn't loaded is 0. Each is given with the name of an
    argument, and ``kernel`` is named in messages, too."""

    def __init__(self, kernel: str, storages: Iterable[tuple[str, Any]]) -> None:
        self._kernel = kernel
        self.place: Callable[[], tuple[int, int, int]] = lambda: (0, 0, 0)
        """Gives the program that runs."""
        by_key: dict[int, Any] = {}
        self._names: list[str] = []
        for name, storage in storages:
            if storage._cdata not in by_key:
                by_key[storage._cdata] = storage
                self._names.append(name)
        self._numbers = {key: number for number, key in enumerate(by_key)}
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            self._originals = [_bytes(storage) for storage in by_key.values()]
        super().__init__(self._originals, b"\0", random.Random(0), GUARD)
        real = [(original.ctypes.data, original.nbytes) for original in self._originals]
        copies = [(self.address(number), size) for number, (_, size) in enumerate(real)]
        self._there, self._here = _Ranges(copies), _Ranges(real)

    @property
    def count(self) -> int:
        """How many storages there are."""
        return len(self._originals)

    def write_back(self) -> None:
        """Copy the contents back to the original tensors."""
        for number, original in enumerate(self._originals):
            np.copyto(original, self.content(number))

    def name(self, storage: int) -> str:
        """By the argument."""
        return f"the memory of {self._names[storage]}"

    def storage_of(self, tensor: torch.Tensor) -> int:
        """A tensor's storage by number."""
        return self._numbers[tensor.untyped_storage()._cdata]

    def address_of(self, tensor: torch.Tensor) -> int:
        """Where a tensor's first element lies."""
        offset: int = tensor.storage_offset() * tensor.element_size()
        return self.address(self.storage_of(tensor)) + offset

    def pointer(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers as addresses: a tensor's ``data_ptr()`` leads to its copy here."""
        return self._here.moved(numbers, self._there)

    def number(self, addresses: np.ndarray) -> np.ndarray:
        """The inverse of :meth:`pointer`."""
        return self._there.moved(addresses, self._here)

    def check(self, addresses: np.ndarray, element: str, how: str) -> np.ndarray:
        """As there. :class:`KernelFault` for addresses in none of the storages, too."""
        size = bytes_of(element)
        inside = self._there.inside(addresses, size)
        if not inside.all():
            wrong = addresses[~inside]
            some = [self._there.told(int(address)) for address in wrong[:SHOWN]] + ["..."] * (wrong.size > SHOWN)
            raise KernelFault(
                f"kernel {self._kernel} {DOES[how]} {wrong.size} elements of {size} bytes outside of its tensors in "
                f"program {self.place()}: {', '.join(some)}; a mask is missing or wrong, or an offset is"
            )
        return super().check(addresses, element, how)


class _Ranges:
    """Ranges of addresses, by storage."""

    def __init__(self, ranges: list[tuple[int, int]]) -> None:
        starts = np.array([start for start, _ in ranges], np.int64)
        self._order = np.argsort(starts)
        self.starts = starts
        self._sorted = starts[self._order]
        self._ends = self._sorted + np.array([size for _, size in ranges], np.int64)[self._order]

    def inside(self, addresses: np.ndarray, size: int) -> np.ndarray:
        """Which of the addresses have so many bytes in one range."""
        if not self._sorted.size:
            return np.zeros(addresses.shape, np.bool_)
        owner = np.searchsorted(self._sorted, addresses, side="right") - 1
        return (owner >= 0) & (addresses + size <= self._ends[owner])

    def moved(self, addresses: np.ndarray, other: _Ranges) -> np.ndarray:
        """What lies in one of these ranges, at its place in the same one of ``other``."""
        if not self._sorted.size:
            return addresses
        owner = np.maximum(np.searchsorted(self._sorted, addresses, side="right") - 1, 0)
        number = self._order[owner]
        return np.where(self.inside(addresses, 0), addresses - self.starts[number] + other.starts[number], addresses)

    def told(self, address: int) -> str:
        """A text for the place of an address, relative to the nearest range."""
        after = [address - int(end) for end in self._ends if address >= int(end)]
        before = [int(start) - address for start in self._sorted if address < int(start)]
        if after and (not before or min(after) < min(before)):
            return f"{min(after)} bytes after the end of a tensor"
        return f"{min(before)} bytes before a tensor" if before else f"{address:#x}"


def _bytes(storage: Any) -> np.ndarray:
    everything = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))
    return np.asarray(everything.numpy())
