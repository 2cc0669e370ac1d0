"""Combo kernels: blocks per sub-kernel, groups, warp and stage pairs."""

from __future__ import annotations

import pytest

from kerntune.base.device import TYPICAL_DEVICES
from kerntune.errors import HintError
from kerntune.heuristics import SubKernel, combo
from kerntune.heuristics.hints import HeuristicType, KernelHints, ReductionHint

H100 = TYPICAL_DEVICES["cuda:90"]
MI300 = TYPICAL_DEVICES["hip:gfx942"]
SMALL = SubKernel(HeuristicType.POINTWISE, KernelHints(sizes={"x": 4096}, kernel="small"))
SAME = SubKernel(HeuristicType.POINTWISE, KernelHints(sizes={"x": 4096}, kernel="same"))
ROWS = SubKernel(
    HeuristicType.PERSISTENT_REDUCTION, KernelHints(sizes={"x": 4096, "r0": 64}, reduction=ReductionHint.DEFAULT)
)
NAMES = ["XBLOCK_0", "XBLOCK_1", "XBLOCK_2"]


def test_base_is_every_first_config_with_the_most_warps() -> None:
    plan = combo([SMALL, ROWS], H100, NAMES)
    assert plan.base.kwargs == {"XBLOCK_0": 256, "XBLOCK_1": 1}
    assert plan.base.num_warps == 4
    assert plan.warp_stage_pairs == ((4, 1), (2, 1), (8, 1))
    assert plan.field_limits == {"XBLOCK_0": 4096, "XBLOCK_1": 4096}


def test_the_largest_group_is_tuned_first() -> None:
    plan = combo([SMALL, ROWS], H100, NAMES)
    assert [g.members for g in plan.groups] == [(1,), (0,)]
    assert plan.fields == ("XBLOCK_1", "XBLOCK_0")


def test_equal_kernels_are_tuned_together_whatever_their_names() -> None:
    plan = combo([SMALL, ROWS, SAME], H100, NAMES, grouped=True)
    assert [g.members for g in plan.groups] == [(1,), (0, 2)]
    (together,) = plan.candidates(plan.base, plan.groups[1])
    assert together.kwargs == {"XBLOCK_0": 128, "XBLOCK_1": 1, "XBLOCK_2": 128}
    assert [g.members for g in combo([SMALL, ROWS, SAME], H100, NAMES).groups] == [(1,), (0,), (2,)]


def test_candidates_change_something_and_keep_warps() -> None:
    plan = combo([SMALL, ROWS], H100, NAMES)
    tried = plan.candidates(plan.base, plan.groups[0])
    assert [c.kwargs["XBLOCK_1"] for c in tried] == [8, 32]
    assert {c.num_warps for c in tried} == {4}
    assert [c.num_warps for c in plan.warp_candidates(plan.base)] == [2, 8]


def test_compile_options_belong_to_the_whole_kernel() -> None:
    plan = combo([SubKernel(HeuristicType.POINTWISE, KernelHints(sizes={"x": 1 << 24}))], MI300, ["XBLOCK_0"])
    options = [c.options for c in plan.candidates(plan.base, plan.groups[0])]
    assert {"waves_per_eu": 2} in options
    assert all(set(c.kwargs) == {"XBLOCK_0"} for c in plan.candidates(plan.base, plan.groups[0]))


def test_a_block_without_a_parameter_must_be_one() -> None:
    single = SubKernel(ROWS.family, KernelHints(sizes={"x": 4096, "r0": 64}, no_x_block=True))
    assert combo([SMALL, single], H100, ["XBLOCK_0"]).base.kwargs == {"XBLOCK_0": 256}
    with pytest.raises(HintError, match="sub-kernel 0 needs XBLOCK=256, but the kernel has no parameter XBLOCK_0"):
        combo([SMALL], H100, [])


def test_what_no_combo_holds_is_refused() -> None:
    with pytest.raises(HintError, match="at least one sub-kernel"):
        combo([], H100, [])
    with pytest.raises(HintError, match="can't contain a split_scan kernel"):
        combo([SubKernel(HeuristicType.SPLIT_SCAN, ROWS.hints)], H100, [])


def test_a_descriptor_s_minimum_is_that_of_its_own_part() -> None:
    through = SubKernel(SMALL.family, KernelHints(sizes={"x": 4096}, tma_minimums={"x": 64}))
    assert combo([SMALL, through, ROWS], H100, NAMES).field_minimums == {"XBLOCK_1": 64}
    assert combo([SMALL, ROWS], H100, NAMES).field_minimums == {}
