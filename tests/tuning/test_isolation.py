"""First launches in a process of their own: what faults, hangs or writes beside its tensors costs that and one trial.

The processes are real; the GPUs are scripted.
"""

from __future__ import annotations

import math
import os
import signal
import time
import warnings
from dataclasses import replace
from typing import Any

import pytest
from fake_runs import block, captured, configs, scale, scale_kernel, script, tuned

import kerntune
from kerntune.base.child_process import ChildEnded
from kerntune.base.failed_candidates import is_fault
from kerntune.capture.recorder import record
from kerntune.compiling.worker_process import FROM_OUTSIDE
from kerntune.errors import TuningError, UsageError
from kerntune.gpu.program import Loader
from kerntune.gpu.script import ABORT, ASSERT, HANG, ILLEGAL_ADDRESS, MISALIGNED_ADDRESS, OUT_OF_MEMORY, TRAP, Rule
from kerntune.gpu.scripted import FakeBackend
from kerntune.timing.worker.requests import FirstLaunchRequest
from kerntune.tuning import first_launches as launches_module
from kerntune.tuning import isolation as isolation_module
from kerntune.tuning.admission import FirstLaunchFault, FirstLaunchFaults
from kerntune.tuning.candidates import CandidatePool
from kerntune.tuning.isolation import FirstLaunchProcess, Isolation
from kerntune.tuning.tune_options import TuneOptions
from kerntune.tuning.tuner import tune
from kerntune.tuning.tuning_result import TuningResult

BLOCKS = (32, 64, 128, 256, 512)


@pytest.fixture(autouse=True)
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What hangs is given up soon: others take milliseconds here."""
    monkeypatch.setattr(launches_module, "LEAST_LIMIT_S", 1.0)
    monkeypatch.setattr(launches_module, "LIMIT_FIRST_S", 2.0)


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each candidate is asked for alone, as where none is compiled while another is estimated."""
    monkeypatch.setattr(CandidatePool, "ready", lambda self: False)


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> None:
    """All candidates are compiled before the first one is asked for."""
    monkeypatch.setattr(CandidatePool, "ready", lambda self: True)


@pytest.fixture(params=["one_by_one", "together"])
def either_way(request: pytest.FixtureRequest) -> str:
    """Alone, or several in one request."""
    request.getfixturevalue(request.param)
    return str(request.param)


def bad(size: int, fault: str = "", **more: Any) -> Rule:
    return Rule(constexprs={"BLOCK": size}, time_ns=10.0, fault=fault, **more)


def race(backend: FakeBackend, *rules: Rule, incumbent: int | None = None) -> TuningResult:
    """Tune a call that has been captured on a good script; the rules hold from then on."""
    script(backend)
    capture = captured(backend, lambda: scale(tuned(*BLOCKS)))
    capture.launches = [replace(pending, ran=False) for pending in capture.launches]  # as the library's
    gpu = script(backend, *rules, isolated=True)
    loader, isolation = Loader(gpu), Isolation(gpu)
    try:
        with capture.active():
            recorded = record(capture)
            return tune(capture, recorded, 0, loader, incumbent=incumbent, isolation=isolation)
    finally:
        isolation.close()
        assert not gpu.lost, "nothing may reach the device of this process"
        loader.close()


def reasons(found: TuningResult) -> dict[int, str]:
    return {int(f.config.kwargs["BLOCK"]): f.reason for f in found.failures}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        (MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS"),
        (ASSERT, "CUDA_ERROR_ASSERT"),
        (TRAP, "CUDA_ERROR_LAUNCH_FAILED"),
        (ABORT, "SIGABRT"),
        (OUT_OF_MEMORY, "no room on"),
        (HANG, "did not end within"),
    ],
)
@pytest.mark.usefixtures("either_way")
def test_one_that_fails_costs_one_trial(backend: FakeBackend, fault: str, said: str) -> None:
    found = race(backend, bad(128, fault), block(64, 100.0))
    assert found.winner == BLOCKS.index(64)
    assert set(found.times_ns) == {0, 1, 3, 4}
    assert set(reasons(found)) == {128}
    assert said in reasons(found)[128]
    assert is_fault(reasons(found)[128])
    assert found.notes == ()


@pytest.mark.slow
@pytest.mark.usefixtures("either_way")
def test_several_of_every_kind_among_good_ones(backend: FakeBackend) -> None:
    found = race(backend, bad(32, ILLEGAL_ADDRESS), bad(512, ABORT), block(256, 100.0))
    assert found.winner == BLOCKS.index(256)
    assert set(reasons(found)) == {32, 512}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("beside", "where"),
    [
        ((0, 4), "from byte 0 behind the end"),
        ((65536, 4096), "from byte 65,536 behind the end"),
        ((-16, 8), "from 16 bytes before the begin"),
    ],
)
@pytest.mark.usefixtures("either_way")
def test_one_that_writes_beside_its_tensors_is_named(backend: FakeBackend, beside: tuple[int, int], where: str) -> None:
    found = race(backend, bad(128, beside=beside))
    (reason,) = reasons(found).values()
    assert f"{beside[1]:,} bytes {where} of y_ptr (16,384 bytes)" in reason


def test_in_this_process_it_ends_everything(backend: FakeBackend) -> None:
    """What this is for: without it the device is lost."""
    script(backend)
    capture = captured(backend, lambda: scale(tuned(*BLOCKS)))
    gpu = script(backend, bad(128, ILLEGAL_ADDRESS))
    with capture.active(), pytest.raises(Exception, match="ILLEGAL_ADDRESS"):
        tune(capture, record(capture), 0, Loader(gpu), isolation=Isolation(gpu))
    assert gpu.lost


