"""The earlier place of :mod:`kerntune.heuristics.hints`: kept for those who import it, with a DeprecationWarning."""

from __future__ import annotations

from kerntune.base.moved import forward

__getattr__ = forward("kerntune.hints", "kerntune.heuristics.hints")
