"""Two GPUs of a host against one of them with half of its cores: 64 keys of 8 kernels, cold; and A/A beside neighbours.

    python benchmarks/many_gpus.py OUT.json [--only xdist,tune_many,dask,aa] [--gpus 0,1] [--keys 64] [--workers 1]
    python benchmarks/many_gpus.py OUT.json --scripted --keys 4

One command on a host with two GPUs; OUT.json is written after each side of each part, so a run that is broken off
leaves what it has, and parts of earlier runs that aren't in ``--only`` stay. A side that takes longer than its way's
limit (``LIMITS_S``, or ``--limit``) is ended, and counts with the keys that it has. Each way (``pytest -n``,
``kerntune.tune_many``, a Dask cluster)
tunes the keys twice, each time with empty caches: on the first GPU with half of the cores, and on all GPUs with all.
Cores are those that this process may use, and no more than its control group's quota. Half of them are both threads of
half of the cores; where the system hides threads, as virtual machines do, ``environment.beside`` has how fast the first
core counts beside the next one and beside the one half of all later, and the half is chosen by that.

``startup_s`` is until the first key is begun and is no part of ``keys_per_s``; ``keys_per_s_with_startup`` has it.
``each`` has kernel, process and seconds of each key, ``processes`` the share of the time in which each has a key, and
``compiled`` how many configs were compiled, how many of them again, and the seconds of all compilers together.
pytest (with ``--dist=worksteal``, so that a worker has whole kernels) tunes and times each case here and records no
baseline (``--kerntune-missing=warn``); with ``--record`` it does, which takes four replays of each case in addition.
``winners`` holds the two runs' winners against each other: equal configs are equal, others are replayed in pairs
(log-ratio of the times, in turn, in processes of their own), ``--compare`` of them at most, chosen at random;
``tuned_us`` is what each run's own race gave its winner. All tensors are normally distributed, in every way and in the
replays (``winner_contents.py`` has what other numbers do). Where a
key failed or a process ended with an error, ``said`` has the end of what its processes wrote.

``aa`` has the standard deviation of replays of equal code, in rows for four processes on one GPU and for two on each of
two: each replays its cases alone on the device, and in between runs kernels there while others wait or run, too.

``--scripted`` does the same on scripted GPUs, with real compilation: it shows that the parts work and nothing of times.
A way whose package isn't there is left out with a note.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import math
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

WAYS = ("xdist", "tune_many", "dask", "aa")
AA_KEYS = (
    ("add", (1 << 20,)), ("softmax", (4096, 2048)), ("matmul", (1024, 2048, 1024)), ("rms_norm", (4096, 4096))
)  # fmt: skip
"""Some microseconds to some hundreds on an H200."""

LIMITS_S = {"xdist": 70.0, "tune_many": 50.0, "dask": 50.0, "aa": 45.0}
"""Seconds that a side of a way may take, or a row of A/A, unless ``--limit`` says: some twice what they should."""

MOST_TEXT = 6000
"""Characters of what processes wrote that come into the results."""

SHORTEST_US = 3.0
"""Kernels below are timed less exactly, and have no part in the requirement."""

CONFTEST = """
import tempfile
{scripted}
"""

SCRIPTED = """
from many_gpus_kernels import scripted_gpus

def pytest_kerntune_backend(config):
    return scripted_gpus()
"""

TESTS = """
import json
import os
import time

import many_gpus_kernels as kernels
import pytest

KEYS = kernels.chosen_keys()

def tune(autotune, key):
    begin = time.time()
    grid, args = key.call()
    autotune(key.tuner[grid], *args)
    end = time.time()
    row = {"key": str(key), "kernel": key.kernel, "begin": begin, "end": end, "seconds": end - begin}
    with open(os.environ["MANY_GPUS_LOG"], "a") as file:
        file.write(json.dumps({**row, "process": os.getpid()}) + "\\n")
"""
"""A test function for each kernel follows, as projects have them."""

TEST = """
@pytest.mark.parametrize("key", [key for key in KEYS if key.kernel == {kernel!r}], ids=str)
def test_{kernel}(autotune, key):
    tune(autotune, key)
