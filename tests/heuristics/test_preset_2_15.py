"""The inductor-2.15 preset against results of torch 2.15.0's functions, and against its sources where they are
installed."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kerntune.base.config import Config
from kerntune.base.device import TYPICAL_DEVICES, DeviceSpec
from kerntune.heuristics import (
    INDUCTOR_2_13,
    INDUCTOR_2_15,
    Preset,
    neighbourhood,
    persistent_reduction,
    pointwise,
    reduction,
)
from kerntune.heuristics.call_hints import inner_split
from kerntune.heuristics.hints import AutotuneHint, HeuristicType, KernelHints, ReductionHint

from .inductor_cases import B300, DEVICES, XPU, Case, ours
from .inductor_free import shapes

H100, B200, MI300 = (TYPICAL_DEVICES[t] for t in ("cuda:90", "cuda:100", "hip:gfx942"))
ROOT = Path(__file__).parents[2]
SOURCES = "KERNTUNE_TORCH_SOURCES"
"""Environment variable that names a folder with another torch release's unpacked wheel."""

INNER = functools.partial(KernelHints, reduction=ReductionHint.INNER)


GOLDEN = Path(__file__).parent / "golden" / "inductor_2_15.json"
"""A sample of all families, most of it of what 2.15 decides otherwise than 2.13: what the functions of torch 2.15.0's
wheel answer, written by ``tests/heuristics/make_golden_inductor_2_15.py`` of commit 2adbcecd."""


@functools.cache
def golden() -> list[dict[str, Any]]:
    return json.loads(GOLDEN.read_text())  # type: ignore[no-any-return]


def unpacked(case: dict[str, Any]) -> Case:
    device = next(d for d in (*DEVICES, B300) if str(d.target) == case["target"])
    sized = msgspec.structs.replace(device, sm_count=case["sms"])
    return case["family"], msgspec.convert(case["hints"], KernelHints), sized


def answers(preset: Preset) -> list[bool]:
    """Whether the preset gives torch 2.15's result for each case."""
    return [texts(ours(*unpacked(case), preset)) == case["configs"] for case in golden()]


def texts(configs: tuple[Config, ...] | None) -> list[str] | None:
    """Ordered configs as text, ``XBLOCK64 R0_BLOCK8 w4 s1``, or None for a refusal."""
    return None if configs is None else list(map(text, configs))


def text(config: Config) -> str:
    words = sorted({**config.kwargs, **config.options}.items())
    return " ".join([*(f"{k}{v}" for k, v in words), f"w{config.num_warps}", f"s{config.num_stages}"])


@pytest.mark.slow
def test_preset_2_15_answers_as_torch_2_15_did() -> None:
    wrong = [case for case, same in zip(golden(), answers(INDUCTOR_2_15), strict=True) if not same]
    assert not wrong, f"{len(wrong)} differ; the first: {wrong[0]}"
    assert len(golden()) > 1500
    assert answers(INDUCTOR_2_13).count(False) > 100


@pytest.mark.skipif(SOURCES not in os.environ, reason=f"{SOURCES} names no folder with another torch's wheel, unpacked")
def test_the_differential_runs_on_another_release_of_torch() -> None:
    pytest.importorskip("torch", minversion="2.13.0.dev0")
    options = ["--torch-sources", os.environ[SOURCES], "--every", "307", "--no-record"]
    command = [sys.executable, "-m", "benchmarks.heuristics.heuristics_differential", *options]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "newer_hints" in run.stdout


LONG_ROWS = INNER(sizes={"x": 4096, "r0": 8192})
SCALAR = INNER(sizes={"x": 4096, "r0": 1 << 17}, autotune=(AutotuneHint.SCALAR_ACCUMULATORS,))


