"""The numbers of the devices that don't exist, and which of them is current: one a thread, as with torch."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from kerntune.base.device import DeviceSpec


class DeviceNumbers:
    """Devices by number, all equal or of several kinds. With a single one every number means that."""

    def __init__(self, specs: Sequence[DeviceSpec]) -> None:
        self.specs = tuple(specs)
        self._thread = threading.local()

    def current(self, *ignored: Any) -> int:
        """The calling thread's device."""
        return int(getattr(self._thread, "number", 0))

    def set(self, device: Any) -> None:
        """Make a device current. ``RuntimeError`` as torch's if there is no such device."""
        self._thread.number = self.number(device)

    def number(self, device: Any = None) -> int:
        """The number of a device given as number, text, ``torch.device`` or tensor; the current one for None, for
        negative numbers and for what isn't on a GPU. ``RuntimeError`` as torch's if there is no such device."""
        index = _index(device)
        if index is None or index < 0:
            return self.current()
        if len(self.specs) == 1:
            return 0
        if index >= len(self.specs):
            raise RuntimeError("CUDA error: invalid device ordinal")
        return index

    def spec(self, device: Any = None) -> DeviceSpec:
        """What a device is."""
        return self.specs[self.number(device)]

    def context(self) -> type[DeviceContext]:
        """What replaces ``torch.cuda.device``."""
        return type("device", (DeviceContext,), {"numbers": self})


def _index(device: Any) -> int | None:
    if isinstance(device, torch.Tensor):
        device = device.device
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        return device.index if device.type == "cuda" else None
    return None if device is None else int(device)


class DeviceContext:
    """``torch.cuda.device`` and ``device_of``: a device is current meanwhile."""

    numbers: ClassVar[DeviceNumbers]

    def __init__(self, device: Any = None) -> None:
        self.idx = self.numbers.number(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = self.numbers.current()
        self.numbers.set(self.idx)

    def __exit__(self, *exc: object) -> None:
        self.numbers.set(self.prev_idx)
