"""What the kernels of :mod:`kerntune.gpu.result_kernels` do on a scripted GPU, by numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Union

from kerntune.gpu.number_formats import (
    BITS,
    FLOAT_FORMATS,
    INTEGER_FORMATS,
    ElementCounts,
    NumberFormat,
    count_differences,
)
from kerntune.gpu.result_kernels import OUT, PREFIX
from kerntune.gpu.scripted_work import FakeBuffer

MOST = 1 << 21
"""Elements that are looked at: a scripted launch changes all of a buffer, or its start."""

BufferPlace = tuple[FakeBuffer, int]
"""A buffer, and an offset in it."""

KernelArguments = Mapping[str, Union[BufferPlace, int]]
"""Arguments by name."""


def run_result_kernel(symbol: str, given: KernelArguments) -> None:
    """Run one of the kernels."""
    name = symbol.removeprefix(PREFIX)
    if name.startswith("equal"):
        _equal(given, int(name.removeprefix("equal")))
    elif name.startswith("mark"):
        _mark(given, int(name.removeprefix("mark")))
    else:
        _count(given, _format(name.removeprefix("count_")))


def _format(name: str) -> NumberFormat:
    return FLOAT_FORMATS.get(name) or INTEGER_FORMATS.get(name) or BITS


def _equal(given: KernelArguments, width: int) -> None:
    buffer, offset = _place(given, "out")
    if _read(given, "a", width) != _read(given, "b", width):
        buffer.put_at(offset, (1).to_bytes(8, "little"))


def _mark(given: KernelArguments, width: int) -> None:
    import numpy as np

    kind = f"<u{width}"
    x, y = (np.frombuffer(_read(given, name, width), kind) for name in ("a", "b"))
    buffer, offset = _place(given, "mask")
    before = np.frombuffer(buffer.content.read(offset, x.size), "u1")
    buffer.put_at(offset, (before | (x != y)).astype("u1").tobytes())


def _count(given: KernelArguments, kind: NumberFormat) -> None:
    mask = _read(given, "mask", 1) if isinstance(given["mask"], tuple) else None
    x, y = (_read(given, name, kind.width) for name in ("a", "b"))
    wanted, poisoned = (_number(given, name) for name in ("wanted", "poisoned"))
    found = count_differences(x, y, mask, kind, bool(poisoned), wanted)
    buffer, offset = _place(given, "out")
    before = ElementCounts(*OUT.unpack(buffer.content.read(offset, OUT.size)))
    buffer.put_at(offset, OUT.pack(*before.with_later(found, 0)))


def _read(given: KernelArguments, name: str, width: int) -> bytes:
    buffer, offset = _place(given, name)
    return buffer.content.read(offset, min(_number(given, "count"), MOST) * width)


def _place(given: KernelArguments, name: str) -> BufferPlace:
    found = given[name]
    assert isinstance(found, tuple)
    return found


def _number(given: KernelArguments, name: str) -> int:
    found = given[name]
    assert isinstance(found, int)
    return found
