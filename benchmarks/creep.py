"""Makes the softmax example slower by a percent at a time, accepts every step, and shows the verdicts against its
anchor.

    python benchmarks/creep.py OUT.json [--steps 7]

On a GPU, in a scratch copy of the example: record, ``kerntune anchor``, then per step one percent more rows and a run
with ``--kerntune-update``, which accepts it; then the last step as it stands, with the anchor and without. The JSON has
each run's verdict, its change since the baseline (the step before) and since the anchor, and the environment.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import planted

from kerntune.cli import anchor

CASE = "test_softmax[65536]"
FILE = "test_softmax.py"
GRID = "softmax_kernel[(rows,)](x, out, x.stride(0), out.stride(0), cols)"


def grid(percent: int) -> str:
    """The launch with so many percent of the rows once more."""
    more = f"rows + rows * {percent} // 100"
    return f"softmax_kernel[({more},)](x, out, x.stride(0), out.stride(0), cols, rows)"


def creep(project: planted.Project, steps: int) -> list[dict[str, Any]]:
    """All runs, in order."""
    for old, new in planted.MORE_WORK[:2]:
        project.edit(FILE, old, new)
    project.edit(FILE, GRID, grid(0))
    found = [run(project, "record")]
    anchored = argparse.Namespace(
        baselines=str(project.folder / "baselines"), anchor=str(project.folder / "anchors"), case=""
    )
    if anchor.run(anchored):
        raise SystemExit("the baselines could not be anchored")
    for step in range(1, steps + 1):
        project.edit(FILE, grid(step - 1), grid(step))
        found.append(run(project, f"step_{step}", "--kerntune-update"))
    found.append(run(project, "as_it_stands"))
    found.append(run(project, "without_anchor", "--kerntune-anchor=off"))
    return found


def run(project: planted.Project, name: str, *args: str) -> dict[str, Any]:
    """One run's verdict, and the changes that it reports."""
    done = project.run(name, "-k", CASE, *args)
    (result,) = json.loads((project.folder / f"{name}.json").read_text())["results"]
    since = result.get("since") or {}
    return {
        "name": name,
        "exit_code": done["exit_code"],
        "seconds": done["seconds"],
        "verdict": result["verdict"],
        "since_baseline": result.get("change"),
        "since_anchor": since.get("change"),
        "by_anchor": since.get("verdict"),
        "message": result["message"],
    }


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = creep(planted.Project(Path(folder), []), args.steps)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"environment": planted._environment(), "runs": found}, indent=1) + "\n")
    print(json.dumps([{k: r[k] for k in ("name", "verdict", "by_anchor", "seconds")} for r in found]))


if __name__ == "__main__":
    main()
