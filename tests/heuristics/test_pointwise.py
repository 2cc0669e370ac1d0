"""Pointwise proposals at the edges of their rules."""

from __future__ import annotations

import pytest

from kerntune.base.device import TYPICAL_DEVICES
from kerntune.errors import HintError
from kerntune.heuristics import INDUCTOR_2_6, pointwise
from kerntune.heuristics.hints import AutotuneHint, KernelHints, Modes, TileHint

from .inductor_free import XPU, shapes

H100 = TYPICAL_DEVICES["cuda:90"]
MI300 = TYPICAL_DEVICES["hip:gfx942"]


def test_a_long_vector() -> None:
    assert shapes(pointwise(KernelHints(sizes={"x": 1 << 20}), H100)) == ["X1024 w4", "X512 w8"]


@pytest.mark.parametrize(("x", "first"), [(1 << 10, "X256 w4"), (1 << 16, "X512 w4"), (1 << 17, "X1024 w4")])
def test_block_is_a_128th_of_the_elements(x: int, first: str) -> None:
    assert shapes(pointwise(KernelHints(sizes={"x": x}), H100))[0] == first


def test_few_elements_need_few_warps_but_128_get_four_on_cuda() -> None:
    assert shapes(pointwise(KernelHints(sizes={"x": 64}), H100)) == ["X64 w1"]
    assert shapes(pointwise(KernelHints(sizes={"x": 128}), H100)) == ["X128 w4"]
    assert shapes(pointwise(KernelHints(sizes={"x": 128}), MI300))[0] == "X128 w1"


def test_square_tile_only_where_nothing_else_is_known_to_be_better() -> None:
    copy = KernelHints(sizes={"x": 1024, "y": 1024}, tile=TileHint.SQUARE)
    assert shapes(pointwise(copy, H100)) == ["X32 Y32 w4"]
    assert len(pointwise(copy, MI300)) == 10
    assert len(pointwise(KernelHints(sizes=copy.sizes, tile=copy.tile, modes=Modes(max_autotune=True)), H100)) == 6


def test_volumes_are_tuned_only_on_demand() -> None:
    sizes = {"x": 256, "y": 256, "z": 256}
    assert shapes(pointwise(KernelHints(sizes=sizes), H100)) == ["X16 Y16 Z16 w8"]
    untuned = KernelHints(sizes=sizes, modes=Modes(autotune_pointwise=False, max_autotune=True))
    assert len(pointwise(untuned, H100)) == 7
    assert len(pointwise(KernelHints(sizes=sizes), XPU)) == 7


def test_determinism_concerns_pointwise_kernels_only_in_2_6() -> None:
    strict = KernelHints(sizes={"x": 1 << 20}, modes=Modes(deterministic=True))
    assert len(pointwise(strict, H100)) == 2
    assert shapes(pointwise(strict, H100, INDUCTOR_2_6)) == ["X1024 w4"]


def test_elements_per_thread_widen_x_until_it_is_too_wide() -> None:
    fp8 = KernelHints(sizes={"x": 1 << 20}, min_elements_per_thread=4)
    assert shapes(pointwise(fp8, H100)) == ["X1024 w4", "X1024 w8"]
    with pytest.raises(HintError, match="XBLOCK=8192 is over the limit of 4096"):
        pointwise(KernelHints(sizes={"x": 1 << 20}, min_elements_per_thread=32), H100)


def test_one_element_per_thread_adds_lines() -> None:
    hints = KernelHints(sizes={"x": 4096, "y": 4096}, autotune=(AutotuneHint.ONE_ELEMENT_PER_THREAD,))
    assert shapes(pointwise(hints, H100))[-2:] == ["X256 Y1 w8", "X1 Y256 w8"]


def test_backend_extras() -> None:
    hints = KernelHints(sizes={"x": 1 << 24}, atomic_add=True)
    configs = pointwise(hints, MI300)
    assert shapes(configs) == ["X1024 w4", "X512 w4", "X8192 w4", "X4096 w4", "X2048 w8 s2", "X64 w1"]
    assert [dict(c.options) for c in configs[2:5]] == [{"waves_per_eu": 2}, {}, {"waves_per_eu": 1}]
    assert all("waves_per_eu" not in c.kwargs for c in configs)
    assert shapes(pointwise(hints, XPU))[-1] == "X32 w1"


def test_tma_minimum_puts_a_raised_config_first() -> None:
    hints = KernelHints(sizes={"x": 4096, "y": 4096}, tma_minimums={"x": 64})
    assert shapes(pointwise(hints, H100)) == ["X64 Y32 w4", "X64 Y64 w8", "X256 Y16 w8", "X1024 Y1 w4"]


@pytest.mark.parametrize("sizes", [{"y": 4}, {"x": 4, "z": 4}, {"x": 4, "r0": 4}])
def test_other_axes_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(HintError, match=f"kernel k: pointwise takes .* got {' '.join(sizes)}"):
        pointwise(KernelHints(sizes=sizes, kernel="k"), H100)


def test_a_kernel_without_xblock_is_refused() -> None:
    with pytest.raises(HintError, match="needs an XBLOCK parameter"):
        pointwise(KernelHints(sizes={"x": 4}, no_x_block=True), H100)
