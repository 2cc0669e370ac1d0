"""What the report's view of one case is drawn from: plain values, bounded, for the page's script."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import inf, isfinite
from typing import Any

import msgspec

from kerntune.base.case_result import Attribution, CaseResult, LaunchFigures, LaunchReport, Share
from kerntune.base.config import Config
from kerntune.base.formatting import NO_FIGURE, bounded, format_share, format_size, format_time
from kerntune.base.numerics import CHANGED_RESULTS, changed_text
from kerntune.base.policy import Outcome
from kerntune.base.stats import Estimate
from kerntune.gate.history.summary import CaseCurve
from kerntune.gate.report import RankedResult, format_change, format_work
from kerntune.gate.reporting.failure import accept_command, compiled_for, failure_text

MAX_SAMPLES = 600
"""Times of a side that are drawn, evenly taken where there are more."""

MAX_CONFIGS = 300
"""Configs of a case in its landscape, the fastest first and those that failed among them; the rest is counted."""

MAX_TEXT = 4_000
"""Characters of a message or reason."""

DIGITS = 6
"""Significant digits of a number: what a plot shows."""

STEPS = ("environment", "compiler", "code", "launch", "config")
"""The causes in the order of :class:`kerntune.base.case_result.Attribution`'s chain."""

FIGURES = ("registers", "spilled bytes", "shared bytes", "occupancy")
"""How the page calls the fields of :class:`kerntune.base.case_result.LaunchFigures`."""

PlainValues = dict[str, Any]


def case_details(ranked: RankedResult, curve: CaseCurve | None = None, *, repository: str = "") -> PlainValues:
    """A case's values by section; sections without anything are left out. ``repository`` is the address that commits
    are linked to."""
    result = ranked.result
    replay = result.replayed
    found = {
        "today": _numbers(result.times_ns),
        "stored": _numbers(result.baseline_times_ns),
        "outliers": [i for i in result.outliers if i < len(result.times_ns) <= MAX_SAMPLES],
        "replayedBaseline": _numbers(replay.baseline_ns) if replay else [],
        "replayedToday": _numbers(replay.current_ns) if replay else [],
    }
    sections: PlainValues = {
        "title": _cut(str(result.case)),
        "verdict": result.word,
        "outcome": result.outcome.value,
        "message": _cut(failure_text(result, "") if result.outcome is Outcome.FAIL else result.message),
        "accept": accept_command(result, target=compiled_for([result])) if result.outcome is Outcome.FAIL else "",
        "repository": repository,
        "facts": [[n, _cut(text)] for n, text in _facts(ranked) if text and text != NO_FIGURE],
        "notes": [[kind, [_cut(t) for t in texts]] for kind, texts in _notes(result) if texts],
        "samples": found if any(found.values()) else None,
        "waterfall": _waterfall(result.attribution) if result.attribution is not None else None,
        "landscape": _landscape(result),
        "roofline": _roofline(result),
        "history": msgspec.to_builtins(curve) if curve is not None and curve.points else None,
        "launches": _launches(result),
        "code": [msgspec.to_builtins(c) for c in result.code],
    }
    return {name: value for name, value in sections.items() if value not in (None, [], {}, "")}


def _facts(ranked: RankedResult) -> Iterator[tuple[str, str]]:
    result, run = ranked.result, ranked.run
    shown = result.shown or result.change
    yield "Device", result.device
    yield "Target", result.target
    effects = {Outcome.PASS: "passes", Outcome.WARN: "warns", Outcome.FAIL: "fails"}
    yield "Effect on the test", effects[result.outcome]
    yield "Time today", format_time(result.current_ns)
    yield "Baseline", format_time(result.baseline_ns)
    yield "Change", _interval(shown)
    yield "Interval that decides", _interval(result.change) if result.change != shown else ""
    yield "Tolerance", format_size(result.tolerance) if result.tolerance is not None else ""
    if result.since is not None:
        told = result.since.change and _interval(result.since.shown or result.since.change)
        yield f"Since the anchor of {result.since.date}", told or result.since.rung
    yield "Compared by", result.rung
    yield "Timer", result.timer
    yield "Rate", format_work(result)
    yield "Tuning", f"{result.tuning_seconds:.2f} s" if result.tuning_seconds else ""
    yield "Baseline's file", result.baseline_path
    yield "Baseline recorded", result.provenance.baseline_recorded if result.provenance else ""
    origin = run.place
    yield "Run", ", ".join(filter(None, [run.created, origin.short_commit, origin.branch, origin.host]))


def _interval(change: Estimate | None) -> str:
    if change is None or not isfinite(change.point):
        return ""
    level = f", {change.level * 100:.4g} % interval" if bounded(change.high) else ""
    return format_change(change) + level


def _notes(result: CaseResult) -> Iterator[tuple[str, Sequence[str]]]:
    """What the message doesn't tell; of a failing case it has findings and causes."""
    failing = result.outcome is Outcome.FAIL
    told = failing and all(text in result.message for text in result.causes)
    yield "Causes", () if told else result.causes
    changed = [text for text in result.findings if text.startswith(CHANGED_RESULTS)]
    yield "Findings", () if failing else [text for text in result.findings if text not in changed]
    # what is gated first, as the findings have it; then each output, on each content that it was computed from
    outputs = result.numerics.outputs if result.numerics is not None else ()
    changed += [changed_text(output) for output in outputs if output.count]
    yield "Changed results", [text.removeprefix(CHANGED_RESULTS) for text in dict.fromkeys(changed)]
    yield "Warnings", result.warnings
    yield "Remarks", result.remarks


