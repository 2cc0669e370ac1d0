"""The measured preset: 2.13's candidates first, then few others that keep their rules."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable
from math import prod
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.config import Config
from kerntune.base.device import TYPICAL_DEVICES, DeviceSpec
from kerntune.errors import HintError
from kerntune.heuristics import (
    INDUCTOR_2_13,
    MEASURED_2026,
    PRESETS,
    Preset,
    cooperative_reduction,
    persistent_reduction,
    pointwise,
    reduction,
    split_scan,
)
from kerntune.heuristics.hints import KernelHints, Modes, ReductionHint
from kerntune.heuristics.measured import product_tiles, reduction_tiles, row_tiles, scan_steps
from kerntune.heuristics.presets import measured_on

from .inductor_cases import ours
from .inductor_free import XPU, shapes
from .test_preset_2_15 import texts, unpacked
from .test_properties import FAMILIES, hints_of

LEAST_OUTPUTS = 8
MOST_WARPS = 16
PRODUCT_BYTES = 2
REGISTERS_HELD = 64
ROW_ELEMENTS = 16


H100, A100, T4, MI300 = (TYPICAL_DEVICES[name] for name in ("cuda:90", "cuda:80", "cuda:75", "hip:gfx942"))
CUDA = st.sampled_from([d for name, d in TYPICAL_DEVICES.items() if name.startswith("cuda")])
SIZES = st.builds(lambda x, r: {"x": 1 << x, "r0": 1 << r}, st.integers(0, 24), st.integers(0, 16))
HINTS = st.builds(
    KernelHints,
    sizes=SIZES,
    reduction=st.sampled_from(ReductionHint),
    loads=st.integers(0, 80),
    reductions=st.integers(0, 80),
    contiguous_reduction_access=st.booleans(),
)
PRODUCTS = st.builds(
    lambda y, x, z, r: KernelHints(sizes={"y": 1 << y, "x": 1 << x, "z": 1 << z, "r0": 1 << r}, native_matmul=True),
    *[st.integers(0, 14)] * 4,
)

Propose = Callable[[KernelHints, DeviceSpec, Preset], tuple[Config, ...]]


def further(propose: Propose, hints: KernelHints, device: DeviceSpec = H100) -> list[str]:
    """What the preset adds, as text."""
    known = propose(hints, device, INDUCTOR_2_13)
    return shapes(c for c in propose(hints, device, MEASURED_2026) if c not in known)


def answer(propose: Propose, hints: KernelHints, device: DeviceSpec, preset: Preset) -> tuple[tuple[Config, ...], str]:
    """A proposal, or why there is none."""
    try:
        return propose(hints, device, preset), ""
    except HintError as error:
        return (), str(error)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data(), device=st.sampled_from([*TYPICAL_DEVICES.values(), XPU]))
def test_it_has_every_candidate_of_2_13_and_refuses_what_that_refuses(
    family: str, data: st.DataObject, device: DeviceSpec
) -> None:
    propose, axes = FAMILIES[family]
    hints = data.draw(hints_of(axes))
    known, refusal = answer(propose, hints, device, INDUCTOR_2_13)
    found, refused = answer(propose, hints, device, MEASURED_2026)
    assert refused == refusal
    assert set(known) <= set(found)
    assert len(found) - len(known) <= 7
    if not measured_on(device, MEASURED_2026) or (hints.modes.one_reduction and family != "pointwise"):
        assert found == known
    if not hints.modes.max_autotune:  # else what the hint proposes is first
        assert found[: len(known)] == known


def test_what_descriptors_need_raises_the_first_of_2_13_beside_the_hint_s_own() -> None:
    hints = KernelHints(sizes={"x": 32, "r0": 1}, reduction=ReductionHint.OUTER, tma_minimums={"x": 16})
    hints = msgspec.structs.replace(hints, modes=Modes(max_autotune=True))
    found = FAMILIES["persistent"][0](hints, A100, MEASURED_2026)
    assert [c.kwargs["XBLOCK"] for c in found] == [32, 16]


@pytest.mark.parametrize("family", list(FAMILIES)[1:])
@pytest.mark.parametrize("mode", ["deterministic", "single_reduction_config", "batch_invariant"])
def test_modes_that_fix_a_reduction_get_nothing_new(family: str, mode: str) -> None:
    propose, _ = FAMILIES[family]
    for tuned, hint in itertools.product((False, True), ReductionHint):
        modes = Modes(**{mode: True, "max_autotune": tuned})
        hints = KernelHints(sizes={"x": 1 << 14, "r0": 512}, reduction=hint, modes=modes)
        assert propose(hints, H100, MEASURED_2026) == propose(hints, H100, INDUCTOR_2_13)


def test_what_the_sweep_has_not_gets_nothing_new() -> None:
    tiled = KernelHints(sizes={"x": 1 << 12, "y": 64, "r0": 1024})
    mixed = KernelHints(sizes={"x": 1 << 12, "r0": 1024}, rsplit_size=64)
    alone = KernelHints(sizes={"x": 1 << 24}, modes=Modes(autotune_pointwise=False))
    row = KernelHints(sizes={"x": 4, "r0": 1 << 17})
    outer = KernelHints(sizes={"x": 1 << 14, "r0": 64}, reduction=ReductionHint.OUTER)
    for propose, hints in (
        (reduction, tiled), (persistent_reduction, tiled), (persistent_reduction, mixed), (pointwise, alone),
        (cooperative_reduction, row), (functools.partial(cooperative_reduction, persistent=True), row),
        (persistent_reduction, outer),
    ):  # fmt: skip
        assert further(propose, hints) == []


def test_gpus_that_were_not_measured_get_nothing_new() -> None:
    line, rows = KernelHints(sizes={"x": 1 << 24}), KernelHints(sizes={"x": 1 << 14, "r0": 1024})
    tuned = msgspec.structs.replace(rows, modes=Modes(max_autotune=True), reduction=ReductionHint.INNER)
    product = KernelHints(sizes={"x": 64, "y": 64, "r0": 64}, native_matmul=True)
    few = KernelHints(sizes={"x": 4, "r0": 1 << 16})
    for device in (MI300, XPU, T4):
        assert further(pointwise, line, device) == []
        assert all(further(propose, rows, device) == [] for propose in (reduction, persistent_reduction, split_scan))
        for propose, hints in ((persistent_reduction, tuned), (reduction, product), (cooperative_reduction, few)):
            assert propose(hints, device, MEASURED_2026) == propose(hints, device, INDUCTOR_2_13)


def test_max_autotune_keeps_what_the_hint_proposes() -> None:
    """As torch's main branch; 2.13 drops the one with a warp for 1024 elements, which short rows are made for."""
    plain = KernelHints(sizes={"x": 1 << 14, "r0": 512}, reduction=ReductionHint.INNER)
    tuned = msgspec.structs.replace(plain, modes=Modes(max_autotune=True))
    (hinted,) = persistent_reduction(plain, H100, INDUCTOR_2_13)
    assert hinted not in persistent_reduction(tuned, H100, INDUCTOR_2_13)
    assert persistent_reduction(tuned, H100, MEASURED_2026)[0] == hinted


