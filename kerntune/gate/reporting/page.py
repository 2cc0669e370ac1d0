"""The report: one HTML file that holds everything, opens offline, and asks the network for nothing.

The JavaScript of plotly is taken from its Python package where that is installed. Pictures of the first page are places
in them: all cases at a glance, and the bars of a case's row.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any

from kerntune.base.case_result import CaseResult
from kerntune.base.codec import write_atomic
from kerntune.base.device import TYPICAL_DEVICES
from kerntune.base.formatting import bounded, format_share
from kerntune.base.policy import Outcome, Verdict
from kerntune.base.stats import Estimate
from kerntune.errors import UsageError
from kerntune.gate.console import counted
from kerntune.gate.history.summary import CaseCurve
from kerntune.gate.report import (
    VERDICTS,
    RankedResult,
    RunReport,
    format_baseline,
    format_change,
    format_today,
    other_failures,
    printable,
    shown_change,
    shown_launches,
    with_bounded_code,
    word_counts,
    worst_first,
)
from kerntune.gate.reporting.case_details import case_details, configs_of
from kerntune.gate.reporting.failure import (
    accept_command,
    accepted_together,
    cause_text,
    compiled_for,
    headline,
    update_command,
)


def write_page(
    path: Path, runs: Sequence[RunReport], curves: Sequence[CaseCurve], plotly: str, title: str = ""
) -> None:
    """Write the report of ``runs``, whole or not at all; :class:`~kerntune.errors.StoreError` if it can't be."""
    write_atomic(path, html_page(runs, curves, plotly, title).encode("utf-8", "replace"))


def html_page(runs: Sequence[RunReport], curves: Sequence[CaseCurve], plotly: str, title: str = "") -> str:
    """The report as text. ``plotly`` is the library's JavaScript (:func:`plotly_script`). Without a ``title`` the
    projects of the runs are its heading.

    What comes from results is escaped by the template or packed as data; the policy in the page's head lets no script
    run but the two whose hashes it names, and lets nothing be loaded.
    """
    runs = [run.but(results=with_bounded_code(run.results)) for run in runs]
    ranked = worst_first(runs)
    half = half_scale(ranked)
    counts = word_counts((r.result for r in ranked), VERDICTS)
    by_case = {(c.case, c.target, c.device): c for c in curves}
    script = _asset("report.js")
    plotly = plotly.replace("\r\n", "\n")  # as browsers read it, before they hash it
    details = []
    for one in ranked:
        curve = by_case.get((str(one.result.case), one.result.target, one.result.device))
        plain = printable(case_details(one, curve, repository=web_address(one.run)))
        packed = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        packed_bytes = zlib.compress(packed.encode("utf-8", "replace"), zlib.Z_BEST_COMPRESSION)
        details.append(base64.b64encode(packed_bytes).decode())  # no character of it has a meaning in HTML
    failing = [r.result for r in ranked if r.result.outcome is Outcome.FAIL]
    accepted = accepted_together(failing)
    text: str = _template().render(
        title=title or _title(runs),
        style=_asset("report.css"),
        script=script,
        plotly=plotly,
        policy=_policy(plotly, script),
        runs=[_run(run) for run in runs],
        several_runs=len(runs) > 1,
        counts=list(counts.items()),
        overview=overview(ranked, counts),
        compiled=_compiled(ranked),
        accepting=[(told, update_command(update, compiled_for(mine))) for told, update, mine in accepted],
        rows=[_row(r, half) for r in ranked],
        failed=[(nodeid, text) for run in runs for nodeid, text in other_failures(run).items()],
        static_only=[(nodeid, text) for run in runs for nodeid, text in run.static_only.items()],
        details=details,
    )
    return text


def _title(runs: Sequence[RunReport]) -> str:
    names = dict.fromkeys(run.place.project for run in runs if run.place.project)
    return f"{' and '.join(names)}: speed of kernels" if names else "kerntune"


def _compiled(ranked: Sequence[RankedResult]) -> str:
    static = [r.result for r in ranked if r.result.target and not r.result.device]
    targets = dict.fromkeys(r.target for r in static)
    named = (f"{TYPICAL_DEVICES[t].name} ({t})" if t in TYPICAL_DEVICES else t for t in targets)
    subject = "All cases" if len(static) == len(ranked) else counted(len(static), "case")
    return f"{subject} compiled for {', '.join(named)}, not timed." if static else ""


