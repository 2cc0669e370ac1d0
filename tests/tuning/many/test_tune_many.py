"""``kerntune.tune_many``: in this process, in processes of its own on scripted GPUs, and on a Dask cluster."""

from __future__ import annotations

import io
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import scripted_kernels
import torch
from fake_runs import block, script

import kerntune
from kerntune.base.config import Config
from kerntune.base.device import Environment
from kerntune.base.live_line import ERASE
from kerntune.base.tuning_job import SCHEMA, TuningJob
from kerntune.errors import UsageError
from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning.cache import Winner, WinnerCache, WinnerKey
from kerntune.tuning.cache.keys import SCHEMA as WINNER_SCHEMA
from kerntune.tuning.many.job_run import JobEnd, KeyOutcome, encoded, request_of
from kerntune.tuning.many.shapes_file import ShapesFile
from kerntune.tuning.many.tune_many import KeyProgress, TunedMany, _spoiled, tune_many, tuning_job
from tuning.many import kernels
from tuning.many.made import Scripted, Silent, job

EVERY_S = 30.0
PATIENCE_S = 0.8


TESTS = str(Path(__file__).parents[2])


class Here:
    """An executor that does the work in this very thread, as those without a GPU's stand-ins of their own must."""

    def submit(self, function: Any, /, *arguments: Any) -> Any:
        future: Future[Any] = Future()
        future.set_result(function(*arguments))
        return future


@pytest.fixture
def backend(this_gpu: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path))
    script(this_gpu, block(64, 3000.0), block(128, 1000.0), block(256, 2000.0))
    kernels.scaled.cache.clear()
    return this_gpu


def jobs(*sizes: int) -> list[TuningJob]:
    return [
        tuning_job(kernels.scaled, kernels.grid(n), *(torch.empty(n, device="meta") for _ in range(2)), n, 2.0)
        for n in sizes
    ]


def test_all_keys_are_tuned_once_and_later_not_at_all(backend: FakeBackend, tmp_path: Path) -> None:
    told: list[KeyOutcome] = []
    found = tune_many(jobs(100, 200, 300, 200), executor=Here(), progress=False, tell=told.append)
    assert isinstance(found, TunedMany)
    assert (found.count(JobEnd.TUNED), len(found.outcomes), found.failed) == (3, 3, ())
    assert tuple(told) == found.outcomes
    assert len(WinnerCache(tmp_path).entries()) == 3
    again = tune_many(jobs(100, 200, 300, 400), executor=Here(), progress=False)
    assert (again.count(JobEnd.STORED), again.count(JobEnd.TUNED)) == (3, 1)


def test_a_file_of_shapes(backend: FakeBackend, tmp_path: Path) -> None:
    file = ShapesFile(tmp_path / "shapes.jsonl")
    for one in jobs(100, 200):
        file.add(one)
    assert tune_many(file.path, executor=Here(), progress=False).count(JobEnd.TUNED) == 2
    file.path.write_bytes(file.path.read_bytes() + b"{half\n")
    with pytest.raises(UsageError, match=r"some calls can't be read.*\n.*shapes.jsonl:\d+: is no description"):
        tune_many(str(file.path), executor=Here())


def test_sizes_that_a_heuristic_rounds_alike_are_one_job(backend: FakeBackend) -> None:
    rounded = [
        tuning_job(kernels.proposed_kernel, kernels.grid(n), torch.empty(n, device="meta"), n)
        for n in (100_000, 100_001)
    ]
    assert len(tune_many(rounded, executor=Scripted(), progress=False).outcomes) == 1


def test_what_is_no_job_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'kernel' is no job; make it with kerntune.tuning_job"):
        tune_many(["kernel"], executor=Here())  # type: ignore[list-item]


def test_progress_is_shown_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    tune_many([job(0), job(1)], executor=Scripted({"kernel1": 99}))
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"kerntune: {job(1)}: each of 3 processes that tuned it ended")
    assert second == "kerntune: 2 of 2 keys: 1 tuned, 1 lost"


def test_only_an_outcome_says_that_a_process_is_spoiled() -> None:
    found = [KeyOutcome("d", "k", "key", JobEnd.FAILED, spoiled=spoiled) for spoiled in (True, False)]
    assert [_spoiled(data) for data in (*map(encoded, found), b"another version's")] == [True, False, False]


def test_any_executor_will_do() -> None:
    some = [job(n) for n in range(5)]
    for executor in (Scripted(), Silent(1)):
        assert tune_many(some, executor=executor, progress=False).count(JobEnd.TUNED) == 5
    with ThreadPoolExecutor(2) as threads:
        found = tune_many(some, executor=threads, progress=False)
    assert {o.ended for o in found.outcomes} == {JobEnd.FAILED}, "their modules don't exist: said, not raised"
    assert len(found.failed) == 5


KEY = WinnerKey("kernel0", "s", "cuda:90", "Far GPU", "3.9.0", "n=1", (Config({"BLOCK": 1}), Config({"BLOCK": 2})))
ENVIRONMENT = Environment(triton="3.9.0", torch="2.13", kerntune="0.1", device="Far GPU")


def won(block: int) -> Winner:
    return Winner(WINNER_SCHEMA, KEY, Config({"BLOCK": block}), 1.0, ENVIRONMENT)