def test_a_looped_kernel_takes_short_rows_in_one_step() -> None:
    """Where Inductor writes a persistent kernel: up to 1024 elements along contiguous memory, else up to 64."""
    inner = KernelHints(sizes={"x": 1 << 14, "r0": 512}, reduction=ReductionHint.INNER)
    assert "X2 R0_512 w1" in shapes(reduction(inner, H100, MEASURED_2026))
    assert "X2 R0_512 w1" not in shapes(reduction(inner, H100, INDUCTOR_2_13))
    long = inner.with_sizes({"x": 1 << 14, "r0": 2048})
    assert "X1 R0_2048 w8" not in further(reduction, long)


def test_a_cooperative_kernel_may_go_alone_where_sharing_does_not_pay() -> None:
    few = KernelHints(sizes={"x": 4, "r0": 1 << 16}, reduction=ReductionHint.INNER)
    assert [c.kwargs["RSPLIT"] for c in cooperative_reduction(few, H100, MEASURED_2026)] == [32, 1]
    long = few.with_sizes({"x": 4, "r0": 1 << 17})
    assert {c.kwargs["RSPLIT"] for c in cooperative_reduction(long, H100, MEASURED_2026)} == {32}
    shares = cooperative_reduction(few, H100, MEASURED_2026, persistent=True)
    assert {c.kwargs["RSPLIT"] for c in shares} == {32}, "a block can't hold a row of 65536"


