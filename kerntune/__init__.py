"""Tunes Triton kernels and guards their speed."""

from __future__ import annotations

__version__ = "0.1.0"