def _numbers(values: Sequence[float]) -> list[float]:
    known = [v for v in values if isfinite(v)]
    if len(known) > MAX_SAMPLES:
        known = [known[i * len(known) // MAX_SAMPLES] for i in range(MAX_SAMPLES)]
    return [_short(v) for v in known]


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _waterfall(parts: Attribution) -> list[PlainValues]:
    shares: Mapping[str, Share] = {name: getattr(parts, name) for name in STEPS}
    return [
        {
            "name": share.cause or name,
            "change": None if share.change is None else _short(share.change),
            "why": _cut(share.why),
            "within": (shares[share.within].cause or share.within) if share.within in shares else "",
        }
        for name, share in shares.items()
        if share.why or share.change is None or abs(share.change) > 0 or name == "environment"
    ]


def _landscape(result: CaseResult) -> list[PlainValues]:
    found: defaultdict[str, list[tuple[float, PlainValues]]] = defaultdict(list)
    for trial in result.trials:
        entry = _config(trial.config, "ran", "") | {"ns": _short(trial.time_ns)}
        found[trial.kernel].append((trial.time_ns, entry))
    for failed in result.failed_trials:
        state = "wrong output" if failed.wrong else "failed"
        found[failed.kernel].append((inf, _config(failed.config, state, failed.reason)))
    for left in result.left_out:
        found[left.kernel].append((inf, _config(left.config, "left out", left.reason)))
    for report in result.configs:
        entry = _config(report.config, "failed" if report.broken else "compiled", report.problem)
        figures = {"registers": report.registers, "spills": report.spill_bytes, "shared": report.shared_bytes}
        found[report.kernel].append((inf, entry | figures))
    chosen = {x.kernel: x.config.all_kwargs() for x in result.launches if x.config is not None}
    return [_kernel(kernel, entries, chosen.get(kernel)) for kernel, entries in found.items()]


def _kernel(kernel: str, entries: list[tuple[float, PlainValues]], chosen: Mapping[str, Any] | None) -> PlainValues:
    ran = sorted((e for e in entries if isfinite(e[0])), key=lambda e: e[0])
    others = [e for e in entries if not isfinite(e[0])]
    kept = [e for _, e in [*ran[: max(MAX_CONFIGS - len(others), MAX_CONFIGS // 2)], *others]][:MAX_CONFIGS]
    found: PlainValues = {"kernel": kernel, "configs": kept, "more": len(entries) - len(kept)}
    return found | ({"chosen": _parameters(chosen)} if chosen is not None else {})


def _config(config: Config, state: str, reason: str) -> PlainValues:
    why = {"reason": _cut(reason)} if reason else {}
    return {"at": _parameters(config.all_kwargs()), "state": state} | why


def _parameters(values: Mapping[str, Any]) -> PlainValues:
    """Numbers stay numbers, so that axes are in their order; all else is text."""
    return {
        name: value
        if isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
        else str(value)
        for name, value in values.items()
    }


def _roofline(result: CaseResult) -> PlainValues | None:
    time_ns, flops, moved = map(_amount, (result.current_ns, result.flops, result.bytes_moved))
    if time_ns is None or (flops is None and moved is None):
        return None
    return {
        "ns": time_ns,
        "flops": flops,
        "bytes": moved,
        "bandwidth": _amount(result.bandwidth),
        "peak": _amount(result.matmul_peak),
        "peakOf": result.matmul_dtype,
        "shares": [[s.kernel, _short(s.time_ns), s.share] for s in result.shares],
    }


def _amount(value: float | None) -> float | None:
    """A number that a plot on logarithmic axes can have."""
    return _short(value) if value is not None and isfinite(value) and value > 0 else None


def _launches(result: CaseResult) -> list[PlainValues]:
    return [
        {
            "kernel": x.kernel,
            "config": _config_text(x),
            "paste": paste_text(x.but(config=x.config_before, written=x.written_before) if _is_back(result, x) else x),
            "pasteOf": "the baseline's" if _is_back(result, x) else "today's",
            "grid": "×".join(map(str, x.grid)),
            "figures": [
                [name, _figure(getattr(x, field)), _figure(getattr(x.before, field, None))]
                for name, field in zip(FIGURES, LaunchFigures.__struct_fields__, strict=True)
            ],
            "limiter": x.limiter,
        }
        for x in result.launches
    ]


def _is_back(result: CaseResult, launch: LaunchReport) -> bool:
    """Whether one wants the baseline's config back: the case fails with another."""
    return result.outcome is Outcome.FAIL and (launch.config_before is not None or bool(launch.written_before))


def configs_of(launches: Sequence[LaunchReport]) -> str:
    """A line per kernel with what it is launched with, each once, all of them and whole."""
    lines = dict.fromkeys(f"{x.kernel}: {text}" if (text := _config_text(x)) else x.kernel for x in launches)
    return "\n".join(lines) or NO_FIGURE


def _config_text(launch: LaunchReport) -> str:
    written = " ".join(f"{name}={value}" for name, value in launch.written.items())
    return written if launch.config is None else str(launch.config)


def paste_text(launch: LaunchReport) -> str:
    """The config as code: ``triton.Config({'BLOCK': 128}, num_warps=8, num_stages=3)``; of a launch that has none, the
    keywords that it was written with."""
    if launch.config is None:
        return ", ".join(f"{name}={value}" for name, value in launch.written.items())
    words = {k: v for k, v in launch.config.all_kwargs().items() if k not in launch.config.kwargs}
    told = [repr(launch.config.kwargs), *(f"{k}={v!r}" for k, v in words.items())]
    return f"triton.Config({', '.join(told)})"


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return format_share(value).lstrip("+") if isinstance(value, float) else f"{value:,}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
