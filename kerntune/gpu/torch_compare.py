"""The comparison of :mod:`kerntune.gpu.compare` on the device, through torch: 32 MB in 1 ms instead of 0.4 s."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kerntune.gpu.compare import Difference, is_float, sensible

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
    """As :func:`kerntune.gpu.compare.compare_bytes`, chunk by chunk.

    Each kind of torch operation loads a module at its first use, 5 to 20 ms: bytes that agree need one, numbers that
    agree within the tolerance a few more, and only numbers that don't are counted.
    """
    import torch

    if all(torch.equal(expected(*part), actual(*part)) for part in _parts(nbytes)):
        return None
    kind = getattr(torch, dtype) if is_float(dtype) else torch.uint8
    nbytes = nbytes // kind.itemsize * kind.itemsize
    limit = 0.0
    if kind.is_floating_point:
        limit = tolerance * _scale(expected, nbytes, kind, sensible(dtype))
        pairs = ((_numbers(expected, part, kind), _numbers(actual, part, kind)) for part in _parts(nbytes))
        if all(bool(_near(a, b, limit).all()) for a, b in pairs):
            return None
    return _counted(expected, actual, nbytes, kind, limit)


def _counted(expected: Piece, actual: Piece, nbytes: int, kind: Any, limit: float) -> Difference | None:
    import torch

    count, first, values = 0, -1, (float("nan"), float("nan"))
    for part in _parts(nbytes):
        a, b = (_numbers(piece, part, kind) for piece in (expected, actual))
        off = _off(a, b, limit)
        found = int(off.sum())
        if found and first < 0:
            at = int(off.to(torch.uint8).argmax())
            first, values = part[0] // kind.itemsize + at, (float(a[at]), float(b[at]))
        count += found
    if not count:
        return None
    return Difference(count, nbytes // kind.itemsize, first, *values, "elements" if kind.is_floating_point else "bytes")


def _parts(nbytes: int) -> Iterator[tuple[int, int]]:
    return ((offset, min(CHUNK, nbytes - offset)) for offset in range(0, nbytes, CHUNK))


def _numbers(piece: Piece, part: tuple[int, int], kind: Any) -> Any:
    """A part's elements; narrow floats as float32, so that all kinds share their operations."""
    found = piece(*part).view(kind)
    return found.float() if kind.is_floating_point and kind.itemsize < 4 else found


def _scale(expected: Piece, nbytes: int, kind: Any, largest: float) -> float:
    import torch

    found = 0.0
    for part in _parts(nbytes):
        a = _numbers(expected, part, kind).abs()
        found = max(found, float(torch.where(a < largest, a, 0).max()))  # neither NaN nor infinity is less
    return found or 1.0


def _near(a: Any, b: Any, limit: float) -> Any:
    """Not where both are infinite or NaN."""
    return (a - b).abs() <= limit


def _off(a: Any, b: Any, limit: float) -> Any:
    if not a.dtype.is_floating_point:
        return a != b
    same = (a == b) | (a.isnan() & b.isnan())
    return ~same & ~_near(a, b, limit)
