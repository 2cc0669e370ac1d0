"""Further candidates in physical terms: elements a thread, blocks an SM, bytes of shared memory.

The constants are of a sweep of 14 kernels on an NVIDIA H200 (``benchmarks/results/heuristic_sweep.json``, "the sweep"
below); the rules name no shape. They depend on sizes and counts only, not on dtypes: a family gets few candidates that
differ in elements a thread, and timing picks the one for the dtype.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from kerntune.base.device import DeviceSpec
from kerntune.heuristics.hints import KernelHints, ReductionHint
from kerntune.heuristics.presets import Preset, measured_on
from kerntune.heuristics.sizing import ceil_pow2, floor_pow2

REGISTERS_HELD = 64
"""Values of a thread's registers that a tile may take. With addresses and temporaries that is about 128 of an SM's
65536, so a quarter of the threads is resident, which the sweep still has first (``sums_outer``: 64 sums a thread)."""

ROW_ELEMENTS = 16
"""Elements a thread of a block that holds whole rows: two to four loads of 16 bytes in flight, and 32 registers in
all, so that every thread of an SM is resident. First in the sweep for ``softmax_persistent``,
``layer_norm_persistent``."""

MOST_WARPS = 16
"""Beyond 512 threads a block waits for itself: no kernel of the sweep has its best there."""

BLOCKS_PER_SM = 2
"""At least two blocks an SM, so that one loads while the other waits at its reduction."""

LEAST_OUTPUTS = 8
"""Neighbouring outputs of an outer reduction's block: 32 bytes of fp32, the least that DRAM delivers (a sector)."""

OUTER_SHALLOW = 2
"""Elements a thread where a grid of full SMs is resident at once (``moments_outer``: 32 x 8 with 4 warps)."""

OUTER_MIDDLE = (8, 8)
OUTER_DEEP_WARPS = 4
"""Warps and elements a thread of the middle tile (0.97 of the best of ``sums_outer``), and warps of the deep one, which
has as many sums a thread as :data:`REGISTERS_HELD` allow: the best of ``sums_outer``, with 32 KiB in flight a block."""

INNER_STEPS = ((8, 16), (4, 8))
"""Warps and elements a thread of an inner reduction's steps, 4096 and 1024 elements: within 1 % of the best of
``sums_inner``; a short step wastes less of a row that isn't a multiple of it."""

SCAN_STEPS = ((4, 32), (8, 64), (4, 64))
"""Warps and elements a thread of a scan's block. Blocks wait for each other, so few long ones are best
(``cumsum_split``: 512 threads with 4 elements each take 2.9 times as long)."""

LEAST_SCAN_ELEMENTS = 8
"""A scan with few blocks shortens them, but not below two 16-byte loads of fp32 a thread."""

SCAN_OTHER_REGISTERS = 32
"""Registers of a thread besides its elements. The limit keeps five blocks of 64 elements a thread on an SM where
ptxas's choice keeps four; the sweep has the limited one 20 % faster."""

PRODUCT_BYTES = 2
PRODUCT_STAGES = 4
PRODUCT_TILES = (
    # x, y, r0, warps, blocks an SM
    (256, 128, 64, 8, 1),
    (256, 128, 32, 8, 1),
    (128, 256, 64, 8, 1),
    (128, 128, 64, 8, 2),
    (128, 128, 32, 4, 2),
)
"""Tiles whose fp32 sums take 128 KiB of an SM's 256 KiB of registers (one block an SM) or 64 KiB (two). Stages of
operands, 16-bit ones where their type isn't known, fill the shared memory that so many blocks leave each other, up to
four (``matmul``, ``matmul_batched``)."""

SMS_PER_PRODUCT_TILE = 2
"""A tile is worth trying if there is one for every two SMs at least."""


class Line(NamedTuple):
    """A pointwise tile with its elements a thread."""

    blocks: tuple[int, ...]
    per_thread: int


