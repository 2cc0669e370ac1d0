"""Which config wins one key, by what its tensors hold: tuned again and again, and the winners replayed in pairs.

    python benchmarks/winner_contents.py OUT.json [--key matmul_relu-2048x2048x4096] [--processes 3] [--each 2]
    python benchmarks/winner_contents.py OUT.json --scripted --processes 1 --each 1

One command of less than a minute on one GPU; OUT.json is written after each process and each replay. A matmul's power,
and by it the clock, depends on the numbers that it multiplies, and configs need not lose the same by it: one may win
with one content and lose with another. Each fresh process, with empty caches, tunes the key with each of three
contents, ``--each`` times in turn: ``job`` is what :func:`kerntune.tune_many` does (normally distributed), ``normal``
and ``constant`` are calls with such tensors.

``tunings`` has the winner of each, and of each config the estimate and the slots of the race (microseconds), whether
it came to the finals, and whether the host was late. ``turns`` are all slots in the order in which they were taken:
the config's number (null in an earlier pass), milliseconds since the first, and the time. ``clocks`` are NVML's while
it was tuned: the clock of the SMs (least, median, most), the largest power, all throttle reasons. ``winners`` counts.
``replays`` are paired, of the two configs of a tile of 128 x 128 x 64 and of other winners, each with both contents:
how much longer the second config takes, in three fresh processes, and the median time.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

KEY = "matmul_relu-2048x2048x4096"
JOB, NORMAL, CONSTANT = "job", "normal", "constant"
CONTENTS = (JOB, NORMAL, CONSTANT)
TILE = {"BM": 128, "BN": 128, "BK": 64}
"""Of this tile the configs of 4 and of 8 warps were chosen in two runs each of ``many_gpus.py``."""

MOST_PAIRS = 2

POLL_S = 0.005
CHILD_S = 40.0
MOST_TEXT = 4000


def key_of(name: str) -> Any:
    """One of the 64 keys by its name."""
    import many_gpus_kernels as kernels

    return next(key for key in kernels.KEYS if str(key) == name)


def call_with(key: Any, contents: str) -> tuple[Any, tuple[Any, ...]]:
    """Grid and arguments, the floats filled anew."""
    grid, args = key.call()
    for one in args:
        if hasattr(one, "dtype") and one.dtype.is_floating_point:
            one.fill_(0.1) if contents == CONSTANT else one.normal_()
    return grid, args


# in a fresh process


def tune_in_child(log: Path, words: Any) -> None:
    """Tune the key with each content in turn, each time with an empty cache of winners and trials."""
    from kerntune.tuning import race, tuner

    races: list[dict[str, Any]] = []
    turns: list[tuple[Any, float, float]] = []
    slot_ns = race.slot_ns

    def timed(slot: Any) -> float:
        ns = slot_ns(slot)
        turns.append((slot, time.time(), ns))
        return ns

    def raced(site: Any, alive: Sequence[Any], finalists: Sequence[Any], best: Any) -> None:
        races.append(race_of(site, alive, finalists, best, turns))
        turns.clear()  # which holds the slots

    race.slot_ns, tuner.log_race = timed, raced
    order = CONTENTS[words.first :] + CONTENTS[: words.first]
    for number, contents in enumerate(order * words.each):
        with tempfile.TemporaryDirectory(prefix="kerntune-cache-") as cache:
            os.environ["KERNTUNE_CACHE_DIR"] = cache
            races.clear()
            turns.clear()
            begin = time.time()
            tune_once(key_of(words.key), contents)
            row = {"contents": contents, "number": number, "begin": begin, "end": time.time()}
        row |= races[-1] if races else {"winner": None}
        with log.open("a") as file:
            file.write(json.dumps({**row, "races": len(races)}) + "\n")


def tune_once(key: Any, contents: str) -> None:
    """Tune a key, whatever is known of it."""
    from kerntune.tuning.many.job_run import run_job
    from kerntune.tuning.many.outcome import JobRequest, encoded
    from kerntune.tuning.many.tune_many import tuning_job

    if contents == JOB:
        grid, args = key.call("meta")
        run_job(encoded(JobRequest(tuning_job(key.tuner, grid, *args), force=True)))
        return
    grid, args = call_with(key, contents)
    key.tuner.cache.clear()
    key.tuner[grid](*args)


def race_of(site: Any, alive: Sequence[Any], finalists: Sequence[Any], best: Any, turns: Any) -> dict[str, Any]:
    """What a race has measured of each config, in microseconds; all slots by their config's number, and when in ms."""
    final = {id(trial) for trial in finalists}
    found = {}
    for trial in alive:
        found[str(site.candidates[trial.index].config)] = {
            "estimate": round(trial.estimate / 1e3, 2),
            "slots": [round(ns / 1e3, 3) for ns in trial.times],
            "final": id(trial) in final,
            "late": trial.late,
        }
    number = {id(trial.slot): trial.index for trial in alive if trial.slot is not None}
    start = turns[0][1] if turns else 0.0
    return {
        "winner": str(site.candidates[best.index].config),
        "us": round(best.time_ns / 1e3, 3),
        "trials": found,
        "turns": [[number.get(id(s)), round((at - start) * 1e3, 2), round(ns / 1e3, 3)] for s, at, ns in turns],
    }


