"""The way of a tuned kernel's call to the driver: what was decided once is looked up, not worked out again."""

from __future__ import annotations

from kerntune.dispatch.native import module as prepare_front
from kerntune.dispatch.path import LaunchPath, Ran

__all__ = ["LaunchPath", "Ran", "prepare_front"]
