"""Machine instructions counted by class; for AMD GPUs all figures that the assembler text gives."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from math import prod
from typing import NamedTuple

from kerntune.base.strict import StrictStruct
from kerntune.compiling.binary.identity import strip_debug
from kerntune.errors import StoreError

NVIDIA_CLASSES: Mapping[str, str] = {
    "tensor_core": r"[BDHIOQ]MMA|[BHIQ]GMMA|UTC[HIOQ]MMA",
    "fp64": r"D(?:ADD|FMA|MUL|SETP|MNMX)",
    "async_copy": r"LDGSTS",
    "global_load": r"LDG?",
    "global_store": r"STG?",
    "local_load": r"LDL",
    "local_store": r"STL",
    "shared_load": r"LDSM?",
    "shared_store": r"STSM?|STAS",
    "tma": r"UTMA\w+|UBLK\w+",
    "tensor_memory": r"LDTM|STTM|UTC(?:CP|BAR|ATOMSWS|SHIFT)|UVIRTCOUNT",
    "atomic": r"ATOM[GS]?|RED[GS]?|REDAS",
    "mufu": r"MUFU",
    "barrier": r"BAR|SYNCS|WARPSYNC|WARPGROUP|UCGABAR\w*|NANOSLEEP",
    "fence": r"MEMBAR|FENCE|(?:CGA)?ERRBAR|DEPBAR|LDGDEPBAR|CCTL\w*",
    "fp32": r"F(?:FMA|ADD|MUL|SETP|MNMX|SET|CHK)\d?",
    "fp16": r"H(?:FMA2|ADD2|MUL2|SETP2|SET2|MNMX2)",
    "convert": r"F2F|F2FP|F2I|F2IP|I2F|I2FP|I2I|I2IP|FRND",
    "shuffle": r"SHFL|C?REDUX|VOTEU?|MATCH|MOVM|ELECT",
    "branch": r"BRA|BRXU?|JMP|JMXU?|CALL|RET|EXIT|BSYNC|BSSY|BREAK|BMOV|YIELD|KILL|BPT",
    "move": r"U?(?:MOV|SEL|PRMT|PLOP3|LDC)|LDCU|FSEL|R2UR|S2U?R|CS2U?R|P2R|R2P|R2B|B2R|LEPC|RPCMOV",
    "integer": r"U?(?:IMAD|IADD\w*|LEA|LOP3|SHF|ISETP|SGXT|IABS|IMNMX|BMSK|BREV|FLO|POPC)|VI\w+|VABSDIFF\w*|IDP",
    "nop": r"NOP",
}
"""Class of an opcode of sm_75 to sm_120: the first that matches the part before its first dot.

Opcodes from the CUDA Binary Utilities manual, "Instruction Set Reference", and from the code that ptxas 12.8 to 13.4
generate for Triton's kernels. ``LD`` and ``ST`` are loads and stores through generic addresses, counted as global.
"""

AMD_CLASSES: Mapping[str, str] = {
    "tensor_core": r"v_(?:s?mfmac?|s?wmmac?)_\w+",
    "fp64": r"v_(?!cvt)\w+_f64\w*",
    "async_copy": r"(?:global|buffer)_load_(?:lds_\w+|\w+_lds\w*)",
    "global_load": r"(?:global|buffer|flat)_load_\w+",
    "global_store": r"(?:global|buffer|flat)_store_\w+",
    "local_load": r"scratch_load_\w+",
    "local_store": r"scratch_store_\w+",
    "shuffle": r"ds_(?:bpermute|permute|swizzle)_\w+|v_(?:readlane|writelane|readfirstlane|permlane)\w*|v_\w+_dpp",
    "shared_load": r"ds_(?:read|load)\w*",
    "shared_store": r"ds_(?:write|store)\w*",
    "atomic": r"(?:global|buffer|flat)_atomic_\w+|ds_\w+",
    "tma": r"tensor_(?:load|store)\w*",
    "mufu": r"v_s?_?(?:exp|log|rcp|rsq|sqrt|sin|cos)_\w+",
    "barrier": r"s_barrier\w*",
    "fence": r"s_wait\w*|(?:buffer|global)_(?:inv|wb|gl)\w*|s_dcache\w*",
    "convert": r"v_cvt_\w+",
    "branch": r"s_(?:c?branch|endpgm|setpc|swappc|call)\w*",
    "nop": r"s_(?:nop|code_end|sleep|delay_alu|clause)|v_nop",
    "fp16": r"v_\w*_b?f16\w*",
    "fp32": r"v_\w*_f32\w*",
    "move": r"[sv]_(?:mov|cndmask|cselect|accvgpr|perm)\w*|s_(?:load|buffer_load|getreg|setreg)\w*",
    "integer": r"[sv]_\w+",
}
"""Class of a mnemonic of gfx9 to gfx12, the first that matches; from AMD's "Instruction Set Architecture" guides."""

