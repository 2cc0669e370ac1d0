"""Stand-in tensors as the capture looks at them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from kerntune.base.users_line import UsersLine
from kerntune.errors import UsageError
from kerntune.gpu.base import OperatorListener
from kerntune.gpu.fake_cuda import StandIns
from kerntune.kernels.access import Access


class StandInTensors:
    """Stand-ins as the capture sees them."""

    def __init__(self, stand_ins: StandIns) -> None:
        self._stand_ins = stand_ins

    def is_tensor(self, value: Any) -> bool:
        """A tensor that claims to be on the GPU."""
        import torch

        return isinstance(value, torch.Tensor) and value.device.type == "cuda"

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
