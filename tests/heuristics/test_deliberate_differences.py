"""Where kerntune decides otherwise than torch 2.13 on purpose: what torch does, shown, and what we do.

docs/heuristics.md lists them by the names of these tests.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", minversion="2.13.0.dev0")

import triton
from torch._inductor.runtime import triton_heuristics as th
from torch._inductor.runtime.coordinate_descent_tuner import CoordescTuner

from kerntune.base.config import Config
from kerntune.base.device import TYPICAL_DEVICES
from kerntune.errors import HintError
from kerntune.heuristics import (
    SubKernel,
    combo,
    cooperative_reduction,
    kernel_hash,
    may_descend,
    neighbourhood,
    persistent_reduction,
    pointwise,
    reduction,
    scale_reductions,
    scaled_down,
    split_scan,
    user_autotune,
)
from kerntune.heuristics.hints import HeuristicType, KernelHints, Modes, ReductionHint, TileHint

from .inductor_cases import XPU
from .inductor_free import flat, flat_all
from .inductor_oracle import ask, backend, inductor_meta, properties, reduction_hint, sizes_of, triton_meta
from .test_presets import GOLDEN as GOLDEN_2_6
from .test_presets import proposed as golden_answer

H100 = TYPICAL_DEVICES["cuda:90"]
MI300 = TYPICAL_DEVICES["hip:gfx942"]
META = triton_meta(KernelHints(sizes={"x": 1}), H100)


def by_torch(hints: KernelHints, family: str = "reduction", meta: dict[str, Any] = META, **more: Any) -> Any:
    """The configs of a family of torch's."""
    words = {**inductor_meta(hints, H100), **more}
    with backend("cuda"):
        return getattr(th, family)(sizes_of(hints), reduction_hint(hints), triton_meta=meta, inductor_meta=words)


def test_config_identity() -> None:
    """Torch drops a user's config that differs only in num_ctas, maxnreg or warp specialisation."""
    configs = [{"BLOCK": 64, "num_warps": 4, "num_ctas": 1}, {"BLOCK": 64, "num_warps": 4, "num_ctas": 2}]
    with backend("cuda"):
        assert len(th.user_autotune([dict(c) for c in configs], META)) == 1
    assert [c.num_ctas for c in user_autotune(configs)] == [1, 2]


def test_dynamic_sizes_are_counted_not_guessed() -> None:
    """Torch takes every argument whose name contains "ks" for a dynamic size: masks_ptr makes another tile."""
    hints = KernelHints(sizes={"x": 1 << 20, "r0": 4096}, reduction=ReductionHint.OUTER)
    masked = {**META, "signature": {"masks_ptr": "*i1"}}
    theirs = by_torch(hints, meta=masked)
    ours = reduction(hints, H100)
    assert [c.kwargs for c in theirs] == [{"XBLOCK": 64, "R0_BLOCK": 8}]
    assert [c.kwargs for c in ours] == [{"XBLOCK": 256, "R0_BLOCK": 2}]


def scaled_by_torch(config: Config, hints: KernelHints, **marks: Any) -> list[Any]:
    theirs = th.InductorConfig(dict(config.kwargs), num_warps=config.num_warps, num_stages=1, **marks)
    tuner = SimpleNamespace(
        device_props=properties(H100),
        size_hints=sizes_of(hints),
        inductor_meta=inductor_meta(hints, H100),
        compile_results=[SimpleNamespace(config=theirs, kernel=SimpleNamespace(n_regs=255))],
        _ensure_kernel_loaded=lambda: None,
    )
    return [c.kwargs for c in th.CachingAutotuner._iter_rblock_scale_candidates(tuner)]


def test_rsplit_is_no_reduction_block() -> None:
    """Torch halves RSPLIT, which the launch and the workspace were made for, if it is the largest name with an R."""
    hints = KernelHints(sizes={"x": 1 << 20, "r0": 4096})
    config = Config(kwargs={"XBLOCK": 1, "R0_BLOCK": 32, "RSPLIT": 64}, num_warps=16)
    assert scaled_by_torch(config, hints) == [{"XBLOCK": 1, "R0_BLOCK": 32, "RSPLIT": 32}]
    assert scaled_down(config, 255, hints, H100) is None


