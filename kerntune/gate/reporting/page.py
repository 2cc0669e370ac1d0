"""The report: one HTML file that holds everything, opens offline, and asks the network for nothing.

The JavaScript of plotly is taken from its Python package where that is installed.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.util
import json
import zlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from kerntune.base.codec import write_atomic
from kerntune.base.formatting import bounded
from kerntune.base.policy import Verdict
from kerntune.base.stats import Estimate
from kerntune.errors import UsageError
from kerntune.gate.history.summary import CaseCurve
from kerntune.gate.report import (
    VERDICTS,
    RankedResult,
    RunReport,
    format_baseline,
    format_change,
    format_configs,
    format_today,
    other_failures,
    printable,
    shown_change,
    word_counts,
    worst_first,
)
from kerntune.gate.reporting.case_details import case_details

MAX_CODE_BYTES = 2_500_000
"""Packed bytes of changed code that one page holds, given to the worst cases first."""

SCALE = 0.10
"""Change at the ends of the small interval in each row, as a share, where no interval is wider than that; the widest
that is drawn is :data:`WIDEST`."""

WIDEST = 1.0


def write_page(
    path: Path, runs: Sequence[RunReport], curves: Sequence[CaseCurve], plotly: str, title: str = "kerntune"
) -> None:
    """Write the report of ``runs``, whole or not at all; :class:`~kerntune.errors.StoreError` if it can't be."""
    write_atomic(path, html_page(runs, curves, plotly, title).encode("utf-8", "replace"))


def html_page(runs: Sequence[RunReport], curves: Sequence[CaseCurve], plotly: str, title: str = "kerntune") -> str:
    """The report as text. ``plotly`` is the library's JavaScript (:func:`plotly_script`).

    What comes from results is escaped by the template or packed as data; the policy in the page's head lets no script
    run but the two whose hashes it names, and lets nothing be loaded.
    """
    ranked = worst_first(runs)
    half = _half(ranked)
    by_case = {(c.case, c.target, c.device): c for c in curves}
    script = _asset("report.js")
    plotly = plotly.replace("\r\n", "\n")  # as browsers read it, before they hash it
    text: str = _template().render(
        title=title,
        style=_asset("report.css"),
        script=script,
        plotly=plotly,
        policy=_policy(plotly, script),
        runs=[_run(run) for run in runs],
        several_runs=len(runs) > 1,
        counts=list(word_counts((r.result for r in ranked), VERDICTS).items()),
        rows=[_row(r, half) for r in ranked],
        failed=[(nodeid, text) for run in runs for nodeid, text in other_failures(run).items()],
        static_only=[(nodeid, text) for run in runs for nodeid, text in run.static_only.items()],
        details=_packed_details(ranked, by_case),
    )
    return text


@functools.cache
def _template() -> Any:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=printable
    )
    return environment.from_string(_asset("page.html"))


def _asset(name: str) -> str:
    return (files("kerntune.gate.reporting") / "assets" / name).read_text(encoding="utf-8")


def _policy(*scripts: str) -> str:
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _packed_details(ranked: Sequence[RankedResult], curves: Mapping[tuple[str, str, str], CaseCurve]) -> list[str]:
    """A text in base64 a case: zlib over JSON. Base64 has no character that HTML gives a meaning."""
    room, found = MAX_CODE_BYTES, []
    for one in ranked:
        result = one.result
        curve = curves.get((str(result.case), result.target, result.device))
        whole = _packed(case_details(one, curve))
        if result.code:
            bare = _packed(case_details(one, curve, with_code=False))
            room -= len(whole) - len(bare)
            whole = whole if room >= 0 else bare
        found.append(whole)
    return found


def _packed(value: object) -> str:
    text = json.dumps(printable(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 9)).decode()


def _run(run: RunReport) -> dict[str, Any]:
    origin = run.place
    facts = [
        ("When", run.created),
        ("Commit", origin.short_commit),
        ("Branch", origin.branch),
        ("Host", origin.host),
        *run.versions.items(),
    ]
    return {"facts": [(name, text) for name, text in facts if text], "header": run.header}


def _row(ranked: RankedResult, half: float) -> dict[str, Any]:
    result = ranked.result
    change = shown_change(result)
    timed = result.current_ns is not None
    why = [result.unjudged] if result.verdict is Verdict.PASS else [*result.findings, *result.causes]
    return {
        "case": str(result.case),
        "configs": format_configs(result.launches),
        "verdict": result.word,
        "outcome": result.outcome.value,
        "device": result.device or result.target,
        "target": result.target,
        "run": ranked.run_index + 1,
        "today": format_today(result),
        "today_value": result.current_ns if timed else -1,
        "baseline": format_baseline(result),
        "baseline_value": result.baseline_ns if result.baseline_ns is not None else -1,
        "change": format_change(change),
        "change_value": change.point if change is not None and bounded(change.point) else "",
        "bar": _bar(change, result.tolerance, half),
        "why": "; ".join(why)[:300],
    }


def _half(ranked: Sequence[RankedResult]) -> float:
    """The change at the end of the rows' scale: that of the widest interval, within bounds."""
    ends = [abs(e) for r in ranked if (c := shown_change(r.result)) is not None for e in (c.low, c.high) if bounded(e)]
    return min(max(ends, default=SCALE), WIDEST) if ends else SCALE


def _bar(change: Estimate | None, tolerance: float | None, half: float) -> dict[str, float] | None:
    """Places in a picture 100 wide whose middle is no change."""
    if change is None or not bounded(change.point):
        return None
    low, point, high = (50 + 48 * max(-1.0, min(1.0, x / half)) for x in (change.low, change.point, change.high))
    limit = 50 + 48 * min(1.0, (tolerance or 0.0) / half)
    return {"low": round(low, 1), "point": round(point, 1), "high": round(high, 1), "limit": round(limit, 1)}


EXTRA = 'pip install "kerntune[report]"'


def require_plotly(what: str) -> None:
    """:class:`UsageError` that says what to install, unless plotly and Jinja are there; ``what`` needs them."""
    missing = [name for name in ("plotly", "jinja2") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"{what}: {' and '.join(missing)} draws the report, and is not installed: {EXTRA}")


def plotly_script() -> str:
    """4.8 MB of text, with its licence at the beginning (MIT)."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())
