"""Many processes that tune the same keys and others on one cache: nothing is lost or torn, and each key has one winner.

    python benchmarks/cache_crowd.py benchmarks/results/cache_crowd.json [--processes 16] [--keys 200]

Every process goes through its keys in an order of its own: half of them are the same for all, the rest are its own.
For each it asks for a winner, stores eight trials where there is none, offers a winner of its own, and goes on with the
one that stands. Meanwhile one more process reads all entries over and over. Afterwards each key must have one winner,
which is what every process that tuned it went on with; each trial must be there; no file may be torn, left over or set
aside. No GPU.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import random
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cache_scale import CONFIGS, ENVIRONMENT, trial_key, winner_key

from kerntune.base.config import Config
from kerntune.tuning.cache import StoredTrial, TrialCache, Winner, WinnerCache
from kerntune.tuning.cache.trials import SCHEMA as TRIAL_SCHEMA
from kerntune.tuning.cache.winner import SCHEMA as WINNER_SCHEMA

TRIALS = 8


def keys_of(process: int, keys: int) -> list[int]:
    """Numbers of a process's keys: the first half are common to all."""
    shared = keys // 2
    return [*range(shared), *(1_000_000 * (process + 1) + n for n in range(keys - shared))]


def tune(folder: Path, number: int, mine: Config) -> tuple[Config, int]:
    """One key as a process tunes it: the config that it goes on with, and trials that were stored."""
    winners, trials, key = WinnerCache(folder), TrialCache(folder), winner_key(number)
    if (found := winners.get(key)) is not None:
        return found.config, 0
    for config in CONFIGS[:TRIALS]:
        trials.add(StoredTrial(TRIAL_SCHEMA, trial_key(key), config, "0" * 64, ENVIRONMENT, estimate_ns=1000.0))
    standing = winners.offer(Winner(WINNER_SCHEMA, key, mine, 1000.0, ENVIRONMENT))
    assert not [*winners.damaged, *trials.damaged]
    return standing.config, TRIALS


def work(folder: Path, process: int, keys: int, begin: Any, told: Any) -> None:
    """One process."""
    order = keys_of(process, keys)
    random.Random(process % 4).shuffle(order)  # in four orders, so that some are always at the same key
    begin.wait()
    gone_on_with, stored = {}, 0
    for number in order:
        config, trials = tune(folder, number, CONFIGS[process % len(CONFIGS)])
        gone_on_with[number], stored = config.key(), stored + trials
    told.put((gone_on_with, stored))


def read(folder: Path, ended: Any, told: Any) -> None:
    """The process that reads."""
    rounds, damaged = 0, []
    while not ended.is_set():
        for cache in (WinnerCache(folder), TrialCache(folder)):
            cache.entries()
            damaged += cache.damaged
        rounds += 1
    told.put((rounds, damaged))


def checked(folder: Path, seen: list[Mapping[int, str]]) -> dict[str, int]:
    """What is wrong afterwards."""
    winners, trials = WinnerCache(folder), TrialCache(folder)
    stored = {w.key.digest(): w.config.key() for w in winners.entries()}
    tried = trials.entries()
    numbers = {number for one in seen for number in one}
    digests = {number: winner_key(number).digest() for number in numbers}
    others = sum(one[n] != stored.get(digests[n]) for one in seen for n in one)
    left = [p for p in folder.rglob("*") if p.is_file() and (p.name.startswith(".") or p.suffix == ".damaged")]
    return {
        "keys": len(numbers),
        "lost_winners": len(set(digests.values()) - stored.keys()),
        "lost_trials": len(numbers) * TRIALS - len(tried),
        "torn": len(winners.damaged) + len(trials.damaged),
        "left_over": len(left),
        "gone_on_with_another_winner": others,
        "not_in_the_index": sum(not _indexed(winners, number) for number in sorted(numbers)[:200]),
    }


def _indexed(winners: WinnerCache, number: int) -> bool:
    """Whether a process with one config less finds this winner."""
    key = winner_key(number)
    fewer = type(key)(key.kernel, key.source, key.target, key.device, key.triton, key.arguments, key.configs[:-1])
    return len(winners.of_other_configs(fewer)) == 1


def crowd(folder: Path, processes: int, keys: int) -> dict[str, Any]:
    """All of it, in one folder."""
    context = multiprocessing.get_context("fork")
    begin, told, read_told = context.Barrier(processes + 1), context.Queue(), context.Queue()
    ended = context.Event()
    workers = [context.Process(target=work, args=(folder, p, keys, begin, told)) for p in range(processes)]
    reader = context.Process(target=read, args=(folder, ended, read_told))
    for process in (*workers, reader):
        process.start()
    begin.wait()
    start = time.perf_counter()
    found = [told.get(timeout=600) for _ in workers]
    seconds = time.perf_counter() - start
    ended.set()
    rounds, damaged = read_told.get(timeout=600)
    for process in (*workers, reader):
        process.join()
    wrong = checked(folder, [one for one, _ in found])
    wrong["seen_torn_by_the_reader"] = len(damaged)
    raced_again = sum(stored for _, stored in found) // TRIALS - wrong["keys"]
    return {**wrong, "tuned_by_several": raced_again, "reader_rounds": rounds, "seconds": round(seconds, 1)}


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--keys", type=int, default=200)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        row = crowd(Path(folder, "cache"), args.processes, args.keys)
    out = {"python": platform.python_version(), "processes": args.processes, "keys_each": args.keys}
    args.out.write_text(json.dumps({**out, "cpus": os.cpu_count(), **row}, indent=1) + "\n")
    print(json.dumps(row, indent=1))


if __name__ == "__main__":
    main()
