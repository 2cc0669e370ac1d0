"""What the resource model saves and costs where kerntune uses it, replayed on recorded sweeps: in the order of first
looks, in pruning, and in a search over a declared space."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import fmean
from typing import Any

from benchmarks.recorded_sweeps import Recorded, config, figures
from kerntune.base.policy import StaticPrune
from kerntune.search import Budget, BudgetedSearch, Choice, Measured, Space
from kerntune.search.declared import AT_ONCE
from kerntune.static.pruning import left_out
from kerntune.tuning.race import ESTIMATE_RUNS, FAR_SLOWER, LONG_NS

DRAWS = 400
SEEDS = 20
NEAR, AS_GOOD = 1.05, 1.01

TOGETHER = f"{AT_ONCE} at once"

SEARCHED = 100
"""Configs from which on a sweep is a space worth searching."""

RULES = {
    text: StaticPrune.parse(text, "a rule")
    for text in ("spills", "occupancy", "model", "spills model", "25%", "33%", "50%", "67%", "80%")
}


def looks(cases: Sequence[Recorded], order: Callable[[Recorded], Sequence[int]]) -> dict[str, float]:
    """Milliseconds of execution that first looks take in a given order, summed over cases, and in random ones."""
    by_order = sum(_look_ns(case.times, order(case)) for case in cases)
    draw = random.Random(0)
    by_chance = sum(
        fmean(_look_ns(case.times, draw.sample(range(len(case.rows)), len(case.rows))) for _ in range(DRAWS))
        for case in cases
    )
    return {"model_ms": round(by_order / 1e6, 1), "random_ms": round(by_chance / 1e6, 1)}


def _look_ns(times: Sequence[float], order: Sequence[int]) -> float:
    """As :class:`kerntune.tuning.race.Estimates`: one execution is enough for configs that are far too slow, others
    take some more."""
    best, spent = math.inf, 0.0
    for i in order:
        spent += times[i] if times[i] > max(LONG_NS, FAR_SLOWER * best) else (1 + ESTIMATE_RUNS) * times[i]
        best = min(best, times[i])
    return spent


def pruned(cases: Sequence[Recorded], among: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Per rule: what share of the configs (by case, these) is left out, and how much slower the best of the others is;
    by name those that lose more than 1 %."""
    configs = sum(len(among[case.name]) for case in cases)
    out: dict[str, Any] = {"cases": len(cases), "configs": configs, "rules": {}}
    for text, rules in RULES.items():
        gone = {c.name: left_out({i: figures(c.rows[i]) for i in among[c.name]}, rules) for c in cases}
        losses = {c.name: _loss(c, among[c.name], gone[c.name]) for c in cases}
        out["rules"][text] = {
            "left_out": round(sum(map(len, gone.values())) / configs, 4) if configs else 0.0,
            "worst_loss": round(max(losses.values(), default=0.0), 4),
            "lost": {name: round(loss, 4) for name, loss in losses.items() if loss > AS_GOOD - 1},
        }
    return out


def _loss(case: Recorded, among: Sequence[int], gone: Collection[int]) -> float:
    return min(case.times[i] for i in among if i not in gone) / min(case.times[i] for i in among) - 1


def winners_cost(case: Recorded) -> float:
    """The predicted cost of the cheapest config that is as good as the best, over the lowest of all."""
    costs, best = [figures(row).cost for row in case.rows], min(case.times)
    return min(c for c, t in zip(costs, case.times, strict=True) if t <= AS_GOOD * best) / min(costs)


def searched(case: Recorded) -> dict[str, Any]:
    """Trials until a search is near the best and as good, with and without predictions, and with several at once; means
    over seeds."""
    out: dict[str, Any] = {"case": case.name, "kernel": case.kernel, "configs": len(case.rows)}
    for label, predicts in (("plain", False), ("predicted", True)):
        runs = [_search(case, seed, predicts) for seed in range(SEEDS)]
        out[label] = {key: round(fmean(run[key] for run in runs), 2) for key in runs[0]}
    runs = [_search_together(case, seed) for seed in range(SEEDS)]
    out[TOGETHER] = {key: round(fmean(run[key] for run in runs), 2) for key in runs[0]}
    return out


def _search_together(case: Recorded, seed: int) -> dict[str, float]:
    """As a tuner searches: trials, and how often it had to wait for a round of them to be compiled."""
    rows = {config(row).key(): float(row["time_ns"]) for row in case.rows}
    search, best = BudgetedSearch(space_of(case), seed=seed, at_once=AT_ONCE), min(case.times)
    times = [t.time_ns for t in search.run(lambda c: Measured(rows[c.key()]), Budget(trials=len(rows))).trials]
    found: dict[str, float] = {}
    for label, factor in (("near", NEAR), ("as_good", AS_GOOD)):
        trials = next(n for n, time in enumerate(times, 1) if time is not None and time <= factor * best)
        found |= {label: trials, f"rounds_until_{label}": math.ceil(trials / AT_ONCE)}
    return found


def _search(case: Recorded, seed: int, predicts: bool) -> dict[str, float]:
    rows = {config(row).key(): row for row in case.rows}
    best = min(case.times)
    asked = 0

    def predicted(configs: Sequence[Any]) -> list[float]:
        nonlocal asked
        asked += len(configs)
        return [figures(rows[c.key()]).cost for c in configs]

    search = BudgetedSearch(space_of(case), seed=seed, predicted=predicted if predicts else None)
    found: dict[str, float] = {}
    for trials in range(1, len(rows) + 1):
        search.run(lambda c: Measured(float(rows[c.key()]["time_ns"])), Budget(trials=trials))
        time = search.found().best.time_ns or math.inf
        if time <= NEAR * best and "near" not in found:
            found |= {"near": trials, "predicted_until_near": asked}
        if time <= AS_GOOD * best:
            return found | {"as_good": trials, "predicted_until_as_good": asked}
    raise AssertionError(f"{case.name}: a search that tries everything finds the best")


def space_of(case: Recorded) -> Space:
    """The smallest space with all configs of a sweep; legal are those that it timed."""
    configs = [config(row) for row in case.rows]
    keys = {c.key() for c in configs}
    blocks = sorted({name for c in configs for name in c.kwargs})
    values: dict[str, set[Any]] = {name: {c.kwargs[name] for c in configs} for name in blocks}
    values |= {name: {getattr(c, name) for c in configs} for name in ("num_warps", "num_stages", "maxnreg")}
    axes = [
        Choice(name, tuple(sorted(found, key=lambda v: math.inf if v is None else v))) for name, found in values.items()
    ]
    return Space(tuple(axes), (lambda c: c.key() in keys,))


def search_summary(cases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over cases."""
    if not cases:
        return {}
    return {
        "cases": len(cases),
        **{
            label: {key: round(fmean(c[label][key] for c in cases), 2) for key in cases[0][label]}
            for label in ("plain", "predicted", TOGETHER)
        },
    }
