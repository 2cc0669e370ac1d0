"""What a decision takes beyond compiling: a case whose identity holds, and one that is replayed in pairs.

    python benchmarks/decision_time.py OUT.json [--profile PREFIX]

Ten cases and more (``timed_cases``), bare kernels, on a GPU: recorded (with calibration), checked again, and checked as
their twins, which are equal code of another identity, so that each is decided by a paired replay. Each is compiled
before its clock starts. ``seconds`` is the whole check: the captured call, record, sample, replay, verdict. The start
of worker processes is in it: ``per_case`` is the whole pass over its number of cases.
"""

from __future__ import annotations

import argparse
import cProfile
import datetime
import json
import os
import platform
import pstats
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import triton
from timed_cases import Case, cases

from kerntune.base.policy import Update
from kerntune.gate.api import Call, Session, Settings, open_session

PASSES = {"recorded": False, "identity": False, "paired": True}
"""Passes over all cases, and whether they run twins."""


def environment() -> dict[str, object]:
    """Where this ran."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
    }


def checked(session: Session, case: Case, twin: bool, profile: Path | None) -> dict[str, Any]:
    """One check, its code compiled before."""
    args, options = case.make(), case.options(twin)
    call = Call(f"benchmarks/timed_cases.py::{case.name}", "0", case.fn, args, options)
    session._captured(call, ())  # compiles
    torch.cuda.synchronize()
    profiler = cProfile.Profile() if profile else None
    start = time.perf_counter()
    done = profiler.runcall(session.check, call) if profiler else session.check(call)
    seconds = time.perf_counter() - start
    done.commit()
    if profiler and profile:
        with profile.open("w") as stream:
            pstats.Stats(profiler, stream=stream).sort_stats("cumulative").print_stats(45)
    (result,) = done.results
    found = {"seconds": round(seconds, 4), "verdict": result.verdict.value, "rung": result.rung, "timer": result.timer}
    return {**found, "us": round((result.current_ns or 0) / 1e3, 2), "slots": len(result.times_ns)}


def passed(name: str, settings: Settings, profile: str) -> dict[str, Any]:
    """One pass over all cases, in a session of its own."""
    session, found = open_session(settings), {}
    session.start()
    try:
        for case in cases():
            where = Path(f"{profile}-{name}-{case.name}.txt") if profile else None
            found[case.name] = checked(session, case, PASSES[name], where)
            print(f"{name}: {case.name} {found[case.name]}", flush=True)
    finally:
        session.close()
    seconds = [x["seconds"] for x in found.values()]
    return {
        "per_case": round(statistics.mean(seconds), 4),
        "median": round(statistics.median(seconds), 4),
        "longest": max(seconds),
        "cases": found,
    }


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--profile", default="", metavar="PREFIX", help="write a profile of each check to PREFIX-...")
    args = parser.parse_args()
    out: dict[str, Any] = {"environment": environment()}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        settings = Settings(root, root / "baselines", Update.NEW, cache_dir=root / "cache")
        for name in PASSES:
            out[name] = passed(name, settings, args.profile)
            print(f"{name}: {out[name]['per_case']} s per case, longest {out[name]['longest']} s", flush=True)
    args.out.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
