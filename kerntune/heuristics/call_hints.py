"""Hints from a call and its code: sizes, types, strides, and counts from TTIR.

Arguments give sizes, tile shape and elements per thread. The text of the TTIR (a Gluon kernel's GLIR) says what a
kernel loads, stores, reduces and converts. Strides say which way a reduction walks memory, and whether one pass is
enough.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

import msgspec

from kerntune.base.device import DeviceSpec
from kerntune.errors import HintError
from kerntune.heuristics.hints import KernelHints, ReductionHint, TileHint, named_kernel, require_known_axes
from kerntune.heuristics.presets import INDUCTOR_2_13, Preset
from kerntune.heuristics.sizing import ceil_div, ceil_pow2, device_major

SQUARE_ARGUMENTS = 4
"""A 2-D kernel with four arguments that aren't constexprs (in, out, two sizes) is a transposing copy.

torch 2.13, ``codegen/triton_utils.py``, select_tile_hint.
"""

FP8_ELEMENTS_PER_THREAD = {"f8E5M2": 4, "f8E4M3FN": 2}
"""Fewest elements a thread must hold for Triton to convert to or from a type of MLIR.

torch 2.13, ``codegen/triton.py``, to_dtype.
"""


def round_sizes(numels: Mapping[str, int], *, kernel: str = "") -> dict[str, int]:
    """Numbers of elements by axis as size hints: each rounded up to a power of two.

    Raises :class:`~kerntune.errors.HintError` that names the axis for an unknown one, and for a number below 1: an
    empty launch needs no config.
    """
    where = named_kernel(kernel)
    require_known_axes(numels, where)
    for axis, numel in numels.items():
        if isinstance(numel, bool) or not isinstance(numel, int) or numel < 1:
            raise HintError(f"{where}axis {axis} has {numel!r} elements: a size hint needs a positive integer")
    return {axis: ceil_pow2(numel) for axis, numel in numels.items()}


def sizes_from_arguments(
    dimensions: Mapping[str, str | Sequence[str]], arguments: Mapping[str, object], *, kernel: str = ""
) -> dict[str, int]:
    """Size hints of a call from the kernel's own arguments.

    ``dimensions`` maps an axis to the argument that is its number of elements, ``{"x": "n_rows", "r0": "n_cols"}``;
    several names are multiplied, ``{"x": ("batch", "rows")}``. Raises :class:`~kerntune.errors.HintError` that names
    axis and argument where one is unknown, missing, no integer, zero or negative.
    """
    where = named_kernel(kernel)
    require_known_axes(dimensions, where)
    if not dimensions:
        raise HintError(f"{where}no dimensions: name the argument that holds the size of x")
    several = {axis: (names,) if isinstance(names, str) else names for axis, names in dimensions.items()}
    numels = {axis: prod(_value(axis, n, arguments, where) for n in names) for axis, names in several.items()}
    return round_sizes(numels, kernel=kernel)


def _value(axis: str, name: str, arguments: Mapping[str, object], where: str) -> int:
    if name not in arguments:
        known = ", ".join(arguments) or "none"
        raise HintError(f"{where}axis {axis} is to be argument {name!r}, but the call has {known}")
    value = arguments[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise HintError(f"{where}axis {axis} is argument {name}={value!r}, which is no positive integer")
    return value


def tile_hint(sizes: Mapping[str, int], arguments: int) -> TileHint:
    """SQUARE for a 2-D kernel with exactly four arguments that aren't constexprs."""
    square = len(sizes) == 2 and arguments == SQUARE_ARGUMENTS
    return TileHint.SQUARE if square else TileHint.DEFAULT


_OPERATION = re.compile(r'^[ \t]*(?:%[^=\n]*= )?"?(?:tt|ttg|ttng|amdg)\.(\w+)"?[ (]([^\n]*)', re.MULTILINE)
"""An operation at the start of a line, with the values that it defines; ``tt.reduce.return`` is none."""

_CONVERSION = re.compile(r": (?:tensor<[^<>\n]*x)?(\w+)>? -> (?:tensor<[^<>\n]*x)?(\w+)>?")
"""The element types of ``tt.fp_to_fp``: ``: tensor<1024xf8E5M2> -> tensor<1024xf32>``."""

LOADS = (
    "load", "descriptor_load", "descriptor_gather", "experimental_descriptor_load", "async_copy_global_to_local",
    "async_tma_copy_global_to_local", "async_tma_gather", "buffer_load", "buffer_load_to_local",
)  # fmt: skip
STORES = (
    "store", "descriptor_store", "descriptor_scatter", "experimental_descriptor_store",
    "async_tma_copy_local_to_global", "async_tma_scatter", "buffer_store",
)  # fmt: skip

