"""Compares the compile farm with one-by-one compilation, and shows what a crash, a hang and a lack of memory cost.

Run ``python benchmarks/compile_farm.py`` where Triton is installed; no GPU is needed. Every pass has an empty cache of
its own, the two sides take turns (their order alternates), and each farm pass starts its processes anew. It writes
``benchmarks/results/compile_farm.json`` and fails if the farm is less than 1.7 times as fast in the median, if one byte
of code differs, or if a bad kernel costs more than itself. Other programs that want the cores bring the ratio down
(beside one of them, one process has a core and two have 1.33), so a round in which they used more than a tenth of the
machine counts only if there is no better one; ``--patience`` waits for them before each round.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import triton

from kerntune.base.device import Target
from kerntune.compiling.compiler import Compiled, Compiler, describe
from kerntune.compiling.deadline import Deadline
from kerntune.compiling.farm import Farm, worker_count
from kerntune.compiling.frontend import request_of
from kerntune.kernels.specialize import Specialized
from tests.compiling import kernels

REQUIRED = 1.7
QUIET = 0.1
"""Share of the machine that others may use in a round that counts."""

HANG_SECONDS = 5.0
RESULT = Path(__file__).parent / "results" / "compile_farm.json"


def configs(target: Target) -> list[Specialized]:
    """48 matmul configs: block sizes, pipeline stages, warps, as autotuning lists have them."""
    blocks = itertools.product((32, 64, 128), (32, 64, 128), (32, 64))
    picked = [(m, n, k, s) for m, n, k in blocks for s in (2, 3, 4)]
    picked.sort(key=lambda c: (c[0] * c[1] * c[2] * c[3], c))
    return [
        kernels.matmul_launch(target, m, n, k, num_stages=s, num_warps=8 if m * n >= 128 * 64 else 4)
        for m, n, k, s in picked[:48]
    ]


@contextmanager
def empty_cache() -> Any:
    """Triton's cache in a new folder, which goes afterwards."""
    folder = tempfile.mkdtemp(prefix="kerntune-benchmark-")
    os.environ["TRITON_CACHE_DIR"] = folder
    try:
        yield
    finally:
        shutil.rmtree(folder)


def one_by_one(launches: list[Specialized]) -> dict[str, bytes]:
    """Plain ``triton.compile`` of each, as ``triton.autotune`` does, and then what both sides owe: its description."""
    out = {}
    for launch in launches:
        request = request_of(launch)
        kernel = triton.compile(request.source, target=request.target, options=dict(vars(launch.options)))
        out[launch.key()] = describe(launch, kernel).data
    return out


def on_the_farm(launches: list[Specialized]) -> dict[str, bytes]:
    """The farm from nothing: processes started, kernels described and stored, processes ended."""
    compiler = Compiler(Farm())
    found = dict(_data(launch, result) for launch, result in compiler.compile_stream(launches))
    compiler.close()
    return found


def _data(launch: Specialized, result: Any) -> tuple[str, bytes]:
    assert isinstance(result, Compiled), result
    return launch.key(), result.data


