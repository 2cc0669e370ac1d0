"""Where the time of one tuning goes: spans of the engine's steps, taken from outside while they run."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

STEPS = (
    ("device", "kerntune.tuning.context", "this_gpu"),
    ("late ones", "kerntune.tuning.autotuner_run", "go_on"),
    ("settle", "kerntune.tuning.deferred", "settle_call"),
    ("environment", "kerntune.tuning.stored_winners", "Winners.environment"),
    ("site", "kerntune.capture", "Capture.site_of"),
    ("find", "kerntune.tuning.stored_winners", "Winners.find"),
    ("incumbent", "kerntune.tuning.stored_winners", "Winners.incumbent"),
    ("stored", "kerntune.tuning.stored_trials", "Trials.at"),
    ("stored any", "kerntune.tuning.stored_trials", "Trials.any"),
    ("warm", "kerntune.compiling.compiler", "Compiler.warm"),
    ("hash", "kerntune.compiling.frontend", "prepare_hashes"),
    ("worker start", "kerntune.compiling.worker_process", "Process.start"),
    ("probe", "kerntune.capture", "Capture.probe_all"),
    ("front end", "kerntune.compiling.stream", "Compilations._submit"),
    ("fork", "kerntune.compiling.forks", "_fork"),
    ("submit", "kerntune.compiling.farm", "Farm.submit"),
    ("compile", "kerntune.compiling.worker_process", "Process.ask"),
    ("describe", "kerntune.compiling.compiler", "Compiler._remember"),
    ("practise", "kerntune.tuning.tune_call", "_prepare_verifying"),
    ("stage", "kerntune.capture", "Capture.stage"),
    ("record", "kerntune.tuning.tune_call", "record"),
    ("memory", "kerntune.tuning.tuner", "memory_before"),
    ("trial", "kerntune.tuning.trial_set", "TrialSet._trial"),
    ("load", "kerntune.tuning.trial_set", "TrialSet.program"),
    ("warm-up", "kerntune.tuning.race", "_warm_up"),
    ("look", "kerntune.tuning.race", "Estimates.take"),
    ("looks begin", "kerntune.tuning.isolation", "Isolation.begin"),
    ("looks start", "kerntune.base.child_process", "ChildProcess._popen"),
    ("looks wait for start", "kerntune.timing.worker.look_process", "LookProcess.wait"),
    ("looks staging", "kerntune.tuning.first_launches", "FirstLaunches._stage"),
    ("looks launch", "kerntune.tuning.first_launches", "FirstLaunches.run"),
    ("looks ahead", "kerntune.tuning.first_launches", "FirstLaunches.run_ahead"),
    ("looks asked", "kerntune.timing.worker.look_process", "LookProcess._exchange"),
    ("looks limits", "kerntune.tuning.first_launches", "FirstLaunches.cannot"),
    ("looks end", "kerntune.tuning.isolation", "Isolation.close"),
    ("heats", "kerntune.tuning.race", "Screening.finalists_of"),
    ("decide", "kerntune.tuning.tuner", "decided"),
    ("verify", "kerntune.tuning.consensus", "Consensus.wrong"),
    ("keep trial", "kerntune.tuning.trial_set", "TrialSet.keep"),
    ("give back", "kerntune.gpu.memory", "Memory.give_back"),
    ("flush", "kerntune.compiling.compiler", "Compiler.flush"),
    ("unload", "kerntune.gpu.program", "Loader.close"),
    ("keep winner", "kerntune.tuning.stored_winners", "Winners.keep"),
    ("call", "kerntune.tuning.autotuner_run", "_Call.tune"),
    ("tune", "kerntune.tuning.autotuner_run", "tune_call"),
    ("front", "kerntune.tuning.tune_call", "prepare_front"),
    ("driver", "kerntune.kernels.compat", "prepare_driver"),
    ("launcher", "kerntune.kernels.compat", "prepare_launcher"),
    ("launch", "kerntune.tuning.autotuner_run", "_Call.launch"),
)
"""Name, module and function of each step."""


class Phases:
    """Watches the steps of a tuning from :meth:`begin` to :meth:`end`, whichever thread takes them."""

    def __init__(self) -> None:
        self._start = 0.0
        self._lock = threading.Lock()
        self._found: dict[str, list[tuple[float, float]]] = {}
        self._stack: list[tuple[Any, str, Any]] = []

    def begin(self) -> None:
        """Watch the steps from now on."""
        import importlib

        self._found.clear()
        for name, module, path in STEPS:
            owner: Any = importlib.import_module(module)
            *parents, last = path.split(".")
            for parent in parents:
                owner = getattr(owner, parent)
            if hasattr(owner, last):
                plain = vars(owner)[last]
                self._stack.append((owner, last, plain))
                setattr(owner, last, self._watched(name, plain))
        self._start = time.perf_counter()

    def end(self) -> dict[str, Any]:
        """``steps``: of each, milliseconds from the start to its first begin and its last end, those spent in it, how
        often. ``compilations``: begin and end of each."""
        self._unwatch()
        return _told(self._found)

    def tunings(self) -> list[dict[str, Any]]:
        """As :meth:`end`, for each call that tuned by itself; times are from that call's begin."""
        self._unwatch()
        calls = sorted(self._found.get("call", ()))
        bounds = [begin for begin, _ in calls[1:]] + [float("inf")]
        return [_told(_between(self._found, begin, end)) for (begin, _), end in zip(calls, bounds, strict=True)]

    def _unwatch(self) -> None:
        for owner, last, plain in reversed(self._stack):
            setattr(owner, last, plain)
        self._stack.clear()

    def _watched(self, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def watched(*args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter()
            try:
                return plain(*args, **kwargs)
            finally:
                self._saw(name, begin - self._start, time.perf_counter() - self._start)

        return watched

    def _saw(self, name: str, begin: float, end: float) -> None:
        with self._lock:
            self._found.setdefault(name, []).append((begin, end))


def _told(found: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    return {
        "steps": {name: _figures(spans) for name, spans in found.items()},
        "compilations": [[round(1e3 * v) for v in span] for span in sorted(found.get("compile", ()))],
    }


def _between(
    found: dict[str, list[tuple[float, float]]], begin: float, end: float
) -> dict[str, list[tuple[float, float]]]:
    """Spans that begin in a stretch of time, counted from its begin."""
    inside = {name: [(a - begin, b - begin) for a, b in spans if begin <= a < end] for name, spans in found.items()}
    return {name: spans for name, spans in inside.items() if spans}


def _figures(spans: list[tuple[float, float]]) -> list[float]:
    first, last = min(begin for begin, _ in spans), max(end for _, end in spans)
    return [*(round(1e3 * v, 1) for v in (first, last, sum(end - begin for begin, end in spans))), len(spans)]
