"""The memory of an emulated launch: storages at addresses of one space, with guard zones that nothing may write."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from kerntune.errors import KernelFault
from kerntune.gpu.emulator.elements import bytes_of, from_bits, to_bits

FIRST_BASE, LAST_BASE = 1 << 40, 1 << 46
"""Between these is the first address, drawn anew for each memory. Small integers are none."""

GUARD = 1 << 14
"""Bytes of memory between storages that belong to none of them."""

ALIGN = 1 << 9
"""Of storages: allocations of torch lie so."""

MOST_GAP = 64
"""Storages are up to so many times :data:`ALIGN` further apart than :data:`GUARD`."""


class FlatMemory:
    """``contents`` are the storages' first bytes; all else holds bytes of ``poison``, a repeating pattern.

    Where storages lie, and in which order, is drawn by ``chance``: no kernel may find one from another's address, or
    know by an address that it is emulated.
    """

    def __init__(self, contents: Sequence[np.ndarray], poison: bytes, chance: random.Random) -> None:
        self._base = chance.randrange(FIRST_BASE, LAST_BASE, ALIGN)
        self._places = [(0, 0)] * len(contents)
        end = GUARD
        for number in chance.sample(range(len(contents)), len(contents)):
            size = len(contents[number])
            self._places[number] = (end, size)
            end += -(-(size + GUARD) // ALIGN) * ALIGN + chance.randrange(MOST_GAP) * ALIGN
        end += GUARD
        pattern = self._poison = np.frombuffer(poison, np.uint8)
        self._bytes = np.resize(pattern, -(-end // 8) * 8)
        for (place, size), content in zip(self._places, contents, strict=True):
            self._bytes[place : place + size] = content
        self._first = self._bytes.copy()

    def undefined(self, element: str) -> np.ndarray:
        """An element of poison: what is taken from no memory at all."""
        size = bytes_of(element)
        return np.asarray(from_bits(np.resize(self._poison, size).view(f"u{size}"), element)[0])

    def address(self, storage: int) -> int:
        """Where a storage begins."""
        return self._base + self._places[storage][0]

    def content(self, storage: int) -> np.ndarray:
        """What a storage holds now."""
        place, size = self._places[storage]
        return self._bytes[place : place + size]

    def damage(self) -> int:
        """Bytes outside of all storages that have changed."""
        inside = np.zeros(len(self._bytes), np.bool_)
        for place, size in self._places:
            inside[place : place + size] = True
        return int(np.count_nonzero((self._bytes != self._first) & ~inside))

    def load(self, addresses: np.ndarray, element: str) -> np.ndarray:
        """Elements at addresses. :class:`KernelFault` outside of the space."""
        size = bytes_of(element)
        places = self._offsets(addresses, size, "read")
        if not (places % size).any():
            bits = np.asarray(self._bytes.view(f"u{size}")[places // size])
        else:
            bits = np.ascontiguousarray(self._bytes[places[..., None] + np.arange(size)]).view(f"u{size}")[..., 0]
        return from_bits(bits, element)

    def store(self, addresses: np.ndarray, values: np.ndarray, element: str) -> None:
        """Write elements; of several to one address the last one stays."""
        size = bytes_of(element)
        places = self._offsets(addresses, size, "written")
        bits = to_bits(values, element)
        bits = bits.view(np.uint8) if element == "i1" else bits.view(f"u{size}")
        if not (places % size).any():
            self._bytes.view(f"u{size}")[places // size] = bits
        else:
            self._bytes[places[..., None] + np.arange(size)] = np.ascontiguousarray(bits)[..., None].view(np.uint8)

    def _offsets(self, addresses: np.ndarray, size: int, how: str) -> np.ndarray:
        places = addresses - self._base
        if places.size and (places.min() < 0 or places.max() > len(self._bytes) - size):
            wrong = addresses[(places < 0) | (places > len(self._bytes) - size)].flat[0]
            raise KernelFault(f"memory at {int(wrong) & (1 << 64) - 1:#x} is {how}, and no tensor is near")
        return places
