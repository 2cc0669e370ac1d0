"""Runs kernels in Triton's interpreter on the CPU; its known errors are corrected, or raise an error."""

from __future__ import annotations

from kerntune.gpu.interpreter.session import Interpreter, limit_of

__all__ = ["Interpreter", "limit_of"]
