"""How good the order is in which the resource model (kerntune/static/resource_model.py) puts configs, on recorded
GPU sweeps.

    python benchmarks/resource_model.py OUT.json SWEEPS.json [SWEEPS.json ...]

Needs no GPU. SWEEPS.json is what ``benchmarks/tuning_suite.py`` (part ``quality``) and
``benchmarks/heuristic_sweep.py`` write: every config of every case with its time and static figures. Questions to each
order: is the true winner (any config within 1 % of it) in its best third; how much slower than the winner is the best
config of that third; what share of the configs must be looked at until one is within 5 %. Orders it must beat: random
(expected values over 400 draws), the list as its author wrote it, fewest spills (then fewest registers), highest
occupancy.

Then what it is worth where kerntune uses it (``benchmarks/replayed_uses.py``): in the order of first looks, in pruning
(``static_prune``) whole sweeps and what heuristics propose, and in a search over a declared space.

The model's constants come from datasheets and papers but for three (OVERLAP, LOOP_SHARE, ATOMIC_CYCLES), chosen on
the kernels in ``CHOSEN_ON``; these and the others, which weren't used to choose them, are listed separately."""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.recorded_sweeps import FEWEST, H200, Recorded, Row, candidate, recorded
from benchmarks.replayed_uses import RULES, SEARCHED, SEEDS, looks, pruned, search_summary, searched, winners_cost
from kerntune.base.device import DeviceSpec
from kerntune.search.budgeted import BATCH
from kerntune.static.pruning import LOW_OCCUPANCY, MODEL_LIMIT
from kerntune.static.resource_model import OVERLAP, rank

CHOSEN_ON = ("softmax", "matmul", "gelu_1d", "cumsum_split")
"""Kernels whose sweeps were seen when the model was written."""

THIRD = 1 / 3
AS_GOOD = 1.01
NEAR = 1.05
DRAWS = 400


def by_model(rows: Sequence[Row], spec: DeviceSpec = H200) -> list[int]:
    """The order in question."""
    return rank([candidate(r) for r in rows], spec)


def by_spills(rows: Sequence[Row]) -> list[int]:
    """Fewest spills, then fewest registers."""
    return sorted(range(len(rows)), key=lambda i: (candidate(rows[i]).spill_bytes, rows[i]["registers"]))


def by_occupancy(rows: Sequence[Row]) -> list[int]:
    """Highest theoretical occupancy."""
    return sorted(range(len(rows)), key=lambda i: -(rows[i].get("occupancy") or 0.0))


def as_written(rows: Sequence[Row]) -> list[int]:
    """The author's order."""
    return list(range(len(rows)))


def judged(times: Sequence[float], order: Sequence[int]) -> dict[str, float]:
    """What an order is worth on one case."""
    best = min(times)
    third = order[: max(1, math.ceil(THIRD * len(order)))]
    until = next(n for n, i in enumerate(order, 1) if times[i] <= NEAR * best)
    return {
        "winner_in_third": float(any(times[i] <= AS_GOOD * best for i in third)),
        "third_over_best": min(times[i] for i in third) / best,
        "looked_at_until_near": until / len(order),
    }


def averaged(found: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of each figure."""
    return {key: fmean(f[key] for f in found) for key in found[0]}


def at_random(times: Sequence[float]) -> dict[str, float]:
    """Expected figures of a random order."""
    draw = random.Random(0)
    return averaged([judged(times, draw.sample(range(len(times)), len(times))) for _ in range(DRAWS)])


ORDERS: dict[str, Callable[[Sequence[Row]], list[int]]] = {
    "model": by_model,
    "as written": as_written,
    "fewest spills": by_spills,
    "highest occupancy": by_occupancy,
}


def case_result(case: Recorded) -> dict[str, Any]:
    """All orders on one case."""
    times = case.times
    orders = {label: judged(times, order(case.rows)) for label, order in ORDERS.items()}
    orders["random"] = at_random(times)
    return {
        "case": case.name,
        "kernel": case.kernel,
        "configs": len(times),
        "worst_over_best": round(max(times) / min(times), 3),
        "winners_cost": round(winners_cost(case), 3),
        "orders": {k: {a: round(b, 4) for a, b in v.items()} for k, v in orders.items()},
    }


def summary(cases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over cases, each kernel weighing the same."""
    kernels = sorted({c["kernel"] for c in cases})
    if not kernels:
        return {}
    out: dict[str, Any] = {"cases": len(cases), "kernels": kernels}
    for label in (*ORDERS, "random"):
        per_kernel = [averaged([c["orders"][label] for c in cases if c["kernel"] == k]) for k in kernels]
        out[label] = {key: round(value, 4) for key, value in averaged(per_kernel).items()}
    return out


def prunings(sweeps: Sequence[Recorded]) -> dict[str, Any]:
    """Of whole sweeps, and of what heuristics propose where that is more than one config; and which rules are safe: the
    best of the others is within 1 % everywhere."""
    found = {"sweeps": pruned(sweeps, {case.name: range(len(case.rows)) for case in sweeps})}
    for options in sorted({options for case in sweeps for options in case.proposals}):
        proposed = {case.name: case.proposals.get(options, []) for case in sweeps}
        found[f"proposals, {options}"] = pruned([case for case in sweeps if len(proposed[case.name]) > 1], proposed)
    safe = [rule for rule in RULES if all(not group["rules"][rule]["lost"] for group in found.values())]
    return {"limit": MODEL_LIMIT, "low_occupancy": LOW_OCCUPANCY, "safe": safe, **found}


def searches(sweeps: Sequence[Recorded]) -> dict[str, Any]:
    """Of sweeps that are large enough."""
    cases = [searched(case) for case in sweeps if len(case.rows) >= SEARCHED]
    return {
        "batch": BATCH,
        "seeds": SEEDS,
        "chosen_on": search_summary([c for c in cases if c["kernel"] in CHOSEN_ON]),
        "held_out": search_summary([c for c in cases if c["kernel"] not in CHOSEN_ON]),
        "cases": cases,
    }


def main() -> int:
    """Write OUT.json and print its summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("sweeps", type=Path, nargs="+")
    options = parser.parse_args()
    sweeps = [case for path in options.sweeps for case in recorded(path)]
    if not sweeps:
        parser.error(f"no sweep has a case of {FEWEST} configs with figures and times")
    cases = [case_result(case) for case in sweeps]
    result: dict[str, Any] = {
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "environment": {p.name: json.loads(p.read_text(encoding="utf-8")).get("environment") for p in options.sweeps},
        "overlap": OVERLAP,
        "all": summary(cases),
        "chosen_on": summary([c for c in cases if c["kernel"] in CHOSEN_ON]),
        "held_out": summary([c for c in cases if c["kernel"] not in CHOSEN_ON]),
        "looks": looks(sweeps, lambda case: by_model(case.rows)),
        "pruning": prunings(sweeps),
        "search": searches(sweeps),
        "cases": cases,
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for part in ("all", "chosen_on", "held_out", "looks", "pruning"):
        print(part, json.dumps(result[part], indent=1))
    print("search", json.dumps({k: v for k, v in result["search"].items() if k != "cases"}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
