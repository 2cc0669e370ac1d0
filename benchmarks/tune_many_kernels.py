"""The kernel of ``benchmarks/tune_many.py``: processes that import it there get scripted GPUs, and log tunings."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
import triton
import triton.language as tl

import kerntune

LOG = "KERNTUNE_BENCHMARK_LOG"
"""A file to which each tuning appends its begin and its end; only with it is there a scripted GPU."""

SECONDS = "KERNTUNE_BENCHMARK_SECONDS"
"""How long a tuning takes at least, so that kills come into its midst."""

CONFIGS = [triton.Config({"BLOCK": block}) for block in (64, 128)]


@kerntune.autotune(CONFIGS, key=["n"])
@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)


def grid_of(n: int) -> Any:
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


def jobs(count: int) -> list[Any]:
    """As many keys; all compile to the same two binaries."""
    found = []
    for n in range(1024, 1024 + 16 * count, 16):
        x = torch.empty(n, device="meta")
        found.append(kerntune.tuning_job(scale_kernel, grid_of(n), x, torch.empty_like(x), n))
    return found


def append(*words: object) -> None:
    """One line, in one write."""
    handle = os.open(os.environ[LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, (" ".join(map(str, words)) + "\n").encode())
    os.close(handle)


def begin_scripted() -> Any:
    """A scripted GPU, and a log of tunings."""
    from kerntune.gpu.scripted import FakeBackend, Rule, Script
    from kerntune.tuning import autotuner_run, context

    backend = FakeBackend(Script((Rule(constexprs={"BLOCK": 128}, time_ns=1000.0),)))
    active = backend.activate()
    active.__enter__()
    context.this_gpu = lambda: backend
    below = autotuner_run.run_tuned

    def run_tuned(tuner: Any, args: Any, kwargs: Any, **words: Any) -> Any:
        append("begin", args[2], os.getpid())
        time.sleep(float(os.environ.get(SECONDS, "0")))
        result = below(tuner, args, kwargs, **words)
        append("end", args[2], os.getpid())
        return result

    autotuner_run.run_tuned = run_tuned
    return active


ACTIVE = begin_scripted() if LOG in os.environ and os.environ.get("KERNTUNE_BENCHMARK_WORKER") else None
"""Kept: the stand-ins end with it."""
