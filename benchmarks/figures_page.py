"""Writes the table of docs/figures.md from ``benchmarks/results/``; needs no GPU.

    python -m benchmarks.figures_page [--write]

Prints the section between the two marks, or puts it there. Each row says when and at which commit it was measured, and
in how many runs, and is marked if the code that it measures has changed since (``benchmarks/provenance.py``). A test
holds the page against it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from benchmarks.harness import RESULTS, ROOT, between
from benchmarks.provenance import said_of
from benchmarks.suite.cases import CASES
from benchmarks.suite.tables import added_seconds, cold_rows, geometric_mean, not_run, times_of

PAGE = ROOT / "docs" / "figures.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"

LARGE = "matmul[M=4096 N=4096 K=4096]"

CHANGED = " †"
"""Marks a row whose measured code has changed since."""

PACKAGES = {"liger": "Liger-Kernel", "fla": "flash-linear-attention"}
"""By the beginning of a case's name: installed packages. Other cases of ``cold_public.py`` are kernels of our own."""

Figures = Mapping[str, Any]
Row = tuple[str, str, str]


def load(name: str) -> dict[str, Any]:
    """A file of ``benchmarks/results/``."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def cold(suite: Figures, again: Figures, more: Figures) -> list[Row]:
    """First calls without any cache, and what comes later of the configs that they did not wait for. ``more`` has
    kernels that the others lack, from a run of its own."""
    rows = cold_rows(suite)
    both = [r for r in rows if "faster" in r]
    large = next(r for r in rows if r["case"] == LARGE)
    least, most = (f(r["configs"] for r in both) for f in (min, max))
    first = geometric_mean(r["faster"] for r in both)
    every = geometric_mean(r.get("faster, all tried", r["faster"]) for r in both)
    late = [r["settling_ms"] for result in (suite, again, more) for r in result["cold"] if r.get("late")]
    added_rows = [r for r in cold_rows(more) if "faster" in r]
    kernels = " and ".join(_named(dict.fromkeys(r["case"].partition("[")[0] for r in added_rows)))
    every_added = geometric_mean(r.get("faster, all tried", r["faster"]) for r in added_rows)
    return [
        (f"cold tuning, {large['configs']}-config matmul, 4096³ fp16",
         f"{large['triton s']:.1f} s", f"{large['kerntune s']:.1f} s"),
        (f"the first call of {len(both)} cold kernels and shapes ({least} to {most} configs), geometric mean",
         "1", f"{first:.1f} times faster"),
        ("the same until every config was tried", "1", f"{every:.1f} times faster"),
        (f"the first call of {len(added_rows)} cases of {kernels} ({more['environment']['cpus']} cores), "
         f"geometric mean; until every config was tried {every_added:.1f}",
         "1", f"{geometric_mean(r['faster'] for r in added_rows):.1f} times faster"),
        (f"the later call that tries what a first call did not wait for ({len(late)} such calls) blocks",
         "none does", spread_ms(late)),
        ("the winner against an exhaustive sweep, worst of these",
         f"{worst(suite, both, 'triton'):.2f}", f"{worst(suite, both, 'kerntune'):.2f}"),
    ]  # fmt: skip


def public(found: Figures) -> list[Row]:
    """First calls of kernels from installed packages, long lists and short ones apart; then of kernels of our own."""
    both = [c for c in found["cases"] if c.get("times_faster")]
    packaged = [c for c in both if c["case"].partition("_")[0] in PACKAGES]
    own = [c for c in both if c not in packaged]
    names = " and ".join(PACKAGES.values())
    rows = []
    for words, cases in (
        (f"of {names} with 10 configs and more", [c for c in packaged if max(c["configs"].values()) >= 10]),
        (f"of {names} with fewer", [c for c in packaged if max(c["configs"].values()) < 10]),
        ("of our own, of well-known kinds", own),
    ):
        times = [c["times_faster"] for c in cases]
        what = (
            f"cold first calls of {len(cases)} kernels {words} (backward too), together; "
            f"{geometric_mean(times):.1f} times faster in the geometric mean, {min(times):.1f} at least"
        )
        rows.append(
            (what, f"{sum(c['triton_s'] for c in cases):.1f} s", f"{sum(c['kerntune_s'] for c in cases):.1f} s")
        )
    return rows


def worst(suite: Figures, rows: Iterable[Figures], engine: str) -> float:
    """The least of the winners' shares of the sweep's best (1 is the best) among swept cases."""
    swept = times_of(suite)
    return float(min(r[f"{engine} winner"] for r in rows if r["case"] in swept and r[f"{engine} winner"] is not None))


def spread_ms(values: Sequence[float]) -> str:
    """``14 to 66 ms, once 686 ms``: the largest few apart where the next one is less than half of them."""
    ranked = sorted(values)
    steps = {high / low: i for i, (low, high) in enumerate(pairwise(ranked), 1)}
    cut = steps[max(steps)] if steps and max(steps) > 2 else None
    if cut is None:
        return f"{ranked[0]:.0f} to {ranked[-1]:.0f} ms"
    below = f"{ranked[0]:.0f} to {ranked[cut - 1]:.0f} ms"
    if cut == len(ranked) - 1:
        return f"{below}, once {ranked[-1]:.0f} ms"
    return f"{below}, {len(ranked) - cut} of {len(ranked)} times {ranked[cut]:.0f} to {ranked[-1]:.0f} ms"


def profiled(found: Figures) -> Row:
    """Winners judged by an instrument that isn't ours."""
    rows = [r for r in found["profiled"] if r.get("winner_by_profiler")]
    shares = {r["case"]: r["winner_by_profiler"] for r in rows}
    least = min(shares, key=lambda case: shares[case])
    brief = min(next(r for r in rows if r["case"] == least)["ours_ns"].values()) / 1e3
    what = (
        f"the winner by time stamps of torch's profiler, against the best by these of the configs that come near it "
        f"({len(rows)} cases): geometric mean, worst (`{least.partition('[')[0]}`, {brief:.1f} µs)"
    )
    return what, "not run", f"{geometric_mean(shares.values()):.3f}, {shares[least]:.2f}"


