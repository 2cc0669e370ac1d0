"""An edit of a kernel, the two sources that it leads from and to, and programs that judge many."""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import harness

KERNELS = Path(__file__).parent / "kernels"

Change = tuple[str, str]
"""A text of the kernel's file (every place of it) and what replaces it."""


@dataclass(frozen=True)
class Edit:
    """One change of a kernel's source. ``planted`` names the static cause of a slowdown that is planted, else empty.

    Both sides compute the same: the largest difference is at most ``tolerance`` of the largest value.
    """

    kernel: str
    name: str
    kind: str
    changes: tuple[Change, ...]
    planted: str = ""
    tolerance: float = 0.01

    @property
    def key(self) -> str:
        """Its name among all edits."""
        return f"{self.kernel}: {self.name}"

    def before(self) -> str:
        """The kernel's file."""
        return (KERNELS / f"{self.kernel}.py").read_text()

    def after(self) -> str:
        """The kernel's file with every change made; ValueError if there is no place for one."""
        text = self.before()
        for old, new in self.changes:
            if old not in text:
                raise ValueError(f"{self.key}: kernels/{self.kernel}.py has no {old!r}")
            text = text.replace(old, new)
        return text


Judged = Callable[[tuple[str, str]], list[dict[str, Any]]]
"""The rows of a kernel's edits, for a target: a function that another process can import."""


def rows_of(judged: Judged, kernels: Sequence[str], target: str, processes: int) -> list[dict[str, Any]]:
    """The rows of all kernels, each in a process of its own."""
    rows: list[dict[str, Any]] = []
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=1) as pool:
        for found in pool.imap_unordered(judged, [(kernel, target) for kernel in kernels], chunksize=1):
            rows += found
            print(f"{len(rows)} rows", file=sys.stderr, flush=True)
    return rows


def in_order(rows: Iterable[dict[str, Any]], edits: Iterable[Edit]) -> list[dict[str, Any]]:
    """Rows in the order of their edits, made before undone."""
    place = {edit.key: i for i, edit in enumerate(edits)}
    return sorted(rows, key=lambda row: (place[row["edit"]], row.get("direction", "")))


def judge_by_argument(
    doc: str | None,
    sets: Mapping[str, Sequence[Edit]],
    judged: Judged,
    summary: Callable[[list[dict[str, Any]]], dict[str, Any]],
) -> int:
    """The program of edits that are labelled by argument, in ``sets`` by name: OUT keeps its first run."""
    parser = harness.parser(doc)
    parser.add_argument("out", type=Path)
    parser.add_argument("--edits", choices=[*sets], default=next(iter(sets)))
    parser.add_argument("--kernels", nargs="*")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--target", default="cuda:90")
    args = parser.parse_args()
    start, edits = time.perf_counter(), sets[args.edits]
    kernels = args.kernels or list(dict.fromkeys(edit.kernel for edit in edits))
    rows = in_order(rows_of(judged, kernels, args.target, args.processes), edits)
    seconds = round(time.perf_counter() - start, 1)
    environment = harness.environment(target=args.target, commit=harness.commit(), seconds=seconds)
    last = {"environment": environment, **summary(rows)}
    kept = json.loads(args.out.read_text()) if args.out.exists() else {}
    harness.write(args.out, {"first": kept.get("first", last), "last": last, "rows": rows})
    print(json.dumps(last, indent=1))
    return 0
