"""Descent from a heuristic's best, on recorded sweeps: how near it comes to the best config, and in how many trials.

    python benchmarks/descent.py                     no GPU: writes benchmarks/results/descent.json
    python benchmarks/descent.py --gpu OUT.json      a GPU: four of the kernels, their descents and their best configs
    python benchmarks/descent.py --gpu OUT.json --scripted     the same steps on the scripted GPU

A sweep (``benchmarks/heuristic_sweep.py``) has a time for each config of a kernel's space. The start is the fastest
config that a preset proposes, which isn't counted as a trial, since it is raced anyway; the other preset's proposals
are tried first, as the decorators have it, and count. A neighbour that the sweep lacks has an interpolated time, if it
lies between recorded ones, that leads the search but is no result; else it counts as a trial that can't be used
(``gaps are walls``: each that the sweep lacks). Where a sweep has one number of stages only (kernels without a loop to
pipeline) other numbers are the same code. Ends are judged by recorded times alone. A register limit, along which no
step leads, keeps what can be reached to 0.9954 (tuned shapes) and 0.9968 (held-out ones) of the best.

On a GPU, a decorator with ``descend=True`` tunes each kernel; what it comes to, its fastest proposal, and the configs
that were fastest in the recorded sweep then take turns as CUDA graphs (``benchmarks/graph_pairs.py``). ``share`` is the
fastest recorded config's time over the descent's, measured now; ``start_share`` the same of the fastest proposal. The
recorded sweep stands for an exhaustive search, so the share may be above 1. A row is written as each is done, with all
trials in order and the places of the recorded configs among them. 25 to 40 s for the four on an H200's host.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import sys
import time
import traceback
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import geometric_mean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.heuristic_sweep import judged
from kerntune.base.config import Config
from kerntune.base.device import Target, typical_device
from kerntune.capture.site import config_of
from kerntune.heuristics.descent_steps import get_field, set_field
from kerntune.search import Descent, Measured
from kerntune.search.declared_descent import TRIALS

RESULTS = Path(__file__).parent / "results"
SWEEPS = ("heuristic_sweep.json", "heuristic_sweep_held_out.json")
PRESETS = ("inductor-2.13", "measured-2026")
H200 = typical_device(Target("cuda", "90"))


def parsed(text: str) -> Config:
    """``XBLOCK=1024 num_warps=4``."""
    pairs = (part.split("=") for part in text.split())
    return Config.from_mapping({name: int(value) if value.isdigit() else value for name, value in pairs})


@dataclass
class RecordedKernel:
    """A sweep's kernel: the recorded times, and what is guessed of configs that the sweep lacks.

    A guess is interpolated along one field between the next smaller and the next larger recorded value (logarithms of
    both), the slowest where several fields allow one: it lets a search go through a gap, and counts as no result.
    """

    row: dict[str, Any]
    guessing: bool = True
    error: float = 0.0
    """Standard deviation of a measured time's logarithm; the end of a search is judged by the recorded times."""

    seed: int = 0

    def __post_init__(self) -> None:
        self.configs = [parsed(c["config"]) for c in self.row["configs"]]
        self.times = {
            c.key(): t for c, r in zip(self.configs, self.row["configs"], strict=True) if (t := r.get("time_ns"))
        }
        self.best = min(self.times.values())
        self.unpipelined = len({c.num_stages for c in self.configs}) == 1
        self._random, self._noise = random.Random(f"{self.row['kernel']} {self.seed}"), dict[str, float]()
        self.missing, self.guessed = 0, 0

    def code(self, config: Config) -> Config:
        """Where a sweep has one number of stages only, others compile to the same code."""
        return config.replace(num_stages=self.configs[0].num_stages) if self.unpipelined else config

    def recorded(self, config: Config) -> float | None:
        return self.times.get(self.code(config).key())

    def measure(self, config: Config) -> Measured:
        code = self.code(config)
        time_ns = self.recorded(code)
        if time_ns is None:
            time_ns = self._between(code) if self.guessing else None
            self.guessed += time_ns is not None
            self.missing += time_ns is None
        if time_ns is None:
            return Measured(None, "not in the sweep")
        noise = self._noise.setdefault(code.key(), math.exp(self._random.gauss(0.0, self.error)))
        return Measured(time_ns * noise, code=code.key())

    def _between(self, config: Config) -> float | None:
        names = [*config.kwargs, "num_warps", "num_stages"]
        return max((t for n in names if (t := self._along(config, n)) is not None), default=None)

    def _along(self, config: Config, name: str) -> float | None:
        value = get_field(config, name)
        assert value is not None
        near = {v: t for v in self._values(name) if (t := self.times.get(set_field(config, name, v).key()))}
        below, above = [v for v in near if v < value], [v for v in near if v > value]
        if not below or not above:
            return None
        low, high = max(below), min(above)
        share = math.log(value / low) / math.log(high / low)
        return math.exp((1 - share) * math.log(near[low]) + share * math.log(near[high]))

    def _values(self, name: str) -> list[int]:
        return sorted({v for c in self.configs if (v := get_field(c, name))})


