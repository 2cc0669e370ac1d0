"""How many compilers run at once when many processes of a host tune: 16 workers, with and without shared tokens.

    python benchmarks/compiler_crowd.py [--workers 16] [--configs 6] [--out FILE]

Each worker is a fork of this process with a compile farm and a Triton cache of its own, as a worker of pytest-xdist
has; it compiles matmul configs for sm_90. A job is noted by the clock while its compiling process works on it, so the
count doesn't rest on the tokens themselves. Memory is the proportional set size (PSS) of all processes together,
sampled every half second. The JSON is written to ``benchmarks/results/compiler_crowd.json``; the run fails if more
compilers ran at once than there were tokens.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gc
import itertools
import json
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import triton

from kerntune.base.device import Target
from kerntune.compiling import farm, worker_process
from kerntune.compiling.compiler import Compiler
from kerntune.compiling.compiler_tokens import SWITCH, token_count
from tests.compiling import kernels

RESULT = Path(__file__).parent / "results" / "compiler_crowd.json"
SAMPLE_S = 0.5


def configs(worker: int, count: int) -> list[Any]:
    """Matmul configs, in another order for each worker, so that slow ones don't meet."""
    picked = list(itertools.product((32, 64, 128), (32, 64, 128), (32, 64), (2, 3)))
    turned = picked[worker % len(picked) :] + picked[: worker % len(picked)]
    return [
        kernels.matmul_launch(Target.parse("cuda:90"), m, n, k, num_stages=s, num_warps=4)
        for m, n, k, s in turned[:count]
    ]


def note_jobs(times: list[tuple[float, float]]) -> None:
    """Note when a compiling process works on a job."""
    ask = worker_process.Process.ask

    def noted(process: Any, *words: Any) -> Any:
        begin = time.monotonic()
        try:
            return ask(process, *words)
        finally:
            times.append((begin, time.monotonic()))

    farm.Process.ask = noted  # type: ignore[method-assign]


def work(number: int, count: int, folder: Path) -> None:
    """One worker; its jobs' times go to a file."""
    os.environ["TRITON_CACHE_DIR"] = str(folder / f"cache{number}")
    times: list[tuple[float, float]] = []
    note_jobs(times)
    compiler = Compiler()
    try:
        compiler.compile_all(configs(number, count))
    finally:
        compiler.close()
        (folder / f"{number}.json").write_text(json.dumps(times))


def forked(number: int, count: int, folder: Path) -> int:
    """Its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work(number, count, folder)
        code = 0
    finally:
        os._exit(code)


def at_once(times: Sequence[tuple[float, float]]) -> int:
    """How many intervals overlap at most."""
    moments = sorted([(begin, 1) for begin, _ in times] + [(end, -1) for _, end in times])
    return max(itertools.accumulate(change for _, change in moments), default=0)


class Memory:
    """Samples what this process and all its descendants hold."""

    def __init__(self) -> None:
        self.most_mib = self.most_processes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._done.wait(SAMPLE_S):
            pids = descendants(os.getpid())
            self.most_mib = max(self.most_mib, sum(map(pss_kib, pids)) >> 10)
            self.most_processes = max(self.most_processes, len(pids))


def descendants(root: int) -> list[int]:
    """A process and all below it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def pss_kib(pid: int) -> int:
    """Of one process; 0 if it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def crowd(workers: int, count: int, compilers: int) -> dict[str, Any]:
    """All workers at once; ``compilers`` as ``KERNTUNE_COMPILERS``."""
    os.environ[SWITCH] = str(compilers)
    folder = Path(tempfile.mkdtemp(prefix="kerntune-benchmark-"))
    begin = time.monotonic()
    try:
        pids = [forked(number, count, folder) for number in range(workers)]
        with Memory() as memory:
            codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        times = [tuple(x) for path in sorted(folder.glob("*.json")) for x in json.loads(path.read_text())]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "tokens": compilers or None,
        "failed_workers": sum(code != 0 for code in codes),
        "jobs": len(times),
        "compilers_at_once": at_once(times),
        "seconds": round(time.monotonic() - begin, 2),
        "most_memory_mib": memory.most_mib,
        "most_processes": memory.most_processes,
    }


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--configs", type=int, default=6)
    parser.add_argument("--out", type=Path, default=RESULT)
    words = parser.parse_args()
    os.environ.pop(SWITCH, None)
    tokens = token_count()
    gc.collect()
    gc.freeze()  # forks needn't copy what is there
    atexit.register(gc.unfreeze)
    rows = [crowd(words.workers, words.configs, compilers) for compilers in (tokens, 0)]
    report = {
        "date": str(date.today()),
        "environment": {
            "triton": triton.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": f"{platform.system()} {platform.machine()}",
            "cores": len(os.sched_getaffinity(0)),
        },
        "workers": words.workers,
        "configs_per_worker": words.configs,
        "with_tokens": rows[0],
        "each_process_by_itself": rows[1],
    }
    words.out.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))
    kept = rows[0]["compilers_at_once"] <= tokens and not rows[0]["failed_workers"]
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
