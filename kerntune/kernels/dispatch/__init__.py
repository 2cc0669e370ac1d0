"""The launch of a tuned kernel, prepared: what an earlier call determined is looked up and not computed again.

One Python function for each form of call, written as text, and C that launches without Python. Which config is launched
is never decided here, and whatever is not prepared goes back to the tuner.
"""

from __future__ import annotations

from kerntune.kernels.dispatch.launch_path import LaunchOutcome, LaunchPath
from kerntune.kernels.dispatch.native import module as compile_front

__all__ = ["LaunchOutcome", "LaunchPath", "compile_front"]
