"""``kerntune calibrate`` on the scripted GPU: from the stored files alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from fake_runs import N, block, by_block, scale_kernel
from gate.project import Project

from kerntune.base.codec import to_json
from kerntune.base.device import Target
from kerntune.cli import calibrate
from kerntune.cli.command import main
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import TimeBaseline
from kerntune.gpu.fake_cuda.static_backend import StaticBackend
from kerntune.gpu.script import Script
from kerntune.gpu.scripted import FakeBackend

NODES = ("tests/test_a.py::test_a", "tests/test_b.py::test_b")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Two cases without calibrations."""
    made = Project(tmp_path)
    with made.run(block(64, 10_000.0), calibrate=False) as run:
        for node in NODES:
            call: Any = lambda x: scale_kernel[by_block](x, torch.empty_like(x), N, 2.0, BLOCK=64)  # noqa: E731
            run.judge(call, torch.randn(N, device="cuda"), node=node)
    return made


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    backend = FakeBackend(Script((block(64, 10_000.0),), noise=0.002))
    monkeypatch.setattr(calibrate, "compiled_targets", lambda targets, known: ())
    monkeypatch.setattr(calibrate, "find_backend", lambda targets: backend)
    return backend


def baselines(project: Project) -> list[TimeBaseline]:
    store = BaselineStore(project.baselines)
    return [b for p in store.time_files() if (b := store.read(p)) is not None]


def command(project: Project, *args: str) -> int:
    return main(["calibrate", f"--baselines={project.baselines}", *args])


@pytest.mark.slow
def test_every_case_is_calibrated(project: Project, device: FakeBackend, capsys: pytest.CaptureFixture[str]) -> None:
    before = baselines(project)
    assert [b.calibration for b in before] == [None, None]
    assert command(project) == 0
    after = baselines(project)
    assert all(b.calibration and 0 < b.calibration.floor < 0.02 for b in after)
    assert [msgspec.structs.replace(b, calibration=None) for b in after] == before, "nothing else changes"
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in lines] == list(NODES)
    assert "can be told, process bias 0." in lines[0]


def test_a_case_and_a_number_of_processes(project: Project, device: FakeBackend) -> None:
    assert command(project, "--case=test_b", "--processes=2") == 0
    first, second = (b.calibration for b in baselines(project))
    assert first is None
    assert second
    assert second.processes == 2


def test_noise_is_named(project: Project, device: FakeBackend, capsys: pytest.CaptureFixture[str]) -> None:
    device.gpu.script.noise = 0.8  # a graph's mean over 200 launches leaves a fourteenth of it
    assert command(project) == 0
    assert "too noisy for a tolerance of 2%" in capsys.readouterr().out


def test_a_case_that_cant_run_is_a_finding(
    project: Project, device: FakeBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    store = BaselineStore(project.baselines)
    path, made = store.time_files()[0], baselines(project)[0]
    hidden = msgspec.structs.replace(made, recording=msgspec.structs.replace(made.recording, hidden_pointers=True))
    path.write_bytes(to_json(hidden))
    assert command(project) == 1
    assert f"{NODES[0]}: its memory holds addresses" in capsys.readouterr().err
    assert baselines(project)[1].calibration is not None
    (store.artifacts(made.device.target).folder / f"{made.recording.binaries[0].sha256}.xz").unlink()
    assert command(project, "--case=test_b") == 1
    assert "is not stored here" in capsys.readouterr().err


def test_too_few_processes(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(project, "--processes=1") == 2
    assert "give 2 or more" in capsys.readouterr().err


def test_without_a_gpu(project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    backend = StaticBackend(Target.parse("cuda:90"))
    monkeypatch.setattr(calibrate, "compiled_targets", lambda targets, known: ())
    monkeypatch.setattr(calibrate, "find_backend", lambda targets: backend)
    assert command(project) == 2
    assert "no GPU here" in capsys.readouterr().err


def test_nothing_stored(tmp_path: Path, device: FakeBackend, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", f"--baselines={tmp_path}"]) == 0
    assert "has no time baselines of Fake GPU" in capsys.readouterr().err
