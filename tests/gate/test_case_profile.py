"""``--kerntune-profile``: a Chrome trace of each case, with the configs that won."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from fake_runs import N, block, by_block, increment_kernel, scale, tuned

from gate.project import Project
from kerntune.base.policy import Verdict
from kerntune.kernels import compat


def trace_of(folder: Path) -> dict[str, Any]:
    (path,) = folder.iterdir()
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def two() -> None:
    y = scale(tuned(64, 128))
    increment_kernel[by_block](y, N, BLOCK=64)


def test_each_case_has_a_valid_trace(project: Project, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    with project.run(block(64, 3000.0), block(128, 1000.0), profile=folder) as run:
        run.judge(two)
    found = trace_of(folder)
    assert next(folder.iterdir()).name.startswith("tests-test_scale.py-test_scale-")
    assert found["case"] == "tests/test_scale.py::test_scale"
    assert found["launches"].startswith("scale_kernel BLOCK=128 num_warps=4 num_stages=3 grid=(32, 1, 1); increment")
    events = found["traceEvents"]
    assert events
    assert all(isinstance(e["ph"], str) and isinstance(e["name"], str) for e in events), "as the format asks"
    complete = [e for e in events if e["ph"] == "X"]
    assert complete
    assert all(e["dur"] >= 0 and e["ts"] >= 0 and "pid" in e and "tid" in e for e in complete)


def test_the_tensors_stay_as_they_are(project: Project, tmp_path: Path) -> None:
    """The function runs twice more; what it writes is put back."""
    made: list[Any] = []

    def keep() -> None:
        made.append(scale(tuned(64)))

    with project.run(profile=tmp_path / "traces") as run:
        run.judge(keep)
    assert len(made) == 3


def test_a_function_that_can_not_be_called_again_keeps_its_verdict(project: Project, tmp_path: Path) -> None:
    calls: list[int] = []

    def once() -> None:
        calls.append(1)
        if len(calls) > 1:
            raise ValueError("called again")
        scale(tuned(64))

    with project.run(profile=tmp_path / "traces") as run:
        result = run.judge(once)
    assert result.verdict is Verdict.NEW
    assert result.warnings == ("no trace was written: ValueError: called again",)


def test_no_trace_is_written_unasked(project: Project) -> None:
    with project.run() as run:
        run.judge(two)
    assert not (project.root / "traces").exists()


def test_a_case_without_work_has_none(project: Project, tmp_path: Path) -> None:
    with project.run(profile=tmp_path / "traces") as run:
        run.judge(lambda: increment_kernel[(0,)](torch.empty(N, device="cuda"), N, BLOCK=64))
    assert not (tmp_path / "traces").exists()


def test_streams_are_asked_of_triton() -> None:
    assert compat.current_stream() is None or isinstance(compat.current_stream(), int)