ATOMICS = ("atomic_rmw", "buffer_atomic_rmw")


class TtirCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Operations written in a kernel, each counted once wherever it stands (a loop's body too)."""

    loads: int = 0
    stores: int = 0
    reductions: int = 0
    atomic_add: bool = False
    min_elements_per_thread: int = 0
    operand_bytes: int = 0
    """Not of the text: bytes of an element of the call's narrowest tensor."""

    def apply(self, hints: KernelHints) -> KernelHints:
        """The hints with these counts."""
        return msgspec.structs.replace(hints, **msgspec.structs.asdict(self))


def count_ttir(text: str) -> TtirCounts:
    """What a module of Triton 3.6 to 3.9 does; all zero for text without Triton operations."""
    operations = _OPERATION.findall(text)
    counts = Counter(name for name, _ in operations)
    converted = [types for name, rest in operations if name == "fp_to_fp" for types in _CONVERSION.findall(rest)]
    return TtirCounts(
        loads=sum(counts[name] for name in LOADS),
        stores=sum(counts[name] for name in STORES),
        reductions=counts["reduce"],
        atomic_add=any(name in ATOMICS and rest.startswith(("fadd", "add")) for name, rest in operations),
        min_elements_per_thread=max((FP8_ELEMENTS_PER_THREAD.get(t, 0) for pair in converted for t in pair), default=0),
    )


SHORT_REDUCTION = 32
"""Up to 32 elements a reduction is one thread's work."""

OUTPUTS_PER_SM = 64
"""From 64 outputs an SM on, outputs alone keep the device busy."""

MAX_ELEMENTS_PER_THREAD = 512
SPLIT_WARPS = 8
OUTPUTS_PER_SM_UNSPLIT = 2
NO_SPLIT_UP_TO = 8192
NO_SPLIT_UP_TO_NEW = 524288
"""Inner reductions this long are not split; the second is for GPUs of version 10 and above (measured on a GB200)."""

NO_SPLIT_FEW_OUTPUTS = 32768
NO_SPLIT_MANY_OUTPUTS = 40960
"""torch 2.15's numbers for GPUs of version 10 and above, below and from one output an SM on."""

NEW_MAJOR = 10

OUTER_R_PER_THREAD = 4
OUTER_X_PER_BLOCK = 128

EVEN_INNER = 30
EVEN_OUTER = 20
EVEN_MOST = 50
"""How far a split may be moved to a divisor of r, so that all programs get the same share."""


class Read(NamedTuple):
    """A load's strides, in elements, along the kept and the reduced dimensions (those of one element left out)."""

    kept: tuple[int, ...]
    reduced: tuple[int, ...]


class Split(NamedTuple):
    """A reduction's hint and how many programs share one output; 1 is an ordinary reduction."""

    hint: ReductionHint
    parts: int


def read_of(shape: Sequence[int], strides: Sequence[int], dims: Sequence[int]) -> Read:
    """The strides, in elements, of a tensor that is reduced along ``dims`` (negative ones count from the end).

    Raises :class:`HintError` if shape and strides differ in length, and for a dimension that the tensor doesn't have.
    """
    rank = len(shape)
    if len(strides) != rank:
        raise HintError(f"a tensor of shape {tuple(shape)} can't have the strides {tuple(strides)}")
    for dim in dims:
        if not -rank <= dim < rank:
            raise HintError(f"no dimension {dim} in a tensor of shape {tuple(shape)}")
    reduced = {dim % rank for dim in dims}
    kept = tuple(s for d, s in enumerate(strides) if d not in reduced and shape[d] != 1)
    return Read(kept, tuple(s for d, s in enumerate(strides) if d in reduced and shape[d] != 1))


def inferred_read(shape: Sequence[int], strides: Sequence[int], outputs: int, r: int) -> Read | None:
    """The strides of a tensor of ``outputs`` times ``r`` elements whose leading or trailing dimensions are reduced.

    None if no such cut of its dimensions has these numbers of elements, or if several have and they differ (a square
    matrix may be reduced either way).
    """
    if prod(shape) != outputs * r:
        return None
    cuts = [(range(cut), range(cut, len(shape))) for cut in range(len(shape) + 1)]
    found = {
        read_of(shape, strides, reduced)
        for head, tail in cuts
        for reduced, kept in ((head, tail), (tail, head))
        if prod(shape[d] for d in reduced) == r and prod(shape[d] for d in kept) == outputs
    }
    return found.pop() if len(found) == 1 else None


def reduction_split(
    reads: Sequence[Read],
    outputs: int,
    r: int,
    device: DeviceSpec,
    preset: Preset = INDUCTOR_2_13,
    *,
    may_split: bool = True,
) -> Split:
    """The hint of a reduction of ``outputs`` times ``r`` elements, and its split.

    One output is read contiguously by any split (INNER). Short reductions and those with many outputs need no
    special shape (DEFAULT). Else the reads decide: a read is outer if no reduced dimension has stride 1, and INNER
    needs more inner reads than outer ones. Reads that cover all dimensions count; if there are none, those that vary
    along the reduction do. Raises :class:`~kerntune.errors.HintError` for a number of outputs or elements below 1.
    """
    for name, value in (("outputs", outputs), ("r", r)):
        if value < 1:
            raise HintError(f"a reduction with {name}={value}: both must be at least 1")
    deciding = [read for read in reads if all((*read.kept, *read.reduced))]
    deciding = deciding or [read for read in reads if any(read.reduced)]
    outer = sum(all(s == 0 or s > 1 for s in read.reduced) for read in deciding)
    plain = r <= SHORT_REDUCTION or outputs >= OUTPUTS_PER_SM * device.sm_count or not deciding
    if plain and outputs > 1:
        return Split(ReductionHint.DEFAULT, 1)
    if outputs == 1 or 2 * outer < len(deciding):
        return Split(ReductionHint.INNER, inner_split(r, outputs, device, preset) if may_split else 1)
    return Split(ReductionHint.OUTER, outer_split(r, outputs, device) if may_split else 1)


def second_stage_hint(hint: ReductionHint, outputs: int, parts: int) -> ReductionHint:
    """The hint of the pass that adds up the parts: a small outer one is OUTER_TINY (``ir.py``)."""
    small = (parts <= 512 and outputs <= 512) or (parts <= 1024 and outputs <= 256)
    return ReductionHint.OUTER_TINY if hint is ReductionHint.OUTER and small else hint


def inner_split(r: int, outputs: int, device: DeviceSpec, preset: Preset = INDUCTOR_2_13) -> int:
    """Parts of a contiguous reduction: each thread of 8 warps gets 32 (64 on wave64) to 512 elements."""
    if outputs >= OUTPUTS_PER_SM_UNSPLIT * device.sm_count or r <= _unsplit(outputs, device, preset):
        return 1
    threads = device.warp_size * SPLIT_WARPS
    total, least, most = _per_device(r, outputs, device)
    if total <= least:
        share = device.warp_size
    elif total < most:
        blocks = device.sm_count * device.max_threads_per_sm // (2 * threads)
        share = _even(r, ceil_div(r, threads * ceil_div(blocks, outputs)), EVEN_INNER, device.warp_size)
    else:
        share = _even(r, MAX_ELEMENTS_PER_THREAD, EVEN_MOST, 1)
    return ceil_div(r, share * threads)


def _unsplit(outputs: int, device: DeviceSpec, preset: Preset) -> int:
    """The longest inner reduction that one program takes."""
    if (device_major(device) or 0) < NEW_MAJOR:
        return NO_SPLIT_UP_TO
    if not preset.splits_by_outputs:
        return NO_SPLIT_UP_TO_NEW
    return NO_SPLIT_FEW_OUTPUTS if outputs < device.sm_count else NO_SPLIT_MANY_OUTPUTS


def outer_split(r: int, outputs: int, device: DeviceSpec) -> int:
    """Parts of a strided reduction: a block covers 128 outputs, a thread walks 4 rows at a time."""
    total, least, most = _per_device(r, outputs, device)
    if total < least:
        share = device.warp_size
    elif total < most:
        blocks = device.sm_count * device.max_threads_per_sm // (device.warp_size * SPLIT_WARPS)
        blocks = ceil_div(blocks, ceil_div(outputs, OUTER_X_PER_BLOCK))
        share = _even(r, ceil_div(r, OUTER_R_PER_THREAD * blocks), EVEN_OUTER, device.warp_size)
    else:
        share = _even(r, MAX_ELEMENTS_PER_THREAD, EVEN_MOST, 1)
    return ceil_div(r, OUTER_R_PER_THREAD * share)


def _per_device(r: int, outputs: int, device: DeviceSpec) -> tuple[int, int, int]:
    """All elements, and how many the device's threads hold at one warp's worth and at 512 elements each."""
    threads = device.sm_count * device.max_threads_per_sm
    return r * outputs, device.warp_size * threads, MAX_ELEMENTS_PER_THREAD * threads


def _even(r: int, share: int, tolerance: int, least: int) -> int:
    """The divisor of ``r`` nearest to ``share`` (not below ``least``) if it is within ``tolerance``, else ``share``."""
    for distance in range(tolerance):
        for divisor in (share - distance, share + distance):
            if divisor > 0 and r % divisor == 0:
                return max(divisor, least)
    return share