"""


# one side: some GPUs and some cores, caches of its own


class Side:
    """A folder with empty caches, the GPUs that are seen, and the cores that may be used."""

    def __init__(self, folder: Path, name: str, gpus: Sequence[str], cores: Sequence[int], words: Any) -> None:
        self.limit_s = limit_of(folder.name, words)
        self.folder, self.gpus, self.cores, self.words = folder / name, list(gpus), list(cores), words
        self.folder.mkdir(parents=True)
        self.log = self.folder / "log.jsonl"
        self.compiled = self.folder / "compiled.jsonl"
        self.cache = self.folder / "kerntune"

    def environ(self) -> dict[str, str]:
        """Of its processes."""
        return {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": ",".join(self.gpus),
            "KERNTUNE_CACHE_DIR": str(self.cache),
            "TRITON_CACHE_DIR": str(self.folder / "triton"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
            "MANY_GPUS_KEYS": str(self.words.keys),
            "MANY_GPUS_KERNELS": str(self.words.kernels),
            "MANY_GPUS_LOG": str(self.log),
            "MANY_GPUS_COMPILED": str(self.compiled),
            "CI": "",
        }

    def run(self, *command: str) -> dict[str, Any]:
        """Run a command with these; what its keys' log says."""
        begin = time.time()
        code = self._code_of(command)
        rows = rows_of(self.log)
        errors = [r["error"] for r in rows if r.get("error")]
        found = {"gpus": self.gpus, "cores": len(self.cores), "exit": code, "keys": len(rows) - len(errors)}
        if rows:
            first, last = min(r["begin"] for r in rows), max(r["end"] for r in rows)
            found |= {"startup_s": round(first - begin, 2), "work_s": round(last - first, 2)}
            found["keys_per_s"] = round(found["keys"] / (last - first), 3)
            found["keys_per_s_with_startup"] = round(found["keys"] / (last - begin), 3)
            found["processes"] = processes_of(rows, last - first)
            found["compiled"] = compiled_of([r for r in rows_of(self.compiled) if r["begin"] >= first])
            found["each"] = [[r["kernel"], r["process"], round(r["seconds"], 3)] for r in rows]
        if code or errors or len(rows) < self.words.keys:
            said = self.output.read_text(errors="replace").replace(str(ROOT), ".")
            found |= {"errors": errors[:5], "said": said[-MOST_TEXT:]}
        return found

    @property
    def output(self) -> Path:
        """What its processes write."""
        return self.folder / "output.txt"

    def _code_of(self, command: Sequence[str]) -> int | str:
        """The exit code, or that it took too long: all its processes are ended then."""
        with self.output.open("w") as file:
            process = subprocess.Popen(
                command, env=self.environ(), cwd=self.folder, stdout=file, stderr=subprocess.STDOUT,
                start_new_session=True, preexec_fn=lambda: os.sched_setaffinity(0, self.cores),
            )  # fmt: skip
            try:
                return process.wait(self.limit_s)
            except subprocess.TimeoutExpired:
                return f"ended after {self.limit_s:.0f} s"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def rows_of(log: Path) -> list[dict[str, Any]]:
    """Lines of JSON; none where nothing was written."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def processes_of(rows: Sequence[dict[str, Any]], seconds: float) -> dict[str, dict[str, float]]:
    """Of each process its keys, and the share of the time in which it had one."""
    each: dict[str, list[float]] = {}
    for row in rows:
        each.setdefault(str(row["process"]), []).append(row["seconds"])
    return {pid: {"keys": len(them), "busy": round(sum(them) / seconds, 3)} for pid, them in each.items()}


def compiled_of(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """How much was compiled, how much of it again, and for how long."""
    several = Counter(row["code"] for row in rows)
    again = sum(count - 1 for count in several.values())
    return {"configs": len(several), "again": again, "seconds": round(sum(row["seconds"] for row in rows), 2)}


def by_xdist(side: Side) -> dict[str, Any]:
    """The plugin's tests of all keys."""
    from plugin_options import plugin_options

    (side.folder / "conftest.py").write_text(CONFTEST.format(scripted=SCRIPTED if side.words.scripted else ""))
    import many_gpus_kernels

    tests = [TEST.format(kernel=kernel) for kernel in many_gpus_kernels.KERNELS]
    (side.folder / "test_keys.py").write_text(TESTS + "".join(tests))
    (side.folder / "pytest.ini").write_text("[pytest]\n")
    workers = len(side.gpus) * side.words.workers
    missing = f"--kerntune-missing={'record' if side.words.record else 'warn'}"
    return side.run(
        sys.executable, "-m", "pytest", *plugin_options(), "-q", "-p", "no:cacheprovider", "-n", str(workers),
        "--dist=worksteal", "--kerntune", missing, "-W", "ignore:TRITON_DEFAULT_FP_FUSION", "test_keys.py",
    )  # fmt: skip