WEB_ADDRESS = re.compile(r"https://[\w.-]+(/[\w.~-]+)+", re.ASCII)
"""What may become a link: a run's file may be a stranger's."""

COMMIT = re.compile(r"[0-9a-f]{7,64}")


def web_address(run: RunReport) -> str:
    """The address of the run's repository, if it is one that a page may link to; else empty."""
    return run.place.url if WEB_ADDRESS.fullmatch(run.place.url) else ""


def _commit_link(run: RunReport) -> str:
    known = COMMIT.fullmatch(run.place.commit) and web_address(run)
    return f"{run.place.url}/commit/{run.place.commit}" if known else ""


@cache
def _template() -> Any:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=printable
    )
    environment.filters["pieces"] = pieces
    return environment.from_string(_asset("page.html"))


MOST_UNBROKEN = 48
"""Characters of a piece that stays on one line: longer ones would widen the column."""


def pieces(text: str) -> list[tuple[str, bool]]:
    """A name or command in the pieces that a line may be broken between (after ``::`` and ``/``, before ``[``, at
    spaces), and whether each stays whole: browsers break after every hyphen, and anywhere in a long word."""
    found = re.split(r"(?<=::)|(?<=[/\s])|(?=[\[\s])", text)
    return [(p, not p.isspace() and len(p) <= MOST_UNBROKEN) for p in found if p]


def _asset(name: str) -> str:
    return (files("kerntune.gate.reporting") / "assets" / name).read_text(encoding="utf-8")


