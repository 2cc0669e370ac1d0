"""What result files of ``tuning_suite`` and ``heuristic_sweep`` say, as tables. Sees numbers only: no GPU, no torch.

python -m benchmarks.suite.tables FILE.json ...
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

Row = Mapping[str, Any]


def geometric_mean(values: Iterable[float]) -> float:
    """NaN for nothing."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def times_of(result: Row) -> dict[str, dict[str, float]]:
    """Per case of ``quality``, each config's time in nanoseconds; those that failed have none."""
    return {
        case["case"]: {c["config"]: c["time_ns"] for c in case["configs"] if "time_ns" in c}
        for case in result.get("quality", ())
    }


def efficiency(times: Mapping[str, Mapping[str, float]], case: str, winner: str | None) -> float | None:
    """The best config's time over the winner's: 1 is the best. None if either wasn't timed."""
    known = times.get(case, {})
    return min(known.values()) / known[winner] if winner in known else None


def seconds_of(rows: Iterable[Row], case: str, engine: str, until: str = "seconds") -> float | None:
    """The median of a case's cold runs that went well: of their first calls, or ``until`` ``all_tried``."""
    ran = [r for r in rows if r["case"] == case and r["engine"] == engine and "error" not in r]
    found = sorted(r.get(until, r["seconds"]) for r in ran)
    return found[len(found) // 2] if found else None


def winners_of(rows: Iterable[Row], case: str, engine: str, final: bool = False) -> list[str]:
    """What won a case's runs: in the first call, or once all configs had been tried."""
    ran = [r for r in rows if r["case"] == case and r["engine"] == engine and "winner" in r]
    return [r.get("final_winner", r["winner"]) if final else r["winner"] for r in ran]


def cold_rows(result: Row) -> list[dict[str, Any]]:
    """Per case: both tuners' seconds, their ratio, how good their winners are."""
    cold, times, found = result.get("cold", []), times_of(result), []
    for case in dict.fromkeys(r["case"] for r in cold):
        row: dict[str, Any] = {"case": case, "configs": max(r.get("configs", 0) for r in cold if r["case"] == case)}
        for engine in ("triton", "kerntune"):
            row[f"{engine} s"] = seconds_of(cold, case, engine)
            ranked = [efficiency(times, case, w) for w in winners_of(cold, case, engine)]
            row[f"{engine} winner"] = min((e for e in ranked if e is not None), default=None)
        if row["triton s"] and row["kerntune s"]:
            row["faster"] = row["triton s"] / row["kerntune s"]
        found.append(row | _late(cold, times, case))
    return found


def _late(cold: Sequence[Row], times: Mapping[str, Mapping[str, float]], case: str) -> dict[str, Any]:
    """What came of the configs that kerntune's first calls did not wait for; nothing if there were none."""
    late = [r for r in cold if r["case"] == case and r.get("late")]
    if not late:
        return {}
    row: dict[str, Any] = {"late": max(r["late"] for r in late), "never tried": max(r["left"] for r in late)}
    row["settling ms"] = max(r["settling_ms"] for r in late)
    row["all tried s"] = seconds_of(cold, case, "kerntune", until="all_tried")
    triton = seconds_of(cold, case, "triton")
    if triton:
        row["faster, all tried"] = triton / row["all tried s"]
    ranked = [efficiency(times, case, w) for w in winners_of(cold, case, "kerntune", final=True)]
    row["final winner"] = min((e for e in ranked if e is not None), default=None)
    return row


def proposal_rows(result: Row) -> list[dict[str, Any]]:
    """Per kernel of the heuristics' sweep and set of proposals: the sweep's best over the best proposal."""
    found = []
    for case in result.get("kernels", ()):
        times = [c.get("time_ns") for c in case["configs"]]
        best = min(t for t in times if t is not None)
        row = {
            "kernel": case["kernel"],
            "family": case["family"],
            "swept": len(times),
            "ran": sum(t is not None for t in times),
            "best": case["configs"][times.index(best)]["config"],
            "best us": best / 1e3,
        }
        for name, indices in case["proposals"].items():
            proposed = [times[i] for i in indices if times[i] is not None]
            row[name] = best / min(proposed) if proposed else None
            row[f"{name} tried"] = len(indices)
        found.append(row)
    return found


def figures(result: Row) -> list[tuple[str, str]]:
    """What this result says as a whole: names and what was measured."""
    found: list[tuple[str, str]] = []
    cold = cold_rows(result)
    ratios = [r["faster"] for r in cold if "faster" in r]
    if ratios:
        found.append(("cold, geometric mean over the suite", f"{geometric_mean(ratios):.2f}x"))
        found += _late_figures([r for r in cold if "faster" in r])
        found += [(f"cold, {r['case']}", f"{r['faster']:.2f}x") for r in cold if r["configs"] >= 48]
    good = [r["kerntune winner"] for r in cold if r["kerntune winner"] is not None]
    if good:
        found.append(("winner against the sweep, geometric mean", f"{geometric_mean(good):.4f}"))
        found.append(("winner against the sweep, worst", f"{min(good):.4f}"))
    return [*found, *_added_figures(result.get("added", ())), *_proposal_figures(result)]


def _late_figures(cold: Sequence[Row]) -> list[tuple[str, str]]:
    late = [r for r in cold if "late" in r]
    if not late:
        return []
    all_tried = geometric_mean(r.get("faster, all tried", r["faster"]) for r in cold)
    cost = max(r["settling ms"] for r in late)
    return [
        ("cold, until every config was tried", f"{all_tried:.2f}x"),
        ("late configs", f"{sum(r['late'] for r in late)} of {sum(r['configs'] for r in cold)}"),
        ("the call that tries them, longest", f"{cost:.0f} ms"),
    ]


def added_seconds(rows: Iterable[Row]) -> dict[tuple[str, str], float]:
    """Of each tuner and step, the seconds of a call whose list got one config more."""
    return {(r["engine"], r["step"]): r["seconds"] for r in rows if "error" not in r}


def _added_figures(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """Each step is held against one's own cold run, and against the other tuner's same step: it has caches, too."""
    seconds, found = added_seconds(rows), []
    for step in ("new process", "same process"):
        took, cold, peer = (seconds.get(x) for x in (("kerntune", step), ("kerntune", "cold"), ("triton", step)))
        if took and cold:
            text = f"{took:.3f} s, 1/{cold / took:.1f} of kerntune's cold run"
            text += f", 1/{peer / took:.1f} of triton's {step}" if peer else ""
            found.append((f"one config added, {step}", text))
    return found


def not_run(results: Iterable[Row], kernels: Iterable[str]) -> list[str]:
    """Kernels of the suite that no result has a cold run of."""
    ran = {row["case"].partition("[")[0] for result in results for row in result.get("cold", ())}
    return [kernel for kernel in kernels if kernel not in ran]


def _proposal_figures(result: Row) -> list[tuple[str, str]]:
    found, rows = [], proposal_rows(result)
    for name in sorted({n for case in result.get("kernels", ()) for n in case["proposals"]}):
        values = [r[name] for r in rows if r.get(name)]
        if values:
            found.append((f"proposals ({name}), geometric mean", f"{geometric_mean(values):.4f}"))
            found.append((f"proposals ({name}), worst", f"{min(values):.4f}"))
    return found


def report(result: Row) -> str:
    """All that a result file has, as text."""
    parts = [_table(rows) for rows in (cold_rows(result), proposal_rows(result)) if rows]
    parts += [_errors(result)] if _errors(result) else []
    summary = figures(result)
    if summary:
        parts.append(tabulate(summary, headers=("figure", "measured"), tablefmt="github"))
    return "\n\n".join(parts)


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(n for row in rows for n in row))
    return tabulate([[row.get(n) for n in names] for row in rows], headers=names, tablefmt="github", floatfmt=".4g")


def _errors(result: Row) -> str:
    lines = [
        f"{part}: {row['case']} {row['engine']}: {row['error'][:300]}"
        for part in ("cold", "added")
        for row in result.get(part, ())
        if "error" in row
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    for file in sys.argv[1:]:
        print(f"{file}\n\n{report(json.loads(Path(file).read_text()))}\n")
