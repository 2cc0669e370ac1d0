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

_MODULES = {
    "kerntune.base.config": ("Config",),
    "kerntune.base.device": ("DeviceSpec", "Environment", "Target"),
    "kerntune.kernels.cooperative_launch": ("grid_barrier",),
    "kerntune.referee.judgement": ("judge",),
    "kerntune.tuning.agreement": ("fingerprint",),
    "kerntune.tuning.api.autotuner": ("Autotuner", "descend"),
    "kerntune.tuning.api.combo_kernel": ("ComboPart", "combo", "foreach"),
    "kerntune.tuning.api.decorators": (
        *("autotune", "cooperative_reduction", "matmul", "persistent_reduction"),
        *("pointwise", "reduction", "split_scan", "template"),
    ),
    "kerntune.tuning.api.install": ("install",),
    "kerntune.tuning.bandwidth_report": ("bandwidth",),
    "kerntune.tuning.choices.operation": ("choice",),
    "kerntune.tuning.many.tune_many": ("tune_many", "tuning_job"),
}
_LAZY = {name: module for module, names in _MODULES.items() for name in names}

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
