"""Coordinate descent's neighbourhoods: any integer field, within its limits."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.config import Config
from kerntune.base.device import TYPICAL_DEVICES
from kerntune.errors import HintError
from kerntune.heuristics import (
    INDUCTOR_2_13,
    INDUCTOR_2_15,
    Field,
    improves,
    may_descend,
    neighbourhood,
    persistent_reduction,
    reduction,
    split_scan,
)
from kerntune.heuristics.hints import HeuristicType, KernelHints, Modes

H100 = TYPICAL_DEVICES["cuda:90"]
MI300 = TYPICAL_DEVICES["hip:gfx942"]
USER = Config(kwargs={"TILE": 96, "EVEN": True, "NAME": "a", "SCALE": 0.5, "stages_k": 2}, options={"group": 0})


def test_a_users_kernel_is_stepped_along_every_integer_field() -> None:
    around = neighbourhood(USER, H100)
    assert [f.name for f in around.fields] == ["TILE", "stages_k", "num_warps", "num_stages", "group"]
    steps = {f.name: [str(c) for c in around.neighbours(USER, f)] for f in around.fields}
    assert [s.split()[0] for s in steps["TILE"]] == ["TILE=192", "TILE=48"]
    assert ["stages_k=3" in s for s in steps["stages_k"]] == [True, False]
    assert ["num_stages=4" in s for s in steps["num_stages"]] == [True, False]
    assert [s.split()[-1] for s in steps["group"]] == ["group=1"]


def test_limits_and_frozen_fields() -> None:
    around = neighbourhood(USER, H100, limits={"TILE": 100}, frozen=["num_warps"])
    assert [f.name for f in around.fields] == ["TILE", "stages_k", "num_stages", "group"]
    assert [c.kwargs["TILE"] for c in around.neighbours(USER, around.fields[0])] == [48]
    with pytest.raises(HintError, match=r"a limit for SCALE, but .* has no integer field"):
        neighbourhood(USER, H100, limits={"SCALE": 4})


@given(st.integers(0, 4096), st.integers(1, 4), st.integers(0, 8), st.integers(8, 4096), st.booleans())
def test_steps_are_legal_new_and_nearest_first(value: int, radius: int, least: int, most: int, by_one: bool) -> None:
    field = Field("F", least=least, most=most, by_one=by_one)
    values = field.values(value, radius)
    assert all(v <= most for v in values if v > value)
    assert all(v >= least for v in values if v < value)
    above, below = [v for v in values if v > value], [v for v in values if v < value]
    assert list(values) == above + [v for v in values if v <= value]
    assert above == sorted(above)
    assert below == sorted(below, reverse=True)
    assert len(above) <= radius
    assert field.values(value, radius, include_self=True) == (*values, value)


def test_warps_stop_at_the_devices_threads() -> None:
    config = Config(kwargs={"XBLOCK": 64}, num_warps=32)
    around = neighbourhood(config, H100)
    warps = next(f for f in around.fields if f.name == "num_warps")
    assert [c.num_warps for c in around.neighbours(config, warps)] == [16]
    assert next(f for f in neighbourhood(config, MI300).fields if f.name == "num_warps").most == 16
    tiny = msgspec.structs.replace(H100, max_threads_per_block=16)
    assert next(f for f in neighbourhood(config, tiny).fields if f.name == "num_warps").most == 1


def test_blocks_stay_within_sizes_and_floors() -> None:
    hints = KernelHints(sizes={"x": 64, "r0": 4096}, min_r_block=1024)
    config = Config(kwargs={"XBLOCK": 64, "R0_BLOCK": 1024}, num_warps=8, num_stages=1)
    around = neighbourhood(config, H100, hints, HeuristicType.REDUCTION)
    found = {f.name: [c.kwargs for c in around.neighbours(config, f)] for f in around.fields}
    assert found["XBLOCK"] == [{"XBLOCK": 32, "R0_BLOCK": 1024}]
    assert found["R0_BLOCK"] == [{"XBLOCK": 64, "R0_BLOCK": 2048}]


def test_a_scan_keeps_its_least_block() -> None:
    hints = KernelHints(sizes={"x": 1, "r0": 1 << 20})
    config = split_scan(hints, H100)[-1]
    assert config.kwargs["R0_BLOCK"] == 256
    around = neighbourhood(config, H100, hints, HeuristicType.SPLIT_SCAN)
    field = next(f for f in around.fields if f.name == "R0_BLOCK")
    assert [c.kwargs["R0_BLOCK"] for c in around.neighbours(config, field)] == [512]


def test_mix_order_keeps_x_within_its_split_and_looks_two_stages_away() -> None:
    hints = KernelHints(sizes={"x": 4096, "r0": 1024}, rsplit_size=16)
    config = persistent_reduction(hints, H100)[0].replace(XBLOCK=16, NUM_STAGES=2)
    around = neighbourhood(config, H100, hints, HeuristicType.PERSISTENT_REDUCTION)
    by_name = {f.name: f for f in around.fields}
    assert "RSPLIT_SIZE" not in by_name
    assert [c.kwargs["XBLOCK"] for c in around.neighbours(config, by_name["XBLOCK"])] == [8]
    assert [c.kwargs["NUM_STAGES"] for c in around.neighbours(config, by_name["NUM_STAGES"])] == [3, 4, 1]


def test_mix_order_without_an_x_block_has_no_steps() -> None:
    hints = KernelHints(sizes={"x": 4096, "r0": 1024}, rsplit_size=16)
    config = Config(kwargs={"RSPLIT_SIZE": 16, "NUM_STAGES": 2}, num_warps=4)
    for preset in (INDUCTOR_2_13, INDUCTOR_2_15):
        around = neighbourhood(config, H100, hints, HeuristicType.PERSISTENT_REDUCTION, preset=preset)
        assert around.fields
        assert not any(around.neighbours(config, field) for field in around.fields)
        assert around.all_directions(config, radius=1) == ()


OWN = {"x": "ROWS", "r0": "STEP"}


def own_values(name: str, config: Config, hints: KernelHints, family: HeuristicType) -> list[int]:
    """The values of one field that a descent of a user's kernel may come to, from 1 to 2^20."""
    around = neighbourhood(config, H100, hints, family, blocks=OWN)
    field = next(f for f in around.fields if f.name == name)
    start = config.replace(**{name: 1 << 10})
    return sorted(
        {c.kwargs[name] for c in (start, *around.neighbours(start, msgspec.structs.replace(field, radius=20)))}
    )  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("name", "family", "hints", "least", "most"),
    [
        ("ROWS", HeuristicType.REDUCTION, {}, 1, 1 << 12),
        ("STEP", HeuristicType.REDUCTION, {}, 1, 1 << 14),
        ("ROWS", HeuristicType.REDUCTION, {"min_x_block": 16}, 16, 1 << 12),
        ("STEP", HeuristicType.REDUCTION, {"min_r_block": 64}, 64, 1 << 14),
        ("STEP", HeuristicType.SPLIT_SCAN, {}, 256, 1 << 14),
        ("ROWS", HeuristicType.USER_AUTOTUNE, {"tma_minimums": {"x": 8}}, 8, 1 << 12),
        ("STEP", HeuristicType.USER_AUTOTUNE, {"native_matmul": True}, 16, 1 << 14),
    ],
)
def test_a_proposed_kernels_own_blocks_stay_within_its_hints(
    name: str, family: HeuristicType, hints: dict[str, Any], least: int, most: int
) -> None:
    config = Config(kwargs={"ROWS": 16, "STEP": 16, "GROUP": 8}, num_warps=4)
    known = KernelHints(sizes={"x": 1 << 12, "r0": 1 << 14}, **hints)
    found = own_values(name, config, known, family)
    assert (found[0], found[-1]) == (least, most)
    around = neighbourhood(config, H100, known, family, blocks=OWN)
    assert {"GROUP", "num_stages"} <= {f.name for f in around.fields}, "every other integer field as before"


