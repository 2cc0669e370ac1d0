"""Tunes Triton kernels and guards their speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerntune.errors import KerntuneError

if TYPE_CHECKING:
    from kerntune import grids as grids
    from kerntune import heuristics as heuristics
    from kerntune import search as search
    from kerntune.base.config import Config
    from kerntune.base.device import DeviceSpec, Environment, Target
    from kerntune.kernels.cooperative_launch import grid_barrier
    from kerntune.referee.judgement import judge
    from kerntune.tuning.agreement import fingerprint
    from kerntune.tuning.api.autotuner import Autotuner, descend
    from kerntune.tuning.api.combo_kernel import ComboPart, combo, foreach
    from kerntune.tuning.api.decorators import (
        autotune,
        cooperative_reduction,
        matmul,
        persistent_reduction,
        pointwise,
        reduction,
        split_scan,
        template,
    )
    from kerntune.tuning.api.install import install
    from kerntune.tuning.bandwidth_report import bandwidth
    from kerntune.tuning.choices.operation import choice
    from kerntune.tuning.many.tune_many import tune_many, tuning_job

__version__ = "0.1.0"

__all__ = [
    "Autotuner",
    "ComboPart",
    "Config",
    "DeviceSpec",
    "Environment",
    "KerntuneError",
    "Target",
    "autotune",
    "bandwidth",
    "choice",
    "combo",
    "cooperative_reduction",
    "descend",
    "fingerprint",
    "foreach",
    "grid_barrier",
    "install",
    "judge",
    "matmul",
    "persistent_reduction",
    "pointwise",
    "reduction",
    "split_scan",
    "template",
    "tune_many",
    "tuning_job",
]

_LAZY = {
    "Autotuner": "kerntune.tuning.api.autotuner",
    "ComboPart": "kerntune.tuning.api.combo_kernel",
    "Config": "kerntune.base.config",
    "DeviceSpec": "kerntune.base.device",
    "Environment": "kerntune.base.device",
    "Target": "kerntune.base.device",
    "combo": "kerntune.tuning.api.combo_kernel",
    "foreach": "kerntune.tuning.api.combo_kernel",
    "autotune": "kerntune.tuning.api.decorators",
    "bandwidth": "kerntune.tuning.bandwidth_report",
    "choice": "kerntune.tuning.choices.operation",
    "cooperative_reduction": "kerntune.tuning.api.decorators",
    "fingerprint": "kerntune.tuning.agreement",
    "grid_barrier": "kerntune.kernels.cooperative_launch",
    "judge": "kerntune.referee.judgement",
    "descend": "kerntune.tuning.api.autotuner",
    "install": "kerntune.tuning.api.install",
    "matmul": "kerntune.tuning.api.decorators",
    "persistent_reduction": "kerntune.tuning.api.decorators",
    "pointwise": "kerntune.tuning.api.decorators",
    "reduction": "kerntune.tuning.api.decorators",
    "split_scan": "kerntune.tuning.api.decorators",
    "template": "kerntune.tuning.api.decorators",
    "tune_many": "kerntune.tuning.many.tune_many",
    "tuning_job": "kerntune.tuning.many.tune_many",
}

_PACKAGES = ("grids", "heuristics", "search")
"""Found as attributes, as in ``kerntune.grids.Grid1D``, whether or not something else has imported them."""


def __getattr__(name: str) -> Any:
    """Import a name that needs Triton or msgspec when it is first used: every process of ours imports this package, and
    not all need them. AttributeError for a name that this package doesn't have."""
    import importlib

    if name in _PACKAGES:
        return importlib.import_module(f"kerntune.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'kerntune' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    """All names, also those that aren't imported yet, for completion in interactive sessions."""
    return sorted({*globals(), *_LAZY, *_PACKAGES})