def by_child(side: Side, way: str) -> dict[str, Any]:
    """``tune_many`` in a process of its own."""
    scripted = ["--scripted"] if side.words.scripted else []
    return side.run(sys.executable, str(Path(__file__).resolve()), str(side.log), "--child", way, *scripted)


def tune_in_child(log: Path, way: str, scripted: bool) -> None:
    """Tune all keys; the executor's processes are there, and have loaded torch and Triton, before the clock starts."""
    import many_gpus_kernels as kernels

    from kerntune.tuning.many.gpu_pools import GpuPools, chosen_gpus
    from kerntune.tuning.many.job_run import run_job
    from kerntune.tuning.many.outcome import JobRequest, encoded
    from kerntune.tuning.many.tune_many import tune_many, tuning_job

    keys = kernels.chosen_keys()
    gpus = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    if scripted:
        os.environ[kernels.SCRIPTED] = "1"  # of the processes that tune
    warm = [tuning_job(kernels.add_kernel, *_flat(kernels.line((1000 + i,), "meta"))) for i in range(len(gpus))]
    jobs = [tuning_job(key.tuner, *_flat(key.call("meta"))) for key in keys]
    with dask_pools(gpus) if way == "dask" else GpuPools(chosen_gpus(None)) as executor:
        begun = [executor.submit(run_job, encoded(JobRequest(job))) for job in warm]  # one for each process
        for one in begun:
            one.result()
        begin = time.time()

        def tell(outcome: Any) -> None:
            with log.open("a") as file:
                row = {"key": outcome.job, "kernel": outcome.kernel, "begin": begin, "end": time.time()}
                row |= {"ended": outcome.ended.name, "error": outcome.error, "process": outcome.pid}
                row |= {"seconds": outcome.seconds}
                file.write(json.dumps(row) + "\n")

        tune_many(jobs, executor=executor, progress=False, tell=tell)


def _flat(call: tuple[Any, tuple[Any, ...]]) -> tuple[Any, ...]:
    grid, args = call
    return (grid, *args)


@contextlib.contextmanager
def dask_pools(gpus: Sequence[str]) -> Iterator[Any]:
    """An executor of a Dask cluster with a worker for each GPU, which that worker sees first."""
    from distributed import Client, Nanny, Scheduler, SpecCluster

    lists = [",".join([*gpus[i:], *gpus[:i]]) for i in range(len(gpus))]
    workers = {
        i: {"cls": Nanny, "options": {"nthreads": 1, "env": {"CUDA_VISIBLE_DEVICES": text}}}
        for i, text in enumerate(lists)
    }
    with (
        SpecCluster(workers=workers, scheduler={"cls": Scheduler, "options": {}}) as cluster,
        Client(cluster) as client,
    ):
        yield client.get_executor()


# winners of two runs, in pairs


def backend_of(words: Any) -> Any:
    """The first visible GPU, or a scripted one."""
    if not words.scripted:
        from kerntune.gpu.cuda import CudaBackend

        return CudaBackend()
    from many_gpus_kernels import scripted_gpus

    return scripted_gpus()


def recorded(backend: Any, compiler: Any, key: Any, config: Any) -> Any:
    """A call of a key with one config."""
    from kerntune.capture import Capture
    from kerntune.capture.recorder import record

    (grid, args), capture = key.call(), Capture(backend, compiler)
    with capture.active():
        key.tuner.fn[grid](*args, **config.all_kwargs())
    return record(capture, backend.targets[0])


def ratio(backend: Any, pairs: Any, sides: Sequence[Any], seed: int) -> tuple[float, float]:
    """The log-ratio of the times of two recordings of one call, and the median time in microseconds."""
    from kerntune.base.stats import hodges_lehmann, median
    from kerntune.capture.memory_plan import describe
    from kerntune.timing.paired import common_plan
    from kerntune.timing.paired_processes import BLOCKS, PairedWork, log_ratios

    a, b = sides
    storages, contents = describe(b.recording.storages, b.sources, backend)
    _, before = common_plan(b.recording, a.recording)
    work = PairedWork(before, b.recording, storages, {**a.artifacts, **b.artifacts, **contents})
    reply = pairs.run(work.request(BLOCKS, seed))
    return hodges_lehmann(log_ratios(reply)).point, median(reply.a_ns + reply.b_ns) / 1e3