def test_a_users_product_stays_one_tensor() -> None:
    hints = KernelHints(sizes={"x": 1 << 12, "y": 1 << 12, "r0": 1 << 14}, native_matmul=True)
    config = Config(kwargs={"N": 256, "M": 256, "K": 16}, num_warps=4)
    around = neighbourhood(config, H100, hints, blocks={"x": "N", "y": "M", "r0": "K"})
    steps = [c for f in around.fields for c in around.neighbours(config, f)]
    assert steps
    assert all(c.kwargs["N"] * c.kwargs["M"] * c.kwargs["K"] <= 1 << 20 for c in steps)  # type: ignore[operator]


def test_conversions_keep_their_elements_a_thread() -> None:
    hints = KernelHints(sizes={"x": 1 << 12}, min_elements_per_thread=4)
    config = Config(kwargs={"BLOCK": 512}, num_warps=4)
    around = neighbourhood(config, H100, hints, HeuristicType.POINTWISE, blocks={"x": "BLOCK"})
    found = {(c.kwargs["BLOCK"], c.num_warps) for c in around.all_directions(config, radius=1)}
    assert found == {(512, 2), (512, 4), (1024, 2), (1024, 4), (1024, 8), (256, 2)}


def test_native_matmul_keeps_its_tensor_and_its_dot() -> None:
    hints = KernelHints(sizes={"x": 4096, "y": 4096, "z": 4, "r0": 64}, native_matmul=True)
    for config in reduction(hints, H100):
        around = neighbourhood(config, H100, hints, HeuristicType.REDUCTION)
        assert "ZBLOCK" not in [f.name for f in around.fields]
        for field in around.fields:
            for step in around.neighbours(config, field):
                assert min(step.kwargs[n] for n in ("XBLOCK", "YBLOCK", "R0_BLOCK")) >= 16  # type: ignore[type-var]


def test_waves_per_eu_of_many_warps_starts_at_zero_and_goes_to_one() -> None:
    hints = KernelHints(sizes={"x": 4096})
    config = Config(kwargs={"XBLOCK": 64}, num_warps=16)
    around = neighbourhood(config, MI300, hints, HeuristicType.POINTWISE)
    waves = next(f for f in around.fields if f.name == "waves_per_eu")
    assert [c.options for c in around.neighbours(config, waves)] == [{"waves_per_eu": 1}]


def test_all_directions_is_the_whole_neighbourhood() -> None:
    config = Config(kwargs={"XBLOCK": 64}, num_warps=4, num_stages=1)
    around = neighbourhood(config, H100, KernelHints(sizes={"x": 1024}), HeuristicType.POINTWISE)
    found = {(c.kwargs["XBLOCK"], c.num_warps) for c in around.all_directions(config, radius=1)}
    assert found == {(x, w) for x in (32, 64, 128) for w in (2, 4, 8)}
    assert len(around.all_directions(config, radius=2)) == 25


def test_a_step_must_save_a_thousandth() -> None:
    assert improves(1000.0, 998.9)
    assert not improves(1000.0, 999.0)
    assert not improves(1000.0, float("nan"))


def test_deterministic_reductions_are_not_stepped() -> None:
    strict = KernelHints(sizes={"x": 1}, modes=Modes(deterministic=True))
    assert not may_descend(HeuristicType.SPLIT_SCAN, strict)
    assert may_descend(HeuristicType.POINTWISE, strict)
    assert may_descend(HeuristicType.REDUCTION, KernelHints(sizes={"x": 1}))
