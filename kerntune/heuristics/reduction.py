"""Looped reductions and split scans, and what compiled register counts change of their configs.

Blocks of x walk r in steps of ``R0_BLOCK`` (and ``R1_BLOCK``). A split scan takes one row at a time: programs scan its
blocks and pass their sums on. Once registers are known, reduction blocks become shorter, and configs that spill or fit
no SM are marked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import TypeVar

from kerntune.base.config import Config, Scalar, unique_configs
from kerntune.base.device import DeviceSpec
from kerntune.errors import HintError
from kerntune.heuristics.hints import BLOCK_NAMES, AutotuneHint, HeuristicType, KernelHints, ReductionHint
from kerntune.heuristics.matmul import NEWER_TILES, TILES, looped_matmul, products_by_size
from kerntune.heuristics.measured import Tile, applies, product_tiles, reduction_tiles, scan_steps
from kerntune.heuristics.presets import INDUCTOR_2_13, Preset
from kerntune.heuristics.reduction_blocks import (
    one_config,
    outer_tile,
    pays_persistent,
    rows_by_hint,
    scored_axes,
    scores_of,
    share_out,
    tiled_config,
    tiny_x,
)
from kerntune.heuristics.sizing import (
    Bounds,
    block_of,
    bounds,
    ceil_div,
    device_major,
    raise_to_floors,
    raise_to_tma_minimums,
    rebuilt,
    reduction_config,
    require_axes,
)

MAX_R_BLOCK = 2048
MAX_R_BLOCK_SMALL = 1024
NEW_MAJOR = 10
"""Longest step of a contiguous reduction: 1024 on GPUs of version 10 and above, and for kernels that hold much."""

MANY_ROWS = 1024
MANY_VALUES = 10
"""From 1024 rows and 10 loads and reductions on a kernel counts as register-intensive (pytorch issue 126463)."""

TWO_ROWS_UP_TO = 2048
"""A contiguous reduction this short takes two rows a block."""

FEW_ROWS = 64
"""Up to 64 rows, one a block, to occupy more of an AMD GPU (torch 2.15)."""

LONG_STEP = 4096
SCALAR_STEPS: tuple[tuple[int, int | None], ...] = ((LONG_STEP, None), (8192, 4), (16384, 8))
"""Steps, and warps where they are fixed, of kernels with a scalar accumulator a row (torch 2.15)."""

SM103 = 103
LONG_STEP_FROM = 2048
ELEMENTS_PER_THREAD_SM103 = 16
"""sm_103 needs more loads in flight than sm_90 or sm_100 for the same share of its bandwidth (torch 2.15)."""

PERSISTENT_TILE = 4096
MAX_PERSISTENT_STEP = 32768
FEW_VALUES = 8
"""Kernels with up to 8 loads and reductions get a whole-row candidate: 4096 elements, a row of 32768 at most."""

MAX_COMBO_TILE = 4096
"""Elements of X times the longest persistent row in a combo kernel; above it AMD's compiler takes an hour."""

SIMPLE_AXES = (("x", "r0"),)
REDUCTION_AXES_SETS = (*SIMPLE_AXES, ("x", "r0", "r1"), ("x", "y", "r0"), ("x", "y", "r0", "r1"))

HIP_TILES: tuple[tuple[int, int, dict[str, Scalar]], ...] = (
    (1024, 8, {"waves_per_eu": 2}),
    (512, 8, {"waves_per_eu": 1}),
)


def reduction(hints: KernelHints, device: DeviceSpec, preset: Preset = INDUCTOR_2_13) -> tuple[Config, ...]:
    """Candidates of a reduction with blocks ``XBLOCK``, perhaps ``YBLOCK``, and ``R0_BLOCK`` (``R1_BLOCK``).

    Raises :class:`~kerntune.errors.HintError` for other axes, sizes that no legal grid covers, and minimums that no
    config meets. A kernel without ``XBLOCK`` is proposed for as if x were 1; :func:`kerntune.heuristics.named_blocks`
    takes the parameter away from the proposal.
    """
    hints = without_x(hints)
    limits = bounds(hints, device, preset)
    configs = reduction_candidates(hints, limits, dynamic=hints.dynamic_sizes)
    if applies(hints, device, preset):
        if hints.native_matmul:
            configs += looped_matmul(hints, product_tiles(hints, device)) + looped_matmul(hints, NEWER_TILES)
            configs = products_by_size(configs, hints, device)
        elif "y" not in hints.sizes:
            configs += measured_configs(reduction_tiles(hints, device), hints, limits)
            if pays_persistent(hints):  # in one step
                configs += rows_by_hint(hints, limits)
    return finish(configs, hints, limits)