POINTWISE_TILES: dict[int, tuple[Line, ...]] = {
    1: (Line((2048,), 16), Line((1024,), 4)),
    2: (Line((64, 64), 32), Line((128, 8), 8)),
    3: (
        Line((64, 64, 1), 8),
        Line((64, 1, 64), 8),
        Line((16, 256, 1), 32),
        Line((16, 1, 256), 32),
        Line((32, 32, 1), 8),
        Line((32, 1, 32), 8),
        Line((1024, 1, 1), 8),
    ),
}
"""By number of axes. 1-D: a 16-bit kernel has 16 elements a thread, two loads of 16 bytes, an fp32 one 4 (``gelu_1d``,
``blend_1d``, in addition to Inductor's 8 and 2). 2-D: a transposition's tile with more in flight, and a plain
kernel's of half-kilobyte rows (``add_transposed_2d``, ``scale_rows_2d``). 3-D: a transposition has two unit-stride
axes, x of the output and another of the input. Both get whole lines of 128 bytes, or the output half of one, or small
tiles that waste less at the edge of a size that isn't a multiple; an axis without contiguous access gets 1. The hints
don't contain which axis that is, so both planes are tried, and x alone (``permute_3d``)."""


class Tile(NamedTuple):
    """Blocks of x and r, warps, and perhaps a limit on registers."""

    x: int
    r: int
    warps: int
    registers: int | None = None


def applies(hints: KernelHints, device: DeviceSpec, preset: Preset) -> bool:
    """Whether there are further candidates for a reduction: on NVIDIA GPUs from sm_80 on, in modes with several
    candidates.

    There are none in deterministic and batch-invariant modes, and none for mix-order reductions, which the sweep
    doesn't contain.
    """
    modes = hints.modes
    fixed = modes.one_reduction or modes.batch_invariant or hints.rsplit_size is not None
    return measured_on(device, preset) and not fixed


