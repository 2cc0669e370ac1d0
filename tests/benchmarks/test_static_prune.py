"""The script that tunes with and without pruning, on the scripted GPU."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from benchmarks import static_prune
from benchmarks.suite.cases import CASES
from kerntune.tuning import autotuner_run, context


def test_each_variant_says_who_was_left_out_and_who_won(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transpose = CASES["transpose"]
    few = dataclasses.replace(transpose, configs=lambda shape: transpose.configs(shape)[:4])
    monkeypatch.setitem(static_prune.CASES, "transpose", few)
    monkeypatch.setattr(context, "this_gpu", context.this_gpu)  # put back afterwards
    monkeypatch.setattr(sys, "argv", ["x", str(tmp_path / "out.json"), "transpose", "--dry"])
    tune_call = autotuner_run.tune_call
    assert static_prune.main() == 0
    assert autotuner_run.tune_call is tune_call
    (case,) = json.loads((tmp_path / "out.json").read_text())["cases"]
    assert (case["case"], case["configs"]) == ("transpose[rows=1024 cols=1024]", 4)
    assert list(case["variants"]) == list(static_prune.VARIANTS)
    assert [case["variants"][v]["left_out"] for v in ("off", "50%", "25%")] == [0, 2, 3]
    for row in case["variants"].values():
        assert row["seconds"] > 0
        assert 1 <= row["predicted_rank"] <= 4
        assert row["winner_ns"] == pytest.approx(10_000.0, rel=0.01)
