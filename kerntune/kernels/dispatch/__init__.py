"""The launch of a tuned kernel, prepared: what an earlier call determined is looked up and not computed again."""

from __future__ import annotations

from kerntune.kernels.dispatch.launch_path import LaunchPath, Ran
from kerntune.kernels.dispatch.native import module as prepare_front

__all__ = ["LaunchPath", "Ran", "prepare_front"]
