"""Which ordinary edits trip each static rule, by the kept figures and labels; writes docs/measured/static-rules.md.

    python -m benchmarks.edit_corpus.rule_table [--document docs/measured/static-rules.md]

Nothing is compiled: today's rules are applied to the static figures of both sides of every edit, made and undone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.edit_corpus import figures
from benchmarks.edit_corpus.corpus import HELD_OUT_KERNELS
from benchmarks.edit_corpus.tables import equal_code, false_failures, joined
from benchmarks.harness import RESULTS, ROOT
from kerntune.base.device import Target, typical_device
from kerntune.base.policy import STATIC_RULES, StaticPolicy
from kerntune.gate.launch_changes import compare_launches, count_findings
from kerntune.gate.static_figures import LaunchStatic
from kerntune.static.code_rules import Finding

LABELS = RESULTS / "edit_labels_h200.json"
FIGURES = {series: RESULTS / f"edit_figures_triton{series}.json" for series in ("3.9",)}
"""By Triton's series. The labels are of 3.6's binaries."""

DOCUMENT = ROOT / "docs" / "measured" / "static-rules.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

RULES = StaticPolicy()
DEVICE = typical_device(Target("cuda", "90"))
SHOWN = 4
"""Kinds of edits that are named for a rule."""

GROUPS = {
    "ordinary, faster": lambda r: not r["planted"] and r["label"] == "faster",
    "ordinary, same": lambda r: not r["planted"] and r["label"] == "same",
    "ordinary, slower": lambda r: not r["planted"] and r["label"] == "slower",
    "planted, slower": lambda r: r["planted"] and r["label"] == "slower" and not r["equal_code"],
    "planted, can't be launched": lambda r: r["planted"] and r["label"] == "not launched",
    "planted, but within 5 %": lambda r: r["planted"] and r["label"] in ("faster", "same"),
}

Row = Mapping[str, Any]


def findings(before: Sequence[LaunchStatic], after: Sequence[LaunchStatic]) -> list[Finding]:
    """What the default rules say of a call that launched ``before`` and now launches ``after``."""
    each = [f for pair in compare_launches(before, after, RULES, DEVICE) for f in pair.findings]
    return [*each, *count_findings(before, after, RULES)]


def judged(kept: Mapping[str, figures.Sides], labels: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row a direction of an edit: what fails and warns, by rule, beside the label."""
    return joined((row for key, sides in kept.items() for row in _both(key, sides)), dict(labels))


def _both(key: str, sides: figures.Sides) -> Iterator[dict[str, Any]]:
    for direction, (before, after) in (("made", sides), ("undone", sides[::-1])):
        if direction == "undone" and any(x.metrics.over_limit for x in before):
            continue  # what can't be launched has no baseline
        found = findings(before, after)
        rules = {s: sorted({f.rule for f in found if f.severity == s}) for s in ("fail", "warn")}
        texts = [f.text for f in found if f.severity == "fail"]
        about = {"edit": key, "direction": direction, "equal_code": equal_code(before, after)}
        yield {**about, "verdict": "REGRESSED" if texts else "PASS", "failed": bool(texts), "findings": texts, **rules}


def document(rows: Mapping[str, Sequence[Row]]) -> str:
    """The generated part, from the rows of each series of Triton."""
    newest = next(iter(rows.values()))
    parts = [_verdicts(rows), _rules(newest), _false(newest), _missed(newest), _hidden(newest), _silent(newest)]
    return "\n\n".join("\n".join(part) for part in parts)


def _verdicts(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """How many of each group fail, by series, and for kernels in sight and held out."""
    sets = [
        (f"Triton {series}, {name}", [r for r in found if (r["edit"].partition(":")[0] in HELD_OUT_KERNELS) is held])
        for series, found in rows.items()
        for name, held in (("22 kernels", False), ("9 held out", True))
    ]
    lines = [f"| fail of | {' | '.join(name for name, _ in sets)} |", "|---|" + "---|" * len(sets)]
    for name, belongs in GROUPS.items():
        groups = [[r for r in found if belongs(r)] for _, found in sets]
        counts = [f"{sum(r['failed'] for r in group)} of {len(group)}" for group in groups]
        lines.append(f"| {name} | {' | '.join(counts)} |")
    return lines


def _rules(rows: Sequence[Row]) -> list[str]:
    """A line a rule."""
    head = ["rule", "by default", "fails: slower", "fails: faster, same", "warns: slower", "warns: faster, same"]
    head += ["fails: planted", "ordinary edits that trip it"]
    names = [name for name in STATIC_RULES if not name.startswith(("config_", "vgpr", "sgpr", "fusion"))]
    return ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *(_line(n, rows) for n in names))]


