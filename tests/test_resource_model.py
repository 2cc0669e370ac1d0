"""The benchmark that judges the resource model's order."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import resource_model

ROW = {
    "threads": 128,
    "grid": [2112, 1, 1],
    "instructions": {"total": 60, "global_load_128": 2, "global_store_128": 2},
    "registers": 32,
}


def rows(*times: float) -> list[dict[str, Any]]:
    return [{**ROW, "config": f"BLOCK={i} num_stages=2", "time_ns": t, "occupancy": 1.0} for i, t in enumerate(times)]


def test_an_order_is_judged_by_its_best_third() -> None:
    times = [100.0, 104.0, 200.0, 300.0, 400.0, 500.0]
    assert resource_model.judged(times, [2, 1, 0, 3, 4, 5]) == {
        "winner_in_third": 0.0,
        "third_over_best": 1.04,
        "looked_at_until_near": pytest.approx(2 / 6),
    }
    assert resource_model.judged(times, [0, 5, 4, 3, 2, 1])["winner_in_third"] == 1.0


def test_random_finds_the_winner_as_often_as_it_must() -> None:
    found = resource_model.at_random([100.0, *[200.0] * 8])
    assert found["winner_in_third"] == pytest.approx(1 / 3, abs=0.08)


def test_a_sweep_gives_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = rows(*range(100, 108))
    good[0]["instructions"] = {"total": 20, "global_load_128": 2, "global_store_128": 2}
    entry = {"case": "copy[n=1]", "configs": [*good, {"config": "failed", "failure": "no"}, {**good[0], "same_as": 0}]}
    few = {"case": "few[n=1]", "configs": rows(1.0, 2.0)}
    (tmp_path / "in.json").write_text(json.dumps({"environment": {"device": "it"}, "quality": [entry, few]}))
    monkeypatch.setattr(sys, "argv", ["x", str(tmp_path / "out.json"), str(tmp_path / "in.json")])
    assert resource_model.main() == 0
    out = json.loads((tmp_path / "out.json").read_text())
    assert [(c["case"], c["configs"]) for c in out["cases"]] == [("copy[n=1]", 8)]
    assert out["held_out"]["model"]["winner_in_third"] == 1.0
    assert out["chosen_on"] == {}
    assert out["environment"] == {"in.json": {"device": "it"}}
    assert "held_out" in capsys.readouterr().out
