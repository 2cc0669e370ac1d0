"""The results of the gate without a GPU for every edit of the corpus, compared with its times on an H200.

    python -m benchmarks.edit_corpus.evaluate OUT.json [--labels LABELS.json] [--kernels matmul softmax]
        [--processes 2] [--figures FIGURES.json] [--target cuda:90]

For each edit, and for the way back, the static baseline of one side is recorded and the other side held against it, as
``pytest --kerntune --kerntune-target=cuda:90`` does. LABELS is what :mod:`benchmarks.edit_corpus.label` wrote on a GPU.
FIGURES gets the static figures of both sides. Ends with 1 if an edit that is faster or the same fails.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.edit_corpus import figures
from benchmarks.edit_corpus.corpus import by_kernel
from benchmarks.edit_corpus.edit import in_order, rows_of
from benchmarks.edit_corpus.tables import false_failures, joined, summary

LABELS = harness.RESULTS / "edit_labels_h200.json"


def judged(asked: tuple[str, str]) -> list[dict[str, Any]]:
    """The rows of a kernel's edits."""
    from benchmarks.edit_corpus.gate import gate

    kernel, target = asked
    with tempfile.TemporaryDirectory() as folder, gate(Path(folder), target) as found:
        return [row for edit in by_kernel()[kernel] for row in found.rows(edit)]


def compiled(asked: tuple[str, str]) -> dict[str, figures.Sides]:
    """The figures of a kernel's edits, each side compiled once, without a verdict."""
    from benchmarks.edit_corpus.gate import gate

    kernel, target = asked
    edits = by_kernel()[kernel]
    with tempfile.TemporaryDirectory() as folder, gate(Path(folder), target) as found:
        before = found.launches(kernel, edits[0].before())
        return {edit.key: (before, found.launches(kernel, edit.after())) for edit in edits}


def all_figures(kernels: list[str], target: str, processes: int) -> dict[str, figures.Sides]:
    """The figures of all edits."""
    order = sorted(kernels, key=lambda kernel: -len(by_kernel()[kernel]))
    found: dict[str, figures.Sides] = {}
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=1) as pool:
        for each in pool.imap_unordered(compiled, [(kernel, target) for kernel in order], chunksize=1):
            found.update(each)
            print(f"{len(found)} edits", file=sys.stderr, flush=True)
    return {edit.key: found[edit.key] for edits in by_kernel().values() for edit in edits if edit.key in found}


def all_rows(kernels: list[str], target: str, processes: int) -> list[dict[str, Any]]:
    """The rows of all kernels, each in a process of its own, those with most edits first."""
    order = sorted(kernels, key=lambda kernel: -len(by_kernel()[kernel]))
    edits = (edit for edits in by_kernel().values() for edit in edits)
    return in_order(rows_of(judged, order, target, processes), edits)


def main() -> int:
    """See the module's text."""
    parser = harness.parser(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--labels", type=Path, default=LABELS)
    parser.add_argument("--kernels", nargs="*", default=list(by_kernel()))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--target", default="cuda:90")
    parser.add_argument("--only-figures", action="store_true", help="compile, judge nothing: OUT gets the figures")
    args = parser.parse_args()
    if args.only_figures:
        figures.write(
            args.out, harness.environment(target=args.target), all_figures(args.kernels, args.target, args.processes)
        )
        return 0
    start = time.perf_counter()
    rows = all_rows(args.kernels, args.target, args.processes)
    found = [(row["edit"], row["direction"], row.pop("figures", None)) for row in rows]
    if args.figures:
        made = {edit: sides for edit, direction, sides in found if direction == "made" and sides}
        figures.write(args.figures, harness.environment(target=args.target), made)
    labels = json.loads(args.labels.read_text())["edits"] if args.labels.exists() else {}
    rows = joined(rows, labels)
    seconds = round(time.perf_counter() - start, 1)
    result = {
        "environment": harness.environment(target=args.target, seconds=seconds),
        "summary": summary(rows),
        "rows": rows,
    }
    harness.write(args.out, result)
    print(json.dumps(result["summary"], indent=1))
    return 1 if false_failures(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
