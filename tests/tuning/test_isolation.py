"""First launches in a process of their own: what faults, hangs or writes beside its tensors costs that and one trial.

The processes are real; the GPUs are scripted.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any

import pytest
import triton
import triton.language as tl
from fake_runs import block, captured, configs, scale, scale_kernel, script, tuned

import kerntune
from kerntune.base.failed_candidates import is_fault
from kerntune.capture import launch
from kerntune.capture.launch import spread
from kerntune.capture.recorder import record
from kerntune.compiling.worker_process import FROM_OUTSIDE
from kerntune.errors import MeasurementError, TuningError, UsageError
from kerntune.gpu.program import Loader
from kerntune.gpu.script import ABORT, ASSERT, HANG, ILLEGAL_ADDRESS, MISALIGNED_ADDRESS, OUT_OF_MEMORY, TRAP, Rule
from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning import first_launches as launches_module
from kerntune.tuning import isolation as isolation_module
from kerntune.tuning.admission import FirstLaunchFault, FirstLaunchFaults
from kerntune.tuning.candidates import CandidatePool
from kerntune.tuning.isolation import Isolate, Isolation
from kerntune.tuning.prescreen import Prescreen
from kerntune.tuning.tune_options import TuneOptions
from kerntune.tuning.tuner import tune
from kerntune.tuning.tuning_result import TuningResult

TOGETHER = 8


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


def race(
    backend: FakeBackend,
    *rules: Rule,
    mode: Isolate = Isolate.AUTO,
    isolated: bool = True,
    incumbent: int | None = None,
    trials: Any = None,
    call: Callable[[], Any] | None = None,
    watch: Callable[[Isolation], None] = lambda isolation: None,
    **options: Any,
) -> TuningResult:
    """Tune a call that has been captured on a good script; the rules hold from then on."""
    script(backend)
    capture = captured(backend, call or (lambda: scale(tuned(*BLOCKS))))
    capture.launches = [replace(pending, ran=False) for pending in capture.launches]  # as the library's
    gpu = script(backend, *rules, isolated=isolated, **options)
    loader, isolation = Loader(gpu), Isolation(gpu, mode)
    watch(isolation)
    try:
        with capture.active():
            recorded = record(capture, backend.targets[0])
            return tune(capture, recorded, 0, loader, incumbent=incumbent, isolation=isolation, trials=trials)
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
        tune(capture, record(capture, backend.targets[0]), 0, Loader(gpu), isolation=Isolation(gpu))
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


MANY = 18
"""Configs of a long list, with :func:`few_faults` for limits: three times as many show the same and take seconds."""


@triton.jit
def many_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr, NUMBER: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor + NUMBER * 1e-9, mask=i < n)


@pytest.fixture
def few_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the limits that :mod:`tests.capture.test_fault_limits` holds."""
    monkeypatch.setattr(launch, "DOUBT_FAULTS", 4)
    monkeypatch.setattr(launch, "MORE_FAULTS", 8)


def race_many(
    backend: FakeBackend, fault: str, places: Collection[int], *rules: Rule, count: int = MANY
) -> TuningResult:
    """A race of so many configs with code of their own, of which some fault."""
    numbered = [triton.Config({"BLOCK": 128, "NUMBER": k}) for k in range(count)]
    kernel = triton.autotune(numbered, key=["n"])(many_kernel)
    faults = (Rule(constexprs={"NUMBER": k}, fault=fault) for k in places)
    return race(backend, *faults, *rules, call=lambda: scale(kernel))


def numbers(found: TuningResult) -> set[int]:
    return {int(f.config.kwargs["NUMBER"]) for f in found.failures}


def order_of(bad_ones: int, order: str) -> set[int]:
    """Which of many fault."""
    places = range(MANY)
    return set(places[:bad_ones] if order == "first" else spread(places)[:bad_ones])


