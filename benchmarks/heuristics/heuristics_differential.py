"""Compares every family with torch's own heuristics over all cases and writes counts to benchmarks/results/.

    python -m benchmarks.heuristics.heuristics_differential [family ...]

The environment has torch 2.13. It exits with
1 and prints the first disagreements if there are any. All of it takes three minutes of one core.

``--torch-sources DIR`` compares with another release, whose unpacked wheel is in DIR (``pip download --no-deps
torch==2.15.0``, then unzip): its Python files over the installed torch. ``--preset`` names the rules to hold against
it; without it they are those of the release. ``--random N`` adds N random cases of all hints at once on untypical
devices; what is meant to differ there is counted by its name in docs/heuristics.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks import harness
from benchmarks.harness import RESULTS

sys.path.insert(0, str(harness.ROOT / "tests"))

from kerntune.base.device import DeviceSpec
from kerntune.heuristics import PRESETS, Preset
from kerntune.heuristics.hints import KernelHints

RANDOM = "random"
SHOWN = 5
TIMED = 37
REPEATS = 3
"""Every 37th case is timed, best of three: other work on the machine is not the proposal's cost."""


class Oracle(NamedTuple):
    """The torch that is called, and the preset of kerntune that must give the same results."""

    version: str
    preset: Preset
    cases: ModuleType
    random: ModuleType
    ask: ModuleType
    runtime: ModuleType

    @property
    def result(self) -> Path:
        """The file of the last comparison."""
        release = "" if self.preset.name == "inductor-2.13" else "_" + self.preset.name.replace("-", "_")
        return RESULTS / f"heuristics_differential{release.replace('_inductor', '').replace('.', '_')}.json"

    @property
    def families(self) -> list[str]:
        """Names of everything that is compared."""
        return [*self.cases.CASES, *self.runtime.RUNTIME, RANDOM]


def oracle(sources: Path | None, preset: str | None) -> Oracle:
    """The installed torch, or the release whose Python files are in ``sources``."""
    from heuristics.inductor_sources import use_sources

    version = use_sources(sources) if sources else ""
    import torch
    from heuristics import inductor_cases, inductor_oracle, inductor_random, inductor_runtime

    version = version or torch.__version__
    release = "inductor-" + ".".join(version.split(".")[:2])
    if (preset or release) not in PRESETS:
        raise SystemExit(f"no preset {preset or release}: name one with --preset, of {', '.join(PRESETS)}")
    rules = PRESETS[preset or release]
    return Oracle(version, rules, inductor_cases, inductor_random, inductor_oracle, inductor_runtime)


def none_yet() -> dict[str, int]:
    """The counts of no case."""
    return {"cases": 0, "same_configs": 0, "both_refuse": 0, "differ": 0}


def compare_case(case: Any, oracle: Oracle, counts: dict[str, int], named: Counter[str] | None = None) -> None:
    """Count one case; ``named`` are differences that are meant, by their names. The first others are printed."""
    kind, hints, device = case
    configs = oracle.cases.ours(kind, hints, device, oracle.preset)
    mine = None if configs is None else oracle.ask.flat_all(configs)
    theirs = oracle.ask.ask(kind, hints, device)
    counts["cases"] += 1
    if mine == theirs:
        counts["both_refuse" if mine is None else "same_configs"] += 1
    elif named is not None and (name := oracle.random.difference(kind, hints, device, mine, theirs)):
        named[name] += 1
    else:
        counts["differ"] += 1
        if counts["differ"] <= SHOWN:
            print(f"{kind} {device.target} {told(hints)}\n  ours   {mine}\n  theirs {theirs}")


def compare(family: str, oracle: Oracle, every: int) -> dict[str, Any]:
    """Counts of one family: cases, agreements, both refused, disagreements, and the CPU time of our proposals."""
    counts, times = none_yet(), list[float]()
    for case in in_backends(itertools.islice(oracle.cases.CASES[family](), 0, None, every), oracle):
        if counts["cases"] % TIMED == 0:
            times.append(min(timed(*case, oracle) for _ in range(REPEATS)))
        compare_case(case, oracle, counts)
    return {**counts, "our_microseconds_cpu": {"mean": _microseconds(statistics.mean(times)), **_quantiles(times)}}


