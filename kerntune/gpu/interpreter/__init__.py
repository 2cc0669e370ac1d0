"""Runs kernels in Triton's interpreter on the CPU. Its known errors are corrected, or raise an error that names
them."""

from __future__ import annotations

from kerntune.gpu.interpreter.session import Interpreter, limit_of

__all__ = ["Interpreter", "limit_of"]
