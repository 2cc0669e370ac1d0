"""Full-size stand-ins for CUDA tensors on a machine without a GPU: no memory, no execution.

What torch, Triton and NVML answer for a device that isn't there, launches that end before the device, a small autograd
engine. A module belongs here if it replaces a function of another library; every replacement is undone by ``patches``.
What is made of the captured launches is never decided here: that is :mod:`kerntune.capture` and :mod:`kerntune.gate`.
"""

from __future__ import annotations

from kerntune.kernels.compat.torch_private import require_stand_in_parts

require_stand_in_parts()  # first: what is imported below takes them from torch

from kerntune.gpu.fake_cuda.patches import StandInEnd, static_reason  # noqa: E402
from kerntune.gpu.fake_cuda.session import StandIns  # noqa: E402

__all__ = ["StandInEnd", "StandIns", "static_reason"]
