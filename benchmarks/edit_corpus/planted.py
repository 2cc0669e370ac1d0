"""The gate without a GPU on edits that were labelled by argument, on kernels that no rule was made for.

    python -m benchmarks.edit_corpus.planted OUT.json [--kernels syrk router] [--processes 2] [--target cuda:90]

A harmful edit is found if its case is REGRESSED, a failing finding says what the edit is about, and a cause names the
kind of change. A harmless one is right if its case doesn't fail. Harmful ones are judged undone, too, unless what they
make can't be launched: an improvement must not fail. OUT keeps its first run (``first``) when it is written again.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.edit_corpus.edit import judge_by_argument
from benchmarks.edit_corpus.edits_planted import EDITS, Planted


def judged(asked: tuple[str, str]) -> list[dict[str, Any]]:
    """The rows of a kernel's edits: harmful ones made and undone, harmless ones made."""
    from benchmarks.edit_corpus.gate import gate

    kernel, target = asked
    with tempfile.TemporaryDirectory() as folder, gate(Path(folder), target) as found:
        rows = [(edit, row) for edit in EDITS if edit.kernel == kernel for row in found.rows(edit)]
        rows = [(edit, json.loads(_plain(row).replace(f"{folder}/", ""))) for edit, row in rows]
    made = [(e, r) for e, r in rows if r["direction"] == "made"]
    undone = [(e, r) for e, r in rows if r["direction"] == "undone" and e.planted and r["verdict"] != "NO BASELINE"]
    return [told(edit, row) for edit, row in made + undone]


def _plain(row: dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in row.items() if key != "figures"})


def told(edit: Planted, row: dict[str, Any]) -> dict[str, Any]:
    """A row with its label by argument, and whether the gate said what it must."""
    harmful = bool(edit.planted) and row["direction"] == "made"
    about = {"kind": edit.kind, "label": "harmful" if harmful else "harmless", "argument": edit.argument}
    return {**row, **about, "right": found(edit, row) if harmful else not failed(row)}


def found(edit: Planted, row: dict[str, Any]) -> bool:
    """Whether a harmful edit is REGRESSED with the right finding and the right cause."""
    said = any(re.search(edit.finding, text) for text in row["findings"])
    named = any(re.search(edit.cause, text) for text in row.get("causes", []))
    return row["verdict"] == "REGRESSED" and said and named


def failed(row: dict[str, Any]) -> bool:
    """Whether the case fails, for whatever reason."""
    return bool(row.get("failed", True))


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures, and the names of what is wrong."""
    harmful = [r for r in rows if r["label"] == "harmful"]
    made = [r for r in rows if r["label"] == "harmless" and r["direction"] == "made"]
    undone = [r for r in rows if r["label"] == "harmless" and r["direction"] == "undone"]
    return {
        "harmful_found": f"{sum(r['right'] for r in harmful)} of {len(harmful)}",
        "harmful_regressed_for_any_reason": f"{sum(r['verdict'] == 'REGRESSED' for r in harmful)} of {len(harmful)}",
        "harmful_found_by_kind": {
            kind: f"{sum(r['right'] for r in harmful if r['kind'] == kind)} of {count}"
            for kind, count in Counter(r["kind"] for r in harmful).items()
        },
        "harmless_failed": f"{sum(not r['right'] for r in made)} of {len(made)}",
        "undone_failed": f"{sum(not r['right'] for r in undone)} of {len(undone)}",
        "missed": [f"{r['edit']} ({r['kind']}): {_said(r)}" for r in harmful if not r["right"]],
        "wrongly_failed": [f"{r['edit']} ({r['direction']}): {_said(r)}" for r in made + undone if not r["right"]],
    }


def _said(row: dict[str, Any]) -> str:
    return "; ".join([row["verdict"], *row["findings"], *row.get("causes", [])])


if __name__ == "__main__":
    sys.exit(judge_by_argument(__doc__, EDITS, judged, summary))
