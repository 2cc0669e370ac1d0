"""What it costs a cold tuning to have first launches in another process: the part ``cost`` of the quarantine's study.

:func:`cost` holds kerntune's own way against first launches in the tuning process; :func:`starts` several ways to start
the other process against each other (:mod:`benchmarks.quarantine_child` has them).
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

REPEATS = 3
COSTS = ("matmul", "softmax", "rms_norm", "attention", "bias_gelu", "transpose")
SHAPES = {"matmul": {"M": 4096, "N": 4096, "K": 4096}}
"""Those that aren't a case's first one."""

VARIANTS = "off,now,niced,serial+slim,fewer,ahead+off,ahead,ahead+niced+serial+slim"
OF_BOTH = ("ahead", "gluon")
"""Ways that concern a tuning without another process too: such variants are held against theirs with ``off``."""

START_CASES = "rms_norm,transpose,bias_gelu"


def cost(out: Path, deadline: float, cases: str, repeats: int) -> None:
    """Case by case, so that what is there when time is up is whole cases: each mode as often as the other, in turn."""
    from benchmarks.suite.cases import CASES
    from benchmarks.suite.children import Child
    from benchmarks.suite.results import merge

    rows: list[dict[str, Any]] = []
    for name in cases.split(","):
        shape, children = SHAPES.get(name) or dict(CASES[name].shapes[0]), []
        for repeat in range(repeats):
            for mode in ("off", "auto") if repeat % 2 == 0 else ("auto", "off"):
                os.environ["KERNTUNE_ISOLATE"] = mode
                children.append((mode, Child({"case": name, "shape": shape, "engine": "kerntune", "phases": True})))
        try:
            for _, one in children:
                one.begin()
            for _, one in children:
                one.prepare()
            for mode, one in children:
                if time.monotonic() > deadline:
                    return
                row = one.tune()
                known = {k: row.get(k) for k in ("seconds", "winner", "configs", "timed", "late", "all_tried", "error")}
                rows.append({"case": name, "isolate": mode, **known, "phases": told(row.get("phases"))})
                merge(out, cost=rows, cost_summary=summary(rows))
            show_steps(name, steps_of(rows, name))
        finally:
            os.environ.pop("KERNTUNE_ISOLATE", None)
            with ThreadPoolExecutor(len(children)) as pool:
                list(pool.map(lambda child: child[1].close(), children))


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians by case, and how much longer it took with first launches elsewhere."""
    found: dict[str, Any] = {}
    for name in {row["case"] for row in rows}:
        times = {
            m: [r["seconds"] for r in rows if (r["case"], r["isolate"]) == (name, m) and r["seconds"]]
            for m in ("off", "auto")
        }
        medians = {m: statistics.median(t) for m, t in times.items() if t}
        ratio = medians["auto"] / medians["off"] - 1 if len(medians) == 2 else None
        pairs = [b / a - 1 for a, b in zip(times["off"], times["auto"], strict=False)]
        seconds = {f"{m}_s": v for m, v in medians.items()}
        found[name] = {**seconds, "slower": ratio, "pairs": pairs, "steps_ms": steps_of(rows, name)}
    return found


SHOWN = (
    "looks begin", "looks wait for start", "looks staging", "looks ahead", "looks launch", "looks asked", "trial",
    "load", "warm-up", "look", "heats", "decide", "verify", "keep trial", "looks end", "launch", "call",
)  # fmt: skip
"""Steps of the tuning's own thread."""