class Far:
    """Another machine, with a cache of its own: winners come with the results."""

    def __init__(self, winner: Winner) -> None:
        self.winner = winner

    def submit(self, function: Any, /, data: bytes) -> Any:
        one, future = request_of(data).job, Future[bytes]()
        found = KeyOutcome(one.digest(), one.name, one.key, JobEnd.TUNED, winner=self.winner)
        future.set_result(encoded(found))
        return future


def test_winners_of_other_machines_are_stored_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path))
    tune_many([job(0)], executor=Far(won(1)), progress=False)
    assert WinnerCache(tmp_path).entries() == [won(1)]
    tune_many([job(0)], executor=Far(won(2)), progress=False)
    assert WinnerCache(tmp_path).entries() == [won(1)], "the first one stands, as among processes"
    tune_many([job(0)], executor=Far(won(2)), progress=False, force=True)
    assert WinnerCache(tmp_path).entries() == [won(2)]


def test_results_are_stored_as_they_come_and_stay_after_ctrl_c(backend: FakeBackend, tmp_path: Path) -> None:
    def interrupt(outcome: KeyOutcome) -> None:
        if len(WinnerCache(tmp_path).entries()) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune_many(jobs(100, 200, 300, 400), executor=Waiting(), progress=False, tell=interrupt)
    assert len(WinnerCache(tmp_path).entries()) == 2
    rest = tune_many(jobs(100, 200, 300, 400), executor=Here(), progress=False)
    assert (rest.count(JobEnd.STORED), rest.count(JobEnd.TUNED)) == (2, 2)


class Waiting(Here):
    """Does two pieces of work; the others wait until they are withdrawn."""

    left = 2

    def submit(self, function: Any, /, *arguments: Any) -> Any:
        self.left -= 1
        return super().submit(function, *arguments) if self.left >= 0 else Future()


# in processes


def files_of(*sizes: int) -> list[TuningJob]:
    kernel = scripted_kernels.scale_kernel
    return [tuning_job(kernel, scripted_kernels.grid(n), *scripted_kernels.pair(n, "meta"), n, 2.0) for n in sizes]


@pytest.mark.slow
def test_a_process_for_each_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: FakeBackend) -> None:
    """Both have something to do, one of them dies at its first job, and every key has its winner."""
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv(scripted_kernels.SCRIPTED, str(tmp_path / "died"))
    found = tune_many(files_of(1000, 2000, 3000), paths=(TESTS,), progress=False)
    assert [o.error for o in found.outcomes] == [""] * 3
    assert found.count(JobEnd.TUNED) == 3
    assert sorted(o.given_out for o in found.outcomes) == [1, 1, 2]
    assert (tmp_path / "died").exists()
    winners = WinnerCache(tmp_path / "cache").entries()
    assert {str(w.config) for w in winners} == {"BLOCK=128 num_warps=4 num_stages=3"}
    assert len(winners) == 3


def test_a_dask_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: FakeBackend) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv(scripted_kernels.SCRIPTED, "yes")
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50, local_directory=str(tmp_path)
    )
    with cluster, distributed.Client(cluster) as client:
        found = tune_many(files_of(1000, 2000), executor=client.get_executor(), paths=(TESTS,), progress=False)
    assert [o.error for o in found.outcomes] == ["", ""]
    assert found.count(JobEnd.TUNED) == 2
    assert os.getpid() not in {o.pid for o in found.outcomes}
    assert len({o.worker for o in found.outcomes if o.worker.startswith("tcp://")}) == 1
    assert len(WinnerCache(tmp_path / "cache").entries()) == 2


# what is shown


def outcome(ended: JobEnd, error: str = "") -> KeyOutcome:
    return KeyOutcome("d", "module.kernel", "(1,)", ended, error=error)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_lines_without_a_terminal() -> None:
    out, clock = io.StringIO(), Clock()
    shown = KeyProgress(3, out, clock)
    shown.tell(outcome(JobEnd.TUNED))
    shown.tell(outcome(JobEnd.FAILED, "kernel k: broken"))
    clock.now += EVERY_S
    shown.live.tick()
    shown.tell(outcome(JobEnd.STORED))
    shown.close()
    assert out.getvalue().splitlines() == [
        "kerntune: kernel k: broken",
        "kerntune: 2 of 3 keys: 1 tuned, 1 failed (last: module.kernel) (30 s)",
        "kerntune: 3 of 3 keys: 1 tuned, 1 stored before, 1 failed",
    ]


def test_one_line_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out, clock = Terminal(), Clock()
    shown = KeyProgress(4, out, clock)
    clock.now += PATIENCE_S
    shown.live.tick()
    assert out.getvalue() == f"{ERASE}kerntune: 0 of 4 keys: none done (1 s)"
    for ended in (JobEnd.TUNED, JobEnd.TUNED, JobEnd.LOST):
        clock.now += 10.0
        shown.tell(outcome(ended, "kernel k: lost" if ended is JobEnd.LOST else ""))
    assert out.getvalue().endswith(f"{ERASE}kerntune: kernel k: lost\n")
    clock.now += PATIENCE_S
    shown.live.tick()
    assert out.getvalue().endswith("kerntune: 3 of 4 keys, 10 s left: 2 tuned, 1 lost (last: module.kernel) (1 s)")
    shown.close()
    assert out.getvalue().endswith(f"{ERASE}kerntune: 3 of 4 keys, 11 s left: 2 tuned, 1 lost\n")


def test_the_names_are_exported() -> None:
    assert kerntune.tune_many is tune_many
    assert kerntune.tuning_job is tuning_job
    assert SCHEMA == "kerntune.shapes/1"
