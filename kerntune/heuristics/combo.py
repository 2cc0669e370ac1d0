"""Combo kernels: several kernels in one launch, each with blocks of its own (``XBLOCK_0``, ``XBLOCK_1`` and so on)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import Any

import msgspec

from kerntune.base.config import Config, Scalar
from kerntune.base.device import DeviceSpec
from kerntune.errors import HintError
from kerntune.heuristics.descent_steps import least_block
from kerntune.heuristics.hints import BLOCK_NAMES, HeuristicType, KernelHints
from kerntune.heuristics.persistent import persistent_reduction
from kerntune.heuristics.pointwise import pointwise
from kerntune.heuristics.presets import INDUCTOR_2_13, Preset
from kerntune.heuristics.proposer import Family
from kerntune.heuristics.reduction import reduction
from kerntune.heuristics.sizing import bounds

FAMILIES: dict[HeuristicType, Family] = {
    HeuristicType.POINTWISE: pointwise,
    HeuristicType.REDUCTION: reduction,
    HeuristicType.PERSISTENT_REDUCTION: persistent_reduction,
}

AXIS_OF = {block: axis for axis, block in BLOCK_NAMES.items()}


class SubKernel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kernel of a combo."""

    family: HeuristicType
    hints: KernelHints


class ComboGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sub-kernels that are tuned as one: their numbers, their candidates, and the fields that may be tuned further."""

    members: tuple[int, ...]
    configs: tuple[Config, ...]
    fields: tuple[str, ...]
    numel: int


class ComboPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to tune a combo kernel.

    Start from ``base``, every sub-kernel's first config with the most warps and stages of them all. Try each group's
    candidates in turn (:meth:`candidates`), the largest group first, keeping the best; then every pair of
    ``warp_stage_pairs`` on the blocks that won. ``field_limits`` bounds a later descent along ``fields``, and
    ``field_minimums`` those that a sub-kernel's hints keep from 1.
    """

    base: Config
    groups: tuple[ComboGroup, ...]
    warp_stage_pairs: tuple[tuple[int, int], ...]
    field_limits: dict[str, int]
    parameters: frozenset[str]
    field_minimums: dict[str, int] = {}

    @property
    def fields(self) -> tuple[str, ...]:
        """Block fields in the order in which they are worth tuning."""
        return tuple(field for group in self.groups for field in group.fields)

    def candidates(self, current: Config, group: ComboGroup) -> tuple[Config, ...]:
        """``current`` with each of the group's block choices; those that change nothing are left out."""
        found = []
        for choice in group.configs:
            kwargs, options = dict(current.kwargs), dict(current.options)
            for member in group.members:
                _merge(kwargs, options, choice, member, self.parameters)
            candidate = current.replace(kwargs=kwargs, options=options)
            if candidate.key() != current.key():
                found.append(candidate)
        return tuple(found)

    def warp_candidates(self, current: Config) -> tuple[Config, ...]:
        """``current`` with every other pair of warps and stages."""
        pairs = (current.replace(num_warps=w, num_stages=s) for w, s in self.warp_stage_pairs)
        return tuple(candidate for candidate in pairs if candidate.key() != current.key())


def combo(
    subkernels: Sequence[SubKernel],
    device: DeviceSpec,
    parameters: Collection[str],
    preset: Preset = INDUCTOR_2_13,
    *,
    grouped: bool = False,
) -> ComboPlan:
    """A plan for a combo kernel with the given parameter names.

    ``grouped`` tunes sub-kernels with equal hints together. Raises :class:`~kerntune.errors.HintError` for a family
    that has no blocks of its own, for no sub-kernels, and for a block other than 1 without a parameter.
    """
    if not subkernels:
        raise HintError("a combo kernel needs at least one sub-kernel")
    found = [_propose(i, sub, device, preset) for i, sub in enumerate(subkernels)]
    kwargs: dict[str, Scalar] = {}
    options: dict[str, Scalar] = {}
    for i, configs in enumerate(found):
        _merge(kwargs, options, configs[0], i, parameters)
    warps, stages = max(c[0].num_warps for c in found), max(c[0].num_stages for c in found)
    members: dict[Any, list[int]] = {}
    for i, sub in enumerate(subkernels):
        nameless = SubKernel(sub.family, msgspec.structs.replace(sub.hints, kernel=""))
        key = msgspec.json.encode(nameless, order="deterministic") if grouped else i
        members.setdefault(key, []).append(i)
    groups = []
    for first, *more in members.values():
        fields = tuple(f"{name}_{first}" for name in found[first][0].kwargs if name in AXIS_OF)
        numel = prod(subkernels[first].hints.sizes.values())
        groups.append(ComboGroup((first, *more), found[first], fields, numel))
    pairs = dict.fromkeys((c.num_warps, c.num_stages) for configs in found for c in configs)
    blocks = {  # the combo kernel's name of each, with its axis and sub-kernel
        f"{name}_{i}": (AXIS_OF[name], sub)
        for i, (sub, configs) in enumerate(zip(subkernels, found, strict=True))
        for name in configs[0].kwargs
        if name in AXIS_OF
    }
    least = {n: least_block(axis, s.hints, s.family, preset) for n, (axis, s) in blocks.items()}
    return ComboPlan(
        base=Config(kwargs=kwargs, num_warps=warps, num_stages=stages, options=options),
        groups=tuple(sorted(groups, key=lambda group: -group.numel)),
        warp_stage_pairs=tuple({**pairs, (warps, stages): None}),
        field_limits={
            name: min(bounds(sub.hints, device, preset).max_block[axis], sub.hints.sizes[axis])
            for name, (axis, sub) in blocks.items()
        },
        parameters=frozenset(parameters),
        field_minimums={name: minimum for name, minimum in least.items() if minimum > 1},
    )


def _propose(i: int, sub: SubKernel, device: DeviceSpec, preset: Preset) -> tuple[Config, ...]:
    if sub.family not in FAMILIES:
        raise HintError(f"sub-kernel {i}: a combo kernel can't contain a {sub.family.value} kernel")
    return FAMILIES[sub.family](sub.hints, device, preset)


def _merge(
    kwargs: dict[str, Scalar], options: dict[str, Scalar], config: Config, i: int, parameters: Collection[str]
) -> None:
    """Write a sub-kernel's values under its own names; compile options are the whole kernel's."""
    for name, value in config.kwargs.items():
        own = f"{name}_{i}"
        if own in parameters:
            kwargs[own] = value
        elif name in parameters:
            kwargs[name] = value
        elif value != 1:
            raise HintError(f"sub-kernel {i} needs {name}={value}, but the kernel has no parameter {own}")
    options.update(config.options)
