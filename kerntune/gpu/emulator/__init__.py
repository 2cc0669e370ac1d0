"""Runs a recording without a GPU and without the code that made it: an emulator of Triton's intermediate code (TTIR).

It takes the launches, the TTIR and the memory of a recording alone, one program after the other. No Python of users
runs, and nothing is compiled. What needs their Python belongs to ``gpu/interpreter/``. The emulator draws what no GPU
promises, and looks for races and false hints; it knows no caches and no timing.
"""

from kerntune.gpu.emulator.replayed_results import replay_results

__all__ = ["replay_results"]
