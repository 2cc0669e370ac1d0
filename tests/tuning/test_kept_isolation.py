"""One process for the first launches of many jobs, and none that stays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from fake_runs import block, script

from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning import isolation as isolation_module
from kerntune.tuning import isolation as kept_module
from kerntune.tuning.isolation import KEPT_ISOLATION, FirstLaunchProcess, Isolate, KeptIsolation
from kerntune.tuning.many.job_run import JobEnd, JobRequest, outcome_for
from kerntune.tuning.many.tune_many import tuning_job
from tuning.many import kernels

pytestmark = pytest.mark.slow

THREE = (block(64, 3000.0), block(128, 1000.0), block(256, 2000.0))
LONG_S = 600.0


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FirstLaunchProcess]]:
    """All processes for first launches that are started; none is left."""
    found: list[FirstLaunchProcess] = []

    class Noted(FirstLaunchProcess):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)  # type: ignore[arg-type]
            found.append(self)

    monkeypatch.setattr(isolation_module, "FirstLaunchProcess", Noted)
    yield found
    KEPT_ISOLATION.close()
    for process in found:
        process.end()


def use(kept: KeptIsolation, backend: FakeBackend, times: int = 1, mode: Isolate = Isolate.AUTO) -> None:
    """A tuning's use of the process."""
    assert backend.gpu is not None
    for _ in range(times):
        with kept.lent(backend.gpu, mode) as isolation:
            isolation.process()


def test_jobs_in_turn_share_a_process(this_gpu: FakeBackend, begun: list[FirstLaunchProcess]) -> None:
    script(this_gpu, *THREE, isolated=True)
    kernels.scaled.cache.clear()
    for n in (1000, 2000, 3000):
        job = tuning_job(kernels.scaled, kernels.grid(n), *kernels.pair(n), n, 2.0)
        found = outcome_for(JobRequest(job))
        assert (found.ended, found.error, found.notes) == (JobEnd.TUNED, "", ())
    assert len(begun) == 1
    assert begun[0].asked > 3
    KEPT_ISOLATION.close()
    assert not begun[0].alive


def test_outside_of_jobs_each_tuning_has_its_own(this_gpu: FakeBackend, begun: list[FirstLaunchProcess]) -> None:
    script(this_gpu, isolated=True)
    use(KeptIsolation(), this_gpu, times=2)
    assert len(begun) == 2
    assert not any(process.alive for process in begun)


def test_it_ends_after_the_last_job(
    this_gpu: FakeBackend, begun: list[FirstLaunchProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    timers: list[tuple[float, Callable[[], None]]] = []

    class Timer:
        def __init__(self, seconds: float, work: Callable[[], None]) -> None:
            self.entry, self.daemon = (seconds, work), False

        def start(self) -> None:
            timers.append(self.entry)

        def cancel(self) -> None:
            timers.remove(self.entry)

    monkeypatch.setattr("kerntune.tuning.isolation.threading.Timer", Timer)
    script(this_gpu, isolated=True)
    kept = KeptIsolation()
    with kept.keeping(LONG_S):
        use(kept, this_gpu)
    with kept.keeping(LONG_S):
        assert not timers, "it is not ended while a job has it"
        use(kept, this_gpu)
    assert [process.alive for process in begun] == [True]
    ((seconds, work),) = timers
    assert seconds == LONG_S
    work()
    assert not begun[0].alive


def test_another_device_or_mode_gets_another_and_an_error_ends_it(
    this_gpu: FakeBackend, begun: list[FirstLaunchProcess]
) -> None:
    kept = KeptIsolation()
    with kept.keeping():
        script(this_gpu, isolated=True)
        use(kept, this_gpu)
        use(kept, this_gpu, mode=Isolate.ALWAYS)
        script(this_gpu, *THREE, isolated=True)
        use(kept, this_gpu, mode=Isolate.ALWAYS)
        assert [process.alive for process in begun] == [False, False, True]
        with pytest.raises(RuntimeError, match="tuning failed"):
            fail(kept, this_gpu)
        assert not any(process.alive for process in begun)
    kept.close()


def fail(kept: KeptIsolation, backend: FakeBackend) -> None:
    assert backend.gpu is not None
    with kept.lent(backend.gpu, Isolate.ALWAYS) as isolation:
        isolation.process()
        raise RuntimeError("tuning failed")


def test_without_a_thread_that_would_end_it_later_it_ends_at_once(
    this_gpu: FakeBackend, begun: list[FirstLaunchProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that was tuned doesn't fail of it."""
    script(this_gpu, *THREE, isolated=True)

    class Unstartable(threading.Timer):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(kept_module.threading, "Timer", Unstartable)
    kept = KeptIsolation()
    with kept.keeping():
        use(kept, this_gpu)
    assert [process.alive for process in begun] == [False]
