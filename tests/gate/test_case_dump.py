"""``KERNTUNE_DUMP`` under the gate: each launch of each case, with the configs that were tuned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_runs import N, block, by_block, increment_kernel, scale, tuned

from gate.project import Project
from kerntune.base.policy import Verdict


@pytest.fixture
def dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNTUNE_DUMP", str(tmp_path / "dump"))
    return tmp_path / "dump"


def launches(dump: Path) -> list[dict[str, Any]]:
    return [json.loads(p.read_text()) for p in sorted(dump.glob("*/*/launch.json"))]


def two() -> None:
    y = scale(tuned(64, 128))
    increment_kernel[by_block](y, N, BLOCK=64)


@pytest.mark.slow
def test_each_launch_of_a_case_is_dumped_as_tuned(project: Project, dump: Path) -> None:
    with project.run(block(64, 3000.0), block(128, 1000.0)) as run:
        run.judge(two)
    (place,) = dump.iterdir()
    assert place.name.startswith("tests-test_scale.py-test_scale-cuda-90-")
    assert sorted(p.name for p in place.iterdir()) == ["00-scale_kernel", "01-increment_kernel"]
    first, second = launches(dump)
    assert first["config"]["kwargs"] == {"BLOCK": 128}
    assert (first["case"], first["grid"], second["grid"]) == ("tests/test_scale.py::test_scale", [32, 1, 1], [64, 1, 1])
    assert [s["content"]["kind"] for s in first["storages"]] == ["normal", "normal"]
    assert [(s["read"], s["written"]) for s in first["storages"]] == [(True, False), (False, True)], "of this launch"
    assert len(second["storages"]) == 1, "only what the launch itself uses"
    assert "def increment_kernel" in (place / "01-increment_kernel" / "kernel.py").read_text()


@pytest.mark.slow
def test_all_bytes_are_those_of_each_launch(project: Project, dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNTUNE_DUMP_CONTENT", "recorded")
    with project.run() as run:
        run.judge(two)
    first, second = sorted(dump.glob("*/0*"))
    wrote = (first / "expected-1.bin").read_bytes()
    found = json.loads((second / "launch.json").read_text())
    assert found["expected"] == [{"storage": 0, "file": "expected-0.bin"}]
    (content,) = second.glob("content-*.bin")
    assert content.read_bytes() == wrote, "the second finds what the first left"
    assert (second / "expected-0.bin").read_bytes() != wrote


def test_without_a_gpu_each_target_is_dumped(project: Project, dump: Path) -> None:
    with project.static_run("cuda:90", "hip:gfx942") as run:
        run.check(lambda: scale(tuned(64)))
    files = {p.name for p in dump.glob("*/*/*")}
    assert {"kernel.cubin", "kernel.sass", "kernel.ptx", "replay.py", "kernel.hsaco", "kernel.amdgcn"} <= files
    assert {x["arch"] for x in launches(dump)} == {"sm_90a", "gfx942"}
    assert not any(p.parent.joinpath("replay.py").exists() for p in dump.glob("*/*/kernel.hsaco"))
    assert all(s["content"]["kind"] == "normal" for x in launches(dump) for s in x["storages"])


def test_a_folder_that_can_not_be_written_changes_no_verdict(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KERNTUNE_DUMP", str(tmp_path / "file" / "dump"))
    with project.run() as run:
        timed = run.judge(two)
    with project.static_run("cuda:90") as run:
        (static,) = run.check(two).results
    for result in (timed, static):
        assert result.verdict is Verdict.NEW
        assert [w for w in result.warnings if w.startswith("not all launches were dumped: ")]


def test_nothing_is_dumped_by_default(project: Project) -> None:
    with project.run() as run:
        run.judge(two)
    assert not (project.root / "dump").exists()
