"""Which ordinary edits trip each static rule, by the figures and labels that are kept; writes docs/static-rules.md.

    python -m benchmarks.edit_corpus.rule_table [--figures ...] [--labels ...] [--document docs/static-rules.md]

Nothing is compiled: the rules of today judge the static figures of both sides of every edit, made and undone.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.edit_corpus import figures
from benchmarks.edit_corpus.tables import equal_code, joined
from kerntune.policy import STATIC_RULES, StaticPolicy
from kerntune.static.finding import Finding
from kerntune.static.launch_rules import compare_launches, count_findings
from kerntune.static.launches import LaunchStatic

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
FIGURES, LABELS = RESULTS / "edit_figures.json", RESULTS / "edit_labels_h200.json"
DOCUMENT = ROOT / "docs" / "static-rules.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

RULES = StaticPolicy()
SHOWN = 4
"""Edits that are named for a rule."""


def findings(before: Sequence[LaunchStatic], after: Sequence[LaunchStatic]) -> list[Finding]:
    """What the default rules say of a call that launched ``before`` and now launches ``after``."""
    each = [f for pair in compare_launches(before, after, RULES) for f in pair.findings]
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


def document(rows: Sequence[Mapping[str, Any]], where: str) -> str:
    """The generated part: a line a rule."""
    ordinary = [r for r in rows if not r["planted"]]
    counts = Counter(r["label"] for r in ordinary)
    about = ", ".join(f"{counts[name]} {name}" for name in ("faster", "same", "slower"))
    head = [
        "rule",
        "by default",
        "fails of slower",
        "fails of faster or same",
        "warns of slower",
        "warns of faster or same",
    ]
    lines = [
        f"{where} {len({r['edit'] for r in rows})} edits, each made and undone: {len(ordinary)} ordinary changes "
        f"({about}) and {len(rows) - len(ordinary)} planted slowdowns.",
        "",
        "| " + " | ".join([*head, "planted found", "ordinary edits that trip it, most often"]) + " |",
        "|" + "---|" * (len(head) + 2),
        *("| " + " | ".join(_line(name, rows)) + " |" for name in STATIC_RULES if not name.startswith("config_")),
    ]
    return "\n".join([*lines, "", *_verdicts(rows), "", *_hidden(rows), "", *_slower(ordinary)])


def _verdicts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many of each label fail."""
    groups = {
        "ordinary, faster": [r for r in rows if not r["planted"] and r["label"] == "faster"],
        "ordinary, same": [r for r in rows if not r["planted"] and r["label"] == "same"],
        "ordinary, slower": [r for r in rows if not r["planted"] and r["label"] == "slower"],
        "planted, slower": [r for r in rows if r["planted"] and r["label"] == "slower" and not r["equal_code"]],
        "planted, can't be launched": [r for r in rows if r["planted"] and r["label"] == "not launched"],
        "planted, but as fast": [r for r in rows if r["planted"] and r["label"] in ("faster", "same")],
        "planted, but compiled to equal code": [
            r for r in rows if r["planted"] and r["label"] == "slower" and r["equal_code"]
        ],
    }
    counts = [f"| {name} | {len(found)} | {sum(r['failed'] for r in found)} |" for name, found in groups.items()]
    return ["| edits | judged | fail |", "|---|---|---|", *counts]


def _hidden(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was planted and costs an H200 nothing."""
    hidden = [r for r in rows if r["planted"] and r["label"] in ("faster", "same")]
    return [
        "Planted, but within 5 % on an H200:",
        "",
        *(f"* {r['edit']} ({r['planted']}): {r['ratio']:.3f}, {'fails' if r['failed'] else 'passes'}" for r in hidden),
    ]


def _slower(ordinary: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is slower without a failure: a clock's business."""
    silent = [r for r in ordinary if r["label"] == "slower" and not r["failed"] and r["direction"] == "made"]
    kinds = Counter(r["kind"] for r in silent)
    told = sum(bool(r["warn"]) for r in silent)
    return [
        f"Slower as made, not planted and not failed: {len(silent)}, of which {told} warn: "
        + ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
        + ".",
        "",
        *(
            f"* {r['edit']}: {r['ratio']:.2f}" + (f" (warns: {', '.join(r['warn'])})" if r["warn"] else "")
            for r in silent
        ),
    ]


def _line(rule: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    ordinary = [r for r in rows if not r["planted"]]
    counts = [
        str(len([r for r in ordinary if rule in r[severity] and (r["label"] == "slower") is slower]))
        for severity in ("fail", "warn")
        for slower in (True, False)
    ]
    planted = len([r for r in rows if r["planted"] and rule in r["fail"]])
    return [f"`{rule}`", STATIC_RULES[rule].severity, *counts, str(planted), _kinds(rule, ordinary)]


def _kinds(rule: str, ordinary: Iterable[Mapping[str, Any]]) -> str:
    """The kinds of edits that trip a rule, most frequent first, with one edit as an example."""
    tripping = [r for r in ordinary if rule in r["fail"] or rule in r["warn"]]
    kinds = Counter(r["kind"] for r in tripping)
    named = {kind: next(r for r in tripping if r["kind"] == kind) for kind in kinds}
    shown = [f"{kind} ({count}: {_name(named[kind])})" for kind, count in kinds.most_common(SHOWN)]
    return "; ".join(shown) or "none"


def _name(row: Mapping[str, Any]) -> str:
    return row["edit"] + (" undone" if row["direction"] == "undone" else "")


def write_page(kept: Path, timed: Path, page: Path) -> None:
    """Put the table between the page's two marks."""
    labels, compiled = json.loads(timed.read_text()), json.loads(kept.read_text())["environment"]
    measured = labels["environment"]
    where = (
        f"Timed on one {measured['device']} ({measured['date']}, Triton {measured['triton']}), compiled for "
        f"{compiled['target']} ({compiled['date']}, Triton {compiled['triton']}):"
    )
    made = document(judged(figures.read(kept), labels["edits"]), where)
    text = page.read_text()
    page.write_text(f"{text.partition(BEGIN)[0]}{BEGIN}\n{made}\n{END}{text.partition(END)[2]}")


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", type=Path, default=FIGURES)
    parser.add_argument("--labels", type=Path, default=LABELS)
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    args = parser.parse_args()
    write_page(args.figures, args.labels, args.document)


if __name__ == "__main__":
    main()
