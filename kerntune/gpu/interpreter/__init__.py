"""Runs kernels in Triton's interpreter on the CPU, for ``--kerntune-interpret``.

The interpreter's known errors are corrected, or raise an error that names them: types, memory outside of tensors,
launches that never end. Nothing is compiled, timed or judged here, and no baseline comes of it.
"""

from __future__ import annotations

from kerntune.kernels.compat.torch_private import require_stand_in_parts

require_stand_in_parts()  # first: what is imported below takes them from torch

from kerntune.gpu.interpreter.session import Interpreter, limit_of  # noqa: E402

__all__ = ["Interpreter", "limit_of"]
