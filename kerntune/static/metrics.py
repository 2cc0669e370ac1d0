"""Metrics of a compiled kernel that need no run."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, Union

import msgspec

from kerntune.base.device import DeviceSpec
from kerntune.base.recording import Nbytes
from kerntune.base.strict import StrictStruct
from kerntune.compiling.binary.elf import Elf, cubin_resources
from kerntune.errors import TargetError
from kerntune.static.disassembly import Disassembler, Listing
from kerntune.static.instructions import (
    amd_classes,
    amd_mnemonics,
    amd_resources,
    nvidia_classes,
    scratch_bytes,
    spilled_bytes,
)
from kerntune.static.occupancy import Occupancy, Violation, amd_occupancy, cuda_occupancy, launch_violations
from kerntune.static.opcodes import counted_opcodes
from kerntune.static.ptx import ProductLoops, loop_counts, operand_counts, product_loops

DISASSEMBLER = Disassembler()
"""Shared, so that a kernel of several tests is disassembled once."""

_ANGLE = "0d3BF921FB54442D19"
"""pi / 2 ** 65, by which libdevice's reduction of large angles multiplies in double precision."""

_FP64 = re.compile(
    r"^[ \t]*(?:@!?%\w+[ \t]+)?(?:add|sub|mul|fma|mad|div|rcp|sqrt|rsqrt|min|max)(?:\.\w+)*\.f64\b.*$", re.MULTILINE
)
"""Arithmetic in double precision, in PTX."""

_LOCAL_ARRAY = re.compile(r"^[ \t]*\.local\b[^;\n]*\[(\d+)\][ \t]*;", re.MULTILINE)


class BinaryInput(StrictStruct, frozen=True):
    """A compiled kernel. ``asm`` is its PTX or amdgcn text, ``arch`` has its suffix (``sm_90a``, ``gfx942``).

    ``shared_bytes``, ``num_warps`` (after warp specialization) and ``tensor_memory_columns`` are ``shared``,
    ``num_warps`` and ``tmem_size`` of Triton's metadata; the binary doesn't have them.
    """

    kind: Literal["cubin", "hsaco"]
    data: bytes
    asm: str
    shared_bytes: int
    num_warps: int
    arch: str
    tensor_memory_columns: int = 0


class StaticMetrics(StrictStruct, frozen=True):
    """Figures of one compiled kernel on one kind of device.

    ``registers`` per thread (AMD: all vector registers of a lane); ``spill_*_bytes`` per thread, each spill instruction
    counted once, as ptxas counts; ``stack_bytes`` of local memory per thread, spills and all else; ``shared_bytes`` and
    ``threads`` per block; ``code_bytes`` of machine code. ``instructions`` counts by class
    (:func:`kerntune.static.instructions.nvidia_classes`); code in loops counts once. ``occupancy`` is theoretical, 0 to
    1; ``None`` if the limits of the device aren't known. ``over_limit``: limits of the device that forbid a launch.
    Those from ``vgprs`` to ``sgpr_spills`` are of AMD GPUs only. ``repeated_spill_bytes``: of the spilled bytes, stored
    and loaded, those in loops (all, where a kernel has no loop); nothing where that isn't known, in files of earlier
    versions too. ``product_loops``: how its loops of products load their operands; nothing without such a loop, on AMD
    GPUs, and in files of earlier versions.
    """

    registers: Nbytes
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    shared_bytes: Nbytes
    code_bytes: Nbytes
    threads: Nbytes
    instructions: dict[str, int]
    occupancy: float | None
    occupancy_limiter: str
    over_limit: tuple[Violation, ...] = ()
    vgprs: int | None = None
    agprs: int | None = None
    sgprs: int | None = None
    vgpr_spills: int | None = None
    sgpr_spills: int | None = None
    repeated_spill_bytes: Union[int, msgspec.UnsetType] = msgspec.UNSET
    product_loops: Union[ProductLoops, msgspec.UnsetType] = msgspec.UNSET

    @property
    def spill_bytes(self) -> int:
        """What a thread spills, stored and loaded."""
        return self.spill_store_bytes + self.spill_load_bytes


_NO_CODE = Listing({}, {}, False, {})
"""Stands for machine code that isn't disassembled: it has no stack frame, so nothing is spilled."""


def metrics_of(
    binaries: Sequence[BinaryInput],
    spec: DeviceSpec,
    *,
    disassembler: Disassembler | None = None,
    instructions: bool = True,
) -> list[StaticMetrics]:
    """Metrics of each of ``binaries`` on the device ``spec``, in their order.

    A kernel without a stack frame spills nothing: its instructions are counted by the tables of
    :mod:`kerntune.static.opcodes`, and not at all without ``instructions``. All other cubins of an architecture go
    through one run of nvdisasm: 0.2 s for its start, a few ms a kernel, nothing for known machine code.
    Raises :class:`TargetError` for a binary of another kind of GPU than ``spec``, :class:`StoreError` for a damaged
    one, :class:`BackendError` if the disassembler is missing.
    """
    for binary in binaries:
        _check_target(binary, spec)
    asked = [i for i, b in enumerate(binaries) if b.kind == "cubin" and (instructions or _has_frame(b))]
    listings = _listings(binaries, asked, disassembler or DISASSEMBLER)
    return [
        _nvidia(binary, spec, listings.get(i, _NO_CODE)) if binary.kind == "cubin" else _amd(binary, spec)
        for i, binary in enumerate(binaries)
    ]


