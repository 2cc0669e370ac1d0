"""The comparison of :mod:`kerntune.backend.compare` on the device, through torch: 32 MB in 1 ms instead of 0.4 s."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kerntune.backend.compare import Difference, is_float, sensible

CHUNK = 1 << 24
"""Bytes compared at once: comparing takes no more than about ten times this of the device's memory."""

Piece = Callable[[int, int], Any]
"""Bytes from an offset on, as many as are wanted, as a torch tensor of uint8 on the device."""


class DeviceBytes:
    """Device memory as other libraries take it (the CUDA array interface, version 3)."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3, "strides": None,
        }  # fmt: skip


def compare_pieces(expected: Piece, actual: Piece, nbytes: int, dtype: str, tolerance: float) -> Difference | None:
    """As :func:`kerntune.backend.compare.compare_bytes`, chunk by chunk."""
    import torch

    if all(torch.equal(expected(*part), actual(*part)) for part in _parts(nbytes)):
        return None
    kind = getattr(torch, dtype) if is_float(dtype) else torch.uint8
    width = kind.itemsize
    nbytes = nbytes // width * width
    limit = tolerance * _scale(expected, nbytes, kind, sensible(dtype)) if kind.is_floating_point else 0.0
    count, first, values = 0, -1, (float("nan"), float("nan"))
    for offset, size in _parts(nbytes):
        a, b = (piece(offset, size).view(kind) for piece in (expected, actual))
        off = _off(a, b, limit)
        found = int(off.sum())
        if found and first < 0:
            at = int(off.to(torch.uint8).argmax())
            first, values = offset // width + at, (float(a[at]), float(b[at]))
        count += found
    if not count:
        return None
    return Difference(count, nbytes // width, first, *values, "elements" if kind.is_floating_point else "bytes")


def _parts(nbytes: int) -> Iterator[tuple[int, int]]:
    return ((offset, min(CHUNK, nbytes - offset)) for offset in range(0, nbytes, CHUNK))


def _scale(expected: Piece, nbytes: int, kind: Any, largest: float) -> float:
    import torch

    found = 0.0
    for part in _parts(nbytes):
        a = expected(*part).view(kind).abs()
        found = max(found, float(torch.where(a < largest, a, 0).max()))  # neither NaN nor infinity is less
    return found or 1.0


def _off(a: Any, b: Any, limit: float) -> Any:
    import torch

    if not a.dtype.is_floating_point:
        return a != b
    x, y = (a, b) if a.dtype == torch.float64 else (a.float(), b.float())
    same = (x == y) | (x.isnan() & y.isnan())
    return ~same & ~((x - y).abs() <= limit)