def test_the_whole_row_candidate_is_not_scaled() -> None:
    """Torch marks it dynamic_scale_rblock=False, but never reads the mark."""
    hints = KernelHints(sizes={"x": 1 << 20, "r0": 4096}, reduction=ReductionHint.INNER, add_persistent_rblock=True)
    whole = reduction(hints, H100)[0]
    assert scaled_by_torch(whole, hints, dynamic_scale_rblock=False) == [{"XBLOCK": 1, "R0_BLOCK": 2048}]
    assert scale_reductions([whole], lambda c: 255, hints, H100) == (whole,)


def test_a_scan_keeps_its_least_block() -> None:
    """Torch raises a scan's R0 to 256, then coordinate descent halves it."""
    hints = KernelHints(sizes={"x": 1, "r0": 1 << 20})
    config = split_scan(hints, H100)[-1]
    tuner = CoordescTuner(size_hints=sizes_of(hints), inductor_meta=inductor_meta(hints, H100))
    start = triton.Config(dict(config.kwargs), num_warps=4)
    assert 128 in [c.kwargs["R0_BLOCK"] for c in tuner.get_neighbour_configs(start, "R0_BLOCK")]
    around = neighbourhood(config, H100, hints, HeuristicType.SPLIT_SCAN)
    (field,) = [f for f in around.fields if f.name == "R0_BLOCK"]
    assert all(c.kwargs["R0_BLOCK"] != 128 for c in around.neighbours(config, field))


def test_waves_step_from_zero_to_one() -> None:
    """Torch doubles the assumed 0 waves of a 16-warp config to 0: a trial for nothing."""
    tuner = CoordescTuner(size_hints={"x": 64}, inductor_meta={"is_hip": True})
    config = triton.Config({"XBLOCK": 64}, num_warps=16)
    assert [c.kwargs["waves_per_eu"] for c in tuner.get_neighbour_configs(config, "waves_per_eu")] == [0]
    ours = Config(kwargs={"XBLOCK": 64}, num_warps=16)
    around = neighbourhood(ours, MI300, KernelHints(sizes={"x": 64}), HeuristicType.POINTWISE)
    (field,) = [f for f in around.fields if f.name == "waves_per_eu"]
    assert [c.options for c in around.neighbours(ours, field)] == [{"waves_per_eu": 1}]


def test_descent_serves_users_kernels() -> None:
    """Torch's descent has fixed field names, and is not run for user kernels, templates and fixed configs."""
    user = SimpleNamespace(heuristic_type=th.HeuristicType.USER_AUTOTUNE, deterministic_mode=False)
    assert th.CachingAutotuner._should_coordesc_tune.func(user) is False
    assert "TILE" not in CoordescTuner().tunable_fields
    assert may_descend(HeuristicType.USER_AUTOTUNE, KernelHints(sizes={"x": 1}))
    assert neighbourhood(Config(kwargs={"TILE": 64}), H100).fields[0].name == "TILE"


def test_sizes_are_rounded_up() -> None:
    """Torch's compiler rounds them, its functions don't: r = 100 gives a block of 100, x = 100000 an assertion."""
    hint = reduction_hint(KernelHints(sizes={"x": 1}, reduction=ReductionHint.INNER))
    with backend("cuda"):
        theirs = th.reduction({"x": 64, "r0_": 100}, hint, META, inductor_meta={})
        assert [c.kwargs["R0_BLOCK"] for c in theirs] == [100]
        with pytest.raises(AssertionError):
            th.pointwise({"x": 100_000}, META, inductor_meta={})
        for x in (100_000, 1_000_003, 3, 65535 * 1025):
            rounded = KernelHints(sizes={"x": 1 << (x - 1).bit_length()})
            assert flat_all(pointwise(KernelHints(sizes={"x": x}), H100)) == ask("pointwise", rounded, H100)
    ours = reduction(KernelHints(sizes={"x": 64, "r0": 100}, reduction=ReductionHint.INNER), H100)
    assert [c.kwargs["R0_BLOCK"] for c in ours] == [128]


