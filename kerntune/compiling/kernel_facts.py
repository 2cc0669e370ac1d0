"""Static facts of a compiled kernel beside its code, in whichever process it was compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from kerntune.base.device import Target
from kerntune.compiling.binary.identity import bare_text
from kerntune.compiling.binary.stages import strip_locations
from kerntune.compiling.protocol import Facts
from kerntune.kernels.writes import access_of

ASSEMBLY: dict[str, tuple[Literal["ptx", "amdgcn"], Literal["cubin", "hsaco"]]] = {
    "cuda": ("ptx", "cubin"),
    "hip": ("amdgcn", "hsaco"),
}
"""Per backend: the last text stage and the binary stage of Triton's pipeline."""


def facts_of(target: Target, stages: Mapping[str, str | bytes]) -> Facts:
    """The facts of a kernel from its stages, whose texts are strings or UTF-8."""
    kind = ASSEMBLY[target.backend][0]
    ttir = strip_locations(_text(stages["ttir"]))
    return Facts(ttir, bare_text(_text(stages[kind]), kind), access_of(ttir, target))


def _text(data: str | bytes) -> str:
    return data.decode() if isinstance(data, bytes) else data
