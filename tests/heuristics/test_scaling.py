"""What register counts change."""

from __future__ import annotations

import msgspec
import pytest

from kerntune.base.config import Config
from kerntune.base.device import TYPICAL_DEVICES
from kerntune.heuristics import (
    INDUCTOR_2_6,
    may_scale,
    reduction,
    scale_reductions,
    scaled_down,
    spill_threshold,
    without_pipelining,
    without_spilling,
)
from kerntune.heuristics.hints import HeuristicType, KernelHints, Modes, ReductionHint

from .inductor_free import XPU, shapes

H100 = TYPICAL_DEVICES["cuda:90"]
MI300 = TYPICAL_DEVICES["hip:gfx942"]
HINTS = KernelHints(sizes={"x": 1 << 20, "r0": 4096}, reduction=ReductionHint.INNER)


def config(r: int, warps: int = 16, **kwargs: int) -> Config:
    return Config(kwargs={"XBLOCK": 1, "R0_BLOCK": r, **kwargs}, num_warps=warps, num_stages=1)


@pytest.mark.parametrize(
    ("registers", "r", "rows", "expected"),
    [
        (33, 2048, 1 << 20, 1024),
        (32, 2048, 1 << 20, None),
        (None, 2048, 1 << 20, None),
        (255, 64, 1 << 20, None),
        (255, 128, 1 << 20, 64),
        (64, 2048, 256, None),
        (64, 2048, 512, 1024),
    ],
)
def test_a_block_is_halved_only_if_registers_bound_occupancy(
    registers: int | None, r: int, rows: int, expected: int | None
) -> None:
    found = scaled_down(config(r), registers, HINTS.with_sizes({"x": rows, "r0": 4096}), H100)
    assert (found and found.kwargs["R0_BLOCK"]) == expected


def test_the_longest_axis_is_halved_and_floors_hold() -> None:
    two = config(64, R1_BLOCK=128)
    halved = scaled_down(two, 255, HINTS, H100)
    assert halved is not None
    assert (halved.kwargs["R0_BLOCK"], halved.kwargs["R1_BLOCK"]) == (64, 64)
    floored = msgspec.structs.replace(HINTS, min_r_block=2048)
    assert scaled_down(config(2048), 255, floored, H100) is None
    assert scaled_down(config(4096), 255, floored, H100) == config(2048)
    assert scaled_down(config(64, R1_BLOCK=4096), 255, floored, H100) == config(64, R1_BLOCK=2048)


def test_halving_chains_and_each_step_is_compiled() -> None:
    asked: list[str] = []

    def registers(c: Config) -> int:
        asked.append(str(c.kwargs["R0_BLOCK"]))
        return 255 if int(asked[-1]) > 512 else 32

    configs = reduction(HINTS, H100)
    assert shapes(scale_reductions(configs, registers, HINTS, H100)) == [
        "X1 R0_2048 w16",
        "X1 R0_1024 w16",
        "X1 R0_512 w16",
    ]
    assert asked == ["2048", "1024", "512"]
    once = scale_reductions(configs, registers, HINTS, H100, preset=INDUCTOR_2_6)
    assert shapes(once) == ["X1 R0_2048 w16", "X1 R0_1024 w16"]


def test_the_whole_row_candidate_is_left_alone() -> None:
    light = msgspec.structs.replace(HINTS, add_persistent_rblock=True)
    configs = reduction(light, H100)
    scaled = scale_reductions(configs, lambda c: 255, light, H100)
    whole = configs[0]
    assert whole.kwargs["R0_BLOCK"] == 4096
    assert {c.kwargs["R0_BLOCK"] for c in scaled} == {4096, 2048, 1024, 512, 256, 128, 64}
    assert whole.replace(R0_BLOCK=2048) not in scaled or whole.num_warps == configs[1].num_warps


def test_who_may_be_scaled() -> None:
    def may(device: object, family: HeuristicType = HeuristicType.REDUCTION, **modes: bool) -> bool:
        return may_scale(msgspec.structs.replace(HINTS, modes=Modes(**modes)), device, family)  # type: ignore[arg-type]

    assert may(H100)
    assert may(MI300)
    assert may(TYPICAL_DEVICES["cuda:80"])
    assert may(H100, HeuristicType.COOPERATIVE_REDUCTION)
    assert not may(TYPICAL_DEVICES["cuda:75"])
    assert not may(XPU)
    assert not may(H100, HeuristicType.PERSISTENT_REDUCTION)
    assert not may(H100, deterministic=True)
    assert not may(H100, dynamic_scale_rblock=False)


def test_spilling_configs_go_unless_all_spill() -> None:
    a, b = config(64), config(128)
    limit = spill_threshold(HINTS, H100, HeuristicType.REDUCTION)
    assert limit == 16
    assert without_spilling([a, b], {a: 16, b: 17}, limit) == (a,)
    assert without_spilling([a, b], {a: 20, b: 17}, limit) == (a, b)
    assert without_spilling([a, b], {b: None}, limit) == (a, b)


def test_spill_thresholds() -> None:
    assert spill_threshold(HINTS, MI300, HeuristicType.REDUCTION) == 32
    assert spill_threshold(msgspec.structs.replace(HINTS, spill_threshold=5), MI300, HeuristicType.REDUCTION) == 5
    assert spill_threshold(HINTS, H100, HeuristicType.USER_AUTOTUNE) is None
    assert without_spilling([config(64)], {config(64): 999}, None) == (config(64),)


def test_the_last_try_has_one_stage() -> None:
    assert without_pipelining(config(64).replace(num_stages=3)).num_stages == 1
    mixed = without_pipelining(config(64, NUM_STAGES=3))
    assert (mixed.num_stages, mixed.kwargs["NUM_STAGES"]) == (1, 1)
    assert "NUM_STAGES" not in without_pipelining(config(64)).kwargs