def pointwise_tiles(hints: KernelHints, device: DeviceSpec, preset: Preset) -> tuple[Line, ...]:
    """Further tiles of a pointwise kernel that leave no SM without a block; none in modes with a single config."""
    if not (measured_on(device, preset) and hints.modes.autotune_pointwise):
        return ()
    numel = prod(hints.sizes.values())
    return tuple(t for t in POINTWISE_TILES[len(hints.sizes)] if numel // prod(t.blocks) >= device.sm_count)


def is_outer(hints: KernelHints) -> bool:
    """Whether neighbouring outputs are neighbours in memory, and reduced elements aren't. The hint has the last word;
    where it is DEFAULT, the accesses say it."""
    if hints.reduction is ReductionHint.DEFAULT:
        return not hints.contiguous_reduction_access
    return hints.reduction is not ReductionHint.INNER


def reduction_tiles(hints: KernelHints, device: DeviceSpec) -> tuple[Tile, ...]:
    """Further tiles of a looped reduction, by the way it walks memory."""
    if is_outer(hints):
        return _outer_tiles(hints, device)
    lanes, r, most = device.warp_size, hints.reduction_numel, _row_share(hints)
    tiles = [(warps, warps * lanes * min(share, most)) for warps, share in INNER_STEPS]
    return tuple(_step(_rows(t, r, hints, device), t, warps, hints, lanes) for warps, t in tiles)


def _outer_tiles(hints: KernelHints, device: DeviceSpec) -> tuple[Tile, ...]:
    """A warp's lanes side by side, fewer where SMs would have no block; three depths.

    Shallow: as many warps as let the whole grid be resident at once. Deep: as many sums a thread as registers hold.
    """
    lanes, x = device.warp_size, hints.sizes["x"]
    width = min(lanes, x)
    while width > LEAST_OUTPUTS and x // width < device.sm_count:
        width //= 2
    resident = device.sm_count * device.max_threads_per_sm // (max(x // width, 1) * lanes)
    full = min(max(floor_pow2(max(resident, 1)), OUTER_DEEP_WARPS), MOST_WARPS)
    deep = floor_pow2(max(REGISTERS_HELD // max(hints.reductions, 1), 1))
    wanted = ((full, OUTER_SHALLOW), OUTER_MIDDLE, (OUTER_DEEP_WARPS, deep))
    return tuple(_step(width, warps * lanes * share // width, warps, hints, lanes) for warps, share in wanted)


def _step(x: int, r: int, warps: int, hints: KernelHints, lanes: int) -> Tile:
    """A tile clipped to the reduction, with no more threads than elements."""
    r = min(r, hints.reduction_numel)
    return Tile(x, r, max(min(warps, x * r // lanes), 1))


def row_tiles(hints: KernelHints, device: DeviceSpec) -> tuple[Tile, ...]:
    """Further blocks of whole rows: 16 elements a thread with two and four warps, and 32; none for outer ones.

    A row longer than such a block has the number of warps for its number of elements.
    """
    if is_outer(hints):
        return ()
    lanes, r, share = device.warp_size, hints.reduction_numel, _row_share(hints)
    found = []
    for warps, elements in ((2, share), (4, share), (2, 2 * share)):
        rows = _rows(warps * lanes * elements, r, hints, device)
        fitting = ceil_pow2(rows * r // (lanes * elements))
        found.append(Tile(rows, r, min(fitting, MOST_WARPS)))
    return tuple(dict.fromkeys(found))


def _rows(tile: int, r: int, hints: KernelHints, device: DeviceSpec) -> int:
    """Rows of a block of ``tile`` elements, fewer where SMs would have too few blocks."""
    least = max(BLOCKS_PER_SM * device.sm_count, 1)
    return min(max(tile // r, 1), floor_pow2(max(hints.sizes["x"] // least, 1)))


def _row_share(hints: KernelHints) -> int:
    """Elements a thread: 16, fewer where a kernel loads much and all of it is held at once."""
    return min(ROW_ELEMENTS, floor_pow2(max(REGISTERS_HELD // max(hints.loads, 1), 1)))


def scan_steps(hints: KernelHints, device: DeviceSpec) -> tuple[Tile, ...]:
    """Further blocks of a scan, shortened where SMs would have too few; ``hints`` have the number of rows."""
    lanes, r = device.warp_size, hints.reduction_numel
    numel, found = hints.sizes["x"] * r, []
    for n, (warps, most) in enumerate(SCAN_STEPS):
        share = most
        while share > LEAST_SCAN_ELEMENTS and numel // (warps * lanes * share) < BLOCKS_PER_SM * device.sm_count:
            share //= 2
        step = _step(1, warps * lanes * share, warps, hints, lanes)
        limited = n == len(SCAN_STEPS) - 1 and step.r == warps * lanes * most
        found.append(step._replace(registers=share + SCAN_OTHER_REGISTERS) if limited else step)
    return tuple(dict.fromkeys(found))


def product_tiles(hints: KernelHints, device: DeviceSpec) -> tuple[tuple[int, int, int, int, int], ...]:
    """Further tiles of a matrix product that are within its sizes, fit shared memory, and occupy half of the SMs:
    blocks of x, y and r0, warps, pipeline stages."""
    found, sizes = [], hints.sizes
    for x, y, r0, warps, blocks in PRODUCT_TILES:
        room = min(device.shared_memory_per_block, device.shared_memory_per_sm // blocks)
        stages = min(room // ((x + y) * r0 * (hints.operand_bytes or PRODUCT_BYTES)), PRODUCT_STAGES)
        tiles = (sizes["x"] // x) * (sizes["y"] // y) * sizes.get("z", 1)
        if stages > 1 and SMS_PER_PRODUCT_TILE * tiles >= device.sm_count:
            found.append((x, y, r0, warps, stages))
    return tuple(found)