def _line(rule: str, rows: Sequence[Row]) -> list[str]:
    ordinary = [r for r in rows if not r["planted"]]
    counts = [
        str(len([r for r in ordinary if rule in r[severity] and (r["label"] == "slower") is slower]))
        for severity in ("fail", "warn")
        for slower in (True, False)
    ]
    planted = len([r for r in rows if r["planted"] and rule in r["fail"]])
    return [f"`{rule}`", STATIC_RULES[rule].severity, *counts, str(planted), _kinds(rule, ordinary)]


def _kinds(rule: str, ordinary: Iterable[Row]) -> str:
    """The kinds of edits that trip a rule, most frequent first, with one edit as an example."""
    tripping = [r for r in ordinary if rule in r["fail"] or rule in r["warn"]]
    kinds = Counter(r["kind"] for r in tripping)
    named = {kind: next(r for r in tripping if r["kind"] == kind) for kind in kinds}
    shown = [f"{kind} ({count}, as {_name(named[kind])})" for kind, count in kinds.most_common(SHOWN)]
    return "; ".join(shown) or "none"


def _name(row: Row) -> str:
    return row["edit"] + (" undone" if row["direction"] == "undone" else "")


def _false(rows: Sequence[Row]) -> list[str]:
    """Ordinary, not slower, and failed."""
    told = [f"* {_name(r)} {r['ratio']:.2f}: {'; '.join(r['findings'])}" for r in false_failures(rows)]
    return ["Ordinary, faster or the same, that fail:", "", *(told or ["* none"])]


def _missed(rows: Sequence[Row]) -> list[str]:
    """Planted, slower, and passed."""
    missed = [r for r in rows if GROUPS["planted, slower"](r) and not r["failed"]]
    return [
        "Planted, slower and not found:",
        "",
        *(f"* {r['edit']} ({r['planted']}): {r['ratio']:.2f}" for r in missed),
    ]


def _hidden(rows: Sequence[Row]) -> list[str]:
    """What was planted and costs an H200 nothing."""
    hidden = [r for r in rows if GROUPS["planted, but within 5 %"](r)]
    said = [f"* {r['edit']} ({r['planted']}): {r['ratio']:.3f}, {'fails' if r['failed'] else 'passes'}" for r in hidden]
    return ["Planted, but within 5 % on an H200:", "", *said]


def _silent(rows: Sequence[Row]) -> list[str]:
    """What is slower without a failure: a clock's business."""
    silent = [r for r in rows if GROUPS["ordinary, slower"](r) and not r["failed"] and r["direction"] == "made"]
    kinds = ", ".join(f"{kind} {count}" for kind, count in Counter(r["kind"] for r in silent).most_common())
    told = [
        f"{r['edit']} {r['ratio']:.2f}" + (f" (warns: {', '.join(r['warn'])})" if r["warn"] else "") for r in silent
    ]
    warned = sum(bool(r["warn"]) for r in silent)
    head = f"Slower as made, neither planted nor failed: {len(silent)} ({kinds}), of which {warned} warn:"
    return [head, "", *(f"* {text}" for text in told)]


def write_page(page: Path, kept: Mapping[str, Path] = FIGURES, timed: Path = LABELS) -> None:
    """Put the tables between the page's two marks."""
    labels = json.loads(timed.read_text())
    compiled = [json.loads(path.read_text())["environment"] for path in kept.values()]
    rows = {series: judged(figures.read(path), labels["edits"]) for series, path in kept.items()}
    measured, count = labels["environment"], len(labels["edits"])
    head = (
        f"{count} edits, made and undone; timed on one {measured['device']} ({measured['date']}, Triton "
        f"{measured['triton']}), compiled for {compiled[0]['target']} by Triton "
        f"{' and '.join(x['triton'] for x in compiled)}. Kernels held out were no reason for any rule or threshold."
    )
    harness.put_between(page, BEGIN, END, f"{head}\n\n{document(rows)}")


def main() -> None:
    """See the module's text."""
    parser = harness.parser(__doc__)
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    args = parser.parse_args()
    write_page(args.document)


if __name__ == "__main__":
    main()
