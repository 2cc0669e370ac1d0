"""Cooperative reductions and split scans."""

from __future__ import annotations

import msgspec
import pytest

from kerntune.base.device import TYPICAL_DEVICES
from kerntune.errors import HintError
from kerntune.heuristics import cooperative_reduction, rsplit, split_scan
from kerntune.heuristics.hints import KernelHints, ReductionHint

from .inductor_free import shapes

H100 = TYPICAL_DEVICES["cuda:90"]


@pytest.mark.parametrize(
    ("x", "r", "sms", "split"),
    [(1, 1 << 20, 132, 64), (2, 1 << 20, 132, 64), (4, 1 << 20, 132, 32), (256, 1 << 20, 132, 1), (1, 8, 132, 8)]
    + [(1, 1 << 20, sms, split) for sms, split in ((1, 1), (16, 16), (63, 32), (64, 64), (304, 64))],
)
def test_programs_never_outnumber_the_sms(x: int, r: int, sms: int, split: int) -> None:
    device = msgspec.structs.replace(H100, sm_count=sms)
    assert rsplit(KernelHints(sizes={"x": x, "r0": r}), device) == split


def test_a_program_reduces_its_share() -> None:
    hints = KernelHints(sizes={"x": 1, "r0": 1 << 16}, reduction=ReductionHint.INNER)
    assert shapes(cooperative_reduction(hints, H100)) == ["X1 R0_1024 RSPLIT64 w8"]
    assert shapes(cooperative_reduction(hints, H100, persistent=True)) == ["X1 RSPLIT64 w8"]


def test_two_reduced_axes_are_refused() -> None:
    with pytest.raises(HintError, match="a cooperative reduction takes size hints for x r0, got x r0 r1"):
        cooperative_reduction(KernelHints(sizes={"x": 1, "r0": 8, "r1": 8}), H100)


def test_a_device_without_sms_is_refused() -> None:
    with pytest.raises(HintError, match="sm_count=0"):
        rsplit(KernelHints(sizes={"x": 1, "r0": 8}), msgspec.structs.replace(H100, sm_count=0))


def test_scan_blocks_are_raised_after_the_warps() -> None:
    hints = KernelHints(sizes={"x": 1, "r0": 128}, reduction=ReductionHint.INNER, no_x_block=True)
    assert shapes(split_scan(hints, H100)) == ["X1 R0_256 w2"]
    longer = msgspec.structs.replace(hints, min_scan_rblock=1024)
    assert shapes(split_scan(longer, H100)) == ["X1 R0_1024 w2"]


def test_scan_of_other_axes_is_refused() -> None:
    with pytest.raises(HintError, match="a split scan takes"):
        split_scan(KernelHints(sizes={"x": 8}), H100)
