"""The earlier place of :mod:`kerntune.tuning.cache`: kept for those who import it, with a DeprecationWarning."""

from __future__ import annotations

from kerntune.base.moved import forward

__getattr__ = forward("kerntune.cache", "kerntune.tuning.cache")