def test_lines_of_four_and_sixteen_elements_a_thread() -> None:
    assert further(pointwise, KernelHints(sizes={"x": 1 << 24})) == ["X2048 w4", "X1024 w8"]


def test_a_transposition_gets_tiles_in_both_planes() -> None:
    assert further(pointwise, KernelHints(sizes={"x": 1024, "y": 512, "z": 512})) == [
        "X64 Y64 Z1 w16", "X64 Y1 Z64 w16", "X16 Y256 Z1 w4", "X16 Y1 Z256 w4", "X32 Y32 Z1 w4", "X32 Y1 Z32 w4",
        "X1024 Y1 Z1 w4",
    ]  # fmt: skip


def test_a_pointwise_tile_leaves_no_sm_idle() -> None:
    small = KernelHints(sizes={"x": 128 * 1024})
    assert further(pointwise, small) == []
    assert further(pointwise, small, A100) == ["X1024 w8"]


def test_an_illegal_further_tile_is_left_out() -> None:
    hints = KernelHints(sizes={"x": 1 << 16}, min_elements_per_thread=32)
    few = msgspec.structs.replace(H100, sm_count=8)
    assert shapes(pointwise(hints, few, INDUCTOR_2_13)) == ["X4096 w4"]
    assert further(pointwise, hints, few) == []


@given(hints=HINTS, device=CUDA)
def test_reduction_tiles_keep_their_rules(hints: KernelHints, device: DeviceSpec) -> None:
    tiles = reduction_tiles(hints, device)
    assert tiles == reduction_tiles(hints, device)
    x, r = hints.sizes["x"], hints.sizes["r0"]
    for tile in tiles:
        assert tile.x <= x
        assert tile.r <= r
        assert 1 <= tile.warps <= MOST_WARPS
        assert tile.x * tile.r >= tile.warps * device.warp_size or tile.warps == 1
        assert tile.x * tile.r <= tile.warps * device.warp_size * REGISTERS_HELD


@given(x=st.integers(13, 24), r=st.integers(8, 14), device=CUDA)
def test_outer_tiles_are_as_wide_as_a_warp_where_no_sm_would_idle(x: int, r: int, device: DeviceSpec) -> None:
    hints = KernelHints(sizes={"x": 1 << x, "r0": 1 << r}, reduction=ReductionHint.OUTER)
    assert {tile.x for tile in reduction_tiles(hints, device)} == {device.warp_size}
    rows = LEAST_OUTPUTS << (device.sm_count.bit_length() - 1)  # wider tiles leave half of the SMs without a block
    few = KernelHints(sizes={"x": rows, "r0": 1 << r}, reduction=ReductionHint.OUTER)
    assert {tile.x for tile in reduction_tiles(few, device)} == {LEAST_OUTPUTS}


def test_outer_tiles_have_three_depths() -> None:
    many = KernelHints(sizes={"x": 1 << 16, "r0": 512}, contiguous_reduction_access=False)
    assert further(reduction, many) == ["X32 R0_8 w4", "X32 R0_64 w8", "X32 R0_256 w4"]
    two_sums = msgspec.structs.replace(many, reductions=2)
    assert further(reduction, two_sums)[-1] == "X32 R0_128 w4"
    fewer = many.with_sizes({"x": 1 << 14, "r0": 1024})
    assert further(reduction, fewer)[0] == "X32 R0_32 w16"


@given(hints=HINTS, device=CUDA)
def test_blocks_of_rows_keep_their_rules(hints: KernelHints, device: DeviceSpec) -> None:
    tiles = row_tiles(hints, device)
    assert tiles == row_tiles(hints, device)
    for tile in tiles:
        assert tile.r == hints.sizes["r0"]
        assert tile.x == 1 or hints.sizes["x"] // tile.x >= 2 * device.sm_count
        assert 1 <= tile.warps <= MOST_WARPS
        assert tile.warps == MOST_WARPS or tile.x * tile.r <= tile.warps * device.warp_size * 2 * ROW_ELEMENTS