def descended(kernel: RecordedKernel, starts: list[Config], further: list[Config]) -> dict[str, Any]:
    """A sweep's kernel, from the best of these starts."""
    persistent = kernel.row["kernel"].endswith("_persistent")  # the block is the row, as the decorator has it
    frozen = ("RBLOCK",) if persistent else ()
    asked: list[Config] = []

    def measure(config: Config) -> Measured:
        asked.append(config)
        return kernel.measure(config)

    descent = Descent(tuple(starts), H200, frozen=frozen, further=tuple(further))
    found = descent.run(measure, lambda configs: None, starts)
    start = min(t for c in starts if (t := kernel.recorded(c)))
    end, config = min((t, str(kernel.code(c))) for c in asked if (t := kernel.recorded(c)))
    return {
        "kernel": kernel.row["kernel"],
        "start": round(kernel.best / start, 4),
        "end": round(kernel.best / end, 4),
        "trials": len(found.trials) - len(set(starts)),
        "guessed": kernel.guessed,
        "not_in_sweep": kernel.missing,
        "config": config,
    }


RANDOM_STARTS = 10


def from_random_starts(row: dict[str, Any]) -> dict[str, Any]:
    """A kernel of which no rule knows anything: single random starts between 0.3 and 0.97 of the best."""
    kernel, ends = RecordedKernel(row), []
    slower = [c for c in kernel.configs if not c.maxnreg and 0.3 < kernel.best / (kernel.recorded(c) or 1e18) < 0.97]
    draw = random.Random(row["kernel"])
    starts = [draw.choice(slower) for _ in range(RANDOM_STARTS)]
    ends = [descended(RecordedKernel(row), [start], []) for start in starts]
    return {
        "kernel": row["kernel"],
        "start": round(geometric_mean([one["start"] for one in ends]), 4),
        "end": round(geometric_mean([one["end"] for one in ends]), 4),
        "trials": max(one["trials"] for one in ends),
    }


ERROR = 0.02
"""Of an estimate of some 20 us by an event pair, about."""

KINDS: dict[str, dict[str, Any]] = {
    "": {},
    "gaps are walls": {"guessing": False},
    "without the other preset's proposals": {"alone": True},
    "times are wrong by 2 %": {"error": ERROR},
}


def tables() -> list[dict[str, Any]]:
    """Each sweep from each preset's proposals, in all :data:`KINDS`, and from random starts."""
    from kerntune.gpu.compile_only import StaticBackend

    backend = StaticBackend((Target("cuda", "90"),))
    found = []
    for name in SWEEPS:
        result, proposed = json.loads((RESULTS / name).read_text()), {}
        for preset in PRESETS:
            with backend.activate():
                proposed[preset] = [r["proposals"][preset] for r in judged(result, backend, preset=preset)]
        for preset, (kind, words) in itertools.product(PRESETS, KINDS.items()):
            own, others = proposed[preset], [[*p] for other in PRESETS if other != preset for p in proposed[other]]
            kernels = [_one(row, own[i], others[i], **words) for i, row in enumerate(result["kernels"])]
            found.append({"sweep": name, "preset": preset, "kind": kind, **summary(kernels)})
            print({k: v for k, v in found[-1].items() if k != "kernels"}, flush=True)
        found.append({"sweep": name, "preset": None, "kind": "random starts"})
        found[-1] |= summary([from_random_starts(row) for row in result["kernels"]])
        print({k: v for k, v in found[-1].items() if k != "kernels"}, flush=True)
    return found


def _one(row: dict[str, Any], own: list[int], others: list[int], alone: bool = False, **words: Any) -> dict[str, Any]:
    kernel = RecordedKernel(row, **words)
    further = [] if alone else [kernel.configs[i] for i in others]
    return descended(kernel, [kernel.configs[i] for i in own], further)


def summary(kernels: list[dict[str, Any]]) -> dict[str, Any]:
    ends, trials = [k["end"] for k in kernels], [k["trials"] for k in kernels]
    return {
        "start": round(geometric_mean([k["start"] for k in kernels]), 4),
        "end": round(geometric_mean(ends), 4),
        "worst": min(ends),
        "most_trials": max(trials),
        "mean_trials": round(sum(trials) / len(trials), 1),
        "kernels": kernels,
    }


