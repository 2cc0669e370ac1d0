"""What can be said of compiled kernels without running them: figures, limits, and what a change did to them."""

from kerntune.static.finding import Finding
from kerntune.static.launch_limits import Violation, launch_violations
from kerntune.static.metrics import BinaryInput, StaticMetrics, metrics_of
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
