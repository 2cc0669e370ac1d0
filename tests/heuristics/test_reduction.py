"""Looped reductions at the edges of their rules."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kerntune.base.device import TYPICAL_DEVICES
from kerntune.errors import HintError
from kerntune.heuristics import persistent_reduction, reduction
from kerntune.heuristics.hints import KernelHints, Modes, ReductionHint
from kerntune.heuristics.reduction_blocks import outer_tile

from .inductor_free import shapes

H100 = TYPICAL_DEVICES["cuda:90"]
B200 = TYPICAL_DEVICES["cuda:100"]
MI300 = TYPICAL_DEVICES["hip:gfx942"]
INNER, OUTER, TINY = ReductionHint.INNER, ReductionHint.OUTER, ReductionHint.OUTER_TINY


def first(x: int, r: int, hint: ReductionHint, **fields: object) -> str:
    device = fields.pop("device", H100)
    return shapes(reduction(KernelHints(sizes={"x": x, "r0": r}, reduction=hint, **fields), device))[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("x", "r", "config"),
    [
        (4096, 2048, "X2 R0_2048 w16"),
        (4096, 4096, "X1 R0_2048 w16"),
        (1, 4096, "X1 R0_2048 w16"),
        (1 << 31, 4096, "X2 R0_1024 w16"),
    ],
)
def test_inner_takes_long_steps(x: int, r: int, config: str) -> None:
    assert first(x, r, INNER) == config


def test_inner_steps_are_shorter_on_new_devices_and_for_heavy_kernels() -> None:
    assert first(4096, 8192, INNER, device=B200) == "X1 R0_1024 w8"
    assert first(4096, 8192, INNER, loads=8, reductions=2) == "X1 R0_1024 w8"
    assert first(4096, 8192, INNER, loads=8, reductions=1) == "X1 R0_2048 w16"
    assert first(512, 8192, INNER, loads=8, reductions=2) == "X1 R0_2048 w16"


@pytest.mark.parametrize(
    ("x", "r", "dynamic", "loads", "config"),
    [
        (256, 4096, 0, 1, "X2 R0_64 w2"),
        (1024, 4096, 0, 1, "X8 R0_64 w4"),
        (2048, 4096, 0, 1, "X16 R0_32 w4"),
        (32768, 4096, 0, 1, "X16 R0_32 w4"),
        (65536, 4096, 0, 1, "X64 R0_8 w4"),
        (1 << 20, 4096, 0, 1, "X256 R0_2 w4"),
        (1 << 20, 4096, 0, 4, "X32 R0_64 w4"),
        (1 << 20, 1024, 0, 4, "X32 R0_32 w4"),
        (1 << 20, 128, 0, 4, "X256 R0_2 w4"),
        (1 << 20, 4096, 1, 2, "X64 R0_8 w4"),
        (1 << 20, 4096, 1, 3, "X64 R0_1 w2"),
        (1 << 20, 4096, 2, 3, "X64 R0_64 w16"),
    ],
)
def test_outer_tile(x: int, r: int, dynamic: int, loads: int, config: str) -> None:
    assert first(x, r, OUTER, dynamic_sizes=dynamic, loads=loads) == config


def test_outer_on_hip_is_fixed() -> None:
    assert first(1 << 20, 4096, OUTER, device=MI300) == "X64 R0_8 w4"


def test_tiny_takes_many_rows() -> None:
    assert first(4096, 32, TINY) == "X16 R0_32 w4"
    assert first(4096, 512, TINY) == "X1 R0_512 w4"


def test_without_a_hint_all_are_tried() -> None:
    hints = KernelHints(sizes={"x": 4096, "r0": 4096})
    configs = shapes(reduction(hints, H100))
    assert configs == [
        "X1 R0_2048 w16",
        "X16 R0_32 w4",
        "X64 R0_64 w16",
        "X8 R0_512 w16",
        "X64 R0_4 w8",
    ], "the tiny one equals the contiguous one"
    assert shapes(reduction(hints, MI300))[-2:] == ["X1024 R0_8 w4", "X512 R0_8 w4"]


LONG_ROWS = {"sizes": {"x": 64, "r0": 65536}, "add_persistent_rblock": True, "reductions": 1}
SQUARE = {"x": 4096, "r0": 4096}


@pytest.mark.parametrize(
    ("hints", "found"),
    [
        pytest.param(LONG_ROWS | {"loads": 7}, ["X1 R0_32768 w32", "X1 R0_2048 w16"], id="light: persistent first"),
        pytest.param(LONG_ROWS | {"loads": 8}, ["X1 R0_2048 w16"], id="heavy"),
        pytest.param({"sizes": {"x": 256, "r0": 64, "r1": 32}}, ["X2 R0_64 R1_32 w16"], id="two reduced axes"),
        pytest.param({"sizes": {"x": 1 << 32, "r0": 64, "r1": 32}}, ["X4 R0_32 R1_32 w16"], id="two axes, many rows"),
        pytest.param({"sizes": SQUARE, "min_x_block": 8}, ["X8 R0_256 w16"], id="a floor, at the other's expense"),
        pytest.param({"sizes": SQUARE, "min_x_block": 8, "min_r_block": 512}, ["X8 R0_512 w16"], id="two floors"),
        pytest.param(
            {"sizes": SQUARE, "reduction": ReductionHint.DEFAULT, "modes": Modes(deterministic=True)},
            ["X8 R0_512 w16"],
            id="deterministic",
        ),
    ],
)
def test_what_is_proposed(hints: dict[str, Any], found: list[str]) -> None:
    assert shapes(reduction(KernelHints(**{"reduction": INNER, **hints}), H100)) == found


def test_no_config_left_is_an_error() -> None:
    hints = KernelHints(sizes={"x": 4096, "r0": 64}, max_persistent_rblock=8192)
    with pytest.raises(HintError, match="no config fits these sizes"):
        reduction(hints, MI300)
    assert len(reduction(hints, H100)) > 3


def test_a_kernel_without_xblock_counts_one_row() -> None:
    hints = KernelHints(sizes={"x": 4096, "r0": 64}, no_x_block=True)
    assert {c.kwargs["XBLOCK"] for c in reduction(hints, H100)} == {1}
    assert hints.sizes == {"x": 4096, "r0": 64}


AXES = "takes size hints for x r0 or x r0 r1 or x y r0"
TILED = {"x": 8, "y": 8, "r0": 64}


@pytest.mark.parametrize(
    ("hints", "said"),
    [
        ({"sizes": {"x": 8}}, AXES),
        ({"sizes": {"r0": 8}}, AXES),
        ({"sizes": {"x": 8, "z": 8, "r0": 8}}, AXES),
        ({"sizes": TILED, "tiling_scores": {"x": 1.0}}, "no tiling score for y, r0"),
        ({"sizes": TILED, "min_x_block": 2}, "block minimums serve kernels with X and R0 blocks only"),
        (
            {"sizes": {"x": 1, "r0": 4096}, "min_x_block": 8, "reduction": INNER},
            "XBLOCK=8, but the axis x has one element",
        ),
    ],
)
def test_what_is_refused(hints: dict[str, Any], said: str) -> None:
    with pytest.raises(HintError, match=said):
        reduction(KernelHints(**hints), H100)


@pytest.mark.parametrize(
    ("x", "r", "dynamic", "loads", "tile"),
    [
        (1024, 4096, 0, 1, (8, 64, None)),
        (256, 16, 0, 1, (2, 16, None)),
        (36 * 1024 - 1, 4096, 0, 1, (16, 32, None)),
        (36 * 1024, 4096, 0, 1, (64, 8, None)),
        (1 << 20, 4096, 0, 3, (256, 2, None)),
        (1 << 19, 4096, 0, 1, (128, 4, None)),
        (1 << 20, 128, 0, 4, (256, 2, None)),
        (1 << 20, 129, 0, 4, (32, 32, 4)),
        (1 << 20, 2047, 0, 4, (32, 32, 4)),
        (1 << 20, 2048, 0, 4, (32, 64, 4)),
        (1 << 20, 4096, 1, 3, (64, 1, None)),
        (1 << 20, 128, 1, 2, (64, 1, None)),
        (1 << 20, 512, 1, 2, (64, 4, None)),
        (1 << 20, 4096, 1, 2, (64, 8, None)),
        (1 << 20, 256, 2, 3, (64, 8, None)),
        (1 << 20, 1024, 2, 3, (64, 16, None)),
        (1 << 20, 1 << 20, 2, 3, (64, 64, None)),
    ],
)
def test_outer_tiles(x: int, r: int, dynamic: int, loads: int, tile: tuple[int, int, int | None]) -> None:
    sizes = KernelHints(sizes={"x": x, "r0": r}, loads=loads)
    exact = msgspec.structs.replace(sizes)
    msgspec.structs.force_setattr(exact, "sizes", {"x": x, "r0": r})  # sizes between powers of two are rounded up
    assert outer_tile(exact, r, dynamic) == tile


@pytest.mark.parametrize(
    ("x", "r", "config"),
    [
        (512, 256, "X1 w2"),
        (1024, 256, "X4 w1"),
        (1024, 512, "X2 w1"),
        (1024, 1024, "X1 w1"),
        (4096, 2048, "X1 w8"),
    ],
)
def test_short_inner_rows_share_a_warp(x: int, r: int, config: str) -> None:
    hints = KernelHints(sizes={"x": x, "r0": r}, reduction=INNER)
    assert shapes(persistent_reduction(hints, H100)) == [config]