@pytest.mark.slow
def test_processes_are_gone_afterwards(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[int] = []
    real = isolation_module.FirstLaunchProcess

    def counted(*given: Any) -> Any:
        made = real(*given)
        pids.append(made.child.pid)
        assert os.getpgid(made.child.pid) == made.child.pid, "a group of its own"
        return made

    monkeypatch.setattr(isolation_module, "FirstLaunchProcess", counted)
    race(backend, bad(128, ABORT), bad(256, HANG))
    assert len(pids) == 4, "the first, and one in the place of each that was lost: an abort, a hang, and that again"
    for pid in pids:
        for _ in range(400):  # nobody waits for the last one's end
            if not os.path.exists(f"/proc/{pid}"):
                break
            time.sleep(0.05)
        assert not os.path.exists(f"/proc/{pid}")


@pytest.mark.slow
def test_the_call_is_to_blame_if_most_fail(backend: FakeBackend) -> None:
    with pytest.raises(TuningError, match=r"3 of 5 configs fail at first launch.*the call is to blame.*ILLEGAL"):
        race(backend, *(bad(size, ILLEGAL_ADDRESS) for size in BLOCKS[:3]))


@pytest.mark.slow
def test_the_call_is_to_blame_if_the_incumbent_fails(backend: FakeBackend) -> None:
    with pytest.raises(TuningError, match="among them the one that was known to work, so the call is to blame"):
        race(backend, bad(64, ILLEGAL_ADDRESS), incumbent=1)


@pytest.mark.slow
@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("ended", [signal.SIGKILL, signal.SIGBUS, signal.SIGXCPU, signal.SIGABRT, signal.SIGSEGV])
def test_the_signal_says_who_ended_a_process(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, ended: int) -> None:
    """Not what it printed last. What is killed twice is never launched in this process."""

    real, asked = FirstLaunchProcess.ask, list[int]()

    def ask(self: Any, request: Any, limit_s: float) -> Any:
        if isinstance(request, FirstLaunchRequest):
            asked.append(int(request.recording.binaries[0].constexprs["BLOCK"]))
            if asked[-1] == 128:
                self.end()
                raise ChildEnded("its process was ended: the SIGKILL of a printf", -ended)
        return real(self, request, limit_s)

    monkeypatch.setattr(FirstLaunchProcess, "ask", ask)
    settle, settled = FirstLaunchFaults.settle, list[FirstLaunchFault]()
    monkeypatch.setattr(FirstLaunchFaults, "settle", lambda self: settled.extend(settle(self)) or settled)
    found = race(backend, bad(128, ILLEGAL_ADDRESS))
    assert set(reasons(found)) == {128}
    assert found.notes == ()
    assert asked.count(128) == (2 if ended in FROM_OUTSIDE else 1)
    assert [f.passing for f in settled] == [ended in FROM_OUTSIDE], "else it is remembered"


# the library


@pytest.fixture
def faulty(this_gpu: FakeBackend) -> FakeBackend:
    """The library's GPU, on which one config faults."""
    script(this_gpu, bad(32, ILLEGAL_ADDRESS), block(128, 100.0), isolated=True)
    return this_gpu


def library(*blocks: int, **options: Any) -> Any:
    return kerntune.autotune(configs(*blocks), key=["n"], **options)(scale_kernel)


@pytest.mark.slow
def test_the_library_survives_what_faults(faulty: FakeBackend) -> None:
    kernel = library(*BLOCKS)
    scale(kernel)
    assert kernel.best_config.kwargs == {"BLOCK": 128}
    assert not faulty.gpu.lost
    assert kernel.configs_timings[kernel.configs[0]] == [math.inf] * 3


@pytest.mark.slow
def test_what_faulted_is_remembered(faulty: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    scale(library(*BLOCKS))
    monkeypatch.setattr(isolation_module, "FirstLaunchProcess", None)
    kernel = library(*BLOCKS[:4])  # another list, whose configs have all been tried
    scale(kernel)
    assert kernel.best_config.kwargs == {"BLOCK": 128}
    assert not faulty.gpu.lost


MPS = "MPS is on: a fault of one process ends the others"


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_the_library_says_once_what_the_device_does_not_protect(this_gpu: FakeBackend, mode: str) -> None:
    script(this_gpu, block(128, 100.0), isolated=True, unprotected=(MPS,))
    with pytest.warns(RuntimeWarning, match=MPS) as said:
        scale(library(*BLOCKS, isolate=mode))
    assert [str(w.message) for w in said if "kernel" in str(w.message) or "MPS" in str(w.message)] == [MPS]
    with warnings.catch_warnings(record=True) as again:
        warnings.simplefilter("always")
        scale(library(1024, 2048, isolate=mode))
    assert again == []


@pytest.mark.parametrize("given", ["environment", "option"])
def test_in_this_process_if_asked(faulty: FakeBackend, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    if given == "environment":
        monkeypatch.setenv("KERNTUNE_ISOLATE", "off")
    kernel = library(*BLOCKS, **({"isolate": "off"} if given == "option" else {}))
    with pytest.raises(Exception, match="ILLEGAL_ADDRESS"):
        scale(kernel)
    assert faulty.gpu.lost


def test_another_word_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="isolate is 'on'; it can be auto, always or off"):
        library(64, isolate="on")
    monkeypatch.setenv("KERNTUNE_ISOLATE", "on")
    with pytest.raises(UsageError, match="isolate is 'on'"):
        TuneOptions.now()
