"""Persistent and mix-order reductions at the edges of their rules."""

from __future__ import annotations

import pytest

from kerntune.base.device import TYPICAL_DEVICES
from kerntune.errors import HintError
from kerntune.heuristics import persistent_reduction
from kerntune.heuristics.hints import KernelHints, Modes, ReductionHint

from .inductor_free import XPU, shapes

H100 = TYPICAL_DEVICES["cuda:90"]
MI300 = TYPICAL_DEVICES["hip:gfx942"]
INNER, OUTER = ReductionHint.INNER, ReductionHint.OUTER
TUNED = Modes(max_autotune=True)


def propose(x: int, r: int, device: object = H100, **fields: object) -> list[str]:
    return shapes(persistent_reduction(KernelHints(sizes={"x": x, "r0": r}, **fields), device))  # type: ignore[arg-type]


def test_rows_a_block() -> None:
    assert propose(4096, 64) == ["X1 w2", "X8 w4", "X32 w8"]
    assert propose(16, 64) == ["X1 w2", "X8 w4"]
    assert propose(4096, 4096) == ["X1 w8"]
    assert len(propose(4096, 16, MI300)) == 8


@pytest.mark.parametrize(
    ("x", "r", "config"),
    [
        (8192, 256, "X4 w1"),
        (8192, 512, "X2 w1"),
        (8192, 1024, "X1 w1"),
        (8192, 2048, "X1 w8"),
        (1024, 512, "X2 w1"),
        (512, 512, "X1 w4"),
    ],
)
def test_inner(x: int, r: int, config: str) -> None:
    assert propose(x, r, reduction=INNER) == [config]


def test_short_inner_rows_are_tuned() -> None:
    assert len(propose(8192, 128, reduction=INNER)) == 3


def test_inner_on_xpu_follows_the_accesses() -> None:
    assert propose(8192, 512, XPU, reduction=INNER, loads=2, stores=2) == ["X8 w8"]
    assert propose(8192, 512, XPU, reduction=INNER, loads=4, stores=1) == ["X1 w4"]


def test_outer_takes_the_most_rows() -> None:
    assert propose(4096, 64, reduction=OUTER) == ["X32 w8"]
    assert propose(4096, 64, reduction=ReductionHint.OUTER_TINY) == ["X8 w4"]


def test_max_autotune_tries_all_and_a_tiny_one_on_hip() -> None:
    assert len(propose(8192, 256, reduction=INNER, modes=TUNED)) == 2
    assert propose(8192, 2048, MI300, modes=TUNED) == ["X1 w4", "X1 w8"]


def test_batch_invariance_ignores_small_batches() -> None:
    invariant = Modes(batch_invariant=True)
    configs = {tuple(propose(x, 512, reduction=INNER, modes=invariant)) for x in (1, 64, 512, 4096)}
    assert configs == {("X2 w1",)}
    assert propose(1, 512, reduction=INNER) == ["X1 w4"]


def test_batch_invariance_of_a_kernel_without_xblock_changes_nothing() -> None:
    assert propose(4096, 64, no_x_block=True, modes=Modes(batch_invariant=True)) == ["X1 w2"]


@pytest.mark.parametrize("sizes", [{"x": 8, "r0": 131072}, {"x": 8, "y": 8, "r0": 8192}])
def test_rows_too_long_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(HintError, match=r"a reduction block of 131072 elements|no config fits"):
        persistent_reduction(KernelHints(sizes=sizes), H100)


def test_tiled_blocks_share_the_rows_by_score() -> None:
    sizes = {"x": 64, "y": 64, "r0": 64}
    even = persistent_reduction(KernelHints(sizes=sizes), H100)
    assert [(c.kwargs["XBLOCK"], c.kwargs["YBLOCK"]) for c in even] == [(1, 1), (4, 2), (8, 4)]
    by_y = persistent_reduction(KernelHints(sizes=sizes, tiling_scores={"x": 0, "y": 5, "r0": 1}), H100)
    assert [(c.kwargs["XBLOCK"], c.kwargs["YBLOCK"]) for c in by_y] == [(1, 1), (1, 8), (1, 32)]


def mix(r: int, split: int, **fields: object) -> list[tuple[object, ...]]:
    hints = KernelHints(sizes={"x": 1 << 15, "r0": r}, rsplit_size=split, reduction=INNER, **fields)  # type: ignore[arg-type]
    found = persistent_reduction(hints, H100)
    return [(c.kwargs["XBLOCK"], c.kwargs["NUM_STAGES"], c.num_warps) for c in found]


def test_mix_order_blocks_stages_and_warps() -> None:
    assert mix(512, 64) == [(4, 3, 2)]
    assert mix(1024, 64) == [(2, 3, 4)]
    assert mix(2048, 64) == [(2, 3, 8)]
    assert mix(16384, 16) == [(1, 2, 16)]
    assert mix(2048, 1024) == [(16, 3, 8)]
    assert mix(512, 16) == [(4, 1, 2)]


def test_mix_order_under_max_autotune() -> None:
    assert mix(1024, 64, modes=TUNED)[:2] == [(2, 3, 4), (2, 3, 2)]
    assert mix(2048, 64, modes=TUNED) == [(2, 3, 8), (2, 3, 16)]
    assert mix(65536, 64, modes=TUNED) == [(2, 2, 16), (2, 2, 32)]


def test_mix_order_honours_descriptors_and_single_stage() -> None:
    assert mix(2048, 64, tma_minimums={"x": 8}) == [(8, 2, 8)]
    assert mix(2048, 64, modes=Modes(multi_stage_mix_order=False)) == [(2, 1, 8)]
    with pytest.raises(HintError, match="rsplit_size=0"):
        mix(2048, 0)