def steps_of(rows: list[dict[str, Any]], name: str) -> dict[str, dict[str, float]]:
    """Medians over a case's runs, by mode: milliseconds in each step (some hold others: a trial its look), until the
    first kernel was compiled, from there to the last one, from that until the last candidate was estimated
    (``backlog``: what no compiler hides), and from there to the end."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in (r for r in rows if r["case"] == name and r["phases"].get("steps")):
        steps, into = row["phases"]["steps"], found.setdefault(row["isolate"], {})
        first, last = row["phases"]["first_compiled_ms"], row["phases"]["last_compiled_ms"]
        estimated, end = steps["look"][1], steps["call"][1]
        figures = {step: steps[step][2] for step in SHOWN if step in steps}
        figures |= {"until compiled": first, "compiling": last - first, "backlog": estimated - last}
        figures |= {"after estimates": end - estimated, "looks": steps.get("looks launch", [0, 0, 0, 0])[3]}
        for step, ms in figures.items():
            into.setdefault(step, []).append(ms)
    return {
        mode: {step: round(statistics.median(ms), 1) for step, ms in every.items()} for mode, every in found.items()
    }


def show_steps(name: str, steps: dict[str, dict[str, float]]) -> None:
    """A table of the steps' milliseconds."""
    off, auto = steps.get("off", {}), steps.get("auto", {})
    print(f"{name:24}{'off':>9}{'auto':>9}{'more':>9}  ms", flush=True)
    for step in dict.fromkeys([*auto, *off]):
        a, b = off.get(step, 0.0), auto.get(step, 0.0)
        print(f"  {step:22}{a:9.1f}{b:9.1f}{b - a:+9.1f}", flush=True)


def told(phases: dict[str, Any] | None) -> dict[str, Any]:
    """Of each step milliseconds from the call's begin to its first begin and last end, in it, and how often; and what
    of first launches elsewhere the call waited for. Begin and end of the first and the last compilation."""
    if not phases:
        return {}
    steps, compilations = phases["steps"], phases["compilations"]
    waited = {
        name: steps[name][2]
        for name in ("looks wait for start", "looks staging", "looks ahead", "looks launch")
        if name in steps
    }
    return {
        "waited_ms": waited,
        "looks": steps.get("looks launch", [0, 0, 0, 0])[3],
        "first_compiled_ms": min((end for _, end in compilations), default=None),
        "last_compiled_ms": max((end for _, end in compilations), default=None),
        "steps": steps,
    }


# ways to start the other process


def starts(
    out: Path, deadline: float, cases: Sequence[str], variants: Sequence[str], repeats: int, scripted: bool
) -> None:
    """Each case with each variant once, then all again in another order: what is there when time is up is balanced."""
    from benchmarks.suite.results import merge

    rows: list[dict[str, Any]] = []
    for repeat in range(repeats):
        turned = [*variants[repeat % len(variants) :], *variants[: repeat % len(variants)]]
        order = turned if repeat % 2 == 0 else turned[::-1]
        pairs = [(case, variant) for case in (cases if repeat % 2 == 0 else cases[::-1]) for variant in order]
        for row in in_turn(pairs, deadline, scripted):
            rows.append({"repeat": repeat, **row})
            merge(out, starts=rows, starts_summary=starts_summary(rows))
        print(f"repeat {repeat + 1} of {repeats}: {len(rows)} calls", flush=True)
        if time.monotonic() > deadline:
            break
    show_starts(rows)


def in_turn(pairs: Sequence[tuple[str, str]], deadline: float, scripted: bool) -> Iterator[dict[str, Any]]:
    """Fresh processes, prepared together and let go one by one; none ends before all are done."""
    from benchmarks.suite.cases import CASES
    from benchmarks.suite.children import Child, ChildError

    children = []
    for case, variant in pairs:
        listed = SHAPES.get(case) or dict(CASES[case].shapes[0])
        job = {"case": case, "variant": variant, "scripted": scripted, "listed": listed}
        job["shape"] = dict(CASES[case].small) if scripted else listed
        children.append((case, variant, Child(job, program=("-m", "benchmarks.quarantine_child"))))
    try:
        for _, _, one in children:
            one.begin()
        for _, _, one in children:
            one.prepare()
        for case, variant, one in children:
            if time.monotonic() > deadline:
                return
            row = one.tune()
            row["phases"] = told(row.get("phases"))
            yield {"case": case, "isolate": variant, **row}
    except ChildError as exc:
        yield {"case": "", "isolate": "", "seconds": None, "error": str(exc)[-3000:], "phases": {}}
    finally:
        with ThreadPoolExecutor(len(children)) as pool:
            list(pool.map(lambda child: child[2].close(), children))


