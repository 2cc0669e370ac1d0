"""One fresh process: makes a public case's inputs, waits for its turn, and times the first call of each step."""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.suite.case import config_text
from benchmarks.suite.child import say
from benchmarks.suite.phases import Phases


def main(job: dict[str, Any]) -> None:
    """``job``: ``case``, ``engine`` (``triton``, ``kerntune``, or the latter with more words: installed with the first
    step), ``phases``."""
    import torch

    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    say("context")
    if not sys.stdin.readline():
        return
    from benchmarks.suite.cold_public_cases import CASES

    if job["engine"] == "kerntune":
        import kerntune

        kerntune.install()
    torch.manual_seed(0)
    warm_autograd()
    steps = CASES[job["case"]]()
    if job["engine"].startswith("kerntune,"):
        from kerntune.tuning.api.install import install

        first, *others = steps
        steps = [lambda: (install(), first()), *others]
    torch.cuda.synchronize()
    say("ready")
    if sys.stdin.readline():
        say("done", **timed(steps, job.get("phases", False), job.get("stacks", False)))
    sys.stdin.readline()


def timed(steps: Any, with_phases: bool, with_stacks: bool) -> dict[str, Any]:
    """Seconds of each step's first call until the device has done it; the best config of each kernel; where the time
    went."""
    watch, stacks, seconds = Phases(), Stacks(), []
    if with_phases:
        watch.begin()
    if with_stacks:
        stacks.start()
    for step in steps:
        seconds.append(_seconds(step))
    phases = {"phases": watch.tunings()} if with_phases else {}
    phases |= {"stacks": stacks.end()} if with_stacks else {}
    tuners = found_tuners()
    return {"seconds": round(sum(seconds), 4), "steps": [round(s, 4) for s in seconds], "tuners": tuners, **phases}


def warm_autograd() -> None:
    """Make torch import what the first backward of a custom function needs: 2 s where it isn't imported yet."""
    import torch

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
            return 2 * grads[0]

    x = torch.ones(8, 8, device="cuda", requires_grad=True)
    Double.apply(x).backward(torch.ones(8, 8, device="cuda"))


class Stacks(threading.Thread):
    """Samples the stack of the thread that tunes every few milliseconds."""

    EVERY_SECONDS, LEAST_MS = 0.004, 12

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._seen: list[tuple[float, str]] = []
        self._ended = threading.Event()

    def run(self) -> None:
        begin = time.perf_counter()
        while not self._ended.wait(self.EVERY_SECONDS):
            for frame in sys._current_frames().values():
                if (where := _where(frame)) is not None:
                    self._seen.append((1e3 * (time.perf_counter() - begin), where))

    def end(self) -> list[list[Any]]:
        """Milliseconds at which the thread came to a place, how long it stayed, and the place; the long stays."""
        self._ended.set()
        self.join()
        stays: list[list[Any]] = []
        for at, where in self._seen:
            if stays and stays[-1][2] == where:
                stays[-1][1] = round(at - stays[-1][0])
            else:
                stays.append([round(at), 0, where])
        return [stay for stay in stays if stay[1] >= self.LEAST_MS]


def _where(frame: Any) -> str | None:
    """The innermost functions of a stack, kerntune's and the last; None if it isn't the thread that tunes."""
    names, tunes, leaf = [], False, f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_code.co_name}"
    while frame is not None:
        path = frame.f_code.co_filename
        tunes = tunes or (path.endswith("tuning/engine.py") and frame.f_code.co_name == "tune")
        if "/kerntune/" in path:
            names.append(frame.f_code.co_name)
        frame = frame.f_back
    return f"{' < '.join(names[:3])} at {leaf}" if tunes else None


def _seconds(step: Callable[[], Any]) -> float:
    import torch

    begin = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def found_tuners() -> list[dict[str, Any]]:
    """Every tuner of this process that has decided: kernel, configs that there were, winner, milliseconds by config as
    its own engine measured them."""
    from triton.runtime.autotuner import Autotuner

    tuners = [one for one in gc.get_objects() if isinstance(one, Autotuner) and one.cache]
    rows = [
        {
            "kernel": one.base_fn.__name__,
            "configs": len(one.configs),
            "winner": config_text(list(one.cache.values())[-1]),
            "late": sum(len(u.configs) for u in (getattr(one, "untried", None) or {}).values()),
            "timings_ms": _timings(one),
        }
        for one in tuners
        if len(one.configs) > 1
    ]
    return sorted(rows, key=lambda row: row["kernel"])


def _timings(tuner: Any) -> dict[str, float]:
    timings = getattr(tuner, "configs_timings", None) or {}
    first = {config_text(c): t[0] if isinstance(t, (list, tuple)) else t for c, t in timings.items()}
    return {config: round(ms, 6) for config, ms in first.items() if ms is not None and ms != float("inf")}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
