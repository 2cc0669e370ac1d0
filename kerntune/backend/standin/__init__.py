"""Full-size stand-ins for CUDA tensors on a machine without a GPU: nothing is allocated, nothing is executed."""

from __future__ import annotations

from kerntune.backend.standin.ends import StandInEnd, static_reason
from kerntune.backend.standin.session import StandIns
from kerntune.backend.standin.words import Level

__all__ = ["Level", "StandInEnd", "StandIns", "static_reason"]
