"""The parts of the tuning suite that need fresh processes. Each yields rows as they come."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.harness import scratch
from benchmarks.suite.cases import CASES
from benchmarks.suite.children import child, in_turn

Job = dict[str, Any]
Row = dict[str, Any]


def label(job: Job) -> str:
    """The case's name as it stands in the results."""
    return CASES[job["case"]].label(job["shape"])


def in_both(names: list[str]) -> list[Job]:
    """Every kernel and shape with both tuners, the first one alternating. All kernels' first shapes come first: a run
    that is cut short has something of each."""
    cases = [(name, shape) for name in names for shape in CASES[name].shapes]
    cases.sort(key=lambda case: list(CASES[case[0]].shapes).index(case[1]))
    found: list[Job] = []
    for name, shape in cases:
        turn = ("triton", "kerntune") if len(found) % 4 == 0 else ("kerntune", "triton")
        found += [{"engine": engine, "case": name, "shape": dict(shape)} for engine in turn]
    return found


def _run(jobs: list[Job], together: int) -> Iterator[Row]:
    for job, found in in_turn(jobs, together):
        yield {"case": label(job), "engine": job["engine"], **found}


def cold(options: argparse.Namespace) -> Iterator[Row]:
    """Cold runs of each, as many as the budget of seconds allows: both tuners or none."""
    end = time.monotonic() + options.seconds
    jobs = in_both(options.kernels) * options.rounds
    step = options.together // 2 * 2 or 2
    for first in range(0, len(jobs), step):
        if time.monotonic() < end:
            yield from _run(jobs[first : first + step], step)
        else:
            print(f"no time left for {', '.join(label(job) for job in jobs[first::2])}", flush=True)
            return


def added(options: argparse.Namespace) -> Iterator[Row]:
    """One config added to 48: in a new process that has the caches of the first, and in the same process."""
    one = {"case": "matmul", "shape": dict(CASES["matmul"].shapes[0])}
    for engine in ("kerntune",) if options.no_peer else ("kerntune", "triton"):
        head = {"case": label(one), "engine": engine}
        with scratch() as folder:
            with child({"engine": engine, **one}, folder) as first:
                yield {**head, "step": "cold", **first.tune()}
            with child({"engine": engine, **one, "lists": [True]}, folder) as second:
                yield {**head, "step": "new process", **second.tune()}
    with child({"engine": "kerntune", **one, "lists": [False, True]}) as both:
        both.tune()
        yield {"case": label(one), "engine": "kerntune", "step": "same process", **both.tune()}
