"""Holds ``kerntune.autotune`` against ``triton.autotune`` on one NVIDIA GPU: ten kernels at three shapes each.

    python benchmarks/tuning_suite.py OUT.json [--part cold,stability,added,memory,quality] [--kernels matmul,softmax]

Parts are merged into OUT.json; those that aren't asked for stay as they are. ``--dry`` compiles every config for sm_90
without a GPU. ``benchmarks/tuning_tables.py OUT.json`` prints what came of it.

cold       each kernel and shape: seconds of the first call, in a fresh process with empty caches; the processes that
           compile included, imports not; one tuner after the other, the first one alternating
stability  ten cold runs of three kernels (three of triton.autotune): what wins
added      one config added to 48: the same process, and a new one that has the caches of the first
memory     device memory while an in-place kernel is tuned whose tensor is half of the GPU's
quality    every config of every kernel and shape timed in turn, its static figures: what winners are held against
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.suite.cases import CASES
from benchmarks.suite.children import child, in_turn
from benchmarks.suite.results import environment, merge
from benchmarks.suite.tables import report

Job = dict[str, Any]

STABLE = (("matmul", 1), ("softmax", 0), ("rms_norm", 0))
"""Kernel and index of its shape: a product of 2048^3, rows that fit a block, rows that are walked."""

ROUNDS = 15
"""Slots of a config in the sweep. A slot is some 2 ms of launches; medians of 10 agree to 0.1 % (see PEERS in docs)."""

NEAR = 1.3
"""Configs within this of the best get all rounds, the rest a few."""


def jobs(names: list[str], engines: tuple[str, ...] = ("triton", "kerntune")) -> list[Job]:
    """Every kernel and shape with both tuners, the first one alternating."""
    found = []
    for name in names:
        for shape in CASES[name].shapes:
            turn = engines if len(found) // len(engines) % 2 == 0 else engines[::-1]
            found += [{"engine": engine, "case": name, "shape": dict(shape)} for engine in turn]
    return found


def label(job: Job) -> str:
    """The case's name as it stands in the results."""
    return CASES[job["case"]].label(job["shape"])


def tell(text: str) -> None:
    """Progress, with the time since the start."""
    print(f"[{time.perf_counter() - START:6.1f} s] {text}", flush=True)


START = time.perf_counter()


def run_jobs(listed: list[Job], together: int) -> list[Job]:
    """Results, one a job."""
    rows = []
    for job, found in in_turn(listed, together):
        rows.append({"case": label(job), "engine": job["engine"], **found})
        tell(
            f"{rows[-1]['case']} {job['engine']}: {found.get('seconds', found.get('error'))} {found.get('winner', '')}"
        )
    return rows


def cold(options: argparse.Namespace) -> list[Job]:
    """One cold run of each."""
    return run_jobs(jobs(options.kernels) * options.rounds, options.together)


def stability(options: argparse.Namespace) -> list[Job]:
    """Cold runs of a few, many times."""
    listed = []
    for name, index in STABLE:
        if name in options.kernels:
            one = {"case": name, "shape": dict(CASES[name].shapes[index])}
            listed += [{"engine": "kerntune", **one}] * options.runs + [{"engine": "triton", **one}] * options.peer_runs
    return run_jobs(listed, options.together)


def added(options: argparse.Namespace) -> Job:
    """One config added to 48: in a new process that has the caches of the first, and in the same process."""
    one = {"case": "matmul", "shape": dict(CASES["matmul"].shapes[0])}
    found: Job = {"case": label(one)}
    for engine in ("kerntune",) if options.no_peer else ("kerntune", "triton"):
        with shared_caches() as folder:
            with child({"engine": engine, **one}, folder) as first:
                found[f"{engine}_cold"] = first.tune()
            with child({"engine": engine, **one, "lists": [True]}, folder) as second:
                found[f"{engine}_new_process"] = second.tune()
    with child({"engine": "kerntune", **one, "lists": [False, True]}) as both:
        both.tune()
        found["kerntune_same_process"] = both.tune()
    for name, result in found.items():
        tell(f"added: {name}: {result}")
    return found


