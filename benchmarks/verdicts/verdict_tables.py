"""Decides thousands of times from what ``verdict_record.py`` recorded, by the rule that runs and by others' rules.

    python -m benchmarks.verdicts.verdict_tables RECORDED.json OUT.json [--decisions 500] [--family 1]

A decision draws a calibration's worth of processes that timed the base form against itself, then as many others as
the product would ask for, never one twice; blocks are never drawn. ``kerntune.timing.paired_processes.compare``
asks, combines and escalates, ``kerntune.gate.decision`` settles and decides. The bounds take decisions for
independent, which decisions from the same few dozen processes are not; the processes' own scatter is in the first
table.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from math import expm1, log
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from scipy.stats import beta

from benchmarks import harness
from benchmarks.verdicts.verdict_peers import FASTER, RULES, SLOWER
from kerntune.base.device import Target
from kerntune.base.policy import Policy, Verdict
from kerntune.base.recording import Recording
from kerntune.base.stats import Estimate, hodges_lehmann, median
from kerntune.gate.decision import Evidence, decide, settled
from kerntune.gate.replay import CALIBRATION_PROCESSES, calibrate
from kerntune.timing.paired_processes import BLOCKS, MORE_PROCESSES, PROCESS_BIAS, PROCESSES, compare, paired_work
from kerntune.timing.worker.requests import PairReply, PairRequest

EMPTY = Recording(Target.parse("cuda:90"), (), (), (), ())
WORK = paired_work(EMPTY, EMPTY, (), {})
ALL = PROCESSES + MORE_PROCESSES

QUESTIONS = (("twin", 0.02), ("twin", 0.01), ("slow_3", 0.02), ("slow_1_5", 0.01))
"""Variants and the tolerances at which they are decided."""

SHORTEST_NS = 3_000.0
"""Detection is asked of cases that take longer than this."""

REQUIRED_SD = ((50_000.0, 0.001), (3_000.0, 0.001), (0.0, 0.002))
"""Cases longer than so many ns: the largest standard deviation of one process's estimate."""


@dataclass(frozen=True)
class Spread:
    """How one process's estimate of base against base scatters over fresh processes. Relative; ``ns`` is a launch's
    time, ``first_look`` (by as many blocks as the product's first look has) and ``all_blocks`` are standard deviations
    of the paired estimate, the others of plain figures. ``processes`` are those of the variant that has fewest."""

    case: str
    ns: float
    processes: int
    first_look: float
    all_blocks: float
    required: float
    do_bench_median: float
    host_mean: float
    twin: float
    """What the twin truly differs by: the mean over its processes."""


@dataclass(frozen=True)
class Row:
    """Decisions of one rule. ``bound`` is the 95 % upper bound of false alarms, or the lower one of what is found."""

    rule: str
    case: str
    variant: str
    tolerance: float | None
    true_change: float
    decisions: int
    slower: int
    faster: int
    open: int
    share: float
    bound: float
    processes: float = 0.0
    """Processes that were asked, in the mean."""


Blocks = Sequence[float]


class Script:
    """A replacement of the worker pool: processes whose block times of both sides are known reply, each once."""

    def __init__(self, processes: Iterable[tuple[Blocks, Blocks]]) -> None:
        self._processes = iter(processes)

    def expect(self, count: int) -> None:
        """Every reply is another process's."""

    def run(self, request: PairRequest) -> PairReply:
        """The next process, as far as it was asked."""
        a, b = next(self._processes)
        if len(a) < request.blocks:
            raise SystemExit(f"a process has {len(a)} blocks, the rule asks for {request.blocks}")
        return PairReply(tuple(a[: request.blocks]), tuple(b[: request.blocks]))

    def settle(self) -> None:
        """There is no process to start."""

    def close(self) -> None:
        """Nothing to end."""


def replies(rows: Iterable[dict[str, Any]]) -> Script:
    """Processes as ``verdict_record.py`` has kept them."""
    return Script((row["a"], row["b"]) for row in rows)


def point(row: dict[str, Any], blocks: int) -> float:
    """The change in one process: 0.03 is 3 % slower."""
    ratios = [log(b / a) for a, b in zip(row["a"][:blocks], row["b"][:blocks], strict=True)]
    return expm1(hodges_lehmann(ratios).point)


def spread(name: str, case: dict[str, Any]) -> Spread:
    """The first table's row of a case."""
    rows = case["variants"]["same"]
    ns = median([median(r["a"]) for r in rows])
    return Spread(
        case=name,
        ns=round(ns, 1),
        processes=min(map(len, case["variants"].values())),
        first_look=_rounded(stdev([point(r, BLOCKS) for r in rows])),
        all_blocks=_rounded(stdev([point(r, len(r["a"])) for r in rows])),
        required=next(limit for longer, limit in REQUIRED_SD if ns > longer),
        do_bench_median=_scatter([median(x) for x in plain(rows, "event")]),
        host_mean=_scatter([mean(x) for x in plain(rows, "host")]),
        twin=_rounded(mean(point(r, len(r["a"])) for r in case["variants"]["twin"])),
    )


