"""One fresh process: makes a call's inputs, waits for its turn, tunes, and prints how long the first call took.

Started by :mod:`benchmarks.suite.children`. Everything before ``ready`` (imports, the CUDA context, inputs, the
decorator) is outside the time that is taken; from the first call on, nothing is.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

MARK = "@@"
"""Starts the lines that are meant for the parent; kernels and tuners may print others."""


def say(word: str, **values: Any) -> None:
    """A line for the parent."""
    print(MARK + json.dumps({"word": word, **values}), flush=True)


Step = Callable[[], dict[str, Any]]


def in_steps(prepared: Callable[[], Sequence[Step]]) -> None:
    """Make the CUDA context, prepare, and take a step at each line of stdin: what it returns is printed."""
    import torch

    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    say("context")
    if not sys.stdin.readline():
        return
    steps = prepared()
    torch.cuda.synchronize()
    say("ready")
    for step in steps:
        if not sys.stdin.readline():
            return
        say("done", **step())
    sys.stdin.readline()  # its context stays until all of its batch are done


def tuning(job: dict[str, Any]) -> list[Step]:
    """A step for each of ``job["lists"]``, with another list of configs."""
    call, case = prepare(job)
    decorate = decorator(job["engine"])
    configs = [case.configs(job["shape"]) + (extra_configs() if more else []) for more in job["lists"]]
    return [partial(timed, case.tuned(decorate, one), call, one) for one in configs]


def prepare(job: dict[str, Any]) -> tuple[Any, Any]:
    """The call and its case."""
    import torch

    from benchmarks.suite.cases import CASES

    torch.manual_seed(0)
    case = CASES[job["case"]]
    return case.call(job["shape"], "cuda"), case


def decorator(engine: str) -> Any:
    """``triton.autotune`` or ``kerntune.autotune``."""
    if engine == "triton":
        import triton

        return triton.autotune
    import kerntune

    return kerntune.autotune


def extra_configs() -> list[Any]:
    """The config that a user adds to a list of 48."""
    from benchmarks.suite.matrix_kernels import tile

    return [tile(128, 128, 128, 8, 3)]


def timed(tuner: Any, call: Any, configs: list[Any]) -> dict[str, Any]:
    """The first call, until its launch is done: its seconds, and what won. Then what became of the configs that it
    did not wait for."""
    import torch

    from benchmarks.suite.case import config_text

    begin = time.perf_counter()
    try:
        tuner[call.grid](*call.arguments)
        torch.cuda.synchronize()
    except Exception as exc:
        return {"seconds": round(time.perf_counter() - begin, 4), "error": f"{type(exc).__name__}: {exc}"[:500]}
    seconds = time.perf_counter() - begin
    best, timed_first = config_text(tuner.best_config), _timed(tuner)
    found = {
        "seconds": round(seconds, 4),
        "winner": best,
        "index": [config_text(c) for c in configs].index(best),
        "timed": timed_first,
        "configs": len(configs),
        "host_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    if not getattr(tuner, "untried", None):
        return found
    return {**found, **settled(tuner, call, begin)}


SETTLE_SECONDS, EVERY_SECONDS = 60.0, 0.01

PLAIN_CALLS = 9
"""Calls after all has been tried, whose median a plain one takes."""


def settled(tuner: Any, call: Any, begin: float) -> dict[str, Any]:
    """Call on as a program would, until every config has been tried: how many were ``late``, seconds since the first
    call began (``all_tried``), what the longest of these calls took, which is one that tried some, and what a plain one
    takes (milliseconds), and the winner after that."""
    from benchmarks.suite.case import config_text

    late, calls = _left(tuner), [0.0]
    while tuner.untried and time.perf_counter() - begin < SETTLE_SECONDS:
        calls.append(_one_more(tuner, call))
    left, all_tried = _left(tuner), time.perf_counter() - begin
    plain = sorted(_one_more(tuner, call) for _ in range(PLAIN_CALLS)) if not left else []
    return {
        "late": late,
        "left": left,
        "all_tried": round(all_tried, 4),
        "settling_ms": round(1e3 * max(calls), 2),
        "plain_ms": round(1e3 * plain[len(plain) // 2], 3) if plain else None,
        "final_winner": config_text(tuner.best_config),
        "finally_timed": _timed(tuner),
    }


def _one_more(tuner: Any, call: Any) -> float:
    """A call's seconds, until its launch is done, a moment after the last one."""
    import torch

    time.sleep(EVERY_SECONDS)
    start = time.perf_counter()
    tuner[call.grid](*call.arguments)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def _left(tuner: Any) -> int:
    return sum(len(one.configs) for one in tuner.untried.values())


def _timed(tuner: Any) -> int:
    """How many configs have a time."""
    timings = getattr(tuner, "configs_timings", None) or {}
    return sum(1 for t in timings.values() if _first(t) not in (None, float("inf")))


def _first(timing: Any) -> Any:
    return timing[0] if isinstance(timing, (list, tuple)) else timing


if __name__ == "__main__":
    in_steps(partial(tuning, json.loads(sys.argv[1])))