GPU_KERNELS = ("gelu_1d", "sums_outer", "moments_outer", "softmax_persistent")
RECORDED = 3
"""Configs of the recorded sweep that a descent on a GPU is held against."""


def measured_row(name: str, scripted: bool) -> dict[str, Any]:
    """A descent on this machine's GPU, from the proposals of the default preset."""
    from benchmarks.graph_pairs import device_ratio
    from benchmarks.suite.proposed_cases import PROPOSED

    case = PROPOSED[name]
    call = case.call(case.shape, "cuda")
    begin = time.monotonic()
    words: dict[str, Any] = {**case.words, **case.options, "cache_results": False}
    listed, kernel = case.decorator(**words)(case.kernel), case.decorator(**words, descend=True)(case.kernel)
    for one in (listed, kernel):
        one[call.grid](*call.arguments)
    row = {
        "kernel": name,
        "proposed": str(listed.best_config),
        "descended": str(kernel.best_config),
        "trials": len(kernel.configs_timings) - len(listed.candidates(*call.arguments)),
        "tuned_s": round(time.monotonic() - begin, 2),
        "tried": [{"config": str(c), "us": round(1e3 * times[0], 3)} for c, times in kernel.configs_timings.items()],
    }
    if scripted:
        return row

    def launcher(config: Any) -> Any:
        return lambda: case.kernel[call.grid](*call.arguments, **config)

    ours = launcher(kernel.best_config.all_kwargs())
    row["proposed_ratio"] = device_ratio(launcher(listed.best_config.all_kwargs()), ours)
    found, tried = [], [config_of(c, name) for c in kernel.configs_timings]
    for text in recorded_best(name):
        found.append({"config": text, **device_ratio(launcher(parsed(text).all_kwargs()), ours)})
        found[-1]["tried"] = next((i for i, c in enumerate(tried) if c == parsed(text)), None)
    best = min(one["ratio"] for one in found)
    row |= {"recorded": found, "share": min(best, 1.0), "best_ratio": best}
    row["start_share"] = min(best, 1.0) / row["proposed_ratio"]["ratio"]
    return row | {"seconds": round(time.monotonic() - begin, 2)}


def print_row(row: dict[str, Any]) -> None:
    """What a cause can be found in: all trials in order with their times, the recorded configs' places among them."""
    print(json.dumps({k: v for k, v in row.items() if k not in ("recorded", "proposed_ratio", "tried")}), flush=True)
    for i, one in enumerate(row.get("tried", ())):
        print(f"    {i:3} {one['us']:10.3f} us  {one['config']}")
    for one in row.get("recorded", ()):
        place = "never tried" if one["tried"] is None else f"trial {one['tried']}"
        print(f"    recorded: {one['config']}: {one['ratio']:.4f} of the descended, {place}", flush=True)


def recorded_best(name: str) -> list[str]:
    """The fastest configs of a kernel in the recorded sweep, at the shapes of the suite."""
    sweep = json.loads((RESULTS / SWEEPS[0]).read_text())
    (row,) = (one for one in sweep["kernels"] if one["kernel"] == name)
    timed = sorted((c["time_ns"], c["config"]) for c in row["configs"] if c.get("time_ns"))
    return [config for _, config in timed[:RECORDED]]


def on_gpu(out: Path, scripted: bool) -> int:
    """The kernels of :data:`GPU_KERNELS`; what fails is in the file, with its traceback."""
    from benchmarks.registers import device

    rows: list[dict[str, Any]] = []
    with device(scripted):
        for name in GPU_KERNELS:
            try:
                rows.append(measured_row(name, scripted))
            except Exception:  # the other rows are worth having
                rows.append({"kernel": name, "error": traceback.format_exc()})
            print_row(rows[-1])
            shares = [row["share"] for row in rows if "share" in row]
            mean = round(geometric_mean(shares), 4) if shares else None
            date = datetime.now(timezone.utc).date().isoformat()
            result = {"date": date, "scripted": scripted, "share": mean, "kernels": rows}
            out.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if any("error" in row for row in rows) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "descent.json")
    parser.add_argument("--gpu", type=Path, metavar="OUT.json")
    parser.add_argument("--scripted", action="store_true")
    options = parser.parse_args()
    if options.gpu:
        return on_gpu(options.gpu, options.scripted)
    found = tables()
    date = datetime.now(timezone.utc).date().isoformat()
    options.out.write_text(json.dumps({"date": date, "trials": TRIALS, "tables": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