def plain(rows: Sequence[dict[str, Any]], timer: str) -> list[list[float]]:
    """Each process's plain launches, of whichever side: here both run the same."""
    return [r[f"{side}_{timer}"] for side in "ab" for r in of_side(side, rows)]


def _scatter(values: Sequence[float]) -> float:
    return _rounded(stdev(values) / mean(values))


def ours(
    rng: np.random.Generator, case: dict[str, Any], variant: str, policy: Policy, decisions: int
) -> tuple[Counter[str], float]:
    """Verdicts of the rule that runs, and the mean number of processes that it asked."""
    same, rows = case["variants"]["same"], case["variants"][variant]
    found, asked = Counter[str](), 0
    for _ in range(decisions):
        known = calibrate(replies(drawn(rng, same, CALIBRATION_PROCESSES)), WORK)
        stored = median([median(r["a"]) for r in same])
        done = _settled(policy, known.floor)
        bias = max(PROCESS_BIAS, known.bias)
        replay = compare(replies(drawn(rng, rows, ALL)), WORK, policy.level_of(1), bias, done)
        evidence = Evidence(1, 1, replay=replay.change, baseline_ns=stored, effect_floor=known.floor)
        found[decide(evidence, policy).name] += 1
        asked += len(replay.a_ns)
    return found, asked / decisions


def _settled(policy: Policy, floor: float) -> Callable[[Estimate, float], bool]:
    return lambda seen, a_ns: settled(seen, policy, a_ns, floor)