def compare_winners(first: Path, second: Path, words: Any) -> dict[str, Any]:
    """Where two caches have other winners, how these compare."""
    import many_gpus_kernels as kernels

    from kerntune.compiling.compiler import Compiler
    from kerntune.gate.measured_gpu import pairs_for

    backend, compiler = backend_of(words), Compiler()
    found: dict[str, Any] = {"equal": 0, "missing": 0}
    others = []
    with backend.activate(), contextlib.closing(pairs_for(backend)) as pairs, contextlib.closing(compiler):
        for key in kernels.chosen_keys(words.keys, words.kernels):
            won = [winner_of(backend, compiler, key, folder) for folder in (first, second)]
            if None in won:
                found["missing"] += 1
            elif won[0].config == won[1].config:
                found["equal"] += 1
            else:
                others.append((key, won))
        found |= {"different": len(others), "compared": {}}
        for key, won in random.Random(0).sample(others, min(len(others), words.compare)):
            found["compared"][str(key)] = {
                **compared(backend, compiler, pairs, key, [one.config for one in won]),
                "tuned_us": [round(one.time_ns / 1e3, 2) for one in won],
            }
    return found


def compared(backend: Any, compiler: Any, pairs: Any, key: Any, configs: Sequence[Any]) -> dict[str, Any]:
    """Two winners of a key in pairs: how much longer the second one takes, and the time of the first."""
    sides = [recorded(backend, compiler, key, config) for config in configs]
    pairs.expect(3)
    with backend.gpu.lock():
        several = [ratio(backend, pairs, sides, seed) for seed in range(3)]
    change = math.exp(statistics.median(r for r, _ in several)) - 1
    return {
        "configs": [str(config) for config in configs],
        "change": round(change, 5),
        "us": round(statistics.median(us for _, us in several), 2),
    }


def winner_of(backend: Any, compiler: Any, key: Any, folder: Path) -> Any:
    """What a cache has for a key, with one of today's configs; None if there is none."""
    from kerntune.base.policy import TuneMode
    from kerntune.capture import Capture
    from kerntune.tuning.cache import WinnerCache
    from kerntune.tuning.stored_winners import Winners

    grid, args = key.call()
    site = Capture(backend, compiler).site_of(key.tuner, args, {"grid": grid})
    winners = Winners(WinnerCache(folder), TuneMode.AUTO, backend.gpu)
    return None if winners.find(site, unfinished=True) is None else winners.stored(site)


# A/A beside others


def aa_in_child(log: Path, words: Any) -> None:
    """Replay equal code, alone on the device, and run kernels there in between, beside others."""
    import many_gpus_kernels as kernels
    import torch

    from kerntune.compiling.compiler import Compiler
    from kerntune.gate.measured_gpu import pairs_for

    backend, compiler = backend_of(words), Compiler()
    chosen = [k for k in kernels.KEYS if (k.kernel, k.shape) in AA_KEYS]
    with backend.activate(), contextlib.closing(pairs_for(backend)) as pairs, contextlib.closing(compiler):
        with backend.gpu.lock_shared():
            calls = {}
            for key in chosen:
                config = kernels_config(key)
                calls[str(key)] = (key, config, recorded(backend, compiler, key, config))
        for seed in range(words.rounds):
            for name, (key, config, side) in calls.items():
                with backend.gpu.lock():
                    pairs.settle()
                    found, us = ratio(backend, pairs, (side, side), seed)
                with log.open("a") as file:
                    file.write(json.dumps({"case": name, "ratio": found, "us": us}) + "\n")
                with backend.gpu.lock_shared():
                    grid, args = key.call()
                    for _ in range(1 if words.scripted else 200):
                        key.tuner.fn[grid](*args, **config.all_kwargs())
                    torch.cuda.synchronize()


def kernels_config(key: Any) -> Any:
    """A key's second config."""
    from kerntune.capture.site import config_of

    return config_of(key.tuner.configs[1], key.kernel)


def limit_of(way: str, words: Any) -> float:
    """Seconds that a side may take."""
    return float(words.limit or LIMITS_S[way])