def _by_number(self: Prescreen, stream: Iterator[Any]) -> Iterator[list[Any]]:
    """All are compiled before the first one is launched, and come in the list's order."""
    results = sorted(stream, key=lambda pair: pair[0])
    return (results[k : k + TOGETHER] for k in range(0, len(results), TOGETHER))


def intercepted(
    monkeypatch: pytest.MonkeyPatch, method: str, act: Callable[[Any, Any, list[Any]], object]
) -> list[Any]:
    """The launches' requests, of which each goes to ``act`` before it is sent, with the process and those so far."""
    real, seen = getattr(isolation_module.FirstLaunchProcess, method), list[Any]()

    def exchange(self: Any, request: Any, limit_s: float) -> Any:
        if request is None or type(request).__name__ in ("FirstLaunchRequest", "FirstLaunchesRequest"):
            seen.append(request)
            act(self, request, seen)
        return real(self, request, limit_s)

    monkeypatch.setattr(isolation_module.FirstLaunchProcess, method, exchange)
    return seen


def requests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many launches each request has."""
    counts: list[int] = []

    def count(process: Any, request: Any, seen: list[Any]) -> None:
        if request is not None:
            counts.append(len(getattr(request, "requests", "1")))

    intercepted(monkeypatch, "_reply", count)
    return counts


def block_of(request: Any) -> int:
    return int(request.recording.binaries[0].constexprs["BLOCK"])


@pytest.mark.slow
@pytest.mark.usefixtures("together")
def test_those_that_are_compiled_together_are_launched_without_a_pause(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = requests(monkeypatch)
    assert race(backend, block(128, 100.0)).failures == ()
    assert counts == [len(BLOCKS)]


@pytest.mark.slow
@pytest.mark.usefixtures("together")
def test_those_after_one_that_ends_their_process_are_launched_by_another(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = requests(monkeypatch)
    found = race(backend, bad(64, ILLEGAL_ADDRESS), bad(256, beside=(0, 4)), block(512, 100.0))
    assert (found.winner, set(reasons(found))) == (BLOCKS.index(512), {64, 256})
    assert counts[0] == len(BLOCKS)
    assert set(counts[1:]) == {1}, "each fault is named before the next one runs"


@pytest.mark.slow
@pytest.mark.usefixtures("few_faults")
@pytest.mark.parametrize("order", ["first", "the likely ones"])
def test_faults_that_come_first_end_no_good_tuning(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """Eight bad ones among ten good ones."""
    monkeypatch.setattr(Prescreen, "groups", _by_number)
    places = order_of(8, order)
    best = max(set(range(MANY)) - places)
    found = race_many(backend, ILLEGAL_ADDRESS, places, Rule(constexprs={"NUMBER": best}, time_ns=100.0))
    assert found.winner == best
    assert numbers(found) == places


@pytest.mark.slow
def test_hangs_that_come_first_end_no_good_tuning(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches_module, "LIMIT_FIRST_S", 1.0)
    assert numbers(race_many(backend, HANG, range(3), count=8)) == {0, 1, 2}


@pytest.mark.slow
@pytest.mark.usefixtures("few_faults")
def test_most_of_many_that_fault_blame_the_call_before_all_are_tried(backend: FakeBackend) -> None:
    with pytest.raises(TuningError, match=r"10 of 18 configs fail at first launch, so the call is to blame"):
        race_many(backend, ILLEGAL_ADDRESS, range(MANY))


@pytest.mark.slow
def test_hangs_alone_blame_the_call_soon(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches_module, "LIMIT_FIRST_S", 0.3)
    with pytest.raises(TuningError, match=r"8 of 18 configs fail at first launch, so the call is to blame"):
        race_many(backend, HANG, range(MANY))


@pytest.mark.slow
@pytest.mark.usefixtures("one_by_one")
def test_a_hang_that_does_not_come_back_is_none(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that somebody else keeps busy: the second launch ends."""

    def hang_once(process: Any, request: Any, seen: list[Any]) -> None:
        if [block_of(one) for one in seen].count(128) == 1 and block_of(request) == 128:
            process.end()
            raise isolation_module.PeerTimeout("late")

    asked = intercepted(monkeypatch, "ask", hang_once)
    found = race(backend, block(128, 100.0))
    assert found.failures == ()
    assert found.winner == BLOCKS.index(128)
    assert [block_of(one) for one in asked].count(128) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("ended", [signal.SIGKILL, signal.SIGBUS, signal.SIGXCPU, signal.SIGABRT, signal.SIGSEGV])
