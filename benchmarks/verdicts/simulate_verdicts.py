"""False alarms and detection of kerntune's rules and of others, on simulated times.

    python -m benchmarks.verdicts.simulate_verdicts OUT.json [--decisions 20000] [--detections 5000]
    python -m benchmarks.verdicts.simulate_verdicts OUT.json --not-calibrated 500

What is simulated is only the times. The rule is the one that runs: ``kerntune.timing.paired_processes.compare``
requests processes, combines and escalates, ``kerntune.gate.decision`` settles and decides. Beside it, on the same kind
of data: a stored median, a stored mean as ``pytest-benchmark compare --benchmark-compare-fail=mean:5%`` judges it, and
a rank test on pooled launches. No GPU, no clock: the same seed gives the same table.

``--not-calibrated`` makes only the part of ``OUT.json`` with that name: cases whose processes' bias nothing tells, as
those of ``--kerntune-against`` and bisect, with processes 0.05 to 1 % apart, alike (normal), in one of two states, or
skewed. Beside each row is the same with a bias of 0.1 % assumed, as it was before.
"""

from __future__ import annotations

import datetime
import json
import platform
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.stats import beta, mannwhitneyu

from benchmarks import harness
from benchmarks.verdicts.verdict_tables import ALL, WORK, Script
from kerntune.base.policy import Policy, Verdict
from kerntune.base.stats import Estimate
from kerntune.gate.decision import Evidence, decide, settled
from kerntune.timing.paired_processes import (
    BLOCKS,
    MORE_BLOCKS,
    MORE_PROCESSES,
    MORE_UNKNOWN,
    PROCESS_BIAS,
    PROCESSES,
    UNKNOWN_BIAS,
    compare,
)

SESSION_SHIFT = 0.015
"""Standard deviation of a session's clock against another's: temperature, power, neighbours."""

TAIL_SHARE, TAIL_SIZE = 0.02, 0.3
"""Of all launches 2 % take longer by an exponential of 30 % in the mean."""

DRIFT_SIZE, DRIFT_MEMORY, TREND = 0.005, 0.9, 0.005
"""Inside a process: an AR(1) process of 0.5 % with a coefficient of 0.9 from slot to slot, and a linear trend of 0.5 %
in all."""

TIMERS = {"events": 10, "graph": 200}
"""Launches in a slot: event pairs give the median of 3 to 20, a graph the mean of up to 200 short ones."""

STORED_LAUNCHES = 100
"""Launches that the other rules see of each side."""

CHUNK = 100


@dataclass(frozen=True)
class World:
    """How times scatter: standard deviations, relative."""

    process_bias: float
    launch_noise: float
    timer: str = "events"
    shape: str = "normal"


@dataclass(frozen=True)
class Row:
    """One figure of the table. ``bound`` is the 95 % upper bound of a share of false alarms, or the lower of found."""

    rule: str
    timer: str
    process_bias: float
    launch_noise: float
    true_change: float
    tolerance: float
    decisions: int
    slower: int
    faster: int
    open: int
    share: float
    bound: float


STATE_SHARE = 0.25
"""Of processes in which a side is in its slower state, where there are two."""

SHAPES = ("normal", "two states", "skewed")
"""What processes differ by: a normal error; the difference of two sides, each in a slower state in a quarter of all
processes; an exponential error, whose mean is zero."""


def biases(rng: np.random.Generator, world: World, shape: tuple[int, ...]) -> np.ndarray:
    """What processes add to the logarithm of a ratio, with the world's standard deviation."""
    if world.shape == "two states":
        slower = rng.random((2, *shape)) < STATE_SHARE
        found = (slower[0] * 1.0 - slower[1]) / (2 * STATE_SHARE * (1 - STATE_SHARE)) ** 0.5
    else:
        found = rng.standard_normal(shape) if world.shape == "normal" else rng.standard_exponential(shape) - 1
    return np.asarray(found * world.process_bias)


def launches(rng: np.random.Generator, shape: tuple[int, ...], noise: float) -> np.ndarray:
    """Single launches."""
    times = 1 + rng.standard_normal(shape, np.float32) * np.float32(noise)
    tails = rng.random(shape, np.float32) < TAIL_SHARE
    times[tails] += rng.standard_exponential(int(tails.sum())) * TAIL_SIZE
    return times


def slots(rng: np.random.Generator, shape: tuple[int, ...], world: World) -> np.ndarray:
    """What a slot's timer gives. The mean of normals is a normal, the sum of exponentials a gamma."""
    count = TIMERS[world.timer]
    if world.timer == "events":
        return np.median(launches(rng, (*shape, count), world.launch_noise), -1)
    tails = rng.binomial(count, TAIL_SHARE, shape)
    extra = rng.standard_gamma(np.maximum(tails, 1)) * (tails > 0) * TAIL_SIZE
    return 1 + rng.standard_normal(shape) * world.launch_noise / count**0.5 + extra / count


