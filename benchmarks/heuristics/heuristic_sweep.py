"""Compares the configs that kerntune's heuristics propose with all that they could have proposed, on one NVIDIA GPU.

    python -m benchmarks.heuristics.heuristic_sweep OUT.json [--kernels gelu_1d,matmul] [--seconds 420]
    python -m benchmarks.heuristics.heuristic_sweep OUT.json --shapes held-out --most 210

Fourteen kernels of the generated families; per kernel 230 to 340 configs (blocks, warps, limits on registers, pipeline
stages) compiled in parallel, looked at once, and those near the best timed in turn with all proposals. OUT.json has
every config with its time and static figures, so that a preset can be judged without a GPU; kernels that an earlier run
has measured are replaced, the others stay. Without a GPU: ``--dry`` compiles for sm_90, and
``OUT.json --judge --preset NAME`` looks up what a preset proposes among the stored times. ``--shapes held-out`` has the
same kernels at shapes and dtypes for which no preset's rules were made.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import torch
import triton

from benchmarks import harness
from benchmarks.harness import merge
from benchmarks.suite import sweep
from benchmarks.suite.case import config_text
from benchmarks.suite.held_out_cases import HELD_OUT
from benchmarks.suite.proposed import Proposed
from benchmarks.suite.proposed_cases import PROPOSED
from benchmarks.suite.tables import report
from kerntune.base.config import Config
from kerntune.base.device import Target
from kerntune.capture import Capture
from kerntune.compiling.compiler import Compiler
from kerntune.gpu.base import Backend
from kerntune.kernels.compat import tuners

SHAPES = {"tuned": PROPOSED, "held-out": HELD_OUT}

ROUNDS = 12
LOOK, NEAR = 1.6, 1.15
"""Configs within the first of the best by a first look are timed in turn, those within the second again and again."""

START = time.perf_counter()


def thinned(total: int, proposed: Collection[int], most: int) -> list[int]:
    """``most`` of the first ``total`` numbers: all that are proposed, and others at even distances."""
    others = [i for i in range(total) if i not in proposed]
    room = min(max(most - len(proposed), 0), len(others))
    return sorted({*proposed, *(others[n * len(others) // room] for n in range(room))})


def swept(
    backend: Backend, compiler: Compiler, case: Proposed, most: int = sys.maxsize
) -> tuple[sweep.Sweep, dict[str, Any]]:
    """A kernel's proposals and space, ``most`` configs in all, compiled."""
    call = case.call(case.shape, "cuda")
    configs, sets = case.configs(call)
    keep = thinned(len(configs), {i for found in sets.values() for i in found}, most)
    place = {i: n for n, i in enumerate(keep)}
    listed = [tuners.triton_config(configs[i]) for i in keep]
    tuner = triton.autotune(listed, key=[], **case.options)(case.kernel)
    head = {
        "kernel": case.name,
        "family": case.family,
        "shape": dict(case.shape),
        "proposals": {name: [place[i] for i in found] for name, found in sets.items()},
    }
    if backend.gpu is None:
        return sweep.prepare(backend, compiler, tuner, call), head
    expected = call.expected()
    one = sweep.prepare(backend, compiler, tuner, call)
    return one, {**head, "off": call.off(expected, case.tolerance)}


def run(options: argparse.Namespace, backend: Backend) -> Iterator[dict[str, Any]]:
    """All kernels; those that the budget of seconds leaves out are printed."""
    compiler = Compiler()
    for name in options.kernels:
        if time.perf_counter() - START > options.seconds:
            print(f"{name}: no time left", flush=True)
            continue
        one, head = swept(backend, compiler, SHAPES[options.shapes][name], options.most)
        compiled = time.perf_counter() - START
        if backend.gpu is not None:
            always = {i for found in head["proposals"].values() for i in found}
            with backend.gpu.lock():
                sweep.measure(one, rounds=ROUNDS, near=NEAR, look=LOOK, always=always)
        sweep.add_metrics([one], backend.spec, len(os.sched_getaffinity(0)))
        yield {**head, "timing": one.timing, "configs": one.rows()}
        failed = sum(bool(s.failure) for s in one.swept)
        print(
            f"[{time.perf_counter() - START:6.1f} s] {name}: {len(one.swept)} configs, {len(one.running)} distinct, "
            f"{failed} failed, off {head.get('off')}, compiled at {compiled:.1f} s, {one.timing}",
            flush=True,
        )
    compiler.close()


