"""The gate without a GPU on edits of compiled functions that were labelled by argument before its rules were made.

    python -m benchmarks.edit_corpus.compiled_losses OUT.json [--kernels rope dropout] [--processes 2]

A loss is found if its case is REGRESSED and one failing finding names its operator and its line. A harmless edit is
right if its case doesn't fail. OUT keeps its first run (``first``) when it is written again.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.edit_corpus.edit import judge_by_argument
from benchmarks.edit_corpus.edits_compiled import EDITS, CompiledEdit


def judged(asked: tuple[str, str]) -> list[dict[str, Any]]:
    """The rows of a function's edits, each held against one baseline of the function as it is."""
    from benchmarks.edit_corpus.gate import gate

    function, target = asked
    with tempfile.TemporaryDirectory() as folder, gate(Path(folder), target) as found:
        edits = [edit for edit in EDITS if edit.kernel == function]
        rows = found.held(function, edits[0].before(), [(edit.key, edit.after()) for edit in edits])
        rows = json.loads(json.dumps(rows).replace(f"{folder}/", ""))
    return [told(edit, row) for edit, row in zip(edits, rows, strict=True)]


def told(edit: CompiledEdit, row: dict[str, Any]) -> dict[str, Any]:
    """A row with its label by argument, and whether the gate said what it must."""
    about = {"kind": edit.kind, "label": "loss" if edit.planted else "harmless", "argument": edit.argument}
    right = found(edit, row) if edit.planted else not row.get("failed", True)
    return {**row, **about, "right": right}


def found(edit: CompiledEdit, row: dict[str, Any]) -> bool:
    """Whether a loss is REGRESSED, with a failing finding on its operator that names its line."""
    places = [re.escape(place) + r"(?!\d)" for place in edit.places()]
    said = (
        re.search(edit.operator, text) and any(re.search(place, text) for place in places) for text in row["findings"]
    )
    return row["verdict"] == "REGRESSED" and any(said)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures, and the names of what is wrong."""
    losses, others = ([r for r in rows if r["label"] == label] for label in ("loss", "harmless"))
    return {
        "losses_found": f"{sum(r['right'] for r in losses)} of {len(losses)}",
        "losses_regressed_for_any_reason": f"{sum(r['verdict'] == 'REGRESSED' for r in losses)} of {len(losses)}",
        "harmless_failed": f"{sum(not r['right'] for r in others)} of {len(others)}",
        "missed": [f"{r['edit']}: {_said(r)}" for r in losses if not r["right"]],
        "wrongly_failed": [f"{r['edit']}: {_said(r)}" for r in others if not r["right"]],
    }


def _said(row: dict[str, Any]) -> str:
    return "; ".join([row["verdict"], *row["findings"]])


if __name__ == "__main__":
    sys.exit(judge_by_argument(__doc__, {"compiled": EDITS}, judged, summary))
