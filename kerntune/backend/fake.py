"""The earlier place of :mod:`kerntune.gpu.scripted`: kept for those who import it, with a DeprecationWarning."""

from __future__ import annotations

from kerntune.base.moved import forward

__getattr__ = forward("kerntune.backend.fake", "kerntune.gpu.scripted")
