"""Figures of a kernel for an AMD GPU, from its assembler text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

import msgspec

from kerntune.compiling.binary.identity import strip_debug
from kerntune.errors import StoreError

_MNEMONIC = re.compile(r"^((?:s|v|ds|global|buffer|flat|scratch|tensor|cluster|image)_\w+)", re.MULTILINE)


class AmdResources(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The resources of a kernel as the compiler reports them; registers per lane, ``sgprs`` per wave, bytes per lane.

    ``vgprs`` counts all vector registers of the kernel, ``agprs`` (accumulators) among them where the two share a file
    (gfx90a and later). ``vgpr_spills`` and ``sgpr_spills`` count registers. ``waves_per_simd`` is the compiler's
    occupancy, which leaves out shared memory; ``code_bytes`` and it are ``None`` if the text has lost its comments.
    """

    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    private_bytes: int
    waves_per_simd: int | None
    code_bytes: int | None


def amd_resources(asm_text: str) -> AmdResources:
    """Figures of the kernel in ``asm_text`` (amdgcn), from its metadata and the comments of its ``.AMDGPU.csdata``.

    Raises :class:`StoreError` if the text has no such metadata.
    """
    return AmdResources(
        vgprs=_metadata(asm_text, "vgpr_count"),
        agprs=_metadata(asm_text, "agpr_count", 0),  # missing for GPUs without accumulators
        sgprs=_metadata(asm_text, "sgpr_count"),
        vgpr_spills=_metadata(asm_text, "vgpr_spill_count"),
        sgpr_spills=_metadata(asm_text, "sgpr_spill_count"),
        private_bytes=_metadata(asm_text, "private_segment_fixed_size"),
        waves_per_simd=_comment(asm_text, "Occupancy"),
        code_bytes=_comment(asm_text, "codeLenInByte"),
    )


def amd_mnemonics(asm_text: str) -> Mapping[str, int]:
    """How often each instruction occurs in amdgcn text, by its mnemonic."""
    return Counter(_MNEMONIC.findall(strip_debug(asm_text, kind="amdgcn")))


def _metadata(asm_text: str, key: str, default: int | None = None) -> int:
    """A number of the ``.amdgpu_metadata`` block (LLVM, "User Guide for AMDGPU Backend", code object metadata)."""
    found = re.search(rf"^[ \t-]*\.{key}:\s*(\d+)", asm_text, re.MULTILINE)
    if found is None and default is None:
        raise StoreError(f"the amdgcn text has no .{key} in its metadata: is it the text of a whole kernel?")
    return int(found[1]) if found else int(default or 0)


def _comment(asm_text: str, key: str) -> int | None:
    """The last figure of that name: the kernel comes after the functions that it calls."""
    found = re.findall(rf"^; {key}\s*[:=]\s*(\d+)", asm_text, re.MULTILINE)
    return int(found[-1]) if found else None