_WIDE = ("global_load", "global_store", "async_copy")
"""Classes that are also counted by width."""

_NVIDIA_FURTHER: Mapping[str, re.Pattern[str]] = {
    "tma_load": re.compile(r"UTMALDG"),
    "tma_store": re.compile(r"UTMASTG|UTMAREDG"),
    "warpgroup_mma": re.compile(r"[BHIQ]GMMA|UTC[HIOQ]MMA"),
}
"""Counted in addition to their class: bulk copies of a tile by direction, and tensor core instructions that several
warps issue together (``wgmma``, ``tcgen05.mma``), without which sm_90 and later don't reach their full rate."""

_AMD_FURTHER: Mapping[str, re.Pattern[str]] = {
    "tma_load": re.compile(r"tensor_load\w*"),
    "tma_store": re.compile(r"tensor_store\w*"),
}

_NVIDIA_BITS = {"256": 256, "128": 128, "96": 96, "64": 64, "U16": 16, "S16": 16, "U8": 8, "S8": 8}
_AMD_DWORDS = re.compile(r"dwordx(\d)")
_AMD_NARROW = {"byte": 8, "i8": 8, "u8": 8, "b8": 8, "short": 16, "i16": 16, "u16": 16, "b16": 16}
_AMD_BITS = re.compile(r"_b(\d+)")

_LONG_SHAPE = re.compile(r"(?<!\d)(\d+)x(\d+)x(\d+)")  # HGMMA.64x128x16, v_mfma_f32_32x32x8_f16
_SHORT_SHAPE = re.compile(r"(16|8)(8)(\d{1,3})")  # HMMA.16816: m 16, n 8, k 16


def nvidia_classes(opcodes: Mapping[str, int]) -> dict[str, int]:
    """Counts by class, from counts by opcode with its modifiers (``LDG.E.128``).

    Keys: the names in :data:`NVIDIA_CLASSES`, ``other``; ``total`` (without ``nop``, which only pads); for global
    loads, global stores and asynchronous copies also by width in bits per thread (``global_load_128``); ``tma_load``,
    ``tma_store`` and ``warpgroup_mma``, which are in their class too; ``tensor_core_macs``, the multiply-adds of all
    tensor core instructions, if each of them names its shape, and ``tensor_core_slots``, the same weighted by the time
    for operands of their type (:data:`_SLOW_OPERANDS`). Zeros are left out.
    """
    return _classes(opcodes, _NVIDIA_WAY)


def amd_classes(mnemonics: Mapping[str, int]) -> dict[str, int]:
    """Counts by class, from counts by mnemonic (``global_load_dwordx4``); keys as for NVIDIA."""
    return _classes(mnemonics, _AMD_WAY)


def nvidia_class(opcode: str) -> str:
    """The class of one opcode, ``other`` if it is unknown."""
    return _class_of(opcode.partition(".")[0], NVIDIA_CLASSES)


def amd_class(mnemonic: str) -> str:
    """The class of one mnemonic, ``other`` if it is unknown."""
    return _class_of(mnemonic.removesuffix("_e32").removesuffix("_e64"), AMD_CLASSES)


def _class_of(base: str, classes: Mapping[str, str]) -> str:
    return next((name for name, p in classes.items() if _compiled(p).fullmatch(base)), "other")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Patterns are compiled when they are first used: that takes milliseconds, and a run's GPUs are of one vendor."""
    return re.compile(pattern)


def nvidia_bits(opcode: str) -> int:
    """Bits that one thread loads or stores with one such instruction."""
    return next((_NVIDIA_BITS[part] for part in opcode.split(".") if part in _NVIDIA_BITS), 32)


def amd_bits(mnemonic: str) -> int:
    """Bits that one lane loads or stores with one such instruction."""
    if dwords := _AMD_DWORDS.search(mnemonic):
        return 32 * int(dwords[1])
    narrow = next((bits for word, bits in _AMD_NARROW.items() if word in mnemonic), None)
    if narrow is not None:
        return narrow
    return int(bits[1]) if (bits := _AMD_BITS.search(mnemonic)) else 32


