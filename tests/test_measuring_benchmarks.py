"""The scripts that measure the measuring: their analysis on made-up data, their runs on the scripted GPU."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kerntune.gpu.scripted import FakeBackend, Rule, Script

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
SCRIPTS = ("timed_cases", "decision_time", "process_reuse", "timers")


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    found = {name: importlib.import_module(name) for name in SCRIPTS}
    monkeypatch.setattr(found["decision_time"], "environment", dict)
    for name in ("process_reuse", "timers"):
        monkeypatch.setattr(found[name], "environment", dict)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *device: None)
    yield found
    for name in SCRIPTS:
        del sys.modules[name]


def small(scripts: dict[str, Any], *names: str) -> Any:
    """Some of the cases."""
    made = [c for c in scripts["timed_cases"].cases() if c.name in names]
    return lambda: iter(made)


def test_what_processes_add_is_told_from_noise(scripts: dict[str, Any]) -> None:
    random = np.random.default_rng(0)
    noise = random.normal(0, 0.001, (400, 20))
    none = scripts["process_reuse"].figures(noise)
    assert none["sd_between"] < 0.0003
    assert none["p_value"] > 0.01
    some = scripts["process_reuse"].figures(noise + random.normal(0, 0.002, (400, 1)))
    assert some["sd_between"] == pytest.approx(0.002, rel=0.15)
    assert some["sd_within"] == pytest.approx(0.001, rel=0.1)
    assert some["p_value"] < 1e-6


def test_every_pass_is_decided_as_it_says(
    scripts: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, backend = scripts["decision_time"], FakeBackend(Script((Rule(time_ns=20_000.0),)))
    real = module.open_session
    monkeypatch.setattr(module, "open_session", lambda settings: real(settings, backend))
    monkeypatch.setattr(module, "cases", small(scripts, "add[4096]", "softmax[64]"))
    monkeypatch.setattr(sys, "argv", ["decision_time.py", str(tmp_path / "out.json")])
    module.main()
    found = json.loads((tmp_path / "out.json").read_text())
    rungs = {name: {c["rung"] for c in found[name]["cases"].values()} for name in module.PASSES}
    assert rungs == {"recorded": {""}, "identity": {"identity"}, "paired": {"paired replay"}}
    assert {c["verdict"] for c in found["paired"]["cases"].values()} == {"PASS"}


def test_timers_are_compared_on_twins(scripts: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, backend = scripts["timers"], FakeBackend(Script((Rule(time_ns=20_000.0),)))
    monkeypatch.setattr(module, "CudaBackend", lambda: backend)
    monkeypatch.setattr(module, "profiled", lambda backend, work: 20.0)
    out = tmp_path / "out.json"
    monkeypatch.setattr(sys, "argv", ["timers.py", str(out), "--requests", "3", "--cases", "add[4096]"])
    with backend.activate():
        module.main()
    (row,) = json.loads(out.read_text())["cases"].values()
    assert set(row) == {"graph", "events", "profiler"}
    assert row["graph"]["us"] == pytest.approx(20, rel=0.01)
    assert abs(row["events"]["mean"]) < 0.001
