"""The way of a tuned kernel's call to the driver: what was decided once is looked up, not worked out again."""

from __future__ import annotations

from kerntune.kernels.dispatch.launch_path import LaunchPath, Ran
from kerntune.kernels.dispatch.native import module as prepare_front

__all__ = ["LaunchPath", "Ran", "prepare_front"]