def starts_summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of each variant: how much longer a call takes than without another process, in pairs of the same case and repeat
    (``slower``: all cases' geometric mean, and each case's median); by case what :func:`steps_of` and others tell."""
    good = [row for row in rows if row.get("seconds")]
    seconds = {(row["case"], row["repeat"], row["isolate"]): row["seconds"] for row in good}
    found: dict[str, Any] = {"failed": [row for row in rows if not row.get("seconds")]}
    for variant in dict.fromkeys(row["isolate"] for row in good):
        ratios: dict[str, list[float]] = {}
        without = "+".join([*(way for way in variant.split("+") if way in OF_BOTH), "off"])
        for (case, repeat, other), taken in seconds.items():
            if other == variant and (case, repeat, without) in seconds:
                ratios.setdefault(case, []).append(taken / seconds[case, repeat, without])
        every = [ratio for case in ratios.values() for ratio in case]
        found[variant] = {
            "calls": sum(row["isolate"] == variant for row in good),
            "held_against": without,
            "slower": round(statistics.geometric_mean(every) - 1, 4) if every else None,
            "slower_by_case": {case: round(statistics.median(r) - 1, 4) for case, r in ratios.items()},
            "by_case": {case: figures_of(good, case, variant) for case in dict.fromkeys(row["case"] for row in good)},
        }
    return found


def figures_of(rows: Sequence[dict[str, Any]], case: str, variant: str) -> dict[str, Any]:
    """Medians over a variant's calls of a case: seconds, milliseconds of steps, what the tuning's own thread used in
    some of them, and the other process's stamps."""
    mine = [row for row in rows if (row["case"], row["isolate"]) == (case, variant)]
    if not mine:
        return {}
    stretches = {name: [row["used"][name] for row in mine if name in row["used"]] for name in mine[0]["used"]}
    times: dict[str, list[tuple[float, float, float]]] = {}
    for stamp in (stamp for row in mine for stamp in row["other_process"]):
        times.setdefault(stamp["name"], []).append((stamp["at"], stamp["ran_ms"], stamp["waited_ms"]))
    steps = steps_of([*mine], case).get(variant, {})
    probes = [row["phases"]["steps"]["probe"][2] for row in mine if "probe" in row["phases"].get("steps", {})]
    return {
        "seconds": statistics.median(row["seconds"] for row in mine),
        "steps_ms": {**({"probe": statistics.median(probes)} if probes else {}), **steps},
        "used": {name: {k: median_of([s[k] for s in many]) for k in many[0]} for name, many in stretches.items()},
        "other_process": {
            name: dict(zip(("at_ms", "ran_ms", "waited_ms"), map(median_of, zip(*many, strict=True)), strict=True))
            for name, many in times.items()
        },
    }


def median_of(values: Sequence[float]) -> float:
    """To a tenth."""
    return round(statistics.median(values), 1)


def show_starts(rows: Sequence[dict[str, Any]]) -> None:
    """Tables: how much slower each variant is, where the time until the first kernel is compiled goes, and when the
    other process has come how far."""
    summary = starts_summary(rows)
    for row in summary.pop("failed")[:3]:
        print("failed:", row["case"], row["isolate"], row.get("error"), flush=True)
    for variant, found in summary.items():
        against = f"slower than {found['held_against']}: {found['slower']}"
        print(f"{variant:26} {against}  {found['slower_by_case']}  of {found['calls']} calls", flush=True)
    for variant, found in summary.items():
        for case, figures in found["by_case"].items():
            print(f"{variant:20} {case:10} {figures['seconds']:.3f} s  steps {figures['steps_ms']}", flush=True)
            for name, values in figures["used"].items():
                print(f"  {name:22} {values}", flush=True)
            for name, values in figures["other_process"].items():
                print(f"  {name:30} {values}", flush=True)
