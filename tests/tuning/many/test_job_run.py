"""One job in one process: the kernel is imported, arguments are made, and the winner is that of the described call."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from fake_runs import THREE, block, increment_kernel, script

from kerntune.base.config import Config
from kerntune.base.policy import TuneMode
from kerntune.base.tuning_job import TuningJob
from kerntune.gpu.script import ILLEGAL_ADDRESS, Rule
from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning import isolation
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.many.describing import describe
from kerntune.tuning.many.job_run import (
    JobEnd,
    JobRequest,
    KeyOutcome,
    _look_in,
    _settings,
    encoded,
    outcome_for,
    outcome_of,
    run_job,
)
from kerntune.tuning.many.tune_many import tuning_job
from tuning.many import kernels

TUNERS = (kernels.scaled, kernels.plain, kernels.unkept, kernels.single, kernels.proposed_kernel)


@pytest.fixture
def backend(this_gpu: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    script(this_gpu, *THREE)
    for kernel in TUNERS:
        kernel.cache.clear()
    return this_gpu


def job(n: int = 1000, kernel: Any = kernels.scaled, **words: Any) -> TuningJob:
    return tuning_job(kernel, kernels.grid(n), *kernels.pair(n, **words), n, 2.0)


def run(one: TuningJob, **words: Any) -> KeyOutcome:
    return outcome_of(run_job(encoded(JobRequest(one, **words))))


def test_the_winner_is_stored_where_the_call_finds_it(
    backend: FakeBackend, tmp_path: Path, launches: list[dict[str, Any]]
) -> None:
    found = run(job())
    assert (found.ended, found.error, found.notes) == (JobEnd.TUNED, "", ())
    assert found.config == "BLOCK=128 num_warps=4 num_stages=3"
    assert found.time_ns == pytest.approx(1000, rel=0.01)
    assert (found.pid, found.device, found.spoiled) == (os.getpid(), "Fake GPU", False)
    assert found.winner in WinnerCache(tmp_path).entries()
    kernels.scaled.cache.clear()
    gpu = script(backend, *THREE)
    launches.clear()
    kernels.scale(1000)
    assert gpu.launches == 0, "the call itself finds it"
    assert [launch["BLOCK"] for launch in launches] == [128]


def test_a_stored_winner_is_not_tuned_again_unless_forced(backend: FakeBackend) -> None:
    first = run(job())
    gpu = script(backend, *THREE)
    again = run(job())
    assert (again.ended, again.config, again.winner) == (JobEnd.STORED, first.config, first.winner)
    assert gpu.launches == 0
    script(backend, block(64, 100.0), *THREE[1:])
    forced = run(job(), force=True)
    assert (forced.ended, forced.config) == (JobEnd.TUNED, "BLOCK=64 num_warps=4 num_stages=3")


def test_two_calls_that_one_tuner_takes_for_the_same_are_two_keys(backend: FakeBackend, tmp_path: Path) -> None:
    """Its own key has sizes and dtypes alone; the store's has the strides."""
    wide = torch.empty(2000, device="cuda")[::2]
    other = tuning_job(kernels.scaled, kernels.grid(1000), wide, kernels.pair(1000)[1], 1000, 2.0)
    assert other.key == job().key
    assert [run(one).ended for one in (job(), other)] == [JobEnd.TUNED] * 2
    assert len(WinnerCache(tmp_path).entries()) == 2


def test_tritons_own_tuner_needs_no_install(backend: FakeBackend, tmp_path: Path) -> None:
    one = tuning_job(kernels.plain, kernels.grid(512), torch.empty(512, device="cuda"), 512)
    assert run(one).ended is JobEnd.TUNED
    assert [w.key.kernel for w in WinnerCache(tmp_path).entries()] == ["increment_kernel"]


def test_heuristics_on_either_side_of_the_tuner(backend: FakeBackend, tmp_path: Path) -> None:
    x = torch.empty(512, device="cuda")
    below = describe(kernels.below_kernel, (x, 512), {"grid": kernels.grid(512)})
    above = describe(kernels.above_kernel.fn, (x, 512), {"EVEN": True, "grid": kernels.grid(512)})
    assert [run(one).ended for one in (below, above)] == [JobEnd.TUNED] * 2


def test_a_proposal_is_tuned_for_the_described_sizes(backend: FakeBackend, tmp_path: Path) -> None:
    one = tuning_job(kernels.proposed_kernel, kernels.grid(100_000), torch.empty(100_000, device="cuda"), 100_000)
    found = run(one)
    assert found.ended in (JobEnd.TUNED, JobEnd.NOTHING)
    assert found.error == ""


