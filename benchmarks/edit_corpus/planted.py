"""The gate without a GPU on edits that were labelled by argument, on kernels that no rule was made for.

    python -m benchmarks.edit_corpus.planted OUT.json [--edits unseen] [--kernels syrk router] [--processes 2]
        [--target cuda:90]

A harmful edit is found if its case is REGRESSED, a failing finding says what the edit is about, and a cause names the
kind of change. Of the edits ``unseen`` INCONCLUSIVE and INCOMPLETE will do, if the message says the same. A harmless
one is right if its case passes. Harmful ones are judged undone, too, unless what they make can't be launched: an
improvement must not fail. After an unearned one the case must not pass without a remark on the change. OUT keeps its
first run (``first``) when it is written again.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.edit_corpus import edits_planted, edits_unseen
from benchmarks.edit_corpus.edit import judge_by_argument
from benchmarks.edit_corpus.edits_planted import Planted

SETS: dict[str, tuple[Planted, ...]] = {"planted": edits_planted.EDITS, "unseen": edits_unseen.EDITS}
EDITS = [edit for edits in SETS.values() for edit in edits]


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
    label = edit.labelled if row["direction"] == "made" else "harmless"
    about = {"kind": edit.kind, "label": label, "argument": edit.argument}
    return {**row, **about, "right": _right(edit, label, row), "told": label == "harmful" and warned(edit, row)}


def _right(edit: Planted, label: str, row: dict[str, Any]) -> bool:
    if label == "harmful":
        return found(edit, row)
    if label == "unearned":
        return not plain(row)
    return not failed(row) and (row["direction"] == "undone" or row["verdict"] == "PASS")


def found(edit: Planted, row: dict[str, Any]) -> bool:
    """Whether a harmful edit has one of its verdicts with the right finding and the right cause."""
    verdict = row["verdict"]
    texts = row["findings"] if verdict == "REGRESSED" else [row.get("message", "")]
    said = any(re.search(edit.finding, text) for text in texts)
    named = any(re.search(edit.cause, text) for text in row.get("causes", []))
    return verdict in edit.verdicts and said and named


def warned(edit: Planted, row: dict[str, Any]) -> bool:
    """Whether a case that passes warns of what a harmful edit is about."""
    return row["verdict"] == "PASS" and any(re.search(edit.finding, text) for text in row["notes"])


def plain(row: dict[str, Any]) -> bool:
    """Whether a case passes as if nothing had changed."""
    return row["verdict"] == "PASS" and not any(row[name] for name in ("remarks", "warnings", "notes"))


def failed(row: dict[str, Any]) -> bool:
    """Whether the case fails, for whatever reason."""
    return bool(row.get("failed", True))


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures, and the names of what is wrong."""
    harmful = [r for r in rows if r["label"] == "harmful"]
    made = [r for r in rows if r["label"] == "harmless" and r["direction"] == "made"]
    undone = [r for r in rows if r["label"] == "harmless" and r["direction"] == "undone"]
    unearned = [r for r in rows if r["label"] == "unearned"]
    return {
        "harmful_found": f"{sum(r['right'] for r in harmful)} of {len(harmful)}",
        "harmful_regressed_for_any_reason": f"{sum(r['verdict'] == 'REGRESSED' for r in harmful)} of {len(harmful)}",
        "harmful_missed_but_warned_of": f"{sum(not r['right'] and r['told'] for r in harmful)} of {len(harmful)}",
        "harmful_found_by_kind": {
            kind: f"{sum(r['right'] for r in harmful if r['kind'] == kind)} of {count}"
            for kind, count in Counter(r["kind"] for r in harmful).items()
        },
        "harmless_failed": f"{sum(not r['right'] for r in made)} of {len(made)}",
        "undone_failed": f"{sum(not r['right'] for r in undone)} of {len(undone)}",
        **_of_unearned(unearned),
        "missed": [f"{r['edit']} ({r['kind']}): {_said(r)}" for r in harmful if not r["right"]],
        "wrongly_failed": [f"{r['edit']} ({r['direction']}): {_said(r)}" for r in made + undone if not r["right"]],
    }


def _of_unearned(rows: list[dict[str, Any]]) -> dict[str, Any]:
    if not rows:
        return {}
    return {
        "unearned_that_pass_plainly": f"{sum(not r['right'] for r in rows)} of {len(rows)}",
        "unearned": [f"{r['edit']} ({r['kind']}): {_told(r)}" for r in rows],
    }


def _told(row: dict[str, Any]) -> str:
    return "; ".join([row["verdict"], *row["findings"], *row.get("warnings", []), *row.get("remarks", [])])


def _said(row: dict[str, Any]) -> str:
    warned = [f"warns: {text}" for text in row["notes"]] if row.get("told") else []
    return "; ".join([row["verdict"], *row["findings"], *warned, *row.get("causes", [])])


if __name__ == "__main__":
    sys.exit(judge_by_argument(__doc__, SETS, judged, summary))