def measured_configs(tiles: Iterable[Tile], hints: KernelHints, limits: Bounds) -> tuple[Config, ...]:
    """Measured tiles as configs; one that exceeds a limit is left out."""
    found = []
    for x, r, warps, registers in tiles:
        with suppress(HintError):
            config = reduction_config(hints, x, r, limits, hints.reduction, warps=warps, least_warps=1)
            found.append(config if registers is None else config.replace(maxnreg=registers))
    return tuple(found)


def without_x(hints: KernelHints) -> KernelHints:
    """The hints with x = 1 if the kernel has no ``XBLOCK``."""
    return hints.with_sizes({**hints.sizes, "x": 1}) if hints.no_x_block else hints


def finish(
    configs: tuple[Config, ...], hints: KernelHints, limits: Bounds, *, persistent: bool = False, floors: bool = True
) -> tuple[Config, ...]:
    """The last steps of every reduction family: TMA minimums, determinism, block minimums, each config once."""
    if not limits.preset.filters:
        return unique_configs(configs)
    configs = one_config(raise_to_tma_minimums(configs, hints, persistent=persistent), hints)
    if not floors or (hints.min_x_block is None and hints.min_r_block is None):
        return configs
    return unique_configs(raise_to_floors(configs, hints, limits))


def reduction_candidates(hints: KernelHints, limits: Bounds, *, dynamic: int = 0) -> tuple[Config, ...]:
    """The configs before any filter; ``dynamic`` sizes count for the outer tile."""
    if hints.native_matmul:
        return looped_matmul(hints, TILES)
    require_axes(hints, "a reduction", *(SIMPLE_AXES if limits.preset.grow_reductions else REDUCTION_AXES_SETS))
    head = persistent_step(hints, limits) if hints.add_persistent_rblock else ()
    if hints.reduction is not ReductionHint.DEFAULT and "y" not in hints.sizes and not hints.modes.max_autotune:
        if hints.reduction is ReductionHint.INNER:
            return (*head, *_inner(hints, limits))
        outer = hints.reduction is ReductionHint.OUTER
        return (*head, _outer(hints, limits, dynamic) if outer else _tiny(hints, limits))
    off = not hints.modes.autotune_pointwise or hints.modes.deterministic
    if limits.preset.deterministic_pointwise and off:  # torch 2.6: one middling tile
        return (config_for(hints, 32, 128, limits),)
    found = (
        *head,
        _contiguous(hints, limits),
        _outer(hints, limits, dynamic),
        _tiny(hints, limits),
        config_for(hints, 64, 64, limits),
        config_for(hints, 8, 512, limits),
        config_for(hints, 64, 4, limits, warps=8),
        *_scalar_steps(hints, limits),
    )
    if not (limits.hip and limits.preset.backend_extras):
        return found
    found += tuple(config_for(hints, x, r, limits, warps=4, options=options) for x, r, options in HIP_TILES)
    longest = hints.max_persistent_rblock
    return tuple(c for c in found if block_of(c, "x", 0) * longest <= MAX_COMBO_TILE)


def _inner(hints: KernelHints, limits: Bounds) -> tuple[Config, ...]:
    """The contiguous tile or those with scalar accumulators, and what a backend adds before and after."""
    wide = limits.preset.wide_inner_xpu and limits.backend == "xpu"
    first = (config_for(hints, 64, 64, limits, warps=16),) if wide else ()
    return (*first, *(_scalar_steps(hints, limits) or (_contiguous(hints, limits),)), *_long_step(hints, limits))


def _has_scalar_accumulators(hints: KernelHints, limits: Bounds) -> bool:
    return limits.preset.scalar_accumulators and AutotuneHint.SCALAR_ACCUMULATORS in hints.autotune


def _scalar_steps(hints: KernelHints, limits: Bounds) -> tuple[Config, ...]:
    if "y" in hints.sizes or not _has_scalar_accumulators(hints, limits):
        return ()
    r = hints.reduction_numel
    return tuple(config_for(hints, 1, min(r, step), limits, warps=warps) for step, warps in SCALAR_STEPS)