def test_a_decorators_mode_and_patience_do_not_count(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNTUNE_TUNE", "frozen")
    monkeypatch.delenv("KERNTUNE_PATIENCE")
    assert run(job()).ended is JobEnd.TUNED
    assert "tune_mode" not in vars(kernels.scaled) or kernels.scaled.tune_mode is None
    assert kernels.scaled.patience is None, "the tuner is as it was"


def test_candidates_of_a_marker(backend: FakeBackend, tmp_path: Path) -> None:
    """A kernel without a tuner, as ``pytest --kerntune`` tunes it."""
    among = (Config({"BLOCK": 64}), Config({"BLOCK": 128}))
    x = torch.empty(512, device="cuda")
    one = describe(increment_kernel, (x, 512), {"BLOCK": 64, "grid": kernels.grid(512)}, among)
    assert one.unknown == ""
    assert (run(one).config, run(one).ended) == ("BLOCK=128 num_warps=4 num_stages=3", JobEnd.STORED)
    (winner,) = WinnerCache(tmp_path).entries()
    assert winner.key.configs == among
    assert run(one, force=True).ended is JobEnd.TUNED


# nothing to do, and what goes wrong


def test_a_single_config_has_nothing_to_tune(backend: FakeBackend) -> None:
    assert run(job(kernel=kernels.single)).ended is JobEnd.NOTHING


def test_an_empty_grid_has_nothing_to_tune(backend: FakeBackend) -> None:
    one = tuning_job(kernels.scaled, (0,), *kernels.pair(4), 4, 2.0)
    found = run(one)
    assert found.ended is JobEnd.NOTHING
    assert any("its grid is empty" in note for note in found.notes)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"module": "no_such_module_here"}, "there is no module no_such_module_here"),
        ({"kernel": "gone"}, "no kernel of that name"),
        ({"unknown": "it can't be described"}, "it can't be described"),
    ],
)
def test_errors_name_kernel_key_and_file(backend: FakeBackend, changed: dict[str, str], says: str) -> None:
    found = run(msgspec.structs.replace(job(), **changed))
    assert found.ended is JobEnd.FAILED
    assert not found.good
    for part in (says, changed.get("kernel", "scaled"), "fake_runs.py", "(1000, 'torch.float32'"):
        assert part in found.error


def test_a_module_that_fails_is_named(backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_module_of_mine.py").write_text("raise SystemError('no luck')\n")
    monkeypatch.setattr("sys.path", [*os.sys.path])  # type: ignore[attr-defined]
    found = run(msgspec.structs.replace(job(), module="broken_module_of_mine"), paths=(str(tmp_path),))
    assert "importing broken_module_of_mine failed: SystemError: no luck" in found.error


def test_paths_come_first_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", ["/before", "/there"])
    _look_in(("/first", "/there", "/second"))
    assert sys.path == ["/first", "/second", "/before", "/there"]


def test_no_config_that_works_is_a_failure_with_reasons(backend: FakeBackend) -> None:
    script(backend, *(block(size, fails="too much shared memory") for size in (64, 128, 256)))
    found = run(job())
    assert found.ended is JobEnd.FAILED
    assert "too much shared memory" in found.error
    assert not found.spoiled


def test_a_device_that_is_lost_is_said(backend: FakeBackend) -> None:
    script(backend, Rule(fault=ILLEGAL_ADDRESS))
    assert run(job()).spoiled


def test_without_a_gpu(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    from kerntune.tuning import context

    monkeypatch.setattr(context, "this_gpu", lambda: None)
    found = run(job())
    assert "kerntune finds no GPU to measure on" in found.error
    assert (found.config, found.time_ns, found.winner, found.notes, found.device) == ("", 0.0, None, (), "")
    assert (found.spoiled, found.given_out, found.pid, found.seconds > 0) == (False, 1, os.getpid(), True)


def test_a_process_that_notes_tunes_nothing(
    backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = job()
    monkeypatch.setenv("KERNTUNE_SHAPES", str(tmp_path / "s"))
    assert "KERNTUNE_SHAPES is set in this process" in run(one).error


def test_warnings_of_a_tuning_come_along(backend: FakeBackend) -> None:
    script(backend, block(64, 3000.0), block(128, 1000.0, wrong=True), block(256, 2000.0))
    found = outcome_for(JobRequest(job()))
    assert found.config == "BLOCK=256 num_warps=4 num_stages=3"
    assert any("BLOCK=128" in note for note in found.notes)


def test_a_kernel_whose_contents_decide_its_addresses_is_said(backend: FakeBackend) -> None:
    index, x = torch.empty(512, device="cuda", dtype=torch.int32), torch.empty(512, device="cuda")
    found = run(tuning_job(kernels.gather_kernel, kernels.grid(512), index, x, 512))
    assert found.ended is JobEnd.TUNED
    assert len(found.notes) == 1
    for part in ("kernel gather_kernel", "kernels.py", "decides which memory it touches", "in the program itself"):
        assert part in found.notes[0]


def test_other_configs_than_noted_still_race(backend: FakeBackend) -> None:
    """Today's list has one that the noted grid doesn't know."""
    one = job()
    few = {k: v for k, v in one.grid.by_meta.items() if k != "BLOCK=128"}
    found = run(msgspec.structs.replace(one, grid=msgspec.structs.replace(one.grid, by_meta=few)))
    assert found.config == "BLOCK=256 num_warps=4 num_stages=3"


def test_a_tuner_without_settings_of_its_own_has_none_afterwards() -> None:
    tuner = SimpleNamespace(configs=[])
    with _settings(tuner, TuneMode.FORCE):
        assert tuner.tune_mode is TuneMode.FORCE
    assert vars(tuner) == {"configs": []}


@pytest.mark.slow
def test_jobs_in_turn_share_a_process(this_gpu: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[isolation.FirstLaunchProcess] = []

    class Noted(isolation.FirstLaunchProcess):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            begun.append(self)

    monkeypatch.setattr(isolation, "FirstLaunchProcess", Noted)
    script(this_gpu, *THREE, isolated=True)
    kernels.scaled.cache.clear()
    try:
        for n in (1000, 2000, 3000):
            found = outcome_for(JobRequest(job(n)))
            assert (found.ended, found.error, found.notes) == (JobEnd.TUNED, "", ())
    finally:
        isolation.KEPT_ISOLATION.close()
    (process,) = begun
    assert process.asked > 3
    assert not process.alive