def spilled_bytes(stack: Mapping[tuple[str, int], int], own_bytes: int) -> tuple[int, int]:
    """Bytes per thread that spills store and load, each instruction counted once: ptxas's "bytes spill stores" and
    "bytes spill loads".

    ``stack`` counts ``STL`` and ``LDL`` by opcode and place in the stack frame; the first ``own_bytes`` of the frame
    are the kernel's own local arrays (printf's arguments, the slow path of ``sin``), spills come after them.
    """
    stored, loaded = (
        sum(nvidia_bits(op) // 8 * count for (op, at), count in stack.items() if at >= own_bytes and op[:3] == base)
        for base in ("STL", "LDL")
    )
    return stored, loaded


def scratch_bytes(mnemonics: Mapping[str, int]) -> tuple[int, int]:
    """Bytes per lane that AMD's scratch instructions store and load, each counted once."""
    stored, loaded = (
        sum(amd_bits(name) // 8 * count for name, count in mnemonics.items() if amd_class(name) == kind)
        for kind in ("local_store", "local_load")
    )
    return stored, loaded


class _VendorFormat(NamedTuple):
    """How one vendor's instructions are read."""

    class_of: Callable[[str], str]
    bits_of: Callable[[str], int]
    macs_of: Callable[[str], int | None]
    further: Mapping[str, re.Pattern[str]]


def _classes(names: Mapping[str, int], way: _VendorFormat) -> dict[str, int]:
    found: Counter[str] = Counter()
    for name, count in names.items():
        kind = way.class_of(name)
        found[kind] += count
        found["total"] += count if kind != "nop" else 0
        if kind in _WIDE:
            found[f"{kind}_{way.bits_of(name)}"] += count
        for further, pattern in way.further.items():
            found[further] += count if pattern.fullmatch(name.partition(".")[0]) else 0
    found.update(_matrix_work({n: c for n, c in names.items() if way.class_of(n) == "tensor_core"}, way.macs_of))
    return {name: count for name, count in sorted(found.items()) if count}


def _matrix_work(names: Mapping[str, int], macs_of: Callable[[str], int | None]) -> dict[str, int]:
    """Multiply-adds of tensor core instructions, plain and weighted; empty if one doesn't name its shape."""
    known = [(name, macs, count) for name, count in names.items() if (macs := macs_of(name)) is not None]
    if len(known) < len(names):
        return {}
    return {
        "tensor_core_macs": sum(macs * count for _, macs, count in known),
        "tensor_core_slots": sum(macs * count * _slots(name) for name, macs, count in known),
    }


_SLOW_OPERANDS = re.compile(r"\.TF32\b|xf32|(?<=\d)_?f32$|^DMMA|f64")
_FAST_OPERANDS = re.compile(r"^(?:QGMMA|QMMA|IGMMA|IMMA|UTCQMMA|UTCIMMA)|fp8|bf8|i8|f8f6f4")


def _slots(name: str) -> int:
    """The time of a multiply-add of such operands, in units of an 8-bit one's: 16-bit ones twice, tf32 (and
    AMD's xf32) four times as long. Dense rates from the data sheets of A100, H100 and MI300X."""
    return 4 if _SLOW_OPERANDS.search(name) else 1 if _FAST_OPERANDS.search(name) else 2


def _nvidia_macs(opcode: str) -> int | None:
    for part in opcode.split("."):
        if shape := _LONG_SHAPE.fullmatch(part) or _SHORT_SHAPE.fullmatch(part):
            return prod(map(int, shape.groups()))
    return None


def _amd_macs(mnemonic: str) -> int | None:
    shape = _LONG_SHAPE.search(mnemonic)
    return prod(map(int, shape.groups())) if shape else None


_NVIDIA_WAY = _VendorFormat(nvidia_class, nvidia_bits, _nvidia_macs, _NVIDIA_FURTHER)
_AMD_WAY = _VendorFormat(amd_class, amd_bits, _amd_macs, _AMD_FURTHER)

_MNEMONIC = re.compile(r"^((?:s|v|ds|global|buffer|flat|scratch|tensor|cluster|image)_\w+)", re.MULTILINE)


class AmdResources(StrictStruct, frozen=True):
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
    if found is not None:
        return int(found[1])
    if default is None:
        raise StoreError(f"the amdgcn text has no .{key} in its metadata: is it the text of a whole kernel?")
    return default


def _comment(asm_text: str, key: str) -> int | None:
    """The last figure of that name: the kernel comes after the functions that it calls."""
    found = re.findall(rf"^; {key}\s*[:=]\s*(\d+)", asm_text, re.MULTILINE)
    return int(found[-1]) if found else None
