"""The exhaustive sweep of the tuning suite's cases: on a GPU with times, without one compiled only."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any

import torch
import triton

from benchmarks.suite import sweep
from benchmarks.suite.case import Case, Shape
from benchmarks.suite.cases import CASES
from benchmarks.suite.results import scratch
from kerntune.base.device import Target
from kerntune.compiling.compiler import Compiler
from kerntune.gpu.compile_only import StaticBackend
from kerntune.gpu.cuda import CudaBackend

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
    backend, compiler = StaticBackend((Target.parse("cuda:90"),)), Compiler()
    with backend.activate():
        for case in (CASES[name] for name in options.kernels):
            for shape in case.shapes[: options.shapes]:
                tuner = case.tuned(triton.autotune, case.configs(shape)[:: options.every])
                one = sweep.prepare(backend, compiler, tuner, case.call(shape, "cuda"))
                yield {"case": case.label(shape), "distinct": len(one.running), "configs": one.rows()}
    compiler.close()