# the clock meanwhile


class Clocks:
    """NVML's figures of a device, read in a thread of the process that waits for the others."""

    def __init__(self, uuid: str) -> None:
        self._uuid, self._end = uuid, threading.Event()
        self._seen: list[tuple[float, dict[str, Any]]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Clocks:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        self._thread.join()

    def _read(self) -> None:
        from kerntune.gpu.nvml import device_state

        while not self._end.wait(POLL_S):
            self._seen.append((time.time(), device_state(self._uuid)))

    def between(self, begin: float, end: float) -> dict[str, Any]:
        """Of that time; empty where NVML gives no clock."""
        return summary([state for at, state in self._seen if begin <= at <= end])


def summary(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The clock's range, the largest power, every throttle reason."""
    clocks = [s["sm_clock_mhz"] for s in states if "sm_clock_mhz" in s]
    if not clocks:
        return {}
    return {
        "readings": len(clocks), "least_mhz": min(clocks), "median_mhz": statistics.median(clocks),
        "most_mhz": max(clocks), "power_w": max((s.get("power_w", 0.0) for s in states), default=0.0),
        "throttle": sorted({s["throttle"] for s in states if s.get("throttle")}),
    }  # fmt: skip


# all of it


def tunings_of(number: int, folder: Path, words: Any, clocks: Clocks) -> tuple[list[dict[str, Any]], str]:
    """What one fresh process finds, and what it says if it fails."""
    log, output = folder / f"{number}.jsonl", folder / f"{number}.txt"
    env = {
        **os.environ, "TRITON_CACHE_DIR": str(folder / f"triton{number}"), "KERNTUNE_TUNE": "force",
        "KERNTUNE_PATIENCE": "all", "PYTHONFAULTHANDLER": "1",
    }  # fmt: skip
    if words.scripted:
        env["MANY_GPUS_SCRIPTED"] = "1"
    command = [
        sys.executable,
        str(Path(__file__).resolve()),
        str(log),
        "--child",
        "--first",
        str(number % len(CONTENTS)),
    ]
    command += ["--key", words.key, "--each", str(words.each)]
    with output.open("w") as file:
        process = subprocess.Popen(command, env=env, stdout=file, stderr=subprocess.STDOUT)
        try:
            code: int | str = process.wait(CHILD_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = f"ended after {CHILD_S:.0f} s"
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    for row in rows:
        row["process"], row["clocks"] = number, clocks.between(row["begin"], row["end"])
        row["seconds"] = round(row.pop("end") - row.pop("begin"), 3)
    return rows, f"{code}: {output.read_text(errors='replace')[-MOST_TEXT:]}" if code else ""


def winners_by_contents(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """How often each config won with each content."""
    counts = {name: Counter(str(row["winner"]) for row in rows if row["contents"] == name) for name in CONTENTS}
    return {name: dict(count.most_common()) for name, count in counts.items()}


def replays(words: Any, rows: Sequence[dict[str, Any]], clocks: Clocks) -> Iterator[dict[str, Any]]:
    """Each two winners in pairs, with both contents."""
    from many_gpus import backend_of, ratio

    from kerntune.compiling.compiler import Compiler
    from kerntune.gate.measured_gpu import pairs_for

    backend, compiler, key = backend_of(words), Compiler(), key_of(words.key)
    with backend.activate(), contextlib.closing(pairs_for(backend)) as pairs, contextlib.closing(compiler):
        for both in pairs_to_replay(key, rows):
            for contents in (CONSTANT, NORMAL):
                sides = [recorded(backend, compiler, key, config, contents) for config in both]
                pairs.expect(3)
                begin = time.time()
                with backend.gpu.lock():
                    several = [ratio(backend, pairs, sides, seed) for seed in range(3)]
                yield {
                    "configs": [str(config) for config in both],
                    "contents": contents,
                    "changes": [round(math.exp(r) - 1, 5) for r, _ in several],
                    "us": [round(us, 2) for _, us in several],
                    "clocks": clocks.between(begin, time.time()),
                }


def pairs_to_replay(key: Any, rows: Sequence[dict[str, Any]]) -> list[tuple[Any, Any]]:
    """The tile's two configs, then every two winners."""
    from kerntune.capture.site import config_of

    configs = {str(c): c for c in (config_of(one, key.kernel) for one in key.tuner.configs)}
    asked = [name for name, c in configs.items() if dict(c.kwargs) == TILE][:2]
    won = sorted({str(row["winner"]) for row in rows} & set(configs))
    others = [both for both in itertools.combinations(won, 2) if set(both) != set(asked)]
    return [(configs[a], configs[b]) for a, b in ([tuple(asked)] if len(asked) == 2 else []) + others][:MOST_PAIRS]


def recorded(backend: Any, compiler: Any, key: Any, config: Any, contents: str) -> Any:
    """A call of a key with one config and such a content."""
    from kerntune.capture import Capture
    from kerntune.capture.recorder import record

    (grid, args), capture = call_with(key, contents), Capture(backend, compiler)
    with capture.active():
        key.tuner.fn[grid](*args, **config.all_kwargs())
    return record(capture, backend.targets[0])


def uuid_of(words: Any) -> str:
    """Of the GPU, asked in a process of its own: this one holds no context while the others tune."""
    if words.scripted:
        return ""
    text = "import torch; print(torch.cuda.get_device_properties(0).uuid)"
    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True).stdout
    return said.strip().removeprefix("GPU-")


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--key", default=KEY)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--each", type=int, default=2, help="tunings with each content in each process")
    parser.add_argument("--scripted", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.child:
        tune_in_child(words.out, words)
        return 0
    return measured(words)


def measured(words: Any) -> int:
    """All parts, each written when it is there."""
    begin = time.monotonic()
    report: dict[str, Any] = {"key": words.key, "scripted": words.scripted, "tunings": [], "failed": [], "replays": []}

    def tell() -> None:
        report["seconds"] = round(time.monotonic() - begin, 1)
        words.out.write_text(json.dumps(report, indent=1) + "\n")

    with tempfile.TemporaryDirectory(prefix="kerntune-benchmark-") as text, Clocks(uuid_of(words)) as clocks:
        for number in range(words.processes):
            rows, why = tunings_of(number, Path(text), words, clocks)
            report["tunings"] += rows
            report["failed"] += [why] if why else []
            report["winners"] = winners_by_contents(report["tunings"])
            tell()
            print(json.dumps(report["winners"]), why, flush=True)
        for one in replays(words, report["tunings"], clocks):
            report["replays"].append(one)
            tell()
            print(json.dumps(one), flush=True)
    from many_gpus import environment

    report["environment"] = environment()
    tell()
    return 1 if report["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