def _policy(*scripts: str) -> str:
    hashes = " ".join(f"'sha256-{base64.b64encode(sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _run(run: RunReport) -> dict[str, Any]:
    origin = run.place
    facts = [
        ("When", run.created),
        ("Commit", origin.short_commit),
        ("Branch", origin.branch),
        ("Host", origin.host),
        *run.versions.items(),
    ]
    links = {"Commit": _commit_link(run)}
    return {"facts": [(name, text, links.get(name, "")) for name, text in facts if text], "header": run.header}


def _row(ranked: RankedResult, half: float) -> dict[str, Any]:
    result = ranked.result
    change = shown_change(result)
    timed = result.current_ns is not None
    passes = result.verdict is Verdict.PASS
    static = headline(result) if not timed and not passes else ""
    return {
        "case": str(result.case),
        "configs": configs_of(result.launches),
        "verdict": result.word,
        "outcome": result.outcome.value,
        "device": result.device or result.target,
        "target": result.target,
        "run": ranked.run_index + 1,
        "today": format_today(result),
        "today_value": result.current_ns if timed else -1,
        "baseline": format_baseline(result),
        "baseline_value": result.baseline_ns if result.baseline_ns is not None else -1,
        "timed": timed,
        "change": static or format_change(change),
        "change_value": change.point if change is not None and bounded(change.point) else "",
        "bar": change_bar(change, result.tolerance, half),
        "bars": figure_bars(result),
        "kernel": ", ".join(dict.fromkeys(x.kernel for x in shown_launches(result)[1])),
        "why": result.unjudged if passes else cause_text(result),
        "accept": accept_command(result, target=compiled_for([result])) if result.outcome is Outcome.FAIL else "",
    }


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


SCALE = 0.10
"""Change at the ends of the small interval in each row, as a share, where no interval is wider than that; the widest
that is drawn is :data:`WIDEST`."""

WIDEST = 1.0

MAX_DOTS = 400
"""Cases in the overview, the slowest first: more would lie on each other."""

SHARE = "occupancy"
"""The figure of which more is better: a share."""

FIGURES = (
    ("registers", "registers", ""),
    ("spills", "spill_bytes", " B"),
    ("shared memory", "shared_bytes", " B"),
    (SHARE, "occupancy", ""),
)
"""Names of static figures, their fields and units."""


def half_scale(ranked: Sequence[RankedResult]) -> float:
    """The change at the end of the rows' scale: that of the widest interval, within bounds."""
    ends = [abs(e) for r in ranked if (c := shown_change(r.result)) is not None for e in (c.low, c.high) if bounded(e)]
    return min(max(ends, default=SCALE), WIDEST) if ends else SCALE


def change_bar(change: Estimate | None, tolerance: float | None, half: float) -> dict[str, float] | None:
    """Places in a picture 100 wide whose middle is no change."""
    if change is None or not bounded(change.point):
        return None
    low, point, high = (50 + 48 * max(-1.0, min(1.0, x / half)) for x in (change.low, change.point, change.high))
    limit = 50 + 48 * min(1.0, (tolerance or 0.0) / half)
    return {"low": round(low, 1), "point": round(point, 1), "high": round(high, 1), "limit": round(limit, 1)}


def figure_bars(result: CaseResult) -> list[dict[str, Any]]:
    """Of a case without times, each figure that differs from the baseline's: a text, and two bars 100 wide at most.
    Of several launches of the kernel that stands for the case the one that got worse most."""
    bars: list[dict[str, Any]] = []
    for name, unit, (before, now, worse) in _moved(result) if result.current_ns is None else ():
        most = max(before, now)
        form = "{:.0%} -> {:.0%}" if name == SHARE else "{:,.0f} -> {:,.0f}" + unit
        text = form.format(before, now).replace("%", " %")
        sizes = {"before": round(100 * before / most, 1), "now": round(100 * now / most, 1)}
        bars.append({"text": f"{name} {text}", "worse": worse, **sizes})
    return bars


def _moved(result: CaseResult) -> Iterable[tuple[str, str, tuple[float, float, bool]]]:
    launches = [x for x in shown_launches(result)[1] if x.before is not None]
    for name, field, unit in FIGURES:
        every = ((getattr(x.before, field), getattr(x, field)) for x in launches)
        pairs = [(old, new) for old, new in every if old != new and None not in (old, new)]
        if pairs:
            less = name == SHARE
            before, now = max(pairs, key=lambda p: p[0] - p[1] if less else p[1] - p[0])
            yield name, unit, (before, now, (now < before) is less)


def overview(ranked: Sequence[RankedResult], counts: Mapping[str, int]) -> dict[str, Any]:
    """All cases at a glance: a bar of verdicts, a dot a timed case by its change, and how many cases without a time
    have each figure worse or better."""
    changes = [(c, r.result) for r in ranked if (c := shown_change(r.result)) is not None and bounded(c.point)]
    changes.sort(key=lambda pair: -pair[0].point)
    drawn = changes[:MAX_DOTS]
    half = half_scale(ranked)
    return {
        "parts": _parts(counts),
        "dots": [_dot(i, len(drawn), x, result, half) for i, (x, result) in enumerate(drawn)],
        "scale": format_share(half).removeprefix("+"),
        "figures": _figure_counts(r.result for r in ranked),
        "sentence": _sentence(len(ranked), changes),
    }


def _parts(counts: Mapping[str, int]) -> list[dict[str, Any]]:
    total, at, found = sum(counts.values()), 0.0, []
    for word, number in counts.items():
        width = 100 * number / total
        found.append({"verdict": word, "at": round(at, 2), "width": round(width, 2)})
        at += width
    return found


def _dot(place: int, of: int, change: Estimate, result: CaseResult, half: float) -> dict[str, Any]:
    """Places in a picture 600 wide and 120 high, slower above."""
    low, point, high = (60 - 52 * max(-1.0, min(1.0, x / half)) for x in (change.low, change.point, change.high))
    x = 600 * (place + 0.5) / of
    ends = {"low": round(low, 1), "point": round(point, 1), "high": round(high, 1)}
    return {"x": round(x, 1), "verdict": result.word, **ends}


def _figure_counts(results: Iterable[CaseResult]) -> list[dict[str, Any]]:
    static = [result for result in results if result.current_ns is None]
    found: dict[str, list[int]] = {}
    for name, _, (_, _, worse) in chain.from_iterable(map(_moved, static)):
        found.setdefault(name, [0, 0])[not worse] += 1
    total = len(static)
    return [
        {"name": name, "worse": worse, "better": better, "worse_at": 100 * worse / total, "all": total}
        | {"better_at": 100 * better / total}
        for name, (worse, better) in found.items()
    ]


def _sentence(cases: int, changes: Sequence[tuple[Estimate, CaseResult]]) -> str:
    said = [counted(cases, "case")]
    if changes:
        most, least = (format_share(changes[i][0].point) for i in (0, -1))
        told = f" (the slowest {MAX_DOTS} are drawn)" if len(changes) > MAX_DOTS else ""
        said.append(f"{len(changes)} timed, from {most} to {least}{told}")
    return "; ".join(said) + "."