def drawn(rng: np.random.Generator, rows: Sequence[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """So many different processes in random order."""
    return [rows[i] for i in rng.choice(len(rows), count, replace=False)]


def others(
    rng: np.random.Generator, case: dict[str, Any], variant: str, decisions: int, processes: int = 1
) -> dict[str, Counter[str]]:
    """Verdicts of the others' rules: the launches of so many processes, as stored, against as many others' of the same
    session. Nothing where no session has that many."""
    stored, today = (by_session(of_side(side, case["variants"][v])) for side, v in (("a", "same"), ("b", variant)))
    known = [s for s in stored if min(len(stored[s]), len(today.get(s, ()))) >= processes]
    found = {rule.name: Counter[str]() for rule in RULES} if known else {}
    weights = np.array([len(stored[s]) for s in known], dtype=float)
    for _ in range(decisions if known else 0):
        which = known[rng.choice(len(known), p=weights / weights.sum())]
        sides = pooled(drawn(rng, stored[which], processes)), pooled(drawn(rng, today[which], processes))
        for rule in RULES:
            found[rule.name][rule.of(*sides)] += 1
    return found


def pooled(rows: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """The plain launches of several processes, as one list for each timer."""
    names = [n for n in rows[0] if n.endswith(("_event", "_host"))]
    return {name: [t for r in rows for t in r[name]] for name in names}


AS_MANY = PROCESSES
"""Processes of each side that the others' rules get beside one: as many as a first look of kerntune's takes."""


def session(row: dict[str, Any]) -> int:
    """The call of ``verdict_record.py`` that a process was recorded by, 0 for the first."""
    return int(row.get("session", 0))


def by_session(rows: Sequence[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """Processes that were recorded by one call: minutes apart, on one device."""
    found: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(session(row), []).append(row)
    return found


def of_side(side: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The processes whose plain launches are of this side: each times one."""
    return [r for r in rows if f"{side}_event" in r]


def row(
    rule: str, case: str, variant: str, tolerance: float | None, true: float, found: Counter[str], processes: float = 0
) -> Row:
    """Counts as shares: of false alarms where nothing is slower, of what is found where something is."""
    slower = found[SLOWER] + found[Verdict.REGRESSED.name]
    faster = found[FASTER] + found[Verdict.IMPROVED.name]
    total, planted = sum(found.values()), variant.startswith("slow")
    hits = slower if planted else slower + faster
    ends = (0.05, hits, total - hits + 1) if planted else (0.95, hits + 1, total - hits)
    bound = float(np.nan_to_num(beta.ppf(*ends), nan=float(hits > 0)))
    still_open = found[Verdict.INCONCLUSIVE.name]
    return Row(
        rule, case, variant, tolerance, _rounded(true), total, slower, faster, still_open, _rounded(hits / total),
        _rounded(bound), round(processes, 2),
    )  # fmt: skip


def together(rows: Iterable[Row]) -> list[Row]:
    """One row per rule and question over all cases, but for slowdowns only those that are long enough."""
    groups: dict[tuple[str, str, float | None], list[Row]] = {}
    for r in rows:
        groups.setdefault((r.rule, r.variant, r.tolerance), []).append(r)
    out = []
    for (rule, variant, tolerance), members in groups.items():
        found = Counter({SLOWER: sum(r.slower for r in members), FASTER: sum(r.faster for r in members)})
        found[Verdict.INCONCLUSIVE.name] = sum(r.open for r in members)
        found[Verdict.PASS.name] = sum(r.decisions for r in members) - sum(found.values())
        true, asked = mean(r.true_change for r in members), mean(r.processes for r in members)
        out.append(row(rule, "all", variant, tolerance, true, found, asked))
    return out


def decisions_of(
    recorded: dict[str, Any], count: int, family: int, seed: int, say: Callable[[str], None] = print
) -> list[Row]:
    """All rows of all cases."""
    rows: list[Row] = []
    for index, (name, case) in enumerate(recorded["cases"].items()):
        rng = np.random.default_rng([seed, index])
        long = spread(name, case).ns >= SHORTEST_NS
        asked = [(v, t) for v, t in QUESTIONS if enough(case, v) and (long or v == "twin")]
        for variant, tolerance in asked:
            true = case["planted"][variant]["true"] if variant in case["planted"] else spread(name, case).twin
            verdicts, processes = ours(rng, case, variant, Policy(tolerance=tolerance, cases=family), count)
            rows.append(row("kerntune", name, variant, tolerance, true, verdicts, processes))
            say(line(rows[-1]))
        for variant in dict.fromkeys(v for v, _ in asked):
            true = case["planted"][variant]["true"] if variant in case["planted"] else 0.0
            for rule, verdicts in others(rng, case, variant, count).items():
                rows.append(row(rule, name, variant, None, true, verdicts, 1))
            again = np.random.default_rng([seed, index, AS_MANY, len(rows)])
            for rule, verdicts in others(again, case, variant, count, AS_MANY).items():
                rows.append(row(f"{rule}, {AS_MANY} processes a side", name, variant, None, true, verdicts, AS_MANY))
    return rows


def enough(case: dict[str, Any], variant: str) -> bool:
    """Whether a decision can be drawn."""
    sizes = {v: len(case["variants"].get(v, [])) for v in ("same", variant)}
    return sizes["same"] >= CALIBRATION_PROCESSES and sizes[variant] >= ALL


def line(r: Row) -> str:
    """A row for people."""
    tolerance = "" if r.tolerance is None else f" at {r.tolerance:.0%}"
    kind = "found" if r.variant.startswith("slow") else "false"
    return (
        f"{r.rule:32} {r.case:24} {r.variant + tolerance:16} true {r.true_change:+7.2%}: {r.slower} slower, {r.faster} "
        f"faster, {r.open} open of {r.decisions}: {kind} {r.share:.2%} (bound {r.bound:.2%})"
    )


def spread_line(s: Spread) -> str:
    """A row of the first table for people."""
    return (
        f"{s.case:24} {s.ns / 1e3:8.1f} us  sd {s.first_look:.3%} ({BLOCKS} blocks) {s.all_blocks:.3%} (all), required "
        f"{s.required:.1%}; do_bench {s.do_bench_median:.2%}; host mean {s.host_mean:.2%}; twin {s.twin:+.3%}"
    )


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def main() -> None:
    """See the module's text."""
    parser = harness.parser(__doc__)
    parser.add_argument("recorded", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--decisions", type=int, default=500)
    parser.add_argument("--family", type=int, default=1, help="cases that share the run's error")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    recorded = json.loads(args.recorded.read_text())
    spreads = [spread(name, case) for name, case in recorded["cases"].items()]
    print("\n".join(map(spread_line, spreads)))
    rows = decisions_of(recorded, args.decisions, args.family, args.seed)
    total = together(rows)
    print("\n".join(map(line, total)))
    planted = {n: {v: x["true"] for v, x in c["planted"].items()} for n, c in recorded["cases"].items()}
    out = {
        "environment": recorded["environment"],
        "sessions": recorded.get("sessions", []),
        "protocol": {
            **recorded["protocol"],
            "first_look": BLOCKS,
            "decisions": args.decisions,
            "family": args.family,
            "seed": args.seed,
        },
        "planted": planted,
        "spread": [asdict(s) for s in spreads],
        "together": [asdict(r) for r in total],
        "rows": [asdict(r) for r in rows],
    }
    harness.write(args.out, out)


if __name__ == "__main__":
    main()
