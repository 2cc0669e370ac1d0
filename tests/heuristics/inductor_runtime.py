"""Comparisons with torch's heuristics beyond the families: combos, scaling by registers, coordinate descent.

Each function yields a label and a function that returns what we and they decide; it must be called before the next
case is drawn, while torch's globals are patched. Cases of a named deliberate difference are left out, and the
difference has a test of its own.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator
from math import prod
from types import SimpleNamespace
from typing import Any
from unittest import mock

import sympy
import torch
import triton
from torch._inductor import choices, ir
from torch._inductor import config as inductor_config
from torch._inductor.graph import GraphLowering
from torch._inductor.ir import Reduction
from torch._inductor.ir import ReductionHint as IrReductionHint
from torch._inductor.runtime import hints as torch_hints
from torch._inductor.runtime import triton_heuristics as th
from torch._inductor.runtime.coordinate_descent_tuner import CoordescTuner
from torch._inductor.virtualized import V, ops

from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.heuristics import INDUCTOR_2_13, Preset, persistent_reduction, pointwise, reduction
from kerntune.heuristics.call_hints import inner_split, outer_split, second_stage_hint
from kerntune.heuristics.combo import SubKernel, combo
from kerntune.heuristics.descent_steps import Field, Neighbourhood, neighbourhood
from kerntune.heuristics.given_configs import fixed_config, foreach, kernel_hash, template, user_autotune
from kerntune.heuristics.hints import HeuristicType, KernelHints, Modes, ReductionHint, TileHint
from kerntune.heuristics.proposer import Proposer
from kerntune.heuristics.reduction import may_scale, scale_reductions

from .inductor_cases import B200, H100, MI300, R_SIZES, RX7900, T4, X_SIZES, XPU
from .inductor_free import flat, flat_all
from .inductor_oracle import axis_name, backend, inductor_meta, properties, sizes_of, triton_meta

Pair = tuple[Any, Any]
Compared = tuple[str, Callable[[], Pair]]


def as_theirs(config: Config) -> triton.Config:
    kwargs = {**config.kwargs, **config.options}
    return triton.Config(kwargs, num_warps=config.num_warps, num_stages=config.num_stages)


# ------------------------------------------------------------------ scaling


def register_models() -> tuple[Callable[[Any], int | None], ...]:
    """Registers per thread of a config, as a compiler might report them."""
    return (
        lambda c: None,
        lambda c: 32,
        lambda c: 33,
        lambda c: 128,
        lambda c: 255,
        lambda c: min(24 + c.kwargs["R0_BLOCK"] * c.kwargs["XBLOCK"] // (c.num_warps * 8), 255),
    )


def scaling(preset: Preset = INDUCTOR_2_13) -> Iterator[Compared]:
    devices = (H100, B200, MI300, RX7900, T4, XPU)
    for device in devices:
        with backend(device.target.backend):
            yield from _scaling_on(device, preset)


def _scaling_on(device: DeviceSpec, preset: Preset) -> Iterator[Compared]:
    modes = (Modes(), Modes(max_autotune=True), Modes(deterministic=True), Modes(dynamic_scale_rblock=False))
    for x, r, mode, least, registers in itertools.product(
        X_SIZES[4:24:2], R_SIZES[4:18:2], modes, (None, 256), register_models()
    ):
        hints = KernelHints(sizes={"x": x, "r0": r}, modes=mode, min_r_block=least)
        yield f"scaling {device.target} {hints}", functools.partial(_scaled, registers, hints, device, preset)


def _scaled(registers: Callable[[Any], int | None], hints: KernelHints, device: DeviceSpec, preset: Preset) -> Pair:
    configs = reduction(hints, device, preset)
    mine = flat_all(scale_reductions(configs, registers, hints, device, preset=preset))
    return mine, _their_scaling(configs, registers, hints, device)


def _their_scaling(configs: Any, registers: Any, hints: KernelHints, device: DeviceSpec) -> list[Any]:
    tuner = SimpleNamespace(
        device_props=properties(device),
        size_hints=sizes_of(hints),
        inductor_meta=inductor_meta(hints, device),
        heuristic_type=torch_hints.HeuristicType.REDUCTION,
        deterministic_mode=hints.modes.deterministic,
        compile_results=[_compiled(as_theirs(c), registers) for c in configs],
        _ensure_kernel_loaded=lambda: None,
    )
    may = bool(th.CachingAutotuner._could_rblock_scale.func(tuner))
    assert may == may_scale(hints, device, HeuristicType.REDUCTION)
    if may:
        for config in th.CachingAutotuner._iter_rblock_scale_candidates(tuner):
            tuner.compile_results.append(_compiled(config, registers))
    return [flat(result.config) for result in tuner.compile_results]


def _compiled(config: Any, registers: Any) -> Any:
    return SimpleNamespace(config=config, kernel=SimpleNamespace(n_regs=registers(config)))


# ------------------------------------------------------------------ coordinate descent


def descent(preset: Preset = INDUCTOR_2_13) -> Iterator[Compared]:
    for device in (H100, MI300, RX7900, XPU):
        with backend(device.target.backend):
            for family, hints, configs in _descent_starts(device, preset):
                for config in configs:
                    yield from _descent_from(config, hints, device, family, preset)


def _descent_starts(
    device: DeviceSpec, preset: Preset
) -> Iterator[tuple[HeuristicType, KernelHints, tuple[Config, ...]]]:
    modes = Modes(max_autotune=True)
    for x, y in itertools.product(X_SIZES[2:26:5], X_SIZES[1:16:4]):
        hints = KernelHints(sizes={"x": x, "y": y}, modes=modes)
        yield HeuristicType.POINTWISE, hints, pointwise(hints, device, preset)
    for x, r, least in itertools.product(X_SIZES[2:26:5], R_SIZES[2:16:4], (None, 4)):
        hints = KernelHints(sizes={"x": x, "r0": r}, modes=modes, min_x_block=least, min_r_block=least)
        if x >= 4:
            yield HeuristicType.REDUCTION, hints, reduction(hints, device, preset)
        for minimums, makes in (({}, False), ({"x": 4}, True)):
            hints = KernelHints(
                sizes={"x": x, "r0": r},
                modes=modes,
                rsplit_size=64,
                tma_minimums=minimums,
                makes_descriptors=makes,
            )
            yield HeuristicType.PERSISTENT_REDUCTION, hints, persistent_reduction(hints, device, preset)
    for family, propose in (
        (HeuristicType.REDUCTION, reduction),
        (HeuristicType.PERSISTENT_REDUCTION, persistent_reduction),
    ):
        for rblock in (None, 512):
            sizes = {"x": 4096, "y": 512, "r0": 128}
            hints = KernelHints(sizes=sizes, native_matmul=True, native_matmul_rblock=rblock)
            yield family, hints, propose(hints, device, preset)


def _descent_from(
    config: Config, hints: KernelHints, device: DeviceSpec, family: HeuristicType, preset: Preset
) -> Iterator[Compared]:
    if config.num_warps > 8 and device.target.backend == "hip":
        return  # deliberate: waves_per_eu 0 steps to 1, not to 0 again
    around = neighbourhood(config, device, hints, family, preset=preset)
    tuner = CoordescTuner(
        is_native_matmul=hints.native_matmul,
        is_mix_order_reduction=hints.rsplit_size is not None,
        size_hints=sizes_of(hints),
        inductor_meta=inductor_meta(hints, device),
    )
    label = f"{config} {hints} {device.target}"
    yield f"fields {label}", functools.partial(_tuned_fields, config, around, tuner)
    for field in around.fields:
        yield f"{field.name} {label}", functools.partial(_along, config, around, tuner, field)
    yield f"all directions {label}", functools.partial(_everywhere, config, around, tuner, hints.modes.descent_radius)


def _tuned_fields(config: Config, around: Neighbourhood, tuner: CoordescTuner) -> Pair:
    start = as_theirs(config)
    names = [name for name in tuner.tunable_fields if name == "waves_per_eu" or _has(start, name)]
    return [f.name for f in around.fields], names


def _along(config: Config, around: Neighbourhood, tuner: CoordescTuner, field: Field) -> Pair:
    theirs = tuner.get_neighbour_configs(as_theirs(config), field.name)
    return flat_all(around.neighbours(config, field)), [flat(c) for c in theirs]


def _everywhere(config: Config, around: Neighbourhood, tuner: CoordescTuner, radius: int) -> Pair:
    theirs = tuner.get_all_tuning_directions(as_theirs(config))
    return flat_all(around.all_directions(config, radius)), [flat(c) for c in theirs]


def _has(config: Any, name: str) -> bool:
    return name in ("num_warps", "num_stages") or name in config.kwargs


# ------------------------------------------------------------------ combos


def combos(preset: Preset = INDUCTOR_2_13) -> Iterator[Compared]:
    for device in (H100, MI300, XPU):
        subs = _subkernels()
        with backend(device.target.backend):
            for pair in itertools.product(subs, subs[::2]):
                yield (
                    f"grouped on {device.target}: {pair}",
                    functools.partial(_combo, (*pair, pair[0]), device, True, preset),
                )
                yield f"combo on {device.target}: {pair}", functools.partial(_combo, pair, device, False, preset)


def _subkernels() -> list[SubKernel]:
    found = []
    for x, y in ((64, 1), (4096, 1), (1 << 22, 1), (256, 256)):
        sizes = {"x": x} if y == 1 else {"y": y, "x": x}
        found.append(SubKernel(HeuristicType.POINTWISE, KernelHints(sizes=sizes, tile=TileHint.SQUARE)))
    for x, r, hint in itertools.product((8, 4096), (64, 1024), (ReductionHint.INNER, ReductionHint.DEFAULT)):
        for family in (HeuristicType.REDUCTION, HeuristicType.PERSISTENT_REDUCTION):
            found.append(SubKernel(family, KernelHints(sizes={"x": x, "r0": r}, reduction=hint, loads=2)))
    for family in (HeuristicType.REDUCTION, HeuristicType.PERSISTENT_REDUCTION):
        tied = KernelHints(sizes={"y": 4096, "x": 4096, "r0": 64}, tiling_scores={"y": 1, "x": 1, "r0": 1})
        found.append(SubKernel(family, tied))
    return found


def parameters_of(subkernels: tuple[SubKernel, ...]) -> list[str]:
    """Every block parameter that a combo of these kernels has; persistent ones have no reduction block."""
    return [
        f"{axis_name(axis).upper()}BLOCK_{i}"
        for i, sub in enumerate(subkernels)
        for axis in sub.hints.sizes
        if not (axis[0] == "r" and sub.family is HeuristicType.PERSISTENT_REDUCTION)
    ]


def _combo(subkernels: tuple[SubKernel, ...], device: DeviceSpec, grouped: bool, preset: Preset) -> Pair:
    names = parameters_of(subkernels)
    plan = combo(subkernels, device, names, preset, grouped=grouped)
    mine = (
        flat(plan.base),
        [(list(g.members), flat_all(g.configs), sorted(g.fields)) for g in plan.groups],
        list(plan.warp_stage_pairs),
        plan.field_limits,
    )
    return mine, _their_combo(subkernels, device, names, grouped)


def _their_combo(subkernels: tuple[SubKernel, ...], device: DeviceSpec, names: list[str], grouped: bool) -> Any:
    grid: dict[str, Any] = {"num_kernels": len(subkernels), "autotune_grouping": grouped}
    grid["block_arg_names"] = names
    for i, sub in enumerate(subkernels):
        grid[f"heuristic_{i}"] = sub.family.value
        grid[f"size_hints_{i}"] = sizes_of(sub.hints)
        grid[f"tile_hint_{i}"] = f"TileHint.{sub.hints.tile.name}"
        grid[f"reduction_hint_{i}"] = sub.hints.reduction.name
        grid[f"inductor_meta_{i}"] = inductor_meta(sub.hints, device)
    meta = {"combo_grid_meta": grid}
    device_meta = triton_meta(subkernels[0].hints, device)
    device_meta["signature"] = dict.fromkeys(names, "constexpr")
    (base,) = th.pointwise(None, device_meta, inductor_meta=meta)
    groups = [
        (
            g["member_indices"],
            [flat(c) for c in th.unique_configs(g["configs"])],
            sorted(g["coordesc_fields"]),
        )
        for g in meta["combo_tuning_groups"]
    ]
    return flat(base), groups, meta["combo_warp_stage_candidates"], meta["combo_coordesc_field_limits"]


# ------------------------------------------------------------------ given configs


def given(preset: Preset = INDUCTOR_2_13) -> Iterator[Compared]:
    meta = triton_meta(KernelHints(sizes={"x": 1}), H100)
    with backend("cuda"):
        for warps, stages in itertools.product((1, 2, 4, 8, 16), (1, 2, 3, 5)):
            yield f"template {warps} {stages}", functools.partial(_template, warps, stages, meta)
            values = {"XBLOCK": warps * 16, "num_warps": warps, "num_stages": stages, "num_ctas": None}
            yield f"fixed {values}", functools.partial(_fixed, values, meta)
        for tuned in (False, True):
            yield f"foreach {tuned}", functools.partial(_foreach, tuned, meta)
        for count in range(6):
            configs = [{"BLOCK": 16 << i % 4, "num_warps": 4, "num_stages": 2} for i in range(count)]
            yield f"user {configs}", functools.partial(_user, configs, meta)


def _template(warps: int, stages: int, meta: dict[str, Any]) -> Pair:
    return flat_all(template(warps, stages)), [flat(c) for c in th.template(stages, warps, meta, inductor_meta={})]


def _foreach(tuned: bool, meta: dict[str, Any]) -> Pair:
    theirs = th.foreach(meta, inductor_meta={"max_autotune": tuned})
    return flat_all(foreach(Modes(max_autotune=tuned))), [flat(c) for c in theirs]


def _user(configs: list[dict[str, Any]], meta: dict[str, Any]) -> Pair:
    theirs = th.user_autotune([dict(c) for c in configs], meta)
    return flat_all(user_autotune(configs)), [flat(c) for c in theirs]


def _fixed(values: dict[str, Any], meta: dict[str, Any]) -> Pair:
    theirs = th.fixed_config(dict(values), None, meta, {})
    return flat_all(fixed_config(values)), [flat(c) for c in theirs]


# ------------------------------------------------------------------ splits and look-up keys


def splits(preset: Preset = INDUCTOR_2_13) -> Iterator[Compared]:
    lengths = sorted({n + d for n in R_SIZES[3:27] for d in (-1, 0, 1, n // 3)})
    for device in (H100, B200, MI300, RX7900, T4):
        for r, outputs, inner in itertools.product(lengths, (1, 2, 31, 128, 129, 1000, 4096), (True, False)):
            yield (
                f"split {r} x {outputs} on {device.target}",
                functools.partial(_split, r, outputs, inner, device, preset),
            )


def _split(r: int, outputs: int, inner: bool, device: DeviceSpec, preset: Preset) -> Pair:
    with mock.patch.object(choices.DeviceProperties, "create", return_value=properties(device)):
        theirs = choices.InductorChoices().reduction_split_factor(None, r, outputs, inner)  # static until 2.15
    return (inner_split(r, outputs, device, preset) if inner else outer_split(r, outputs, device)), theirs


def second_stages(preset: Preset = INDUCTOR_2_13) -> Iterator[Compared]:
    counts = (1, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025)
    for parts, outputs, hint in itertools.product(counts, counts, ReductionHint):
        yield f"second stage {parts} {outputs} {hint}", functools.partial(_second_stage, parts, outputs, hint)


def _second_stage(parts: int, outputs: int, hint: ReductionHint) -> Pair:
    theirs = Reduction._multilayer_second_step_hint(parts, outputs, IrReductionHint[hint.name])
    return second_stage_hint(hint, outputs, parts).name, theirs.name


RANDOM_CALLS = 3000
SIZES = (1, 2, 3, 16, 31, 32, 33, 100, 129, 512, 1000, 8192, 8400, 8448, 8449, 12000, 16384, 40000)
"""Up to and beyond the thresholds: 32 reduced elements, 64 outputs for each of 132 SMs (and of the others')."""


class Tensor(SimpleNamespace):
    """A shape and strides, in elements."""

    def stride(self) -> tuple[int, ...]:
        return tuple(self.strides)


def first_passes(preset: Preset = INDUCTOR_2_13) -> Iterator[Compared]:
    """Unsplit reductions of random tensors: how they walk memory, as the decorators read it off a call."""
    rng = random.Random(28)
    graph = GraphLowering(torch.fx.symbolic_trace(lambda x: x))
    with mock.patch.object(graph, "has_feature", return_value=False), V.set_graph_handler(graph):
        for _ in range(RANDOM_CALLS):
            device = rng.choice((H100, B200, MI300, RX7900, T4))
            kept, reduced = ([rng.choice(SIZES) for _ in range(rng.choice((1, 1, 2)))] for _ in range(2))
            count = rng.randint(1, 3)
            tensors = [_laid_out(rng, (*kept, *reduced)) for _ in range(count)]
            label = f"{[(t.shape, t.strides) for t in tensors]} on {device.target}"
            yield f"first pass {label}", functools.partial(_first_pass, tensors, kept, reduced, device)


def _laid_out(rng: random.Random, shape: tuple[int, ...]) -> Tensor:
    """The dimensions in any order, some expanded, some padded."""
    strides, step = [0] * len(shape), 1
    for dim in rng.sample(range(len(shape)), len(shape)):
        strides[dim] = 0 if rng.random() < 0.15 else step
        step *= shape[dim] + (rng.random() < 0.1)
    return Tensor(shape=shape, strides=tuple(strides))


def _first_pass(tensors: list[Tensor], kept: list[int], reduced: list[int], device: DeviceSpec) -> Pair:
    names = tuple(f"a{i}" for i in range(len(tensors)))
    dims = tuple(range(len(kept), len(kept) + len(reduced)))
    mine = Proposer(
        reduction, "sums", (*names, "n", "m", "X", "R"), frozenset("XR"), {"x": ("n",), "r0": ("m",)},
        {"x": "X", "r0": "R"}, dict.fromkeys(names, dims), reduces=True,
    )  # fmt: skip
    call = {**dict(zip(names, tensors, strict=True)), "n": prod(kept), "m": prod(reduced)}
    found = mine.hints_of(mine.inputs(call, device), device).reduction

    def summed(kept_index: Any, reduced_index: Any) -> Any:
        loads = [
            ops.load(
                name, sum((i * s for i, s in zip((*kept_index, *reduced_index), t.strides, strict=True)), sympy.S(0))
            )
            for name, t in zip(names, tensors, strict=True)
        ]
        return functools.reduce(ops.add, loads)

    sizes = [[sympy.Integer(n) for n in part] for part in (kept, reduced)]
    with (
        mock.patch.object(ir.DeviceProperties, "create", return_value=properties(device)),
        mock.patch.object(inductor_config, "split_reductions", False),
    ):
        theirs, _ = Reduction.num_splits(
            torch.device("cuda", 0), torch.float32, torch.float32, summed, *sizes, "sum", sympy.Integer(prod(reduced))
        )
    return found.name, theirs.name


def lookup_keys(preset: Preset = INDUCTOR_2_13) -> Iterator[Compared]:
    sources = ("def triton_poi_fused_0(a, b):\n    pass\n", "  def f(x): return g(x)\n", "x = 1\ndef f(a): pass")
    for source, sizes in itertools.product(sources, ({"x": 64}, {"y": 2, "x": 4}, {"x": 8, "r0": 16})):
        yield f"key of {source!r}", functools.partial(_lookup_key, source, sizes)


def _lookup_key(source: str, sizes: dict[str, int]) -> Pair:
    theirs = th.generate_lookup_hash_from_source_code(str(sizes_of(KernelHints(sizes=sizes))), source)
    return kernel_hash(source, sizes), theirs


RUNTIME: dict[str, Callable[[Preset], Iterator[Compared]]] = {
    "combo": combos,
    "dynamic_rblock_scaling": scaling,
    "coordinate_descent": descent,
    "given_configs": given,
    "reduction_splits": splits,
    "second_stage_hints": second_stages,
    "first_pass_hints": first_passes,
    "lookup_keys": lookup_keys,
}