def proposed(backend: Backend, case: Proposed, **options: Any) -> tuple[Config, ...]:
    """A kernel's proposals as a capture sees them, so that loads and reductions are counted without a GPU too."""
    compiler = Compiler()
    try:
        with Capture(backend, compiler, thread=threading.get_ident()).active():
            return case.proposals(case.call(case.shape, "cuda"), **options)
    finally:
        compiler.close()


def judged(result: dict[str, Any], backend: Backend, **options: Any) -> list[dict[str, Any]]:
    """Stored kernels with a preset's proposals in place of the stored ones. Configs that the sweep didn't have are
    printed.

    ``options`` are the decorators', ``preset`` and perhaps ``max_autotune``.
    """
    rows = []
    for row in result["kernels"]:
        case = SHAPES[result.get("shapes", "tuned")][row["kernel"]]
        found = proposed(backend, case, **options)
        place = {words(c["config"]): i for i, c in enumerate(row["configs"])}
        texts = [config_text(tuners.triton_config(c)) for c in found]
        for text in texts:
            if words(text) not in place:
                print(f"{case.name}: {text} is proposed, but was not swept")
        rows.append({**row, "proposals": {options["preset"]: [place[words(t)] for t in texts if words(t) in place]}})
    return rows


def arguments() -> argparse.Namespace:
    parser = harness.parser(__doc__)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--kernels", default=",".join(PROPOSED), help="of these only (default: all)")
    parser.add_argument("--seconds", type=float, default=420.0, help="no further kernel is begun after this")
    parser.add_argument("--most", type=int, default=sys.maxsize, help="so many configs a kernel, evenly chosen")
    parser.add_argument("--shapes", choices=SHAPES, default="tuned", help="held-out: those no rule was made for")
    parser.add_argument("--judge", action="store_true", help="judge --preset by the times in OUT.json, no GPU needed")
    parser.add_argument("--preset", default="inductor-2.13")
    parser.add_argument("--max-autotune", action="store_true", help="with --judge: the preset's larger set")
    parser.add_argument("--dry", action="store_true", help="compile for sm_90, no GPU needed, nothing is timed")
    options = parser.parse_args()
    options.kernels = options.kernels.split(",")
    if not options.dry and options.out is None:
        parser.error("give the result file")
    return options


def words(text: str) -> frozenset[str]:
    """A config's text without its order: proposals name a kernel's blocks in another one than the space does."""
    return frozenset(text.split())


def write(options: argparse.Namespace, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Put measured kernels into the result file, in the order of the suite."""
    before = json.loads(options.out.read_text()).get("kernels", []) if options.out.exists() else []
    new = {row["kernel"] for row in rows}
    order = {name: n for n, name in enumerate(PROPOSED)}
    together = [*(row for row in before if row["kernel"] not in new), *rows]
    together.sort(key=lambda row: order.get(row["kernel"], len(order)))
    seconds = round(time.perf_counter() - START, 1)
    return merge(
        options.out,
        environment=harness.environment(**harness.gpu_environment()),
        shapes=options.shapes,
        seconds=seconds,
        kernels=together,
    )


def without_gpu(options: argparse.Namespace) -> int:
    """``--dry`` or ``--judge``, on stand-ins for an H100 (the same multiprocessors as an H200)."""
    from kerntune.gpu.fake_cuda.static_backend import StaticBackend

    backend = StaticBackend(Target.parse("cuda:90"))
    with backend.activate():
        if options.judge:
            result = json.loads(options.out.read_text())
            rows = judged(result, backend, preset=options.preset, max_autotune=options.max_autotune)
            print(report({"kernels": rows}))
            return 0
        for row in run(options, backend):
            for c in row["configs"]:
                if "failure" in c:
                    print(f"{row['kernel']} {c['config']}: {c['failure']}")
    return 0


def on_gpu(options: argparse.Namespace) -> int:
    """Sweep, write, print."""
    from kerntune.gpu.cuda import CudaBackend

    torch.manual_seed(0)
    found: dict[str, Any] = {}
    for row in run(options, CudaBackend()):
        found = write(options, [row])
    print(report(found))
    return 0


def main() -> int:
    """With Triton's cache in a new folder: every run compiles everything."""
    options = arguments()
    os.environ["TRITON_CACHE_DIR"] = folder = tempfile.mkdtemp(prefix="heuristic-sweep-")
    try:
        return (without_gpu if options.dry or options.judge else on_gpu)(options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
