"""The backend without a GPU: stand-in tensors, captured launches, real compilation for a target; nothing runs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from kerntune.base.device import Target, typical_device
from kerntune.errors import UsageError
from kerntune.gpu.fake_cuda import StandIns, static_reason


def empty_tensor(dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """A tensor on the GPU that torch reports, its content undefined; ``dtype`` is torch's name. :class:`UsageError` for
    a dtype that torch doesn't have."""
    import torch

    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype):
        raise UsageError(f"torch has no dtype {dtype}")
    return torch.empty_strided(shape, strides, dtype=found, device="cuda")


class StaticBackend:
    """Captures and compiles for a target, for whose usual device queries are answered."""

    name = "static"
    torch_device = "cuda"
    gpu = None
    ordinal = 0
    count = 1

    def __init__(self, target: Target) -> None:
        self.spec = typical_device(target)
        self.stand_ins = self.tensors = StandIns(self.spec)

    def current(self) -> int:
        """There is one device."""
        return 0

    def on(self, ordinal: int) -> StaticBackend:
        """There is no other."""
        return self

    def activate(self) -> AbstractContextManager[None]:
        """Install the stand-ins."""
        return self.stand_ins.activate()

    def end_reason(self, error: BaseException) -> str | None:
        """What stand-ins can't answer."""
        return static_reason(error)
