"""Reports what another Triton does to every example's kernels, without a GPU, as Markdown.

    python benchmarks/upgrade_report.py OLD_PYTHON NEW_PYTHON OUT.md [--target cuda:90,hip:gfx942] [--json OUT.json]

The two interpreters are of environments that differ in their Triton. The table is the output of ``kerntune static diff
--python OLD_PYTHON --python NEW_PYTHON --target ... --markdown examples``; this adds a summary per target, from the
same command's ``--json``. Kernels that no rule fails or warns of have no row. Of OUT.md only what
lies between the two marks is replaced: what was concluded from it stays.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import msgspec

from kerntune.cli.changes import Figure
from kerntune.cli.static_compare import SEVERITIES, LaunchChange, StaticDifference

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- upgrade_report: begin -->", "<!-- upgrade_report: end -->"
SHOWN = ("registers", "spilled bytes", "instructions", "code bytes")


def asked(pythons: list[str], target: str, form: str) -> bytes:
    """What the command prints, as ``--json`` or ``--markdown``."""
    options = [x for python in pythons for x in ("--python", python)]
    command = [
        sys.executable,
        "-m",
        "kerntune.cli",
        "static",
        "diff",
        *options,
        "--target",
        target,
        form,
        "examples",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if not done.stdout:
        raise SystemExit(done.stderr.decode()[-3000:])
    return done.stdout


def summary(found: StaticDifference) -> str:
    """A row a target: cases by their most severe finding, and how the totals of distinct kernels changed."""
    lines = ["| target | cases | failing | warned | told | only other code | " + " | ".join(SHOWN) + " |"]
    lines.append("|---" * (6 + len(SHOWN)) + "|")
    for target in dict.fromkeys(c.target for c in sorted(found.changed, key=lambda c: c.target)):
        changes = [c for c in found.changed if c.target == target]
        counts = Counter(_gravest(x.launches) for x in changes)
        totals = [_moved(target, found, name) for name in SHOWN]
        numbers = [str(counts[s]) for s in (*SEVERITIES, "")]
        lines.append("| " + " | ".join([target, str(len(changes)), *numbers, *totals]) + " |")
    return "\n".join(lines)


def _gravest(launches: tuple[LaunchChange, ...]) -> str:
    said = {f.severity for x in launches for f in x.findings}
    return next((s for s in SEVERITIES if s in said), "")


def _moved(target: str, found: StaticDifference, name: str) -> str:
    """``8 up, 3 down``: kernels (by name, config and figures) in which a figure rose or fell."""
    figures = set(_figures(target, found, name))
    up = sum((b or 0) > (a or 0) for _, a, b in figures)
    return f"{up} up, {len(figures) - up} down" if figures else "as before"


def _figures(target: str, found: StaticDifference, name: str) -> Iterator[tuple[str, float | None, float | None]]:
    for change in found.changed:
        for launch in change.launches if change.target == target else ():
            figure: Figure | None = next((f for f in launch.figures if f.name == name), None)
            if figure is not None:
                yield f"{launch.kernel} {launch.after}", figure.before, figure.after


def shortened(table: str) -> str:
    """A Markdown table without the rows that neither fail nor warn, and without the spaces that align it."""
    head = ("| case ", "|---", "| ---")
    lines = re.sub(r"-{4,}", "---", re.sub(r" {2,}", " ", table)).splitlines()
    kept = [x for x in lines if not x.startswith("|") or x.startswith(head) or re.search("fail: |warn: ", x)]
    return "\n".join(kept)


def put(path: Path, text: str) -> None:
    """Replace what lies between the marks, or write a new file of it."""
    old = path.read_text() if path.exists() else f"{BEGIN}\n{END}\n"
    before, _, rest = old.partition(BEGIN)
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs=2)
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", default="cuda:90,hip:gfx942")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    data = asked(args.pythons, args.target, "--json")
    found = msgspec.json.decode(data, type=StaticDifference)
    if args.json:
        args.json.write_bytes(data)
    table = asked(args.pythons, args.target, "--markdown").decode().strip()
    put(args.out, f"{summary(found)}\n\n{shortened(table)}")
    print(summary(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
