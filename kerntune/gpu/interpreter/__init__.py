"""Kernels run in Triton's interpreter on the CPU, its known traps mended or refused by name."""

from __future__ import annotations

from kerntune.gpu.interpreter.session import Interpreter, limit_of

__all__ = ["Interpreter", "limit_of"]