def drift(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """The drift of the clock, along the last axis."""
    steps = rng.standard_normal(shape) * DRIFT_SIZE * (1 - DRIFT_MEMORY**2) ** 0.5
    steps[..., 0] /= (1 - DRIFT_MEMORY**2) ** 0.5
    for i in range(1, shape[-1]):
        steps[..., i] += DRIFT_MEMORY * steps[..., i - 1]
    return 1 + steps + rng.standard_normal((*shape[:-1], 1)) * TREND * np.linspace(-0.5, 0.5, shape[-1])


def pairs(
    rng: np.random.Generator, world: World, change: float, count: int, processes: int = ALL
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Per decision, block times of both sides in all processes that could be asked: arrays (processes, blocks)."""
    for _ in range(0, count, CHUNK):
        shape = (CHUNK, processes, MORE_BLOCKS, 4)
        times = slots(rng, shape, world)
        times *= drift(rng, (CHUNK, processes, MORE_BLOCKS * 4)).reshape(shape)
        first_a = rng.random((CHUNK, processes, MORE_BLOCKS, 1)) < 0.5
        is_b = np.array([0, 1, 1, 0], bool) ^ ~first_a
        bias = np.exp(biases(rng, world, (CHUNK, processes, 1, 1)))
        times = np.where(is_b, times * (1 + change) * bias, times) * 10_000.0
        yield from zip((times * ~is_b).sum(-1) / 2, (times * is_b).sum(-1) / 2, strict=True)


def ours(
    rng: np.random.Generator,
    world: World,
    change: float,
    tolerance: float,
    count: int,
    bias: float | None = PROCESS_BIAS,
) -> Counter[str]:
    """Verdicts of the rule that runs, at the level of a run of one case; ``bias`` is that of a calibration, None
    without one. ``missed`` are the shown intervals, at 99 %, that the truth lies outside of."""
    policy, found = Policy(tolerance=tolerance), Counter[str]()

    def done(seen: Estimate, a_ns: float) -> bool:
        return settled(seen, policy, a_ns, 0.0)

    processes = PROCESSES + (MORE_UNKNOWN if bias is None else MORE_PROCESSES)
    for a, b in pairs(rng, world, change, count, processes):
        replay = compare(Script(zip(a.tolist(), b.tolist(), strict=True)), WORK, policy.level_of(1), bias, done)
        found[decide(Evidence(1, 1, replay=replay.change), policy).name] += 1
        found["processes"] += len(replay.a_ns)
        found["missed"] += not replay.shown.low <= change <= replay.shown.high
    return found


UNKNOWN_SDS = (0.0005, 0.001, 0.004, 0.01)
UNKNOWN_TOLERANCE = 0.01


def not_calibrated(count: int, seed: int) -> dict[str, object]:
    """Cases without a calibration: flat ones of each kind, a change of 1.5 %, and what a decision takes."""
    rows, begun = [], harness.commit()
    asked = [(sd, shape, 0.0, UNKNOWN_TOLERANCE, count) for sd in UNKNOWN_SDS for shape in SHAPES]
    asked += [(0.001, "normal", 0.015, UNKNOWN_TOLERANCE, 10 * count), (0.001, "normal", 0.0, 0.02, count)]
    asked += [(0.001, "normal", 0.03, 0.02, count)]
    for index, (sd, shape, change, tolerance, decisions) in enumerate(asked):
        for rule, bias in (("estimated", None), ("0.1 % assumed", PROCESS_BIAS)):
            world, rng = World(sd, 0.02, "graph", shape), np.random.default_rng([seed, index])
            found = ours(rng, world, change, tolerance, decisions, bias)
            total = sum(found[v.name] for v in Verdict)
            rows.append(
                {
                    "bias": rule, "process_sd": sd, "shape": shape, "true_change": change, "tolerance": tolerance,
                    "decisions": total, "slower": found["REGRESSED"], "faster": found["IMPROVED"],
                    "open": found["INCONCLUSIVE"], "missed_by_99": found["missed"],
                    "missed_share": round(found["missed"] / total, 5),
                    "processes": round(found["processes"] / total, 3),
                }
            )  # fmt: skip
            print(rows[-1], flush=True)
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": begun,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "timer": "graph",
        "launch_noise": 0.02,
        "state_share": STATE_SHARE,
        "assumed_of_three": UNKNOWN_BIAS,
        "seed": seed,
        "rows": rows,
    }


def stored(rng: np.random.Generator, world: World, change: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Launch times of a stored session and of today's, arrays (decisions, launches)."""
    shape = (count, STORED_LAUNCHES)
    sides = []
    for factor in (1.0, 1 + change):
        session = np.exp(rng.standard_normal((count, 1)) * SESSION_SHIFT)
        process = np.exp(rng.standard_normal((count, 1)) * world.process_bias)
        sides.append(launches(rng, shape, world.launch_noise) * drift(rng, shape) * session * process * factor)
    return sides[0], sides[1]


def others(rng: np.random.Generator, world: World, change: float, tolerance: float, count: int) -> dict[str, Counter]:
    """Verdicts of the rules that other tools have."""
    a, b = stored(rng, world, change, count)
    median = np.median(b, 1) / np.median(a, 1) - 1
    mean = b.mean(1) / a.mean(1) - 1
    p = mannwhitneyu(a, b, axis=1).pvalue < 1 - Policy().level
    slower = np.median(b, 1) > np.median(a, 1)
    return {
        f"stored median, {tolerance:.0%}": _counted(median > tolerance, median < -tolerance),
        "stored median, 3%": _counted(median > 0.03, median < -0.03),
        "stored mean, mean:5%": _counted(mean > 0.05, np.zeros_like(slower)),
        "rank test on pooled launches, 99.9%": _counted(p & slower, p & ~slower),
    }


def _counted(slower: np.ndarray, faster: np.ndarray) -> Counter:
    return Counter(REGRESSED=int(slower.sum()), IMPROVED=int(faster.sum()), PASS=int((~slower & ~faster).sum()))


def row(rule: str, world: World, change: float, tolerance: float, found: Counter) -> Row:
    """Counts as shares: of false alarms where nothing changed, of findings where something did."""
    slower, faster = found[Verdict.REGRESSED.name], found[Verdict.IMPROVED.name]
    total = sum(found[v.name] for v in Verdict)
    hits = slower if change else slower + faster
    bound = beta.ppf(0.05, hits, total - hits + 1) if change > tolerance else beta.ppf(0.95, hits + 1, total - hits)
    return Row(
        rule, world.timer, world.process_bias, world.launch_noise, change, tolerance, total, slower, faster,
        found[Verdict.INCONCLUSIVE.name], round(hits / total, 6), round(float(np.nan_to_num(bound, nan=hits > 0)), 6),
    )  # fmt: skip


def table(decisions: int, detections: int, seed: int) -> tuple[list[Row], dict[str, float]]:
    """All rows, and the mean number of processes that ours asked for."""
    rows: list[Row] = []
    processes: dict[str, float] = {}
    worlds = [World(bias, noise) for bias in (0.001, 0.004) for noise in (0.02, 0.06)]
    worlds += [World(0.001, noise, "graph") for noise in (0.02, 0.06)]
    cases = [(0.0, 0.02, decisions), (0.0, 0.01, decisions), (0.03, 0.02, detections), (0.015, 0.01, detections)]
    cases += [(0.02, 0.02, detections), (0.01, 0.01, detections)]
    for index, (world, (change, tolerance, count)) in enumerate((w, c) for w in worlds for c in cases):
        rng, first = np.random.default_rng([seed, index]), len(rows)
        found = ours(rng, world, change, tolerance, count)
        rows.append(row("kerntune", world, change, tolerance, found))
        key = (
            f"{world.timer} bias {world.process_bias} noise {world.launch_noise} change {change} tolerance {tolerance}"
        )
        processes[key] = round(found["processes"] / rows[-1].decisions, 2)
        if world.process_bias != PROCESS_BIAS:
            found = ours(rng, world, change, tolerance, min(count, detections), world.process_bias)
            rows.append(row("kerntune, calibrated", world, change, tolerance, found))
        rows += [row(n, world, change, tolerance, f) for n, f in others(rng, world, change, tolerance, count).items()]
        print(rows[first], processes[key], flush=True)
    return rows, processes


def main() -> None:
    """See the module's text."""
    parser = harness.parser(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--decisions", type=int, default=20_000)
    parser.add_argument("--detections", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--not-calibrated", type=int, metavar="COUNT", help="make only this part of OUT.json")
    args = parser.parse_args()
    known = json.loads(args.out.read_text()) if args.out.exists() else {}
    if args.not_calibrated:
        known["not_calibrated"] = not_calibrated(args.not_calibrated, args.seed)
        harness.write(args.out, known)
        return
    rows, processes = table(args.decisions, args.detections, args.seed)
    model = {
        "session_shift": SESSION_SHIFT, "tail_share": TAIL_SHARE, "tail_size": TAIL_SIZE, "drift": DRIFT_SIZE,
        "drift_memory": DRIFT_MEMORY, "trend": TREND, "slot_launches": TIMERS, "blocks": [BLOCKS, MORE_BLOCKS],
        "processes": [PROCESSES, MORE_PROCESSES], "assumed_bias": PROCESS_BIAS, "level": Policy().level,
        "stored_launches": STORED_LAUNCHES, "seed": args.seed,
    }  # fmt: skip
    out = {
        "model": model,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "mean_processes": processes,
        "rows": [asdict(r) for r in rows],
        **{name: part for name, part in known.items() if name == "not_calibrated"},
    }
    harness.write(args.out, out)


if __name__ == "__main__":
    main()
