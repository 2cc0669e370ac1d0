"""Combo kernels: one group after the other."""

from __future__ import annotations

import math

from kerntune.base.config import Config
from kerntune.base.device import TYPICAL_DEVICES
from kerntune.heuristics import ComboPlan, Neighbourhood, SubKernel, combo
from kerntune.heuristics.hints import HeuristicType, KernelHints
from kerntune.search import ComboSearch, Measured, combo_search
from kerntune.search.combos import GroupSteps
from search.tables import Counted, descended, every

H100 = TYPICAL_DEVICES["cuda:90"]
SUBKERNELS = [
    SubKernel(HeuristicType.POINTWISE, KernelHints(sizes={"x": 1 << 20}, kernel="a")),
    SubKernel(HeuristicType.PERSISTENT_REDUCTION, KernelHints(sizes={"x": 4096, "r0": 64}, kernel="b")),
    SubKernel(HeuristicType.POINTWISE, KernelHints(sizes={"x": 1 << 20}, kernel="c")),
]
NAMES = [f"XBLOCK_{i}" for i in range(3)]


def plan_of(grouped: bool = False) -> ComboPlan:
    return combo(SUBKERNELS, H100, NAMES, grouped=grouped)


def separable(optimum: dict[str, int], warps: int) -> Counted:
    def time_of(config: Config) -> float:
        off = [abs(math.log2(int(config.kwargs[n])) - math.log2(v)) for n, v in optimum.items()]  # type: ignore[arg-type]
        return 100.0 + 10 * sum(off) + abs(math.log2(config.num_warps / warps))

    return Counted(time_of)


def test_every_group_gets_its_best_block_in_a_sum_of_trials() -> None:
    plan = plan_of()
    optimum = {"XBLOCK_0": 512, "XBLOCK_1": 8, "XBLOCK_2": 1024}
    choices = [{int(c.kwargs["XBLOCK"]) for c in g.configs} for g in plan.groups]  # type: ignore[arg-type]
    assert len(choices) == 3
    measure = separable(optimum, 8)
    found = combo_search(measure, plan)
    for group in plan.groups:
        name = f"XBLOCK_{group.members[0]}"
        best = min((int(c.kwargs["XBLOCK"]) for c in group.configs), key=lambda v: abs(math.log2(v / optimum[name])))  # type: ignore[arg-type]
        assert found.best.config.kwargs[name] == best
    assert found.best.config.num_warps == 8
    assert len(measure.asked) <= 1 + sum(len(g.configs) for g in plan.groups) + len(plan.warp_stage_pairs)


def test_it_finds_what_all_combinations_hold() -> None:
    plan, choices = plan_of(), []
    for a in (*plan.candidates(plan.base, plan.groups[0]), plan.base):
        for b in (*plan.candidates(a, plan.groups[1]), a):
            for c in (*plan.candidates(b, plan.groups[2]), b):
                choices += [c, *plan.warp_candidates(c)]
    full = every(separable({"XBLOCK_0": 64, "XBLOCK_1": 32, "XBLOCK_2": 2048}, 2), dict.fromkeys(choices))
    quick = combo_search(separable({"XBLOCK_0": 64, "XBLOCK_1": 32, "XBLOCK_2": 2048}, 2), plan)
    assert quick.best.config == full.best.config
    assert len(quick.trials) < len(full.trials)


def test_descent_goes_on_where_the_lists_end() -> None:
    measure = separable({"XBLOCK_0": 4, "XBLOCK_1": 256, "XBLOCK_2": 4}, 4)
    found = combo_search(measure, plan_of(), descent=True)
    assert found.best.config.kwargs == {"XBLOCK_0": 4, "XBLOCK_1": 256, "XBLOCK_2": 4}


def test_grouped_members_keep_equal_blocks() -> None:
    measure = separable({"XBLOCK_0": 64, "XBLOCK_1": 4, "XBLOCK_2": 64}, 4)
    found = combo_search(measure, plan_of(grouped=True), descent=True)
    assert found.best.config.kwargs == {"XBLOCK_0": 64, "XBLOCK_1": 4, "XBLOCK_2": 64}
    assert all(t.config.kwargs["XBLOCK_0"] == t.config.kwargs["XBLOCK_2"] for t in found.trials)


