"""Verdicts joined with labels, and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.edit_corpus.corpus import EDITS
from kerntune.gate.static_figures import LaunchStatic

SLOWER = 1.05
"""After over before, from which on an edit is slower; its inverse is faster."""

UNDONE = {"faster": "slower", "slower": "faster", "same": "same", "not launched": "faster"}
"""What the way back is. What can't be launched has no time: undone it is as good as faster."""


def label_of(ratio: float) -> str:
    """What a ratio of times, after over before, is called."""
    return "slower" if ratio >= SLOWER else "faster" if ratio <= 1 / SLOWER else "same"


def joined(rows: Iterable[dict[str, Any]], labels: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows with kind, planted cause, label and ratio. What was planted is planted one way only."""
    edits = {edit.key: edit for edit in EDITS}
    out = []
    for row in rows:
        edit, label = edits[row["edit"]], labels.get(row["edit"], {})
        made, name, ratio = row["direction"] == "made", label.get("label", "unknown"), label.get("ratio")
        if not made:
            name, ratio = UNDONE.get(name, name), ratio and round(1 / ratio, 4)
        about = {"kind": edit.kind, "planted": edit.planted if made else "", "label": name, "ratio": ratio}
        out.append({**row, **about})
    return out


def false_failures(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that fail although they are faster or the same. What was planted and shows in no time is counted apart."""
    return [r for r in rows if r.get("failed") and r["label"] in ("faster", "same") and not r["planted"]]


def equal_code(before: Sequence[LaunchStatic], after: Sequence[LaunchStatic]) -> bool:
    """Whether both sides launch the same: what was planted is compiled away."""
    return [(x.code, x.grid) for x in before] == [(x.code, x.grid) for x in after]


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The table's figures, and the names behind them."""
    return {
        **{direction: _counted([r for r in rows if r["direction"] == direction]) for direction in ("made", "undone")},
        "false_failures": [_named(r) for r in false_failures(rows)],
        "planted_and_missed": [_named(r) for r in _planted(rows) if not r.get("failed")],
        "planted_but_not_slower": [_named(r) for r in rows if r["planted"] and r["label"] in ("faster", "same")],
        "planted_but_equal_code": [_named(r) for r in rows if r["planted"] and r.get("equal_code")],
        "slower_and_found_though_not_planted": [
            _named(r) for r in rows if r["label"] == "slower" and not r["planted"] and r.get("failed")
        ],
        "slower_without_a_failure": [
            _named(r) for r in rows if r["label"] == "slower" and not r["planted"] and not r.get("failed")
        ],
        "other": [_named(r) for r in rows if r["verdict"] not in ("PASS", "REGRESSED")],
    }


def _planted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was planted and is slower, or can't be launched at all; not what this compiler makes equal code of."""
    shown = ("slower", "not launched", "unknown")
    return [r for r in rows if r["planted"] and r["label"] in shown and not r.get("equal_code")]


def _counted(rows: list[dict[str, Any]]) -> dict[str, Any]:
    ordinary = [r for r in rows if not r["planted"]]
    planted = _planted(rows)
    return {
        "edits": len(rows),
        "labels": dict(Counter(r["label"] for r in rows)),
        "ordinary": {
            name: f"{sum(bool(r.get('failed')) for r in found)} of {len(found)} fail"
            for name in ("faster", "same", "slower", "unknown")
            if (found := [r for r in ordinary if r["label"] == name])
        },
        "planted_found": f"{sum(bool(r.get('failed')) for r in planted)} of {len(planted)}",
    }


def _named(row: dict[str, Any]) -> str:
    ratio = f" {row['ratio']:.3f}" if row["ratio"] else ""
    said = "; ".join(row["findings"]) or row["verdict"]
    return f"{row['edit']} ({row['direction']}, {row['label']}{ratio}): {said}"
