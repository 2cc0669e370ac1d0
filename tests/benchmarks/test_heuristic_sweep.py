"""The heuristics' sweep without a GPU: what it compiles, and presets judged by stored times."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.suite.case import config_text
from benchmarks.suite.proposed_cases import PROPOSED
from kerntune import compat
from kerntune.backend.static import StaticBackend
from kerntune.compile import Compiler
from kerntune.device import Target

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "heuristic_sweep.py"


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("heuristic_sweep", FILE)
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def backend() -> Iterator[StaticBackend]:
    found = StaticBackend((Target.parse("cuda:90"),))
    with found.activate():
        yield found


def stored(name: str, sets: str = "default") -> dict[str, Any]:
    """A made-up result of one kernel: the first proposal takes 110 ns, everything else 200, one other config 100."""
    case = PROPOSED[name]
    configs, proposals = case.configs(case.call(case.shape, "cuda"))
    rows = [{"config": config_text(compat.triton_config(c)), "time_ns": 200.0} for c in configs]
    rows[0]["time_ns"], rows[-1]["time_ns"] = 110.0, 100.0
    return {"kernel": name, "family": case.family, "proposals": proposals, "configs": rows}


def test_a_sweep_holds_the_proposals_at_the_places_that_it_says(script: Any, backend: StaticBackend) -> None:
    compiler = Compiler()
    case = PROPOSED["gelu_1d"]
    try:
        found, head = script.swept(backend, compiler, case, most=12)
    finally:
        compiler.close()
    wanted = [config_text(compat.triton_config(c)) for c in case.proposals(case.call(case.shape, "cuda"))]
    assert [found.swept[i].config for i in head["proposals"]["default"]] == wanted
    assert len(found.swept) == 12
    assert all(s.compiled is not None for s in found.swept)


def test_a_preset_is_judged_by_stored_times(script: Any, backend: StaticBackend) -> None:
    (row,) = script.judged({"kernels": [stored("sums_inner")]}, "inductor-2.13", False)
    texts = [row["configs"][i]["config"] for i in row["proposals"]["inductor-2.13"]]
    case = PROPOSED["sums_inner"]
    assert texts == [config_text(compat.triton_config(c)) for c in case.proposals(case.call(case.shape, "cuda"))]


def test_a_proposal_that_was_not_swept_is_told(
    script: Any, backend: StaticBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    result = stored("sums_inner")
    gone = result["configs"].pop(result["proposals"]["default"][0])["config"]
    (row,) = script.judged({"kernels": [result]}, "inductor-2.13", False)
    assert f"sums_inner: {gone} is proposed, but was not swept" in capsys.readouterr().out
    assert len(row["proposals"]["inductor-2.13"]) == len(result["proposals"]["default"]) - 1


def test_results_are_merged_in_the_suites_order(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "environment", dict)  # stand-ins of other tests say that there is a GPU
    options = argparse.Namespace(out=tmp_path / "out.json", shapes="tuned")
    script.write(options, [{"kernel": "matmul", "run": 1}, {"kernel": "blend_1d", "run": 1}])
    script.write(options, [{"kernel": "matmul", "run": 2}, {"kernel": "gelu_1d", "run": 2}])
    kept = json.loads(options.out.read_text())["kernels"]
    assert [(row["kernel"], row["run"]) for row in kept] == [("gelu_1d", 2), ("blend_1d", 1), ("matmul", 2)]