def test_steps_stay_within_the_limits() -> None:
    steps = GroupSteps(plan_of(grouped=True))
    for field in steps.fields:
        config = steps.plan.base.replace(**{field.name: field.most})
        assert all(c.kwargs[field.name] < field.most for c in steps.neighbours(config, field))  # type: ignore[operator]
    around = [c for field in steps.fields for c in steps.neighbours(steps.plan.base, field)]
    assert around
    assert all(c.kwargs["XBLOCK_0"] == c.kwargs["XBLOCK_2"] for c in around)


def test_no_block_is_halved_to_nothing() -> None:
    steps = GroupSteps(plan_of())
    for field in steps.fields:
        config = steps.plan.base.replace(**{field.name: 1})
        assert {c.kwargs[field.name] for c in steps.neighbours(config, field)} == {2}


def test_a_descent_keeps_the_blocks_that_a_part_needs() -> None:
    """Those of its descriptors, and its minimums."""
    needs = KernelHints(sizes={"x": 1 << 20}, tma_minimums={"x": 128})
    rows = KernelHints(sizes={"x": 4096, "r0": 64}, min_x_block=4)
    parts = [SubKernel(HeuristicType.POINTWISE, needs), SubKernel(HeuristicType.PERSISTENT_REDUCTION, rows)]
    plan = combo(parts, H100, NAMES[:2])
    measure = separable({"XBLOCK_0": 1, "XBLOCK_1": 1}, 4)
    found = combo_search(measure, plan, descent=True)
    assert found.best.config.kwargs == {"XBLOCK_0": 128, "XBLOCK_1": 4}
    assert ComboSearch(plan, 48, descent=True).has(found.best.config)
    assert not ComboSearch(plan, 48, descent=True).has(found.best.config.replace(XBLOCK_0=64))
    without_minimum = ComboSearch(plan_of(), 48, descent=True)
    assert [without_minimum.has(plan_of().base.replace(XBLOCK_0=n)) for n in (0, 1, 3, 4)] == [False, True, False, True]


def test_what_is_measured_is_prepared_before() -> None:
    prepared, measured = list[Config](), list[Config]()

    def measure(config: Config) -> Measured:
        assert config in prepared
        measured.append(config)
        return separable({"XBLOCK_0": 4, "XBLOCK_1": 256, "XBLOCK_2": 4}, 4)(config)

    found = combo_search(measure, plan_of(), descent=True, prepare=prepared.extend)
    assert prepared == measured == [trial.config for trial in found.trials]


def test_the_limit_holds() -> None:
    measure = separable({"XBLOCK_0": 64}, 4)
    assert len(combo_search(measure, plan_of(), descent=True, max_trials=4).trials) == 4


def test_what_a_search_may_come_to() -> None:
    """The choices of each group, warps and stages that belong together; with a descent all blocks within the limits."""
    plan = plan_of()
    name, other = plan.fields[0], plan.base.num_warps * 16
    listed, descending = ComboSearch(plan, 9), ComboSearch(plan, 9, descent=True)
    for group in plan.groups:
        for config in plan.candidates(plan.base, group):
            assert all(listed.has(each) for each in (config, *plan.warp_candidates(config)))
    most = plan.field_limits[name]
    steps = {value: plan.base.replace(**{name: value}) for value in (most, most * 2, 3, 0)}
    assert [descending.has(config) for config in steps.values()] == [True, False, False, False]
    assert not listed.has(steps[3])
    assert [search.has(plan.base.replace(num_warps=other)) for search in (listed, descending)] == [False, True]
    for search in (listed, descending):
        assert search.has(plan.base)
        assert not search.has(Config(kwargs={name: plan.base.kwargs[name]}))


def test_a_descent_without_a_field_has_tried_its_start() -> None:
    measure, start = Counted(lambda c: 1.0), Config()
    assert [t.config for t in descended(measure, start, Neighbourhood(())).trials] == [start]  # type: ignore[arg-type]
