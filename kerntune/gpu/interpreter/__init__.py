"""Runs kernels on the CPU while tests run as they are, for ``--kerntune-interpret``.

Tensors "on the GPU" and launches are here; ``gpu/emulator/`` runs the TTIR that Triton's front end makes of a launch.
Nothing is timed or judged here, and no baseline comes of it.
"""

from __future__ import annotations

from kerntune.kernels.compat.torch_private import require_stand_in_parts

require_stand_in_parts()  # first: what is imported below takes them from torch

from kerntune.gpu.interpreter.session import Interpreter, limit_of  # noqa: E402

__all__ = ["Interpreter", "limit_of"]