def beside(folder: Path, name: str, gpus: Sequence[str], each: int, words: Any) -> dict[str, Any]:
    """``each`` processes on each GPU at once; the standard deviation of their replays by case."""
    place = folder / name
    place.mkdir()
    script = str(Path(__file__).resolve())
    options = ["--rounds", str(words.rounds), *(["--scripted"] if words.scripted else [])]
    several = []
    for number, gpu in enumerate([gpu for gpu in gpus for _ in range(each)]):
        command = [sys.executable, script, str(place / f"{number}.jsonl"), "--child", "aa", *options]
        with (place / f"{number}.txt").open("w") as file:
            env = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
            several.append(subprocess.Popen(command, env=env, stdout=file, stderr=subprocess.STDOUT))
    end = time.monotonic() + limit_of("aa", words)
    codes = [ended(one, max(0.1, end - time.monotonic())) for one in several]
    rows = [row for path in sorted(place.glob("*.jsonl")) for row in rows_of(path)]
    cases = {}
    for case in sorted({r["case"] for r in rows}):
        ratios, us = [r["ratio"] for r in rows if r["case"] == case], [r["us"] for r in rows if r["case"] == case]
        cases[case] = {"us": round(statistics.median(us), 2), "replays": len(ratios)}
        if len(ratios) > 1:
            cases[case] |= {"sd": round(statistics.stdev(ratios), 6), "mean": round(statistics.mean(ratios), 6)}
    sds = [c["sd"] for c in cases.values() if c["us"] > SHORTEST_US and "sd" in c]
    return {
        "processes": len(several),
        "gpus": list(gpus),
        "exits": codes,
        "said": {n: (place / f"{n}.txt").read_text()[-MOST_TEXT:] for n, code in enumerate(codes) if code},
        "cases": cases,
        "most_sd": max(sds, default=None),
    }


def ended(process: subprocess.Popen[bytes], limit_s: float) -> int:
    """The exit code of a process, which is killed after so many seconds."""
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


# all of it


