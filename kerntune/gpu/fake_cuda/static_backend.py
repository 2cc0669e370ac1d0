"""The backend without a GPU: stand-in tensors, captured launches, real compilation for any target; nothing runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from kerntune.base.device import Target, typical_device
from kerntune.base.users_line import UsersLine
from kerntune.errors import UsageError
from kerntune.gpu.base import OperatorListener
from kerntune.gpu.fake_cuda import StandIns, static_reason
from kerntune.kernels.access import Access


class StandInTensors:
    """Stand-ins as the capture sees them."""

    def __init__(self, stand_ins: StandIns) -> None:
        self._stand_ins = stand_ins

    def is_tensor(self, value: Any) -> bool:
        """A tensor that claims to be on the GPU."""
        # a stand-in's `device` is looked up in Python, and this is asked for each argument of each operator
        device = getattr(value, "fake_device", None) or (value.device if hasattr(value, "untyped_storage") else None)
        return device is not None and device.type == "cuda"

    def storage_address(self, tensor: Any) -> int:
        """Synthetic, 256-byte aligned."""
        return self._stand_ins.storage_address(tensor)

    def address(self, tensor: Any) -> int:
        """The storage's address and the view's offset."""
        return self._stand_ins.address(tensor)

    def specializing(self) -> contextlib.AbstractContextManager[None]:
        """Makes ``data_ptr`` answer synthetic addresses."""
        return self._stand_ins.specializing()

    def watching(self, listener: OperatorListener) -> contextlib.AbstractContextManager[None]:
        """Operators on stand-ins, of all threads."""
        return self._stand_ins.watch.to(listener)

    def compiling(
        self, begin: Callable[[contextlib.ExitStack], None]
    ) -> contextlib.AbstractContextManager[Sequence[str]]:
        """Code is generated for the device that doesn't exist; what only a time decides is guessed, and noted."""
        return self._stand_ins.compiled.generating(begin)

    def launched(self, pointers: Sequence[Any], access: Callable[[], Access]) -> None:
        """What they hold is unknown from now on, as far as the kernel writes it."""
        self._stand_ins.launched(pointers, access)

    def take_unanswered(self) -> list[tuple[UsersLine, str]]:
        """Where a value was asked for that no stand-in has."""
        return self._stand_ins.take_unanswered()

    def supply(self, tensor: Any, values: Any) -> None:
        """The tensor has these values from now on."""
        self._stand_ins.supply(tensor, values)


def empty_tensor(dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """A tensor on the GPU that torch reports, its content undefined; ``dtype`` is torch's name. :class:`UsageError` for
    a dtype that torch doesn't have."""
    import torch

    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype):
        raise UsageError(f"torch has no dtype {dtype}")
    return torch.empty_strided(shape, strides, dtype=found, device="cuda")


class StaticBackend:
    """Captures and compiles for one or several targets.

    Device queries are answered for the first, so others get what it would see launched: pytest's runs have one each.
    """

    name = "static"
    torch_device = "cuda"
    gpu = None
    ordinal = 0
    count = 1

    def __init__(self, targets: tuple[Target, ...]) -> None:
        self.targets = targets
        self.spec = typical_device(targets[0])
        self.stand_ins = StandIns(self.spec)
        self.tensors = StandInTensors(self.stand_ins)

    def current(self) -> int:
        """There is one device."""
        return 0

    def on(self, ordinal: int) -> StaticBackend:
        """There is no other."""
        return self

    def activate(self) -> contextlib.AbstractContextManager[None]:
        """Install the stand-ins."""
        return self.stand_ins.activate()

    def end_reason(self, error: BaseException) -> str | None:
        """What stand-ins can't answer."""
        return static_reason(error)
