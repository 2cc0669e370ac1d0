"""Ops of liger-kernel and flash-linear-attention as tests without a GPU: recorded once, then run again as CI does.

    python -m benchmarks.ops.ops_gate benchmarks/results/ops_gate.json [--target cuda:90] [--jobs 2] [--only NAME ...]
        [--table docs/measured/operators.md]

Both packages are as the package index has them, unedited.
Each op is one ``autotune`` call, forward and backward. The first run records, the second has ``CI=1`` and decides. An
op is silently cut off if it is PASS without an end and launches less than it did on the H200 (``ops_compare.json``).
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import harness

PACKAGES = {"liger-kernel": "benchmarks.ops.ops_liger", "flash-linear-attention": "benchmarks.ops.ops_fla"}

BEGIN, END = "<!-- ops_gate: begin -->", "<!-- ops_gate: end -->"

TESTS = """
import pytest
import torch
from benchmarks.ops.ops_gate import catalog, tensors

OPS = catalog()


@pytest.mark.autotune
@pytest.mark.parametrize("name", [n for n in OPS if not {only!r} or n in {only!r}])
def test_op(autotune, name):
    torch.manual_seed(0)

    def forward_and_backward():
        outputs = tensors(OPS[name]())
        torch.autograd.backward(outputs, [torch.ones_like(x) for x in outputs])

    autotune(forward_and_backward)
"""


def catalog() -> dict[str, Callable[[], Any]]:
    """Every op by ``package/name``."""
    return {
        f"{package}/{name}": run
        for package, module in PACKAGES.items()
        for name, run in importlib.import_module(module).OPS.items()
    }


def tensors(value: Any) -> list[Any]:
    """The outputs that have a gradient."""
    import torch

    items = value if isinstance(value, (tuple, list)) else [value]
    return [x for x in items if isinstance(x, torch.Tensor) and x.requires_grad]


def chosen(names: list[str], only: list[str]) -> list[str]:
    """All, or those that are named; a word that names none is a part of names."""
    exact, parts = set(only) & set(names), set(only) - set(names)
    return [n for n in names if not only or n in exact or any(part in n for part in parts)]


def run_once(folder: Path, args: argparse.Namespace, name: str, **more: str) -> dict[str, Any]:
    """One run of all ops; its JSON and how long it took."""
    env = harness.child_environment(PYTHONWARNINGS="ignore", **more)
    command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider", f"-n{args.jobs}"]
    command += ["--kerntune", f"--kerntune-target={args.target}", f"--kerntune-json={name}.json", "test_ops.py"]
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    seconds = round(time.perf_counter() - start, 1)
    (folder / f"{name}.txt").write_text(done.stdout + done.stderr)
    run = json.loads((folder / f"{name}.json").read_text())
    return {"run": run, "seconds": seconds, "exit": done.returncode}


def judged(run: dict[str, Any], names: list[str], launched: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By op: its verdict (``FAILED`` where the test fails otherwise), what it launched, where it stopped, what was
    said."""
    found = {r["case"]["nodeid"]: r for r in run["results"]}
    out = {}
    for name in names:
        nodeid = f"test_ops.py::test_op[{name}]"
        result = found.get(nodeid)
        entry: dict[str, Any] = {"verdict": "FAILED", "message": run["failed"].get(nodeid, "did not run")}
        if result is not None:
            entry = {"verdict": result["verdict"], "message": result["message"]}
            entry |= {"launches": len(result.get("launches", ())), "end": result.get("end")}
        there = launched.get(name, {}).get("launches", 0)
        whole = entry.get("launches", 0) >= there or entry.get("end") is not None
        out[name] = {**entry, "launches_on_h200": there, "silent": entry["verdict"] == "PASS" and not whole}
    return out


def table(ops: dict[str, dict[str, Any]]) -> str:
    """The ops that aren't PASS, and what is said of them."""
    rows = ["| op | verdict | launches judged | what is said |", "|---|---|---|---|"]
    for name, entry in sorted(ops.items()):
        if entry["verdict"] != "PASS":
            text = " ".join(entry["message"].split()).replace("|", "\\|")
            rows.append(f"| {name} | {entry['verdict']} | {entry.get('launches', 0)} | {text} |")
    return "\n".join(rows)


def main() -> int:
    """See the module's text."""
    parser = harness.parser(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", default="cuda:90")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--table", type=Path)
    parser.add_argument("--keep", type=Path, help="the folder of the tests, with what pytest prints")
    args = parser.parse_args()
    names = chosen(list(catalog()), args.only)
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "test_ops.py").write_text(TESTS.format(only=names))
        first = run_once(folder, args, "first", CI="")
        second = run_once(folder, args, "second", CI="1")
    launched = json.loads((harness.RESULTS / "ops_compare.json").read_text())["by_op"]
    ops = judged(second["run"], names, launched)
    verdicts = Counter(entry["verdict"] for entry in ops.values())
    result = {
        "environment": harness.environment(
            *PACKAGES, "fla-core", target=args.target, commit=harness.commit(), jobs=args.jobs
        ),
        "ops": len(ops),
        "verdicts": dict(verdicts),
        "silent": sorted(name for name, entry in ops.items() if entry["silent"]),
        "first": {k: first[k] for k in ("seconds", "exit")},
        "second": {k: second[k] for k in ("seconds", "exit")},
        "by_op": ops,
    }
    harness.write(args.out, result)
    if args.table:
        harness.put_between(args.table, BEGIN, END, table(ops))
    print(table(ops))
    print(f"{len(ops)} ops: {dict(verdicts)}; silently cut off: {result['silent'] or 'none'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
