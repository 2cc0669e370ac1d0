"""Runs kernels without a GPU and without their Python: an emulator of Triton's intermediate code (TTIR).

It takes the TTIR and the memory of a launch, or of a recording's, and runs one program after the other. No Python of
users runs, and nothing is compiled: that belongs to ``gpu/interpreter/``. The emulator looks for races and false hints,
and draws for a recording what no GPU promises; it knows no caches and no timing.
"""

from kerntune.gpu.emulator.replayed_results import replay_results

__all__ = ["replay_results"]