def usable_cores() -> list[int]:
    """The cores that this process may use: no more than its control group's quota (cgroup v2's ``cpu.max``)."""
    cores = sorted(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = cores[: max(2, int(quota) // int(period))]
    return cores


def loops(core: int, begin: float, seconds: float) -> subprocess.Popen[str]:
    """A process that counts on one core for so long, from a time of the clock on."""
    code = (
        "import os, time\n"
        f"os.sched_setaffinity(0, [{core}])\n"
        f"while time.time() < {begin}: pass\n"
        "count = 0\n"
        f"while time.time() < {begin + seconds}: count += 1\n"
        "print(count)\n"
    )
    return subprocess.Popen([sys.executable, "-I", "-c", code], stdout=subprocess.PIPE, text=True)


def beside_core(core: int, other: int, rounds: int = 3, seconds: float = 0.2) -> float:
    """How fast a core counts while another one does, by how fast alone: some 0.6 for two threads of one core, near 1
    else. The best of some rounds, since other programs may run meanwhile."""
    rates: dict[bool, int] = {False: 1, True: 1}
    for _ in range(rounds):
        for both in (False, True):
            begin = time.time() + 0.3  # both have started by then
            mine, *others = [loops(one, begin, seconds) for one in (core, *([other] if both else []))]
            rates[both] = max(rates[both], int(mine.communicate()[0] or 1))
            for one in others:
                one.wait()
    return round(rates[True] / rates[False], 2)


SHARED = 0.8
"""Below this two cores are taken for threads of one."""


def threads_apart(cores: Sequence[int]) -> dict[int, float]:
    """Of the first core and those that are usually its other thread (the next one, the one half of all later), how
    fast it is beside them: a virtual machine may hide which of its cores are threads of one."""
    places = {1, len(cores) // 2} if len(cores) >= 4 else set()
    return {place: beside_core(cores[0], cores[place]) for place in sorted(places)}


def half_of(
    cores: Sequence[int], topology: Path = Path("/sys/devices/system/cpu"), found: dict[int, float] | None = None
) -> list[int]:
    """Half of the cores, with both threads of each: one of two threads of all cores would have more than half.

    Where the system names no threads, ``found`` of :func:`threads_apart` counts.
    """
    far = len(cores) // 2
    hidden = all(len(threads) == 1 for threads in by_core_of(cores, topology).values())
    if hidden and found and found.get(far, 1.0) < SHARED <= found.get(1, 1.0):
        return [*cores[: far // 2], *cores[far : far + far // 2]]
    half: list[int] = []
    for threads in by_core_of(cores, topology).values():
        if len(half) < len(cores) // 2:
            half += threads
    return half or list(cores[:1])


def by_core_of(cores: Sequence[int], topology: Path) -> dict[str, list[int]]:
    """The threads of each core, as the system names them."""
    by_core: dict[str, list[int]] = {}
    for core in cores:
        try:
            name = (topology / f"cpu{core}/topology/thread_siblings_list").read_text().strip()
        except OSError:
            name = str(core)
        by_core.setdefault(name, []).append(core)
    return by_core


def environment() -> dict[str, Any]:
    """Where this ran."""
    import torch
    import triton

    seen = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "date": datetime.date.today().isoformat(),
        "gpus": seen,
        "triton": triton.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cores": len(usable_cores()),
    }


def absent(way: str) -> str:
    """Why a way can't be gone; empty if it can."""
    from importlib import import_module

    needs = {"xdist": ("xdist",), "tune_many": ("kerntune.tuning.many",)}
    for module in (*needs.get(way, ()), *(("kerntune.tuning.many", "distributed") if way == "dask" else ())):
        try:
            import_module(module)
        except ImportError as exc:
            return f"{module} can't be imported: {exc}"
    return ""


def of_way(way: str, folder: Path, words: Any, tell: Callable[[dict[str, Any]], None]) -> None:
    """Both sides of one way, and their winners; written after each."""
    if why := absent(way):
        tell({"skipped": why})
        return
    cores = usable_cores()
    sides = {
        "one": Side(folder / way, "one", words.gpus[:1], half_of(cores, found=words.apart), words),
        "all": Side(folder / way, "all", words.gpus, cores, words),
    }
    row: dict[str, Any] = {}
    for name, side in sides.items():
        row[name] = by_xdist(side) if way == "xdist" else by_child(side, way)
        tell(row)
    if row["one"]["keys"] and row["all"]["keys"]:
        for name, figure in (("throughput_ratio", "keys_per_s"), ("ratio_with_startup", "keys_per_s_with_startup")):
            row[name] = round(row["all"][figure] / row["one"][figure], 3)
        tell(row)
        row["winners"] = compare_winners(sides["one"].cache, sides["all"].cache, words)
        tell(row)


def aa(folder: Path, words: Any, tell: Callable[[dict[str, Any]], None]) -> None:
    """Both rows of the A/A part."""
    (folder / "aa").mkdir()
    row: dict[str, Any] = {}
    for name, gpus, each in (("four_on_one", words.gpus[:1], 4), ("all_busy", words.gpus, 2)):
        row[name] = beside(folder / "aa", name, gpus, each, words)
        tell(row)


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default=",".join(WAYS))
    parser.add_argument("--gpus", default="0,1")
    parser.add_argument("--keys", type=int, default=64)
    parser.add_argument("--kernels", type=int, default=8, help="the keys are those of so many kernels")
    parser.add_argument("--workers", type=int, default=1, help="of pytest-xdist, on each GPU")
    parser.add_argument("--rounds", type=int, default=4, help="replays of each case by each process of the A/A part")
    parser.add_argument("--record", action="store_true", help="let pytest-xdist's tests record baselines, too")
    parser.add_argument("--compare", type=int, default=8, help="different winners of a way that are replayed in pairs")
    parser.add_argument("--limit", type=float, help="seconds that one side of any way may take")
    parser.add_argument("--scripted", action="store_true")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    words = parser.parse_args()
    words.gpus = words.gpus.split(",")
    if words.child:
        aa_in_child(words.out, words) if words.child == "aa" else tune_in_child(words.out, words.child, words.scripted)
        return 0
    chosen = words.only.split(",")
    if unknown := set(chosen) - set(WAYS):
        parser.error(f"there is no way {', '.join(sorted(unknown))}; they are {', '.join(WAYS)}")
    report: dict[str, Any] = json.loads(words.out.read_text()) if words.out.exists() else {}
    words.apart = threads_apart(usable_cores())
    report |= {"environment": environment(), "scripted": words.scripted, "keys": words.keys}
    report["environment"] |= {"beside": words.apart, "half": half_of(usable_cores(), found=words.apart)}

    def tell(way: str, row: dict[str, Any]) -> None:
        report[way] = {**row, "seconds": round(time.monotonic() - begin, 1)}
        words.out.write_text(json.dumps(report, indent=1) + "\n")
        print(way, json.dumps(report[way]), flush=True)

    with tempfile.TemporaryDirectory(prefix="kerntune-benchmark-") as text:
        for way in chosen:
            begin, folder = time.monotonic(), Path(text)
            if way == "aa":
                aa(folder, words, partial(tell, way))
            else:
                of_way(way, folder, words, partial(tell, way))
    return 0


if __name__ == "__main__":
    sys.exit(main())
