"""One fresh process: makes a public case's inputs, waits for its turn, and times the first call of each step."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.suite.case import config_text
from benchmarks.suite.child import Step, in_steps


def first_calls(job: dict[str, Any]) -> list[Step]:
    """The first calls of ``case`` under the tuner of ``engine``: ``triton`` or ``kerntune``."""
    import torch

    from benchmarks.suite.cold_public_cases import CASES

    if job["engine"] == "kerntune":
        import kerntune

        kerntune.install()
    torch.manual_seed(0)
    warm_autograd()
    return [partial(timed, CASES[job["case"]]())]


def timed(steps: Any) -> dict[str, Any]:
    """Seconds of each step's first call until the device has done it; the best config of each kernel."""
    seconds = [_seconds(step) for step in steps]
    return {"seconds": round(sum(seconds), 4), "steps": [round(s, 4) for s in seconds], "tuners": found_tuners()}


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
    in_steps(partial(first_calls, json.loads(sys.argv[1])))
