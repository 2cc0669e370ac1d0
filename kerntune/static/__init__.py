"""Figures of compiled code without a run: registers, spills, shared memory, instructions, occupancy, a resource model.

Figures of one binary, rules that compare two of them, and predictions from them. Nothing here launches, times or
compiles a kernel, and no baseline is read: :mod:`kerntune.gate` does that. ``opcodes`` is
small because it is pure: bytes in, counts out.
"""

from kerntune.static.code_rules import Finding
from kerntune.static.metrics import BinaryInput, StaticMetrics, metrics_of
from kerntune.static.occupancy import Violation, launch_violations
from kerntune.static.rules import DEFAULT_RULES, compare_static

__all__ = [
    "DEFAULT_RULES",
    "BinaryInput",
    "Finding",
    "StaticMetrics",
    "Violation",
    "compare_static",
    "launch_violations",
    "metrics_of",
]