def test_blocks_of_rows_have_sixteen_elements_a_thread() -> None:
    rows = KernelHints(sizes={"x": 1 << 15, "r0": 256})
    assert further(persistent_reduction, rows) == ["X4 w2", "X8 w4", "X8 w2"]
    heavy = msgspec.structs.replace(rows, loads=8)
    assert further(persistent_reduction, heavy)[0] == "X2 w2"
    assert further(persistent_reduction, rows.with_sizes({"x": 4, "r0": 4096})) == ["X1 w4"]


def test_one_row_a_program_stays_one() -> None:
    bare = KernelHints(sizes={"x": 1 << 15, "r0": 256}, no_x_block=True)
    assert {c.kwargs["XBLOCK"] for c in persistent_reduction(bare, H100, MEASURED_2026)} == {1}


@given(hints=HINTS, device=CUDA)
def test_scans_keep_their_rules(hints: KernelHints, device: DeviceSpec) -> None:
    steps = scan_steps(hints, device)
    assert steps == scan_steps(hints, device)
    for step in steps:
        assert step.x == 1
        assert step.r <= hints.sizes["r0"]
        assert step.registers is None or step.warps * device.warp_size * step.registers <= device.registers_per_sm


def test_a_scan_has_few_long_blocks_and_shorter_ones_where_sms_would_idle() -> None:
    long = KernelHints(sizes={"x": 16, "r0": 1 << 20}, no_x_block=True)
    found = split_scan(long, H100, MEASURED_2026)[-3:]
    assert [(c.kwargs["R0_BLOCK"], c.num_warps, c.maxnreg) for c in found] == [
        (4096, 4, None), (16384, 8, None), (8192, 4, 96),
    ]  # fmt: skip
    short = split_scan(long.with_sizes({"x": 1, "r0": 1 << 20}), H100, MEASURED_2026)[-2:]
    assert [(c.kwargs["R0_BLOCK"], c.num_warps, c.maxnreg) for c in short] == [(2048, 4, None), (2048, 8, None)]


@given(hints=PRODUCTS, device=CUDA)
def test_products_fit_shared_memory_and_occupy_half_of_the_sms(hints: KernelHints, device: DeviceSpec) -> None:
    sizes = hints.sizes
    for x, y, r0, warps, stages in product_tiles(hints, device):
        assert (x + y) * r0 * PRODUCT_BYTES * stages <= device.shared_memory_per_block
        assert 2 * prod((sizes["x"] // x, sizes["y"] // y, sizes["z"])) >= device.sm_count
        assert x * y <= 4 * REGISTERS_HELD * 32 * warps


def test_products_have_the_stages_that_fit() -> None:
    hints = KernelHints(sizes={"y": 4096, "x": 4096, "r0": 4096}, native_matmul=True)
    known = msgspec.structs.replace(hints, operand_bytes=2)
    assert len(reduction(known, H100, MEASURED_2026)) == 24
    assert len(reduction(hints, H100, MEASURED_2026)) == 25, (
        "128 x 128 x 128 in 4 stages may fit, for all that is known"
    )
    double = msgspec.structs.replace(hints, operand_bytes=4)
    assert [stages for *_, stages in product_tiles(double, H100)] == [2, 4, 2, 3]
    assert [stages for *_, stages in product_tiles(hints, H100)] == [4, 4, 4, 3, 4]
    assert [stages for *_, stages in product_tiles(hints, A100)] == [3, 4, 3, 2, 4]
    assert product_tiles(hints.with_sizes({"y": 512, "x": 512, "r0": 4096}), H100) == ()


def test_presets_are_told_apart_by_name() -> None:
    assert PRESETS["measured-2026"].measured
    assert not any(PRESETS[name].measured for name in ("inductor-2.13", "inductor-2.6"))


GOLDEN = Path(__file__).parent / "golden" / "measured_2026.json"
"""What the preset adds to 2.13's candidates, of commit 9a238f7a: a preset's candidates stay as they were published, so
that a list that was tuned has its winner."""


def test_the_preset_adds_what_it_has_added_since_it_was_published() -> None:
    wrong = []
    for case in json.loads(GOLDEN.read_text()):
        known, found = (texts(ours(*unpacked(case), preset)) or [] for preset in (INDUCTOR_2_13, MEASURED_2026))
        wrong += [case] if [x for x in found if x not in known] != case["configs"] else []
    assert not wrong, f"{len(wrong)} differ; the first: {wrong[0]}"
