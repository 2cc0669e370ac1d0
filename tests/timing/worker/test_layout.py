"""Memory and code lie elsewhere in each request, and nothing is left behind."""

from __future__ import annotations

import random
import weakref
from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from samples import recording

from kerntune.errors import MeasurementError
from kerntune.timing.worker.serve import Scatter

MAX_LOADS = 3
MAX_PADS = 12
PAD_BITS = (9, 23)


@dataclass(eq=False)
class Pad:
    nbytes: int


class Device:
    """Counts what is held."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.held: weakref.WeakSet[Pad] = weakref.WeakSet()
        self.loaded: list[str] = []

    def allocate(self, nbytes: int) -> Pad:
        self.sizes.append(nbytes)
        pad = Pad(nbytes)
        self.held.add(pad)
        return pad

    def load(self, binary: Any, data: bytes) -> str:
        self.loaded.append(binary.sha256)
        return str(binary.sha256)

    def unload(self, function: str) -> None:
        self.loaded.remove(function)


def artifacts() -> dict[str, bytes]:
    return {b.sha256: b"cubin" for b in recording().binaries}


def scattered(seed: int) -> tuple[Device, Scatter]:
    device = Device()
    made = Scatter(device, random.Random(seed))  # type: ignore[arg-type]  # all of a device that it uses
    made.memory()
    made.code((recording(), recording()), artifacts())
    return device, made


@given(st.integers(0, 10_000))
def test_nothing_is_left(seed: int) -> None:
    device, made = scattered(seed)
    assert len(device.sizes) <= MAX_PADS
    assert all(1 << PAD_BITS[0] >> 1 <= n <= 1 << PAD_BITS[1] for n in device.sizes)
    assert len(device.loaded) <= MAX_LOADS * len(artifacts())
    made.close()
    assert device.loaded == []
    assert len(device.held) == 0


def test_layouts_differ() -> None:
    seen = [scattered(seed) for seed in range(100)]
    assert len({tuple(d.sizes) for d, _ in seen}) > 70
    assert {len(d.sizes) for d, _ in seen} == set(range(MAX_PADS + 1))
    sizes = sorted(n for d, _ in seen for n in d.sizes)
    assert sizes[0] < 1024, "half of a pad of 512 B at least"
    assert sizes[-1] > 4 << 20
    binaries = [b.sha256 for b in recording().binaries]
    assert {d.loaded.count(b) for d, _ in seen for b in binaries} == set(range(MAX_LOADS + 1))
    assert any(0 < len(d.held) < len(d.sizes) for d, _ in seen), "holes among what stays"


def test_a_full_device_has_fewer_pads() -> None:
    class Full(Device):
        def allocate(self, nbytes: int) -> Pad:
            if len(self.sizes) == 2:
                raise MeasurementError("no room")
            return super().allocate(nbytes)

    for seed in range(20):
        device = Full()
        Scatter(device, random.Random(seed)).memory()  # type: ignore[arg-type]
        assert len(device.sizes) <= 2


def test_what_cannot_be_loaded_is_left_alone() -> None:
    device = Device()
    made = Scatter(device, random.Random(0))  # type: ignore[arg-type]
    made.code((recording(),) * 2, {})
    broken = tuple(msgspec.structs.replace(b, unreplayable="another launcher") for b in recording().binaries)
    for _ in range(20):
        made.code((msgspec.structs.replace(recording(), binaries=broken),), artifacts())
    assert device.loaded == []
