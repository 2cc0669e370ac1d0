"""Full-size stand-ins for CUDA tensors on a machine without a GPU: no memory, no execution.

What torch, Triton and NVML answer for a device that isn't there, launches that end before the device, a small autograd
engine. A module belongs here if it replaces a function of another library; every replacement is undone by ``patches``.
What is made of the captured launches is never decided here: that is :mod:`kerntune.capture` and :mod:`kerntune.gate`.
"""

from __future__ import annotations

from kerntune.gpu.fake_cuda.end_reasons import StandInEnd, static_reason
from kerntune.gpu.fake_cuda.levels import Level
from kerntune.gpu.fake_cuda.session import StandIns

__all__ = ["Level", "StandInEnd", "StandIns", "static_reason"]
