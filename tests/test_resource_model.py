"""The benchmark that evaluates the resource model's order."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import foresight_figures, recorded_sweeps, replayed_uses, resource_model
from benchmarks.recorded_sweeps import H200, Recorded
from kerntune.base.config import Config
from kerntune.static.prediction import Figures
from kerntune.static.resource_model import cost

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
    assert out["looks"]["model_ms"] == out["looks"]["random_ms"], "none is so slow that one execution shows it"
    assert out["pruning"]["sweeps"]["configs"] == 8
    assert out["search"]["cases"] == []
    assert "held_out" in capsys.readouterr().out


# what it is worth where it is used


def swept(*times: float, **more: Any) -> Recorded:
    entries = [{**r, "config": f"BLOCK={2**i} num_warps=4", **more} for i, r in enumerate(rows(*times))]
    return Recorded("copy", "copy[n=1]", entries, {"default": [0, 3]})


def test_rows_are_read_as_the_tuner_sees_candidates() -> None:
    case = swept(100.0, 200.0, spill_store_bytes=8, spill_load_bytes=16)
    assert recorded_sweeps.config(case.rows[1]) == Config({"BLOCK": 2})
    found = recorded_sweeps.figures(case.rows[0])
    assert (found.spill_bytes, found.occupancy) == (24, 1.0)
    assert found.cost == pytest.approx(cost(recorded_sweeps.candidate(case.rows[0]), H200))


def test_proposals_go_by_the_configs_whose_code_they_share(tmp_path: Path) -> None:
    """Configs 1 and 3 were not timed for themselves: one failed, one is the same code as the first."""
    configs = [*rows(*range(100, 108))]
    configs[1] = {"config": "BLOCK=1", "failure": "no"}
    configs[3] = {**configs[0], "same_as": 0}
    entry = {"kernel": "copy", "shape": {"n": 1}, "proposals": {"default": [1, 3, 4]}, "configs": configs}
    (tmp_path / "in.json").write_text(json.dumps({"kernels": [entry]}))
    (case,) = recorded_sweeps.recorded(tmp_path / "in.json")
    assert (case.kernel, case.name, case.proposals) == ("copy", "copy[n=1]", {"default": [0, 2]})
    assert case.times == [100.0, 102.0, 104.0, 105.0, 106.0, 107.0]


def test_looks_at_the_hopeless_are_short_after_a_good_one() -> None:
    found = replayed_uses.looks([swept(1e6, 40e6)], lambda case: [0, 1])
    assert found["model_ms"] == 44.0
    assert found["random_ms"] == pytest.approx((44.0 + 164.0) / 2, rel=0.1)


def test_pruning_says_what_is_left_out_and_lost() -> None:
    case = swept(100.0, 90.0, 300.0, 200.0)
    case.rows[1] |= {"spill_store_bytes": 8}
    rules = replayed_uses.pruned([case], {case.name: range(4)})["rules"]
    assert rules["spills"] == {"left_out": 0.25, "worst_loss": 0.1111, "lost": {"copy[n=1]": 0.1111}}
    assert rules["80%"]["worst_loss"] == 0.0
    assert replayed_uses.pruned([case], {case.name: case.proposals["default"]})["configs"] == 2


def test_searches_over_a_sweep_find_its_best() -> None:
    found = replayed_uses.searched(swept(*(100.0 + 10 * i for i in range(20))))
    assert found["configs"] == 20
    assert 1 <= found["plain"]["near"] == found["plain"]["as_good"] <= 20
    assert found["plain"]["predicted_until_near"] == 0
    assert found["predicted"]["predicted_until_near"] >= found["predicted"]["near"]


def test_the_space_of_a_sweep_holds_its_configs_and_no_others() -> None:
    case = swept(*range(100, 110))
    case.rows[4]["config"] = "BLOCK=2 num_warps=8 maxnreg=64"
    space = replayed_uses.space_of(case)
    assert {c.key() for c in space.configs()} == {recorded_sweeps.config(r).key() for r in case.rows}


def test_what_is_foreseen_is_held_against_the_machine_code() -> None:
    case = swept(100.0, 200.0, 300.0, 400.0)
    names = [row["config"] for row in case.rows]
    right = {name: Figures(float(i + 1), 0, 1.0) for i, name in enumerate(names)}
    wrong = {name: Figures(float(9 - i), 8 if i == 0 else 0, 1.0) for i, name in enumerate(names[:3])}
    both = foresight_figures.compared(case, wrong, right)
    assert both["configs"] == 3, "those that both sides have"
    assert (both["machine code"]["looked_at_until_near"], both["foreseen"]["looked_at_until_near"]) == (0.3333, 1.0)
    assert both["machine code"]["losses"]["50%"] == 0.0
    assert (both["foreseen"]["losses"]["spills"], both["foreseen"]["losses"]["33%"]) == (1.0, 2.0)
    assert foresight_figures.summary([both], "foreseen")["worst_loss"] == both["foreseen"]["losses"]