@pytest.mark.parametrize("axes", ["x z r0", "x y z r0", "y r0", "x r1"])
def test_reduction_axes_are_checked(axes: str) -> None:
    """Torch ignores z, and y without x: it gives blocks for x and r0, which don't fit the kernel's z."""
    sizes = dict.fromkeys(axes.split(), 64)
    hints = KernelHints(sizes=sizes)
    if axes == "x z r0":
        with backend("cuda"):
            answers = [ask(family, hints, H100) for family in ("reduction", "persistent_reduction")]
        assert all(found and {name for name, _ in found[0][0]} <= {"XBLOCK", "R0_BLOCK"} for found in answers)
    for family in (reduction, persistent_reduction, split_scan, cooperative_reduction):
        with pytest.raises(HintError, match="takes size hints for"):
            family(hints, H100)


def test_hints_are_of_the_kernels_axes() -> None:
    """Torch ignores a minimum or a score of an axis that the kernel lacks, or fails, as it happens to look."""
    hints = KernelHints(sizes={"x": 64, "r0": 64})
    more = {"tma_min_block_sizes": {"R1_BLOCK": 16}, "tiling_scores": {"y": 8}}
    told, plain = by_torch(hints, "persistent_reduction", **more), by_torch(hints, "persistent_reduction")
    with pytest.raises(AssertionError):
        by_torch(hints, **more)
    assert [flat(c) for c in told] == [flat(c) for c in plain]
    for wrong in ({"tma_minimums": {"r1": 16}}, {"tiling_scores": {"y": 8.0}}):
        with pytest.raises(HintError, match="but the kernel has the axes x, r0"):
            KernelHints(sizes=hints.sizes, **wrong)  # type: ignore[arg-type]


def test_the_target_decides_not_the_machine() -> None:
    """Torch decides by the machine: an Intel GPU's kernels get CUDA's rules where CUDA is, and the other way round."""
    square = KernelHints(sizes={"x": 1024, "y": 1024}, tile=TileHint.SQUARE)
    rows = KernelHints(sizes={"x": 1 << 20, "r0": 512}, reduction=ReductionHint.INNER)
    answers = {}
    for machine in ("cuda", "xpu"):
        with backend(machine):
            answers[machine] = [ask("pointwise", square, XPU), ask("persistent_reduction", rows, XPU)]
    assert [len(configs or ()) for configs in (answers["cuda"][0], answers["xpu"][0])] == [1, 8]
    assert answers["cuda"][1] != answers["xpu"][1]
    for machine in ("cuda", "xpu"):
        with backend(machine):
            ours = [flat_all(pointwise(square, XPU)), flat_all(persistent_reduction(rows, XPU))]
        assert ours == answers["xpu"]


def test_inputs_are_left_alone() -> None:
    """Torch writes its decisions into the caller's size hints and metadata."""
    sizes, meta = {"x": 4096, "r0_": 64}, {"no_x_dim": True}
    with backend("cuda"):
        th.reduction(sizes, reduction_hint(KernelHints(sizes={"x": 1})), META, inductor_meta=meta)
    assert sizes["x"] == 1
    assert "reduction_hint" in meta
    hints = KernelHints(sizes={"x": 4096, "r0": 64}, no_x_block=True)
    reduction(hints, H100)
    assert hints.sizes["x"] == 4096


