"""What compiled register counts change: shorter reduction blocks, spilling configs, configs that fit no SM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TypeVar

from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.heuristics.hints import BLOCK_NAMES, HeuristicType, KernelHints
from kerntune.heuristics.presets import INDUCTOR_2_13, Preset
from kerntune.heuristics.reduction import persistent_step, without_x
from kerntune.heuristics.sizing import block_of, bounds, ceil_div, device_major

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
    if longest == "r0" and half < (hints.min_r_block or 0):
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
    keep = frozenset(persistent_step(without_x(hints), bounds(hints, device, preset)) if _has_whole_row(hints) else ())
    queue = list(found)
    for config in queue:
        smaller = None if config in keep else scaled_down(config, registers_of(config), hints, device)
        if smaller is not None and smaller not in found:
            found[smaller] = None
            if preset.chained_scaling:
                queue.append(smaller)
    return tuple(found)


def _has_whole_row(hints: KernelHints) -> bool:
    return hints.add_persistent_rblock and not hints.native_matmul


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
