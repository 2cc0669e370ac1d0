"""How long a look into the cache takes, with few entries and with many.

    python benchmarks/cache_scale.py benchmarks/results/cache_scale.json [--entries 1000 100000]

Winners are of 48 configs each, as of a matmul's list. A *warm* look finds the winner of a key. A *cold* one is all that
is asked of the disk before an unknown key is tuned: its winner, winners among other configs for the same arguments, and
its trials. Both with the files in the system's page cache, and no GPU. ``index_s`` is what the first cold look takes in
a cache that has no index yet, of an earlier kerntune. ``warm_with_store`` is a warm look where ``KERNTUNE_STORE`` is
set and the winner is one that this machine has of the store; no request is made.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kerntune.base.config import Config
from kerntune.base.device import Environment
from kerntune.tuning.cache import StoredTrial, TrialCache, TrialKey, WinnerCache, WinnerKey
from kerntune.tuning.cache import trials as trial_format
from kerntune.tuning.cache.shared_store import store_folder
from kerntune.tuning.cache.shared_winners import open_winners

ENVIRONMENT = Environment("3.9.0", "2.13.0", "3.11.7", "570.1", "12.9", "0.1.0", "NVIDIA H200", 1980, 3201, "0x0")
CONFIGS = tuple(
    Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 64, "GROUP": 8}, num_warps=warps, num_stages=stages)
    for m in (64, 128, 256)
    for n in (64, 128)
    for warps in (4, 8)
    for stages in (2, 3, 4, 5)
)
LOOKS = 2000
TRIAL_SHARE = 100
"""Every so many winners one has trials as well, eight of them."""


def winner_key(number: int) -> WinnerKey:
    """A key like those of a matmul, another for each number."""
    arguments = f"a=float16({number},4096)(4096,1); b=float16(4096,4096)(4096,1); m={number}; n=4096"
    return WinnerKey("matmul_kernel", f"{number // 50:064x}", "cuda:90", "NVIDIA H200", "3.9.0", arguments, CONFIGS)


def trial_key(key: WinnerKey) -> TrialKey:
    """The trials' key of the same question."""
    return TrialKey(key.kernel, key.source, key.target, key.device, key.triton, key.arguments, "race/2, timing/1")


def fill(folder: Path, entries: int) -> float:
    """Write so many winners; seconds each."""
    winners, trials = WinnerCache(folder), TrialCache(folder)
    begin = time.perf_counter()
    for number in range(entries):
        winners.put(winner_key(number), CONFIGS[number % len(CONFIGS)], 10_000.0 + number, ENVIRONMENT)
    seconds = time.perf_counter() - begin
    for number in range(0, entries, TRIAL_SHARE):
        for config in CONFIGS[:8]:
            key = trial_key(winner_key(number))
            trials.add(StoredTrial(trial_format.SCHEMA, key, config, "0" * 64, ENVIRONMENT, estimate_ns=1000.0))
    return seconds / entries


def warm(folder: Path, key: WinnerKey) -> None:
    """What a process asks where there is a winner."""
    assert WinnerCache(folder).get(key) is not None


def warm_with_store(folder: Path, key: WinnerKey) -> None:
    """The same, of a winner that the machine has of a store."""
    assert open_winners(folder).get(key) is not None


def mirrored(folder: Path) -> Path:
    """A cache folder beside this one, whose store is known to have all of its winners."""
    os.environ["KERNTUNE_STORE"] = url = "s3://kerntune-scale/none"  # never asked
    beside = folder.with_name("mirrored")
    place = store_folder(beside, url)
    place.parent.mkdir(parents=True)
    place.symlink_to(folder)
    return beside


def cold(folder: Path, key: WinnerKey) -> None:
    """What a process asks where there is none."""
    winners = WinnerCache(folder)
    assert winners.get(key) is None
    assert winners.of_other_configs(key) == []
    assert TrialCache(folder).of(trial_key(key)) == []


def timed(look: Callable[[Path, WinnerKey], None], folder: Path, keys: Sequence[WinnerKey]) -> dict[str, float]:
    """Microseconds a look: median, 90th and 99th percentile."""
    seconds = []
    for key in keys:
        begin = time.perf_counter()
        look(folder, key)
        seconds.append(time.perf_counter() - begin)
    return {f"p{q}_us": round(float(np.percentile(seconds, q)) * 1e6, 1) for q in (50, 90, 99)}


def row(entries: int, folder: Path) -> dict[str, Any]:
    """The figures of a cache with so many entries."""
    write = fill(folder, entries)
    known = [winner_key(n) for n in np.random.default_rng(1).integers(0, entries, LOOKS).tolist()]
    unknown = [winner_key(entries + n) for n in range(LOOKS)]
    timed(warm, folder, known[:50])
    found = {"entries": entries, "write_us": round(write * 1e6, 1), "warm": timed(warm, folder, known)}
    found["cold"] = timed(cold, folder, unknown)
    beside = mirrored(folder)
    timed(warm_with_store, beside, known[:50])
    found["warm_with_store"] = timed(warm_with_store, beside, known)
    found["warm_again"] = timed(warm, folder, known)
    shutil.rmtree(folder / "winners" / "questions")
    begin = time.perf_counter()
    cold(folder, unknown[0])
    return {**found, "index_s": round(time.perf_counter() - begin, 2)}


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--entries", type=int, nargs="+", default=[1000, 100_000])
    args = parser.parse_args()
    rows = []
    for entries in args.entries:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(row(entries, Path(folder, "cache")))
        print(rows[-1], flush=True)
    out = {"python": platform.python_version(), "configs": len(CONFIGS), "looks": LOOKS, "rows": rows}
    args.out.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