def added(suite: Figures) -> Row:
    """A list that got longer, with the caches that the same tuner's first run left."""
    seconds = added_seconds(suite["added"])
    ours, peer = seconds["kerntune", "new process"], seconds["triton", "new process"]
    return "one config added to 48, in a new process, each with its own caches", f"{peer:.1f} s", f"{ours:.1f} s"


def warm(start: Figures) -> Row:
    """A stored winner in a fresh process that has launched another kernel before."""
    ours, peer = (start["warm_start"][name]["after_plain_ms"] for name in ("kerntune", "triton_autotune"))
    what = (
        "the first call with a stored winner, in a process that has launched something (Triton's with `cache_results`)"
    )
    return what, f"{peer:.1f} ms", f"{ours:.1f} ms"


def call(times: Figures) -> Row:
    """A call once all is tuned."""
    us = times["us_per_call"]["five arguments"]
    beside = f"`cuLaunchKernel` in C alone: {us['driver_in_c']:.1f} µs; Inductor's launcher: {us['inductor']:.1f} µs"
    name = f"a call after tuning, five arguments ({beside})"
    return name, f"{us['triton_autotune']:.1f} µs", f"{us['kerntune']:.1f} µs"


def proposals(cost: Figures, sweep: Figures) -> str:
    """What the presets' proposals reach at the held-out shapes, the default's beside Inductor's, and what they cost."""
    rows = {row["preset"]: row for row in cost["rows"] if row["sweep"] == "held-out"}
    ours, theirs = rows["measured-2026"], rows["inductor-2.13"]
    told = [
        f"{name}: {row['share']:.3f}, {row['worst']:.3f}, of {row['candidates']} candidates in all"
        for row, name in ((ours, "`measured-2026`, the default from sm_80 on"), (theirs, '`preset="inductor-2.13"`'))
    ]
    times = ours["compile_cpu_s"] / theirs["compile_cpu_s"]
    return (
        "What the heuristics propose reaches this share of the best of 200 and more configs (geometric mean, worst; "
        f"{ours['kernels']} kernels at shapes that no rule was made for): {'; '.join(told)}. The default's take "
        f"{times:.1f} times the processor time to compile. (Judged {said_of(cost, changed=CHANGED)}; by times of "
        f"{said_of(sweep, changed='')}.)"
    )


def _named(kernels: Iterable[str]) -> list[str]:
    return [name.replace("_", " ").replace("mlp", "MLP") for name in kernels]


def gaps(suite: Figures, results: Sequence[Figures]) -> str:
    """Cases of the suite that no figure is of."""
    kernels = _named(not_run(results, CASES))
    lone = [r["case"] for r in cold_rows(suite) if "faster" not in r]
    text = f"Of the suite's kernels {' and '.join(kernels)} have not been run" if kernels else ""
    half = (
        f"{', '.join(f'`{case}`' for case in lone)} has no run of both tuners in the first of the two files"
        if lone
        else ""
    )
    return "; ".join(filter(None, [text, half])) + "."


def section() -> str:
    """The page's text between the marks, made from the results."""
    suite, again, more = (load(n) for n in ("tuning_suite_h200", "tuning_suite_24_cases", "cold_attention_mlp_h200"))
    start, times, public_calls = load("warm_start_h200"), load("dispatch_h200"), load("cold_public_h200")
    judged = load("profiled_winners_h200")
    where = suite["environment"]
    series = where["triton"].rpartition(".")[0]
    head = f"one {where['device'].removeprefix('NVIDIA ')}, {where['cpus']} cores, Triton {series}"
    of_cold = ((suite,), (suite,), (suite,), (more,), (suite, again, more), (suite,))
    rows = [
        *zip(cold(suite, again, more), of_cold, strict=True),
        (profiled(judged), (judged,)),
        *((row, (public_calls,)) for row in public(public_calls)),
        (added(suite), (suite,)),
        (warm(start), (start,)),
        (call(times), (times,)),
    ]
    lines = [
        f"| {what} | {peer} | {ours} | {said_of(*sources, changed=CHANGED)} |" for (what, peer, ours), sources in rows
    ]
    old = any(CHANGED in line for line in lines)
    recorded = any(source["provenance"]["commit_is"] == "recorded" for _, sources in rows for source in sources)
    return "\n".join(
        [
            f"| {head} | `triton.autotune` | kerntune | measured |",
            "|---|---|---|---|",
            *lines,
            "",
            *([f"{CHANGED.strip()}: the code that the row measures has changed since."] if old else []),
            *(["A commit is the one that recorded the figures."] if recorded else []),
            "",
            proposals(load("heuristic_cost"), load("heuristic_sweep_held_out")),
            "",
            gaps(suite, [suite, again, more]),
        ]
    )


def written(text: str) -> str:
    """The page with the section between its marks."""
    return between(text, BEGIN, END, section())


def main(arguments: Sequence[str]) -> int:
    """See the module's text."""
    if "--write" in arguments:
        PAGE.write_text(written(PAGE.read_text()))
    else:
        print(section())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
