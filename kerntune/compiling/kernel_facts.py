"""Static facts of a compiled kernel beside its code, in whichever process it was compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from kerntune.base.device import Target
from kerntune.compiling.binary.identity import bare_text
from kerntune.compiling.binary.stages import FIRST_STAGES, strip_locations
from kerntune.compiling.protocol import Facts
from kerntune.kernels.writes import access_of

ASSEMBLY: dict[str, tuple[Literal["ptx", "amdgcn"], Literal["cubin", "hsaco"]]] = {
    "cuda": ("ptx", "cubin"),
    "hip": ("amdgcn", "hsaco"),
}
"""Per backend: the last text stage and the binary stage of Triton's pipeline."""


def facts_of(target: Target, stages: Mapping[str, str | bytes]) -> Facts:
    """The facts of a kernel from its stages, whose texts are strings or UTF-8.

    A Gluon kernel's accesses are found in its TTGIR, where functions are inlined and layouts resolved.
    """
    kind = ASSEMBLY[target.backend][0]
    first = strip_locations(_text(first_text(stages)))
    accesses = first if "ttir" in stages else strip_locations(_text(stages["ttgir"]))
    return Facts(first, bare_text(_text(stages[kind]), kind), access_of(accesses, target))


def first_text(stages: Mapping[str, str | bytes]) -> str | bytes:
    """The text of a kernel's first stage; before Triton 3.9 a Gluon kernel's is kept as ``source`` alone."""
    return next(stages[name] for name in (*FIRST_STAGES, "source") if name in stages)


def _text(data: str | bytes) -> str:
    return data.decode() if isinstance(data, bytes) else data
