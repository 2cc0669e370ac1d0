"""``KERNTUNE_SHAPES``: a run's calls are noted, and launched untuned."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_runs import THREE, configs, scale_kernel, script

import kerntune
from kerntune.base.tuning_job import TuningJob
from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning import context
from kerntune.tuning.many import shapes_file
from kerntune.tuning.many.shapes_file import ShapesFile
from tuning.many import kernels


@pytest.fixture
def backend(this_gpu: FakeBackend) -> FakeBackend:
    script(this_gpu, *THREE)
    for kernel in (kernels.scaled, kernels.plain, kernels.proposed_kernel):
        kernel.cache.clear()
    return this_gpu


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "shapes.jsonl"
    monkeypatch.setenv(shapes_file.SHAPES, str(path))
    return path


def noted(path: Path) -> list[TuningJob]:
    jobs, damaged = ShapesFile(path).read()
    assert damaged == []
    return jobs


def test_the_first_config_is_launched_and_nothing_tuned(
    backend: FakeBackend, file: Path, launches: list[dict[str, Any]]
) -> None:
    for n in (1000, 1000, 2000):
        kernels.scale(n)
    assert [launch["BLOCK"] for launch in launches] == [64, 64, 64]
    assert backend.gpu.launches == 0, "none was timed"
    jobs = noted(file)
    assert [(j.module, j.kernel, j.key) for j in jobs] == [
        ("tuning.many.kernels", "scaled", f"({n}, 'torch.float32', 'torch.float32')") for n in (1000, 2000)
    ]
    assert jobs[0].file.endswith("fake_runs.py")


def test_a_stored_winner_is_launched(
    backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launches: list[dict[str, Any]]
) -> None:
    kernels.scale(1000)
    kernels.scaled.cache.clear()
    launches.clear()
    monkeypatch.setenv(shapes_file.SHAPES, str(tmp_path / "s"))
    kernels.scale(1000)
    assert [launch["BLOCK"] for launch in launches] == [128]
    assert len(noted(tmp_path / "s")) == 1, "it is a key of the run all the same"


@pytest.mark.parametrize("mode", ["frozen", "force", "auto", "nearest"])
def test_no_mode_tunes_then(backend: FakeBackend, file: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setenv("KERNTUNE_TUNE", mode)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        kernels.scale(1000)
    assert backend.gpu.launches == 0
    assert len(noted(file)) == 1


def test_tritons_own_tuner_under_install(backend: FakeBackend, file: Path) -> None:
    with kerntune.install():
        kernels.plain[kernels.grid(512)](torch.empty(512, device="cuda"), 512)
    assert [job.kernel for job in noted(file)] == ["plain"]
    assert backend.gpu.launches == 0


def test_a_heuristics_kernel_is_noted_with_its_proposals(backend: FakeBackend, file: Path) -> None:
    kernels.proposed_kernel[kernels.grid(100_000)](torch.empty(100_000, device="cuda"), 100_000)
    (job,) = noted(file)
    assert job.rounded
    assert len(job.grid.by_meta) >= 1
    assert set(job.grid.by_meta) == {f"BLOCK={c.kwargs['BLOCK']}" for c in proposals()}


def proposals() -> tuple[Any, ...]:
    return kernels.proposed_kernel.candidates(torch.empty(100_000, device="cuda"), 100_000)


def test_a_config_that_does_not_fit_gives_way(
    backend: FakeBackend, file: Path, launches: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from triton.runtime.errors import OutOfResources
    from triton.runtime.jit import JITFunction

    below = JITFunction.run

    def run(kernel: Any, *args: Any, **words: Any) -> Any:
        if words["BLOCK"] == 64:
            raise OutOfResources(2, 1, "shared memory")
        return below(kernel, *args, **words)

    monkeypatch.setattr(JITFunction, "run", run)
    kernels.scale(1000)
    kernels.scale(1000)
    assert [launch["BLOCK"] for launch in launches] == [128, 128]


def test_without_a_gpu_nothing_is_tuned_either(
    backend: FakeBackend, file: Path, monkeypatch: pytest.MonkeyPatch, launches: list[dict[str, Any]]
) -> None:
    """An AMD GPU, say, on which Triton's own engine would tune."""
    monkeypatch.setattr(context, "this_gpu", lambda: None)
    kernels.scale(1000)
    assert [launch["BLOCK"] for launch in launches] == [64]
    assert len(noted(file)) == 1


def test_what_cannot_be_noted_is_a_warning_and_the_run_goes_on(
    backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launches: list[dict[str, Any]]
) -> None:
    shapes_file._warn.cache_clear()
    monkeypatch.setenv(shapes_file.SHAPES, str(tmp_path / "no" / "s"))
    with pytest.warns(RuntimeWarning, match="no/s: can't be written"):
        kernels.scale(1000)
    monkeypatch.setenv(shapes_file.SHAPES, str(tmp_path / "s"))
    local = kerntune.autotune(configs(64, 128), key=["n"])(scale_kernel)
    with pytest.warns(RuntimeWarning, match="is noted, but can't be tuned from .*top level of a module"):
        kernels.scale(1000, local)
    assert len(launches) == 2
    assert noted(tmp_path / "s")[0].unknown


def test_no_file_no_notes(backend: FakeBackend) -> None:
    assert not shapes_file.noting()
    kernels.scale(1000)
    assert backend.gpu.launches > 0
