"""No GPU: stand-in tensors, captured launches, real compilation for any target; nothing runs."""

from __future__ import annotations

import contextlib

from kerntune.base.device import Target, typical_device
from kerntune.gpu.fake_cuda import StandIns, static_reason
from kerntune.gpu.tensor_views import StandInTensors


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