def test_the_signal_says_who_ended_a_process(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, ended: int) -> None:
    """Not what it printed last. What is killed twice is never launched in this process."""

    def end(process: Any, request: Any, seen: list[Any]) -> None:
        if block_of(request) == 128:
            process.end()
            raise isolation_module.ChildEnded("its process was ended: the SIGKILL of a printf", -ended)

    asked = intercepted(monkeypatch, "ask", end)
    settle, settled = FirstLaunchFaults.settle, list[FirstLaunchFault]()
    monkeypatch.setattr(FirstLaunchFaults, "settle", lambda self: settled.extend(settle(self)) or settled)
    found = race(backend, bad(128, ILLEGAL_ADDRESS))
    assert set(reasons(found)) == {128}
    assert found.notes == ()
    assert [block_of(one) for one in asked].count(128) == (2 if ended in FROM_OUTSIDE else 1)
    assert [f.passing for f in settled] == [ended in FROM_OUTSIDE], "else it is remembered"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "error"),
    [
        (subprocess, "Popen", BlockingIOError(11, "Resource temporarily unavailable")),
        (os, "memfd_create", OSError(38, "Function not implemented")),
        (isolation_module, "FirstLaunchProcess", RuntimeError("cannot schedule new futures after shutdown")),
    ],
)
def test_where_no_process_can_start_the_tuning_runs_here_and_that_is_said(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, error: Exception
) -> None:
    def refused(*given: Any, **words: Any) -> Any:
        raise error

    race(backend)  # everything is compiled
    monkeypatch.setattr(module, name, refused)
    found = race(backend)
    assert found.failures == ()
    assert str(error.args[-1]) in found.notes[0]


def test_always_means_that_nothing_runs_here(backend: FakeBackend) -> None:
    with pytest.raises(MeasurementError, match="isolate=always"):
        race(backend, memory_bytes=1 << 30, mode=Isolate.ALWAYS)


@pytest.mark.usefixtures("together")
def test_always_holds_where_several_are_launched_without_a_pause(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last attempt to start a process is that of the request for several."""

    def wait(self: Any) -> None:
        raise MeasurementError("a process for first launches did not start")

    def failed_before(isolation: Isolation) -> None:
        isolation._failed_starts = 2 - 1

    monkeypatch.setattr(isolation_module.FirstLaunchProcess, "wait", wait)
    with pytest.raises(MeasurementError, match="isolate=always"):
        race(backend, mode=Isolate.ALWAYS, watch=failed_before)


def test_off_starts_no_process(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation_module, "FirstLaunchProcess", None)
    assert race(backend, mode=Isolate.OFF).notes == ()


@pytest.mark.slow
def test_its_memory_counts(backend: FakeBackend) -> None:
    """What bytes travel through is freed, and nothing else of the first launches is this process's."""
    peaks = []
    for isolated in (False, True):
        race(backend, isolated=isolated)
        peaks.append(backend.gpu.peak_bytes)
    assert peaks[1] - peaks[0] <= 2 << 20


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


def test_where_the_device_protects_nothing_always_is_an_error(backend: FakeBackend) -> None:
    with pytest.raises(MeasurementError, match=f"first launches can't run in a process of their own: {MPS}"):
        race(backend, mode=Isolate.ALWAYS, unprotected=(MPS,))


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
