"""The environment variables and Triton knobs that a compilation depends on."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

GROUPS = ("compilation", "language", "nvidia", "amd", "runtime")
"""Groups of ``triton.knobs`` that stages read. ``cache`` and ``autotuning`` matter in the parent only."""

PREFIXES = (
    "TRITON_",
    "LLVM_",
    "MLIR_",
    "AMDGCN_",
    "AMD_",
    "NVPTX_",
    "PTXAS",
    "DISABLE_",
    "ALLOW_LHS",
    "CUDA_",
    "ROCM_",
)
"""Environment variables that LLVM, Triton's C++ code and ptxas read by themselves (GetEnv.h, Triton 3.6 to 3.9)."""

_PARENTS_OWN = ("TRITON_CACHE", "TRITON_HOME", "TRITON_DUMP_DIR", "TRITON_OVERRIDE_DIR", "CUDA_VISIBLE_DEVICES")
_ALSO = ("PATH", "LD_LIBRARY_PATH", "USE_IR_LOC")


@dataclass(frozen=True)
class CompilerEnvironment:
    """Environment variables and set knobs (as JSON). A worker that was started under others is replaced.

    It isn't changed while it runs: libraries read many variables once and keep their values.
    """

    env: tuple[tuple[str, str], ...]
    knobs: str


def here_and_now() -> CompilerEnvironment:
    """The environment of this process at this moment."""
    from triton import knobs

    groups = {name: getattr(knobs, name) for name in GROUPS if hasattr(knobs, name)}
    keys = {getattr(k, "key", "") for group in groups.values() for k in group.knob_descriptors.values()}
    return CompilerEnvironment(
        tuple(sorted((k, v) for k, v in os.environ.items() if _matters(k, keys))),
        json.dumps([item for name, group in groups.items() for item in _set_by_hand(name, group)]),
    )


def _matters(variable: str, keys: set[str]) -> bool:
    if variable.startswith(_PARENTS_OWN):
        return False
    return variable in keys or variable in _ALSO or variable.startswith(PREFIXES)


def _set_by_hand(name: str, group: Any) -> list[tuple[str, str, Any]]:
    plain = (bool, int, str, type(None))
    return [(name, k, v) for k, v in sorted(vars(group).items()) if isinstance(v, plain)]