def _long_step(hints: KernelHints, limits: Bounds) -> tuple[Config, ...]:
    r = hints.reduction_numel
    wanted = limits.preset.long_step_sm103 and limits.arch == SM103
    if not wanted or r < LONG_STEP_FROM or is_register_intensive(hints):
        return ()
    step = min(r, LONG_STEP)
    warps = max(step // (limits.warp_size * ELEMENTS_PER_THREAD_SM103), 1)
    return (config_for(hints, 1, step, limits, warps=warps),)


def is_register_intensive(hints: KernelHints) -> bool:
    """Many rows and many values to hold: registers will be short."""
    return hints.sizes["x"] >= MANY_ROWS and hints.loads_and_reductions >= MANY_VALUES


def max_r_block(hints: KernelHints, limits: Bounds) -> int:
    """Longest step along r: 2048, or 1024 for new GPUs and register-intensive kernels."""
    new = limits.preset.tuned_outer and limits.major >= NEW_MAJOR
    return MAX_R_BLOCK_SMALL if new or is_register_intensive(hints) else MAX_R_BLOCK


def _contiguous(hints: KernelHints, limits: Bounds) -> Config:
    r, longest = hints.reduction_numel, max_r_block(hints, limits)
    if "y" in hints.sizes and _has_scalar_accumulators(hints, limits):
        longest = LONG_STEP
    few = limits.preset.one_row_if_few and limits.hip and hints.sizes["x"] <= FEW_ROWS
    if limits.preset.tuned_outer:
        x, step = 2 if r <= TWO_ROWS_UP_TO and not few else 1, min(r, longest)
    else:
        x, step = 1, r if 256 <= r < longest else longest
    return config_for(hints, x, step, limits, intensive=is_register_intensive(hints))


def _outer(hints: KernelHints, limits: Bounds, dynamic: int) -> Config:
    intensive = is_register_intensive(hints)
    if limits.hip or not limits.preset.tuned_outer:
        return config_for(hints, 64, 8, limits, intensive=intensive)
    x, step, warps = outer_tile(hints, hints.reduction_numel, dynamic)
    return config_for(hints, x, step, limits, warps=warps, intensive=intensive)


def _tiny(hints: KernelHints, limits: Bounds) -> Config:
    r = hints.reduction_numel
    step = min(r, max_r_block(hints, limits))
    return config_for(hints, tiny_x(r), step, limits, intensive=is_register_intensive(hints))


def persistent_step(hints: KernelHints, limits: Bounds) -> tuple[Config, ...]:
    """A candidate that takes whole rows in one step, for kernels that hold little; none for others.

    It is made for its shape: halving its reduction block (:mod:`kerntune.heuristics.reduction`) would undo it.
    """
    if hints.loads_and_reductions > FEW_VALUES:
        return ()
    r = hints.reduction_numel
    x = max(PERSISTENT_TILE // r, 1)
    return (config_for(hints, x, min(r, MAX_PERSISTENT_STEP), limits, intensive=is_register_intensive(hints)),)


def config_for(
    hints: KernelHints,
    x: int,
    r: int,
    limits: Bounds,
    *,
    warps: int | None = None,
    intensive: bool = False,
    options: dict[str, Scalar] | None = None,
) -> Config:
    """A wanted x by r tile as a config: shared out by tiling scores where the kernel has a y axis."""
    if "y" not in hints.sizes:
        return reduction_config(hints, x, r, limits, hints.reduction, warps=warps, intensive=intensive, options=options)
    blocks = share_out(x * r, scores_of(hints, scored_axes(hints)), hints.sizes, limits)
    config = tiled_config(hints, blocks["x"], blocks["y"], blocks["r0"], limits, intensive=intensive)
    return config.replace(options=options) if options else config


def split_scan(hints: KernelHints, device: DeviceSpec, preset: Preset = INDUCTOR_2_13) -> tuple[Config, ...]:
    """Candidates of a split scan: a reduction's, with ``R0_BLOCK`` raised to ``hints.min_scan_rblock``.

    Warps are those of the block before it was raised. A launch needs ``XBLOCK`` 1, so the kernel has none as a rule
    (``hints.no_x_block``). Raises :class:`~kerntune.errors.HintError` for other axes than x and r0.
    """
    require_axes(hints, "a split scan", ("x", "r0"))
    further = scan_steps(hints, device) if applies(hints, device, preset) else ()
    hints = without_x(hints)
    limits = bounds(hints, device, preset)
    raised = (
        rebuilt(config, {**config.kwargs, "R0_BLOCK": max(block_of(config, "r0"), hints.min_scan_rblock)})
        for config in (*reduction_candidates(hints, limits), *measured_configs(further, hints, limits))
    )
    return finish(tuple(raised), hints, limits, floors=False)


T = TypeVar("T")

ENOUGH_R = 64
"""Reduction blocks of 64 elements in all are not halved."""

MIN_CUDA_MAJOR = 8
"""CUDA devices before 8.0 are left alone."""

SPILL_THRESHOLD = 16
SPILL_THRESHOLD_HIP = 32
"""Spilled registers a thread above which a config isn't worth timing."""

SCALED = frozenset({HeuristicType.REDUCTION, HeuristicType.COOPERATIVE_REDUCTION})


def may_scale(hints: KernelHints, device: DeviceSpec, family: HeuristicType) -> bool:
    """Whether reduction blocks may be halved for occupancy: looped reductions on CUDA from 8.0 and on HIP."""
    if family not in SCALED or hints.modes.deterministic or not hints.modes.dynamic_scale_rblock:
        return False
    backend, major = device.target.backend, device_major(device) or 0
    return backend == "hip" or (backend == "cuda" and major >= MIN_CUDA_MAJOR)


def scaled_down(config: Config, registers: int | None, hints: KernelHints, device: DeviceSpec) -> Config | None:
    """``config`` with its longest reduction block halved, or None if that can't help.

    ``registers`` are those of one thread, as compiled; None if the compiler doesn't report them. It helps if a thread
    uses more than full occupancy leaves it, and the grid has more blocks than the device holds at once. ``RSPLIT`` is
    no reduction block: it is baked into the launch (torch 2.13 halves it too, if it is the largest).
    """
    hints = without_x(hints)
    blocks = {axis: block_of(config, axis) for axis in ("r1", "r0") if BLOCK_NAMES[axis] in config.kwargs}
    if registers is None or not blocks or prod(blocks.values()) <= ENOUGH_R:
        return None
    if registers <= device.registers_per_sm // device.max_threads_per_sm:
        return None
    per_block = registers * device.warp_size * config.num_warps
    resident = max(device.registers_per_sm // per_block, 1) * device.sm_count
    if ceil_div(hints.sizes["x"], block_of(config, "x")) <= resident:
        return None
    longest = max(blocks, key=blocks.__getitem__)
    half = blocks[longest] // 2
    if longest == "r0" and hints.min_r_block is not None and half < hints.min_r_block:
        return None
    return config.replace(**{BLOCK_NAMES[longest]: half})


def scale_reductions(
    configs: Sequence[Config],
    registers_of: Callable[[Config], int | None],
    hints: KernelHints,
    device: DeviceSpec,
    family: HeuristicType = HeuristicType.REDUCTION,
    preset: Preset = INDUCTOR_2_13,
) -> tuple[Config, ...]:
    """The configs, then those made by halving; each new one is compiled (``registers_of``) and may be halved again.

    The result depends on compiled code: a cache key is made of the configs that went in. The whole-row candidate of
    ``add_persistent_rblock`` is never halved (torch marks it so, but never reads the mark).
    """
    found = dict.fromkeys(configs)
    if not may_scale(hints, device, family):
        return tuple(found)
    whole_row = hints.add_persistent_rblock and not hints.native_matmul
    keep = frozenset(persistent_step(without_x(hints), bounds(hints, device, preset)) if whole_row else ())
    queue = list(found)
    for config in queue:
        smaller = None if config in keep else scaled_down(config, registers_of(config), hints, device)
        if smaller is not None and smaller not in found:
            found[smaller] = None
            if preset.chained_scaling:
                queue.append(smaller)
    return tuple(found)


def spill_threshold(hints: KernelHints, device: DeviceSpec, family: HeuristicType) -> int | None:
    """The most spilled registers a thread may have; None for a user's kernel, whose best config may spill."""
    if family is HeuristicType.USER_AUTOTUNE:
        return None
    if hints.spill_threshold is not None:
        return hints.spill_threshold
    return SPILL_THRESHOLD_HIP if device.target.backend == "hip" else SPILL_THRESHOLD


def without_spilling(configs: Sequence[T], spills: Mapping[T, int | None], threshold: int | None) -> tuple[T, ...]:
    """The configs (or what stands for them) that spill at most ``threshold`` registers; all if none would remain."""
    if threshold is None:
        return tuple(configs)
    return tuple(c for c in configs if (spills.get(c) or 0) <= threshold) or tuple(configs)


def without_pipelining(config: Config) -> Config:
    """The config with one stage, which needs the least shared memory: a last try if no config fits the device."""
    loop = {"NUM_STAGES": 1} if "NUM_STAGES" in config.kwargs else {}
    return config.replace(num_stages=1, **loop)