def told(hints: KernelHints) -> str:
    """The hints that aren't left at their defaults."""
    plain = KernelHints(sizes=hints.sizes)
    given = {f: getattr(hints, f) for f in hints.__struct_fields__ if getattr(hints, f) != getattr(plain, f)}
    return f"{hints.sizes} {given}"


def in_backends(cases: Iterable[Any], oracle: Oracle) -> Iterator[Any]:
    """The cases, each while torch's globals are those of its backend."""
    ordered = sorted(cases, key=_backend)
    for name, group in itertools.groupby(ordered, key=_backend):
        with oracle.ask.backend(name):
            yield from group


def _backend(case: Any) -> str:
    return str(case[2].target.backend)


def timed(kind: str, hints: KernelHints, device: DeviceSpec, oracle: Oracle) -> float:
    """Seconds of CPU time of one proposal."""
    start = time.thread_time()
    oracle.cases.ours(kind, hints, device, oracle.preset)
    return time.thread_time() - start


def _quantiles(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {f"p{p}": _microseconds(ordered[len(ordered) * p // 100]) for p in (50, 90, 99)}


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 1)


def compare_runtime(part: str, oracle: Oracle, every: int) -> dict[str, int]:
    """Counts of one part that isn't a family: combos, scaling, descent, given configs."""
    counts = none_yet()
    for label, decide in itertools.islice(oracle.runtime.RUNTIME[part](oracle.preset), 0, None, every):
        mine, theirs = decide()
        counts["cases"] += 1
        counts["same_configs" if mine == theirs else "differ"] += 1
        if mine != theirs and counts["differ"] <= SHOWN:
            print(f"{label[:600]}\n  ours   {str(mine)[:900]}\n  theirs {str(theirs)[:900]}")
    return counts


def compare_random(count: int, seed: int, oracle: Oracle) -> dict[str, Any]:
    """Counts of random cases; those that differ on purpose by name."""
    counts, named = none_yet(), Counter[str]()
    for case in in_backends(itertools.islice(oracle.random.random_cases(seed), count), oracle):
        compare_case(case, oracle, counts, named)
    return {**counts, "seed": seed, "deliberate": dict(sorted(named.items()))}


def main() -> int:
    """Compare, and put each family's counts into the result as soon as they are there."""
    options = arguments()
    torch = oracle(options.torch_sources, options.preset)
    differ = 0
    asked = options.families or [name for name in torch.families if name != RANDOM]
    for family in [*asked, *([RANDOM] if options.random else [])]:
        counts = counts_of(family, options, torch)
        print(family, counts, flush=True)
        if options.every == 1 and not options.no_record:
            record(family, counts, torch)
        differ += counts["differ"]
    return 1 if differ else 0


def counts_of(family: str, options: argparse.Namespace, torch: Oracle) -> dict[str, Any]:
    """What comes of one family, one part, or random cases."""
    if family == RANDOM:
        return compare_random(options.random, options.seed, torch)
    return (compare if family in torch.cases.CASES else compare_runtime)(family, torch, options.every)


def arguments() -> argparse.Namespace:
    parser = harness.parser(__doc__)
    parser.add_argument("families", nargs="*", help="families and parts to compare; all by default")
    parser.add_argument("--torch-sources", type=Path, help="folder with another torch's unpacked wheel")
    parser.add_argument("--preset", help="which preset should answer the same; the release's own by default")
    parser.add_argument("--every", type=int, default=1, help="only every n-th case; nothing is recorded then")
    parser.add_argument("--random", type=int, default=0, help="so many random cases after the others")
    parser.add_argument("--seed", type=int, default=2026, help="of the random cases")
    parser.add_argument("--no-record", action="store_true", help="leave the result file as it is")
    return parser.parse_args()


def record(family: str, counts: dict[str, Any], oracle: Oracle) -> None:
    """Replace one family's counts; those of another environment are dropped."""
    here = harness.environment(torch=oracle.version, preset=oracle.preset.name, machine=platform.machine())
    path = oracle.result
    found = json.loads(path.read_text()) if path.exists() else {}
    same = {k: v for k, v in found.get("environment", {}).items() if k != "date"}
    old = found["families"] if same == {k: v for k, v in here.items() if k != "date"} else {}
    known = {**old, family: counts}
    families = {name: known[name] for name in oracle.families if name in known}
    harness.write(path, {"environment": here, "families": families})


if __name__ == "__main__":
    sys.exit(main())
