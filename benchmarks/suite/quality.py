"""The exhaustive sweep of the tuning suite's cases: on a GPU with times, without one compiled only."""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import triton

from benchmarks.harness import scratch
from benchmarks.suite import sweep
from benchmarks.suite.case import Case, Shape
from benchmarks.suite.cases import CASES
from kerntune.base.device import Target
from kerntune.compiling.compiler import Compiler
from kerntune.errors import KerntuneError
from kerntune.gpu.cuda import CudaBackend
from kerntune.gpu.fake_cuda.static_backend import StaticBackend

ROUNDS = 15
"""Slots of a config in the sweep. A slot is some 2 ms of launches; medians of 10 slots agree to 0.1 %."""

NEAR = 1.3
"""Configs within this of the best get all rounds, the rest a few."""


def quality(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All configs of all cases, timed in turn, and their static figures."""
    backend, compiler = CudaBackend(), Compiler()
    torch.manual_seed(0)
    with scratch() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        for name in options.kernels:
            for shape in CASES[name].shapes:
                yield _timed(backend, compiler, CASES[name], shape)
    compiler.close()


PROFILED_NEAR, PROFILED, PROFILER_ROUNDS = 1.1, 8, 5
"""Configs within this of the best by kerntune's timer, so many at most, are timed by the profiler, too, so often."""


def profiled(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The best configs by kerntune's timer under torch's profiler (CUPTI): does the winner win there, too?"""
    backend, compiler = CudaBackend(), Compiler()
    torch.manual_seed(0)
    end = time.monotonic() + options.seconds
    with scratch() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        for name in options.kernels:
            for shape in CASES[name].shapes[: options.shapes]:
                if time.monotonic() < end:
                    yield _profiled(backend, compiler, CASES[name], shape)
    compiler.close()


def _profiled(backend: CudaBackend, compiler: Compiler, case: Case, shape: Shape) -> dict[str, Any]:
    tuner = case.tuned(triton.autotune, case.configs(shape))
    one = sweep.prepare(backend, compiler, tuner, case.call(shape, "cuda"))
    with backend.gpu.lock():
        sweep.measure(one, rounds=ROUNDS, near=PROFILED_NEAR, look=NEAR)
        chosen = best_of({i: s.time_ns for i in one.running if (s := one.swept[i]).time_ns is not None})
        row = {"case": case.label(shape), "configs_timed": len(one.running), "ours_timer": one.timing.get("timer")}
        try:
            times = sweep.measure_again(one, chosen, PROFILER_ROUNDS)
        except KerntuneError as exc:
            return {**row, "failed": str(exc)}
    return {**row, **agreement({i: one.swept[i].time_ns or 0.0 for i in chosen}, times),
            "winner": one.swept[chosen[0]].config}  # fmt: skip


def best_of(times: Mapping[int, float | None]) -> list[int]:
    """The fastest first: those near the best, a few at most."""
    known = {i: t for i, t in times.items() if t is not None}
    ranked = sorted(known, key=lambda i: known[i])
    return [i for i in ranked if known[i] <= PROFILED_NEAR * known[ranked[0]]][:PROFILED]


def agreement(ours: Mapping[int, float], theirs: Mapping[int, Sequence[float]]) -> dict[str, Any]:
    """How the winner by kerntune's timer stands among the same configs by the other: the best one's time over its own
    (1 if it wins there, too), its rank, and all times in ns."""
    medians = {i: statistics.median(x) for i, x in theirs.items()}
    winner, ranked = min(ours, key=lambda i: ours[i]), sorted(medians, key=lambda i: medians[i])
    return {
        "winner_by_profiler": round(medians[ranked[0]] / medians[winner], 5) if winner in medians else None,
        "rank_by_profiler": ranked.index(winner) + 1 if winner in medians else None,
        "ours_ns": {str(i): round(x, 1) for i, x in ours.items()},
        "profiler_ns": {str(i): [round(x, 1) for x in found] for i, found in theirs.items()},
    }


def _timed(backend: CudaBackend, compiler: Compiler, case: Case, shape: Shape) -> dict[str, Any]:
    tuner = case.tuned(triton.autotune, case.configs(shape))
    call = case.call(shape, "cuda")
    expected = call.expected()
    one = sweep.prepare(backend, compiler, tuner, call)
    off = call.off(expected, case.tolerance)
    del expected
    with backend.gpu.lock():
        sweep.measure(one, rounds=ROUNDS, near=NEAR)
    sweep.add_metrics([one], backend.spec, len(os.sched_getaffinity(0)))
    return {"case": case.label(shape), "off": round(off, 3), "timing": one.timing, "configs": one.rows()}


def dry(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every config of every kernel compiled for sm_90, without a GPU."""
    backend, compiler = StaticBackend(Target.parse("cuda:90")), Compiler()
    with backend.activate():
        for case in (CASES[name] for name in options.kernels):
            for shape in case.shapes[: options.shapes]:
                tuner = case.tuned(triton.autotune, case.configs(shape)[:: options.every])
                one = sweep.prepare(backend, compiler, tuner, case.call(shape, "cuda"))
                yield {"case": case.label(shape), "distinct": len(one.running), "configs": one.rows()}
    compiler.close()