@contextmanager
def shared_caches() -> Iterator[str]:
    """A folder for caches that several processes use."""
    folder = tempfile.mkdtemp(prefix="tuning-suite-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def memory(options: argparse.Namespace) -> list[Job]:
    """Peak of the whole device's used memory while a huge tensor is tuned in place, against that before it."""
    from benchmarks.suite.sampler import watched

    rows = []
    for engine, restore in (("kerntune", False), ("kerntune", True), ("triton", True)):
        rows.append({"engine": engine, "restore_value": restore, **watched(engine, restore, options.share)})
        tell(f"memory: {rows[-1]}")
    return rows


def quality(options: argparse.Namespace) -> list[Job]:
    """All configs of all cases, timed in turn."""
    import torch
    import triton

    from benchmarks.suite import sweep
    from kerntune.backend.cuda import CudaBackend
    from kerntune.compile import Compiler

    backend, compiler, done = CudaBackend(), Compiler(), []
    torch.manual_seed(0)
    with shared_caches() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        for name in options.kernels:
            for shape in CASES[name].shapes:
                case = CASES[name]
                tuner = case.tuned(triton.autotune, case.configs(shape))
                call = case.call(shape, "cuda")
                expected = call.expected()
                one = sweep.prepare(backend, compiler, tuner, call)
                off = call.off(expected, case.tolerance)
                del expected
                with backend.gpu.lock():
                    sweep.measure(one, rounds=ROUNDS, near=NEAR)
                one.capture = one.site = None  # type: ignore[assignment]  # its tensors go
                done.append(({"case": case.label(shape), "off": off}, one))
                best = min((s.time_ns or 1e18 for s in one.swept), default=0)
                tell(
                    f"quality: {done[-1][0]}: {len(one.running)} distinct of {len(one.swept)}, best {best / 1e3:.2f} us"
                )
    compiler.close()
    sweep.add_metrics([one for _, one in done], backend.spec, len(os.sched_getaffinity(0)))
    return [{**head, "timing": one.timing, "configs": one.rows()} for head, one in done]


PARTS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "cold": cold, "stability": stability, "added": added, "memory": memory, "quality": quality,
}  # fmt: skip


def dry_run(options: argparse.Namespace) -> int:
    """Every config of every kernel compiled for sm_90, without a GPU; how many failed."""
    import triton

    from benchmarks.suite import sweep
    from kerntune.backend.static import StaticBackend
    from kerntune.compile import Compiler
    from kerntune.device import Target

    backend, compiler, failed = StaticBackend((Target.parse("cuda:90"),)), Compiler(), 0
    with backend.activate():
        for name in options.kernels:
            for shape in CASES[name].shapes[: options.shapes]:
                case = CASES[name]
                tuner = case.tuned(triton.autotune, case.configs(shape)[:: options.every])
                one = sweep.prepare(backend, compiler, tuner, case.call(shape, "cuda"))
                bad = [s for s in one.swept if s.failure]
                failed += len(bad)
                tell(f"{case.label(shape)}: {len(one.swept)} configs, {len(one.running)} distinct, {len(bad)} failed")
                for s in bad:
                    print(f"  {s.config}: {s.failure}")
    compiler.close()
    return failed


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", help="the result file")
    parser.add_argument("--part", default=",".join(PARTS), help="parts to run (default: all)")
    parser.add_argument("--kernels", default=",".join(CASES), help="of these only (default: all)")
    parser.add_argument("--rounds", type=int, default=1, help="cold runs of each kernel, shape and tuner")
    parser.add_argument("--runs", type=int, default=10, help="cold runs for stability")
    parser.add_argument("--peer-runs", type=int, default=3, help="the same of triton.autotune")
    parser.add_argument("--no-peer", action="store_true", help="leave triton.autotune out of 'added'")
    parser.add_argument("--together", type=int, default=12, help="processes that are prepared at the same time")
    parser.add_argument("--share", type=float, default=0.5, help="of the GPU's memory, the tensor of 'memory'")
    parser.add_argument("--dry", action="store_true", help="compile everything for sm_90, no GPU needed")
    parser.add_argument("--every", type=int, default=1, help="with --dry: every n-th config only")
    parser.add_argument("--shapes", type=int, default=None, help="with --dry: the first shapes only")
    options = parser.parse_args()
    options.kernels, options.part = options.kernels.split(","), options.part.split(",")
    if not options.dry and options.out is None:
        parser.error("give the result file")
    return options


def main() -> int:
    """Run the parts one after the other; each is written as soon as it is there."""
    options = arguments()
    if options.dry:
        return min(dry_run(options), 1)
    found: Job = {}
    for part in options.part:
        begin = time.perf_counter()
        rows = PARTS[part](options)
        seconds = {**found.get("seconds", {}), part: round(time.perf_counter() - begin, 1)}
        found = merge(options.out, environment=environment(), seconds=seconds, **{part: rows})
        tell(f"{part}: {seconds[part]} s")
    print(report(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
