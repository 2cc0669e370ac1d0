"""Full-size stand-ins for CUDA tensors on a machine without a GPU: no memory is allocated, no kernel is executed."""

from __future__ import annotations

from kerntune.gpu.fake_cuda.end_reasons import StandInEnd, static_reason
from kerntune.gpu.fake_cuda.levels import Level
from kerntune.gpu.fake_cuda.session import StandIns

__all__ = ["Level", "StandInEnd", "StandIns", "static_reason"]
