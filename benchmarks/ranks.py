"""Ranks that meet at the same keys: one winner a key for all, each key tuned once, and no rank waits for ever.

    python benchmarks/ranks.py benchmarks/results/ranks.json [--rounds 50] [--ranks 8] [--keys 200]

Each round starts so many processes ("ranks"). Each goes through all keys in an order of its own, and for each does what
a call of a tuned kernel does: it looks for a winner and, where there is none, takes its turn
(``kerntune.tuning.agreement``), tunes on a scripted GPU that prefers another config in every rank, and stores what it
found. Some keys are warm from the start. One rank is killed at a random moment. ``folder`` has all ranks on one cache
folder; ``file`` gives each rank a cache of its own, as on a machine of its own, and a ``file://`` store.

Counted: keys with which two ranks went on differently, ranks that did not end in time, keys that were tuned more than
once although their holder lived, keys that no rank tuned. No GPU: a tuning takes some milliseconds. Rows are written
as they come; those that are there are not made again.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import multiprocessing
import os
import platform
import random
import signal
import sys
import tempfile
import time
import warnings
from dataclasses import replace as with_fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.cache_scale import CONFIGS, ENVIRONMENT, winner_key
from kerntune.base.policy import TuneMode
from kerntune.tuning import agreement
from kerntune.tuning.cache import WinnerCache, WinnerKey
from kerntune.tuning.cache import leases as lease_module
from kerntune.tuning.cache.shared_store import SharedStore
from kerntune.tuning.cache.shared_winners import SharedWinnerCache
from kerntune.tuning.stored_winners import Winners

HANG_S = 400.0
"""Seconds after which a rank counts as hung: a round takes 5 to 50, and a wait for another rank 120 at most."""


class ScriptedGpu:
    """A device without other work."""

    def environment(self) -> Any:
        return ENVIRONMENT

    def idle(self, limit_s: float) -> bool:
        return True


class KeyedWinners(Winners):
    """Winners of sites that are nothing but their keys."""

    def key(self, site: Any, lax: str | None = None) -> WinnerKey:
        return site.stored_key


def site_of(number: int) -> Any:
    candidates = [SimpleNamespace(config=config) for config in CONFIGS]
    return SimpleNamespace(
        kernel="matmul_kernel", stored_key=winner_key(number), candidates=candidates, listed=candidates, search=None,
        ambiguous=lambda: set(), tuner=None,
    )  # fmt: skip


def cache_of(place: str, folder: Path, rank: int) -> WinnerCache:
    if place == "folder":
        return WinnerCache(folder / "cache")
    mine = folder / f"cache{rank}"
    return SharedWinnerCache(mine, SharedStore(f"file://{folder}/store", mine / "mirror"))


def work(place: str, folder: Path, rank: int, keys: int, seed: int, begin: Any) -> None:
    """One rank: writes a line for each tuning that it begins, and for each key the config that it goes on with."""
    warnings.simplefilter("ignore")
    lease_module.EXPIRY_S, lease_module.RENEW_S = 3.0, 0.5
    draw, order = random.Random(seed), list(range(keys))
    draw.shuffle(order)
    limits = with_fields(agreement.LIMITS, poll_s=0.005, ask_s=0.05)
    with open(folder / f"rank{rank}", "a", buffering=1) as log:
        begin.wait()
        winners = KeyedWinners(cache_of(place, folder, rank), TuneMode.AUTO, ScriptedGpu())
        for number in order:
            site = site_of(number)
            found = winners.find(site)
            if found is None:
                with agreement.turn(winners, site, winners._gpu, unfinished=False, limits=limits) as found:
                    if found is None:
                        log.write(f"tune {number}\n")
                        time.sleep(draw.uniform(0.001, 0.02))
                        found = winners.keep(site, (number + rank) % len(CONFIGS), 1000.0)
                        log.write(f"tuned {number}\n")
            log.write(f"use {number} {CONFIGS[found].key()}\n")
        log.write("end\n")


def one_round(place: str, seed: int, ranks: int, keys: int) -> dict[str, Any]:
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        warm(place, folder, draw.sample(range(keys), keys // 4))
        context = multiprocessing.get_context("fork")
        begin = context.Barrier(ranks + 1)
        crowd = [
            context.Process(target=work, args=(place, folder, rank, keys, draw.random(), begin))
            for rank in range(ranks)
        ]
        for process in crowd:
            process.start()
        begin.wait()
        start, victim = time.monotonic(), draw.randrange(ranks)
        killed_alive = kill_after(crowd[victim], folder / f"rank{victim}", draw.randrange(1, keys))
        for process in crowd:
            process.join(max(0.0, start + HANG_S - time.monotonic()))
        hung = [rank for rank, process in enumerate(crowd) if process.is_alive()]
        for rank in hung:
            crowd[rank].kill()
        return {**judged(folder, ranks, keys, victim if killed_alive else None), "hangs": len(hung),
                "seconds": round(time.monotonic() - start, 2)}  # fmt: skip


def kill_after(process: Any, log: Path, lines: int) -> bool:
    """Kill a rank once it has written so many lines; False if it ended before."""
    while process.is_alive():
        if log.read_bytes().count(b"\n") >= lines:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid or 0, signal.SIGKILL)
                return True
        time.sleep(0.002)
    return False


def warm(place: str, folder: Path, numbers: list[int]) -> None:
    """Some keys were tuned before."""
    cache = cache_of(place, folder, 0)
    for number in numbers:
        cache.offer(won(number))
    if isinstance(cache, SharedWinnerCache):
        cache.store.client.close()


def won(number: int) -> Any:
    from kerntune.tuning.cache import Winner
    from kerntune.tuning.cache.winner import SCHEMA

    return Winner(SCHEMA, winner_key(number), CONFIGS[number % len(CONFIGS)], 1000.0, ENVIRONMENT)


def judged(folder: Path, ranks: int, keys: int, victim: int | None) -> dict[str, Any]:
    """What the ranks' lines say."""
    used: dict[int, set[str]] = {}
    begun: dict[int, int] = {}
    left: set[int] = set()
    unfinished = 0
    for rank in range(ranks):
        lines = (folder / f"rank{rank}").read_text().splitlines() if (folder / f"rank{rank}").exists() else []
        open_key = None
        for line in lines:
            what, _, rest = line.partition(" ")
            if what == "use":
                number, _, config = rest.partition(" ")
                used.setdefault(int(number), set()).add(config)
            elif what == "tune":
                begun[int(rest)] = begun.get(int(rest), 0) + 1
                open_key = int(rest)
            elif what == "tuned":
                open_key = None
        if rank == victim and open_key is not None:
            left.add(open_key)
        unfinished += rank != victim and (not lines or lines[-1] != "end")
    return {
        "disagreements": sum(len(configs) > 1 for configs in used.values()),
        "keys_used": len(used),
        "ranks_without_an_end": unfinished,
        "tuned": sum(begun.values()),
        "tuned_again_although_the_holder_lived": sum(max(0, n - 1 - (k in left)) for k, n in begun.items()),
        "holder_died": len(left),
    }  # fmt: skip


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--places", nargs="+", default=["folder", "file"])
    args = parser.parse_args()
    os.environ["WORLD_SIZE"] = str(args.ranks)
    found = json.loads(args.out.read_text()) if args.out.exists() else {}
    for place in args.places:
        rows = found.get(place, {}).get("rounds", [])
        for seed in range(len(rows), args.rounds):
            rows.append({"seed": seed, **one_round(place, seed, args.ranks, args.keys)})
            total = {k: sum(row[k] for row in rows) for k in rows[0] if k not in ("seed", "seconds", "keys_used")}
            total |= {"rounds": len(rows), "least_keys_used": min(row["keys_used"] for row in rows)}
            found |= {
                "python": platform.python_version(),
                "cpus": os.cpu_count(),
                "ranks": args.ranks,
                "keys": args.keys,
            }
            found |= {"date": datetime.date.today().isoformat(), place: {"total": total, "rounds": rows}}
            args.out.write_text(json.dumps(found, indent=1) + "\n")
            print(place, rows[-1], flush=True)
        print(place, found[place]["total"], flush=True)


if __name__ == "__main__":
    main()