@pytest.mark.parametrize(
    ("hints", "device", "before", "now"),
    [
        pytest.param(INNER(sizes={"x": 64, "r0": 2048}), MI300, ["X2 R0_2048 w8"], ["X1 R0_2048 w8"],
                     id="a few rows on AMD take one each"),
        pytest.param(LONG_ROWS, B300, ["X1 R0_1024 w8"], ["X1 R0_1024 w8", "X1 R0_4096 w8"],
                     id="sm_103 tries a long step"),
        pytest.param(LONG_ROWS, B200, ["X1 R0_1024 w8"], ["X1 R0_1024 w8"], id="sm_100 tries none"),
        pytest.param(SCALAR, H100, ["X1 R0_2048 w16"], ["X1 R0_4096 w16", "X1 R0_8192 w4", "X1 R0_16384 w8"],
                     id="scalar accumulators take long steps"),
    ],
)  # fmt: skip
def test_what_2_15_proposes_otherwise(
    hints: KernelHints, device: DeviceSpec, before: list[str], now: list[str]
) -> None:
    assert shapes(reduction(hints, device, INDUCTOR_2_13)) == before
    assert shapes(reduction(hints, device, INDUCTOR_2_15)) == now


def test_intel_gpus_tell_no_warp_size_to_one_element_a_thread() -> None:
    hints = KernelHints(sizes={"x": 4096}, autotune=(AutotuneHint.ONE_ELEMENT_PER_THREAD,))
    lists = {
        (p.name, d.target.backend): pointwise(hints, d, p) for p in (INDUCTOR_2_13, INDUCTOR_2_15) for d in (H100, XPU)
    }
    counts = {key: len(configs) for key, configs in lists.items()}
    assert counts["inductor-2.13", "xpu"] == counts["inductor-2.15", "xpu"] + 1
    assert counts["inductor-2.13", "cuda"] == counts["inductor-2.15", "cuda"]


def test_intel_tries_a_wide_tile() -> None:
    wide = ["X64 R0_64 w16", *shapes(reduction(LONG_ROWS, XPU))]
    assert shapes(reduction(LONG_ROWS, XPU, INDUCTOR_2_15)) == wide


def test_x_of_a_mix_order_reduction_divides_its_split() -> None:
    hints = KernelHints(sizes={"x": 4096, "r0": 1024}, rsplit_size=100)
    assert persistent_reduction(hints, H100, INDUCTOR_2_13)[0].kwargs["XBLOCK"] == 3
    assert persistent_reduction(hints, H100, INDUCTOR_2_15)[0].kwargs["XBLOCK"] == 2


def test_descent_keeps_what_a_mix_order_kernel_needs() -> None:
    hints = KernelHints(sizes={"x": 4096, "r0": 1024}, rsplit_size=16, tma_minimums={"x": 4}, makes_descriptors=True)
    config = persistent_reduction(hints, H100, INDUCTOR_2_15)[0]
    assert config.kwargs["NUM_STAGES"] == 1
    found: dict[Preset, list[Any]] = {}
    for preset in (INDUCTOR_2_13, INDUCTOR_2_15):
        around = neighbourhood(config, H100, hints, HeuristicType.PERSISTENT_REDUCTION, preset=preset)
        steps = [c.kwargs for field in around.fields for c in around.neighbours(config, field)]
        found[preset] = [(s["XBLOCK"], s["NUM_STAGES"]) for s in steps if s != config.kwargs]
    assert (2, 1) in found[INDUCTOR_2_13]
    assert (4, 2) in found[INDUCTOR_2_13]
    assert found[INDUCTOR_2_15] == [(8, 1)]


def test_new_gpus_split_shorter_reductions() -> None:
    assert inner_split(1 << 19, 1, B200, INDUCTOR_2_13) == 1
    assert inner_split(1 << 19, 1, B200, INDUCTOR_2_15) > 1
    assert inner_split(32768, 1, B200, INDUCTOR_2_15) == inner_split(40960, B200.sm_count, B200, INDUCTOR_2_15) == 1
    assert inner_split(1 << 19, 1, H100, INDUCTOR_2_15) == inner_split(1 << 19, 1, H100, INDUCTOR_2_13)