def timed(run: Callable[[list[Specialized]], dict[str, bytes]], launches: list[Specialized]) -> dict[str, Any]:
    """Wall seconds, CPU seconds of this program with all that it started, the share of the machine others used."""
    with empty_cache():
        machine, mine, start = _machine(), sum(os.times()[:4]), time.perf_counter()
        code = run(launches)
        seconds = time.perf_counter() - start
        cpu = sum(os.times()[:4]) - mine
        others = max(_machine() - machine - cpu, 0.0) / (seconds * (os.cpu_count() or 1))
    return {"seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2), "others": round(others, 3), "code": code}


def _machine() -> float:
    """CPU seconds that the machine has worked: user, nice and system together."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return sum(map(int, fields[1:4])) / os.sysconf("SC_CLK_TCK")


def wait_for_quiet(patience: float) -> None:
    """Until others leave the machine alone for two seconds, at most ``patience`` seconds."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        before = _machine()
        time.sleep(2)
        if (_machine() - before) / (2 * (os.cpu_count() or 1)) < QUIET:
            return


def speed(rounds: int, target: Target, patience: float) -> dict[str, Any]:
    """The two sides in turn, ``rounds`` times."""
    launches, serial, farm = configs(target), [], []
    one_by_one(launches[:2])  # imports and one-time work, for neither side to pay
    for i in range(rounds):
        wait_for_quiet(patience)
        for run, kept in [(one_by_one, serial), (on_the_farm, farm)][:: 1 if i % 2 == 0 else -1]:
            kept.append(timed(run, launches))
            print(run.__name__, {k: v for k, v in kept[-1].items() if k != "code"}, flush=True)
    codes = [run.pop("code") for run in (*serial, *farm)]
    pairs = list(zip(serial, farm, strict=True))
    ratios = [a["seconds"] / b["seconds"] for a, b in pairs]
    quiet = [r for r, (a, b) in zip(ratios, pairs, strict=True) if max(a["others"], b["others"]) <= QUIET]
    return {
        "configs": len(launches),
        "target": str(target),
        "one_by_one": serial,
        "farm": farm,
        "ratios": [round(r, 3) for r in ratios],
        "quiet_rounds": len(quiet),
        "median_ratio": round(statistics.median(quiet or ratios), 3),
        "median_ratio_of_all": round(statistics.median(ratios), 3),
        "cpu_ratio": round(sum(s["cpu_seconds"] for s in serial) / sum(f["cpu_seconds"] for f in farm), 3),
        "same_binaries": all(code == codes[0] for code in codes),
    }


def containment(target: Target) -> dict[str, Any]:
    """Each kind of bad kernel among good ones: what it came to, and whether the good ones all came through."""
    huge = kernels.launch(kernels.huge, kernels.HALVES, target, B=1024)
    sort = kernels.launch(kernels.sort, kernels.INTS, target, B=1 << 15, num_warps=1)
    abort = kernels.launch(kernels.abort, kernels.FLOATS, target, B=128)
    return {
        "abort": _bad(abort, Farm()),
        "hang": _bad(huge, Farm(deadline=Deadline(floor=HANG_SECONDS))),
        "out_of_memory": _bad(sort, Farm(memory=512 << 20, deadline=Deadline(floor=120))),
    }


def _bad(bad: Specialized, farm: Farm) -> dict[str, Any]:
    good = [kernels.add_launch(bad.target, 64 << i, num_warps=w) for i in range(5) for w in (4, 8)]
    compiler = Compiler(farm)
    with empty_cache():
        start = time.perf_counter()
        found = {launch.key(): result for launch, result in compiler.compile_stream([bad, *good])}
        seconds = time.perf_counter() - start
        compiler.close()
    reason = found[bad.key()]
    return {
        "seconds": round(seconds, 2),
        "reason": "compiled" if isinstance(reason, Compiled) else str(reason).split(": ", 1)[1],
        "failed": sum(not isinstance(x, Compiled) for x in found.values()),
        "compiled": sum(isinstance(x, Compiled) for x in found.values()),
    }


def environment() -> dict[str, Any]:
    """Where this ran."""
    return {
        "triton": triton.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)),
        "workers": worker_count(),
    }


def main() -> int:
    """Run, write the results, and return 1 if a requirement isn't met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--patience", type=float, default=0.0, help="seconds to wait for a quiet machine, per round")
    parser.add_argument("--target", default="cuda:90")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    target = Target.parse(options.target)
    result = {
        "date": date.today().isoformat(),
        "environment": environment(),
        "required": REQUIRED,
        "speed": speed(options.rounds, target, options.patience),
        "containment": containment(target),
    }
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    contained = all(x["failed"] == 1 and x["compiled"] == 10 for x in result["containment"].values())
    fast = result["speed"]["median_ratio"] >= REQUIRED
    return 0 if fast and contained and result["speed"]["same_binaries"] else 1


if __name__ == "__main__":
    sys.exit(main())