def test_batch_invariance_without_an_x_block() -> None:
    """Torch takes 4096 rows for a kernel without XBLOCK, gets larger blocks, and fails when it removes them."""
    hints = KernelHints(sizes={"x": 64, "r0": 64}, no_x_block=True, modes=Modes(batch_invariant=True))
    theirs = by_torch(hints, "persistent_reduction")
    assert max(c.kwargs["XBLOCK"] for c in theirs) > 1
    assert [c.kwargs["XBLOCK"] for c in persistent_reduction(hints, H100)] == [1]


def test_tiled_grids_are_checked() -> None:
    """Torch proposes tiled blocks for an x that no grid covers, because only its untiled path checks."""
    hints = KernelHints(sizes={"x": 1 << 44, "y": 1, "r0": 64})
    theirs = by_torch(hints)
    assert all((1 << 44) // c.kwargs["XBLOCK"] > 2**31 - 1 for c in theirs)
    with pytest.raises(HintError, match="too long for one launch"):
        reduction(hints, H100)


def test_native_matmul_axes_are_checked() -> None:
    """Torch takes any three sizes for a matrix product."""
    hints = KernelHints(sizes={"x": 64, "r0": 64, "r1": 64}, native_matmul=True)
    meta = triton_meta(hints, H100)
    with backend("cuda"):
        assert len(th.reduction(sizes_of(hints), False, meta, inductor_meta=inductor_meta(hints, H100))) == 19
    with pytest.raises(HintError, match="native matmul takes size hints"):
        reduction(hints, H100)


def test_combo_blocks_without_a_parameter_are_dropped() -> None:
    """Torch leaves a stray XBLOCK=1 among the values of a combo kernel that has no such parameter."""
    sub = SubKernel(HeuristicType.REDUCTION, KernelHints(sizes={"x": 64, "r0": 64}, no_x_block=True))
    grid = {
        "num_kernels": 1,
        "heuristic_0": "reduction",
        "size_hints_0": {"x": 64, "r0_": 64},
        "reduction_hint_0": "DEFAULT",
        "inductor_meta_0": {"no_x_dim": True},
    }
    with backend("cuda"):
        meta = {**META, "signature": {"R0_BLOCK_0": "constexpr"}}
        (theirs,) = th.reduction({}, False, meta, inductor_meta={"combo_grid_meta": grid})
    assert theirs.kwargs["XBLOCK"] == 1
    assert set(combo([sub], H100, ["R0_BLOCK_0"]).base.kwargs) == {"R0_BLOCK_0"}


def test_combo_candidates_are_unique() -> None:
    """Torch's combo groups keep a pointwise kernel's equal configs, and time each again."""
    hints = KernelHints(sizes={"x": 64})
    grid = {
        "num_kernels": 1,
        "heuristic_0": "pointwise",
        "size_hints_0": {"x": 64},
        "tile_hint_0": "TileHint.DEFAULT",
        "inductor_meta_0": {},
    }
    meta = {"combo_grid_meta": grid}
    with backend("cuda"):
        th.pointwise(None, META, inductor_meta=meta)
    (group,) = meta["combo_tuning_groups"]
    assert [flat(c) for c in group["configs"]] == flat_all(pointwise(hints, H100)) * 2
    plan = combo([SubKernel(HeuristicType.POINTWISE, hints)], H100, ["XBLOCK_0"])
    assert len(plan.groups[0].configs) == 1


def grouped_by_torch(*hints: KernelHints) -> list[list[int]]:
    """Which sub-kernels torch tunes as one."""
    grid: dict[str, Any] = {"num_kernels": len(hints), "autotune_grouping": True, "block_arg_names": []}
    for i, one in enumerate(hints):
        grid[f"heuristic_{i}"] = "reduction"
        grid[f"size_hints_{i}"] = sizes_of(one)
        grid[f"reduction_hint_{i}"] = one.reduction.name
        grid[f"inductor_meta_{i}"] = inductor_meta(one, H100)
    names = [f"{block}_{i}" for i in range(len(hints)) for block in ("XBLOCK", "R0_BLOCK")]
    meta = {"combo_grid_meta": grid}
    with backend("cuda"):
        th.reduction({}, False, {**META, "signature": dict.fromkeys(names, "constexpr")}, inductor_meta=meta)
    return [group["member_indices"] for group in meta["combo_tuning_groups"]]


def grouped_by_us(*hints: KernelHints) -> list[list[int]]:
    subs = [SubKernel(HeuristicType.REDUCTION, one) for one in hints]
    names = [f"{block}_{i}" for i in range(len(hints)) for block in ("XBLOCK", "R0_BLOCK")]
    return [list(group.members) for group in combo(subs, H100, names, grouped=True).groups]


def test_groups_are_of_equal_hints() -> None:
    """Torch's key of a group leaves some hints out, so kernels with other candidates are tuned as one."""
    plain = KernelHints(sizes={"x": 4096, "r0": 1024})
    floored = KernelHints(sizes={"x": 4096, "r0": 1024}, min_x_block=16)
    assert grouped_by_torch(plain, plain) == grouped_by_us(plain, plain) == [[0, 1]]
    assert grouped_by_torch(plain, floored) == [[0, 1]]
    assert grouped_by_us(plain, floored) == [[0], [1]]


def test_floors_hold_in_a_combo() -> None:
    """Torch raises blocks to their minimums for a single kernel, and not for a combo's sub-kernels."""
    floored = KernelHints(sizes={"x": 4096, "r0": 1024}, reduction=ReductionHint.INNER, min_x_block=16)
    with backend("cuda"):
        inside = th.reduction(
            sizes_of(floored),
            reduction_hint(floored),
            META,
            inductor_meta=inductor_meta(floored, H100),
            return_configs=True,
        )
        alone = ask("reduction", floored, H100)
    assert inside[0].kwargs["XBLOCK"] == 2
    assert alone == flat_all(reduction(floored, H100))
    sub = SubKernel(HeuristicType.REDUCTION, floored)
    assert combo([sub], H100, ["XBLOCK_0", "R0_BLOCK_0"]).base.kwargs["XBLOCK_0"] == 16


def test_descent_stays_within_a_tensor() -> None:
    """Torch doubles BLOCK_M and its like without end; a Triton tensor has 2**20 elements at most."""
    config = triton.Config({"BLOCK_M": 1 << 20}, num_warps=4)
    assert 1 << 21 in [c.kwargs["BLOCK_M"] for c in CoordescTuner().get_neighbour_configs(config, "BLOCK_M")]
    ours = Config(kwargs={"BLOCK_M": 1 << 20}, num_warps=4)
    around = neighbourhood(ours, H100)
    assert [c.kwargs["BLOCK_M"] for c in around.neighbours(ours, around.fields[0])] == [1 << 19]


def test_tiles_left_out_refuse_nothing() -> None:
    """Torch 2.6 also builds the tiles that it leaves out, and fails for x of 2**34 and more if one is illegal."""
    beyond = [case for case in GOLDEN_2_6 if case["sizes"]["x"] >= 1 << 34]
    answered = [case for case in beyond if case["configs"] is None and golden_answer(case) is not None]
    assert len(answered) > 10
    assert all(golden_answer(case) == case["configs"] for case in beyond if case not in answered)
    case = {"family": "reduction", "sizes": {"x": 1 << 34, "r": 1}, "mode": {}, "hint": "OUTER", "loads": 1}
    whole = {**case, "target": "cuda:90", "configs": None}
    assert whole in beyond
    assert golden_answer(whole) == ["R1 X2048 w4 s1"]


def test_look_up_keys_ignore_the_order_of_sizes() -> None:
    """Torch hashes the text of a dict: the same sizes in another order miss."""
    source = "def f(x): pass"
    keys = {th.generate_lookup_hash_from_source_code(str(s), source) for s in ({"x": 1, "y": 2}, {"y": 2, "x": 1})}
    assert len(keys) == 2
    assert kernel_hash(source, {"x": 1, "y": 2}) == kernel_hash(source, {"y": 2, "x": 1})