def _check_target(binary: BinaryInput, spec: DeviceSpec) -> None:
    backend = "cuda" if binary.kind == "cubin" else "hip"
    number = re.sub(r"^sm_(\d+)[a-z]?$", r"\1", binary.arch)
    if backend != spec.target.backend or number != spec.target.arch:
        raise TargetError(f"a {binary.kind} for {binary.arch} has no metrics on {spec.name} ({spec.target})")


def _has_frame(binary: BinaryInput) -> bool:
    """Whether a kernel, or a function that it calls, has local memory, in which all spills are."""
    resources = cubin_resources(binary.data)
    return resources.frame_bytes > 0 or resources.min_stack > 0


def _listings(binaries: Sequence[BinaryInput], asked: Sequence[int], disassembler: Disassembler) -> dict[int, Listing]:
    by_arch: defaultdict[str, dict[int, bytes]] = defaultdict(dict)
    found: dict[int, Listing] = {}
    for i in asked:
        text, arch = b"".join(code for _, code in Elf(binaries[i].data).text), binaries[i].arch
        opcodes = None if _has_frame(binaries[i]) else counted_opcodes(text, arch)
        if opcodes is None:
            by_arch[arch][i] = text
        else:
            found[i] = msgspec.structs.replace(_NO_CODE, opcodes=opcodes)
    for arch, texts in by_arch.items():
        found.update(zip(texts, disassembler.listings([*texts.values()], arch), strict=True))
    return found


def _nvidia(binary: BinaryInput, spec: DeviceSpec, listing: Listing) -> StaticMetrics:
    resources = cubin_resources(binary.data)
    own = _own_local_bytes(binary.asm) if listing.stack_address_taken else 0
    stored, loaded = spilled_bytes(listing.stack, own)
    repeated = sum(spilled_bytes(listing.repeated_stack, own))
    registers, threads = resources.registers, binary.num_warps * spec.warp_size
    occupancy = None
    with suppress(TargetError):  # a GPU newer than our table: the other figures hold
        occupancy = cuda_occupancy(spec, registers=registers, shared_bytes=binary.shared_bytes, threads=threads)
    return StaticMetrics(
        **_on_device(binary, spec, registers, occupancy),
        spill_store_bytes=stored,
        spill_load_bytes=loaded,
        stack_bytes=resources.frame_bytes,
        code_bytes=resources.code_bytes,
        instructions={
            **nvidia_classes(listing.opcodes),
            **operand_counts(binary.asm),
            **_slow_paths(binary.asm),
            **loop_counts(binary.asm),
        },
        repeated_spill_bytes=repeated,
        product_loops=product_loops(binary.asm) or msgspec.UNSET,
    )


def _on_device(binary: BinaryInput, spec: DeviceSpec, registers: int, occupancy: Occupancy | None) -> dict[str, Any]:
    takes = {"registers": registers, "shared_bytes": binary.shared_bytes, "threads": binary.num_warps * spec.warp_size}
    columns = binary.tensor_memory_columns
    return {
        **takes,
        "occupancy": occupancy.fraction if occupancy else None,
        "occupancy_limiter": occupancy.limiter if occupancy else "",
        "over_limit": launch_violations(spec, **takes, tensor_memory_columns=columns),
    }


def _slow_paths(ptx: str) -> dict[str, int]:
    """Reductions of large angles (``sin``, ``cos``, ``tan``) in the code: each is a hundred instructions in a branch
    that arguments up to 105,615 don't take (libdevice), one of them a product in double precision."""
    slow = ptx.count(_ANGLE)
    other = sum(_ANGLE not in line for line in _FP64.findall(ptx))
    found = {"slow_path": slow, "slow_path_fp64": int(slow > 0 and not other)}
    return {name: n for name, n in found.items() if n}


def _own_local_bytes(ptx: str) -> int:
    """Bytes of local arrays that the PTX itself declares, printf's arguments for example.

    They are the first bytes of the stack frame if ptxas puts them there, which it does only if their address is needed:
    else they are in registers, which may spill like any other.
    """
    return max((int(size) for size in _LOCAL_ARRAY.findall(ptx)), default=0)


def _amd(binary: BinaryInput, spec: DeviceSpec) -> StaticMetrics:
    resources = amd_resources(binary.asm)
    mnemonics = amd_mnemonics(binary.asm)
    stored, loaded = scratch_bytes(mnemonics)
    waves, shared, warps = resources.waves_per_simd, binary.shared_bytes, binary.num_warps
    occupancy = None
    if waves is not None:
        occupancy = amd_occupancy(spec, waves_by_registers=waves, shared_bytes=shared, warps=warps)
    return StaticMetrics(
        **_on_device(binary, spec, resources.vgprs, occupancy),
        **{name: getattr(resources, name) for name in AMD_REGISTERS},
        spill_store_bytes=stored,
        spill_load_bytes=loaded,
        stack_bytes=resources.private_bytes,
        code_bytes=resources.code_bytes or sum(len(code) for _, code in Elf(binary.data).text),
        instructions=amd_classes(mnemonics),
    )


AMD_REGISTERS = ("vgprs", "agprs", "sgprs", "vgpr_spills", "sgpr_spills")
