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


def repeated(pattern: bytes, size: int) -> np.ndarray:
    """So many bytes of a repeating pattern, which may be written to."""
    return np.frombuffer(bytearray(pattern) * -(-size // len(pattern)), np.uint8)[:size]


class FlatMemory:
    """``contents`` are the storages' first bytes; all else holds bytes of ``poison``, a repeating pattern.

    Where storages lie, and in which order, is drawn by ``chance``: no kernel may find one from another's address, or
    know by an address that it is emulated.
    """

    def __init__(
        self, contents: Sequence[np.ndarray], poison: bytes, chance: random.Random, guard: int = GUARD
    ) -> None:
        self.names: dict[int, str] = {}
        """Arguments that point to storages, for messages."""

        self.base = chance.randrange(FIRST_BASE, LAST_BASE, ALIGN)
        """The first address."""

        self._places = [(0, 0)] * len(contents)
        end = guard
        for number in chance.sample(range(len(contents)), len(contents)):
            size = len(contents[number])
            self._places[number] = (end, size)
            end += -(-(size + guard) // ALIGN) * ALIGN + chance.randrange(MOST_GAP) * ALIGN
        end += guard
        self._poison, size = poison, -(-end // 8) * 8
        self._bytes = repeated(poison, size) if any(poison) else np.zeros(size, np.uint8)
        for (place, size), content in zip(self._places, contents, strict=True):
            self._bytes[place : place + size] = content

    @property
    def size(self) -> int:
        """Bytes of the space."""
        return len(self._bytes)

    def told(self, place: int) -> str:
        """What lies so many bytes behind the base, for a reader."""
        for number, (first, size) in enumerate(self._places):
            if first <= place < first + size:
                name = self.names.get(number)
                return f"byte {place - first} of " + (f"storage {number}" if name is None else f"the memory of {name}")
        return "memory beside all storages"

    def undefined(self, element: str) -> np.ndarray:
        """An element of poison: what is taken from no memory at all."""
        size = bytes_of(element)
        return np.asarray(from_bits(repeated(self._poison, size).view(f"u{size}"), element)[0])

    def address(self, storage: int) -> int:
        """Where a storage begins."""
        return self.base + self._places[storage][0]

    def content(self, storage: int) -> np.ndarray:
        """What a storage holds now."""
        place, size = self._places[storage]
        return self._bytes[place : place + size]

    def damage(self) -> int:
        """Bytes outside of all storages that have changed."""
        inside = np.zeros(len(self._bytes), np.bool_)
        for place, size in self._places:
            inside[place : place + size] = True
        return int(np.count_nonzero((self._bytes != repeated(self._poison, len(self._bytes))) & ~inside))

    def load(self, addresses: np.ndarray, element: str) -> np.ndarray:
        """Elements at addresses. :class:`KernelFault` outside of the space, and for those that aren't multiples of the
        element's size."""
        return from_bits(self._bits(addresses, element, "read"), element)

    def store(self, addresses: np.ndarray, values: np.ndarray, element: str) -> None:
        """Write elements. :class:`KernelFault` as of :meth:`load`, and for several values to one address, of which any
        may stay."""
        size = bytes_of(element)
        places = self.check(addresses, element, "written") // size
        bits, memory = _pattern(values, element), self._bytes.view(f"u{size}")
        memory[places] = bits
        lost = memory[places] != bits
        if lost.any():
            where = self.told(int(places[lost].flat[0]) * size)
            raise KernelFault(f"a race: one store writes several values to {where}")

    def holds(self, addresses: np.ndarray, values: np.ndarray, element: str) -> np.ndarray:
        """Where these values are already."""
        return np.asarray(self._bits(addresses, element, "read") == _pattern(values, element))

    def check(self, addresses: np.ndarray, element: str, how: str) -> np.ndarray:
        """How far from the base the elements are. :class:`KernelFault` where none can be."""
        places, size = addresses - self.base, bytes_of(element)
        if places.size and (places.min() < 0 or places.max() > len(self._bytes) - size):
            wrong = addresses[(places < 0) | (places > len(self._bytes) - size)].flat[0]
            raise KernelFault(f"memory at {int(wrong) & (1 << 64) - 1:#x} is {how}, and no tensor is near")
        odd = places % size != 0
        if odd.any():
            wrong = int(places[odd].flat[0])
            raise KernelFault(f"{self.told(wrong)} is {how} as {size} bytes, which need an address that is a multiple")
        return places

    def _bits(self, addresses: np.ndarray, element: str, how: str) -> np.ndarray:
        size = bytes_of(element)
        return np.asarray(self._bytes.view(f"u{size}")[self.check(addresses, element, how) // size])


def _pattern(values: np.ndarray, element: str) -> np.ndarray:
    bits = to_bits(values, element)
    return np.asarray(bits.view(f"u{bits.dtype.itemsize}"))
