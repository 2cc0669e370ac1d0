"""The messages between the farm, its fork server and its worker processes; :mod:`kerntune.base.frames` carries them.

Both sides need the environment variables and Triton knobs that a compilation depends on, and the static facts of a
compiled kernel.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Union

import msgspec

from kerntune.base.device import Target
from kerntune.compiling.binary.identity import FIRST_STAGES, bare_text, strip_locations
from kerntune.kernels.access import Access
from kerntune.kernels.writes import access_of


class ForkRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A worker that the fork server is to fork: its limit of address space in bytes (0: none), knobs as
    :class:`kerntune.compiling.protocol.CompilerEnvironment` has them, and its temporary folder.

    Standard input, output and error of the worker and its status pipe come with it (:data:`DESCRIPTORS`).
    """

    memory: int
    knobs: str
    folder: str


READY = "ready"
"""The fork server's first message: it takes requests."""

DESCRIPTORS = 4
"""Descriptors that come with a :class:`ForkRequest`."""


class Hello(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="hello"):
    """A worker's first message: it has imported ``triton`` of this version from ``path``."""

    triton: str
    path: str


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="job"):
    """A kernel after the front end: MLIR text after stage ``ext``, and the input of the other stages.

    ``options`` are the fields of the backend's option object and ``options_hash`` its hash; ``metadata`` is the JSON
    object that Triton's stages add to.
    """

    ir: str
    ext: str
    language: str
    backend: str
    arch: int | str
    warp_size: int
    options: dict[str, Any]
    options_hash: str
    metadata: bytes


class Facts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Static facts of a compiled kernel that take milliseconds to find, and need nothing of the parent's process.

    ``ttir`` is without source locations; ``bare`` the assembly text that a code identity hashes.
    """

    ttir: str
    bare: str
    access: Access


class Done(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="done"):
    """A compiled kernel: the output of each stage (text as UTF-8), the metadata after them, microseconds by stage.

    ``address_space`` is the worker's size in bytes afterwards.
    """

    stages: dict[str, bytes]
    metadata: bytes
    times: list[tuple[str, int]]
    address_space: int = 0
    facts: Facts | None = None

    @property
    def seconds(self) -> float:
        """Time that the stages took together."""
        return sum(us for _, us in self.times) / 1e6


class CompileFailed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="failed"):
    """The compiler raised an exception, or (``refused``) the worker can't compile this as the parent would.

    ``passing``: the system has refused something (a full disk, say), which has nothing to do with the job.
    """

    reason: str
    refused: bool = False
    passing: bool = False


Answer = Union[Hello, Done, CompileFailed]

KNOB_GROUPS = ("compilation", "language", "nvidia", "amd", "runtime")
"""Groups of ``triton.knobs`` that stages read. ``cache`` and ``autotuning`` matter in the parent only."""

VARIABLE_PREFIXES = (
    "TRITON_", "LLVM_", "MLIR_", "AMDGCN_", "AMD_", "NVPTX_", "PTXAS", "DISABLE_", "ALLOW_LHS", "CUDA_", "ROCM_",
)  # fmt: skip
"""Environment variables that LLVM, Triton's C++ code and ptxas read by themselves (GetEnv.h, Triton 3.6 to 3.9)."""

_PARENTS_OWN = ("TRITON_CACHE", "TRITON_HOME", "TRITON_DUMP_DIR", "TRITON_OVERRIDE_DIR", "CUDA_VISIBLE_DEVICES")
_OTHER_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "USE_IR_LOC")


@dataclass(frozen=True)
class CompilerEnvironment:
    """Environment variables and set knobs (as JSON). A worker that was started under others is replaced.

    It isn't changed while it runs: libraries read many variables once and keep their values.
    """

    env: tuple[tuple[str, str], ...]
    knobs: str


def current_environment() -> CompilerEnvironment:
    """The environment of this process at this moment."""
    from triton import knobs

    groups = {name: getattr(knobs, name) for name in KNOB_GROUPS if hasattr(knobs, name)}
    keys = {getattr(k, "key", "") for group in groups.values() for k in group.knob_descriptors.values()}
    return CompilerEnvironment(
        tuple(sorted((k, v) for k, v in os.environ.items() if _matters(k, keys))),
        json.dumps([item for name, group in groups.items() for item in _set_by_hand(name, group)]),
    )


def _matters(variable: str, keys: set[str]) -> bool:
    if variable.startswith(_PARENTS_OWN):
        return False
    return variable in keys or variable in _OTHER_VARIABLES or variable.startswith(VARIABLE_PREFIXES)


def _set_by_hand(name: str, group: Any) -> list[tuple[str, str, Any]]:
    plain = (bool, int, str, type(None))
    return [(name, k, v) for k, v in sorted(vars(group).items()) if isinstance(v, plain)]


ASSEMBLY: dict[str, tuple[Literal["ptx", "amdgcn"], Literal["cubin", "hsaco"]]] = {
    "cuda": ("ptx", "cubin"),
    "hip": ("amdgcn", "hsaco"),
}
"""Per backend: the last text stage and the binary stage of Triton's pipeline."""


def facts_of(target: Target, stages: Mapping[str, str | bytes], access: Access | None = None) -> Facts:
    """The facts of a kernel from its stages, whose texts are strings or UTF-8; ``access`` where it is known already.

    A Gluon kernel's accesses are found in its TTGIR, where functions are inlined and layouts resolved.
    """
    kind = ASSEMBLY[target.backend][0]
    first = strip_locations(_text(first_text(stages)))
    if access is None:
        access = access_of(first if "ttir" in stages else strip_locations(_text(stages["ttgir"])), target)
    return Facts(first, bare_text(_text(stages[kind]), kind), access)


def first_text(stages: Mapping[str, str | bytes]) -> str | bytes:
    """The text of a kernel's first stage; before Triton 3.9 a Gluon kernel's is kept as ``source`` alone."""
    return next(stages[name] for name in (*FIRST_STAGES, "source") if name in stages)


def _text(data: str | bytes) -> str:
    return data.decode() if isinstance(data, bytes) else data
