"""The inductor-2.6 preset against results of torch 2.6.0's functions (golden/inductor_2_6.json)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kerntune.base.config import Config
from kerntune.base.device import TYPICAL_DEVICES
from kerntune.errors import HintError
from kerntune.heuristics import (
    INDUCTOR_2_6,
    INDUCTOR_2_13,
    INDUCTOR_2_15,
    MEASURED_2026,
    PRESETS,
    cooperative_reduction,
    pointwise,
)
from kerntune.heuristics.hints import KernelHints, Modes, ReductionHint, TileHint

from .inductor_cases import PROPOSALS

GOLDEN: list[dict[str, Any]] = json.loads((Path(__file__).parent / "golden" / "inductor_2_6.json").read_text())
"""What the functions of torch 2.6.0's wheel answer, written by ``tests/heuristics/make_golden_inductor_2_6.py`` of
commit 2adbcecd."""

BEYOND = 1 << 34
"""From here on 2.6 raises errors where this preset gives configs: test_tiles_left_out_refuse_nothing."""


def hints_of(case: dict[str, Any]) -> KernelHints:
    mode = case["mode"]
    return KernelHints(
        sizes={("r0" if axis == "r" else axis): size for axis, size in case["sizes"].items()},
        reduction=ReductionHint[case.get("hint", "DEFAULT")],
        tile=TileHint[case.get("tile", "DEFAULT")],
        loads=case.get("loads", 0),
        min_elements_per_thread=case.get("min_elements", 0),
        modes=Modes(
            max_autotune=mode.get("max_autotune", False),
            autotune_pointwise=mode.get("autotune_pointwise", True),
            deterministic=mode.get("are_deterministic_algorithms_enabled", False),
        ),
    )


def proposed(case: dict[str, Any]) -> list[str] | None:
    """Our configs in the golden file's form; 2.6 called R0_BLOCK RBLOCK."""
    try:
        configs = PROPOSALS[case["family"]](hints_of(case), TYPICAL_DEVICES[case["target"]], INDUCTOR_2_6)
    except HintError:
        return None
    return [_text(c) for c in configs]


def _text(config: Config) -> str:
    named = {name.removesuffix("BLOCK").removesuffix("0_"): value for name, value in config.kwargs.items()}
    blocks = [f"{name}{named[name]}" for name in sorted(named)]
    return " ".join([*blocks, f"w{config.num_warps}", f"s{config.num_stages}"])


@pytest.mark.parametrize("family", PROPOSALS)
def test_preset_2_6_answers_as_torch_2_6_did(family: str) -> None:
    cases = [case for case in GOLDEN if case["family"] == family and case["sizes"]["x"] < BEYOND]
    wrong = [(case, mine) for case in cases if (mine := proposed(case)) != case["configs"]]
    assert not wrong, f"{len(wrong)} of {len(cases)} differ; the first: {wrong[0]}"
    assert len(cases) > 200
    assert sum(case["configs"] is not None for case in cases) > 100


def test_presets_are_found_by_name() -> None:
    assert set(PRESETS.values()) == {INDUCTOR_2_6, INDUCTOR_2_13, INDUCTOR_2_15, MEASURED_2026}
    assert list(PRESETS) == [preset.name for preset in PRESETS.values()]


def test_presets_disagree_where_they_should() -> None:
    device = TYPICAL_DEVICES["cuda:90"]
    volume = KernelHints(sizes={"x": 4096, "y": 64, "z": 64})
    assert (len(pointwise(volume, device, INDUCTOR_2_6)), len(pointwise(volume, device))) == (7, 1)
    few_rows = KernelHints(sizes={"x": 2, "r0": 1 << 20})
    assert cooperative_reduction(few_rows, device, INDUCTOR_2_6)[0].kwargs["RSPLIT"] == 32
    assert cooperative_reduction(few_rows, device, INDUCTOR_2_13)[0].kwargs["RSPLIT"] == 64
