"""Plants regressions and harmless edits in copies of the examples, without a GPU, and counts the gate's findings.

    python -m benchmarks.verdicts.planted_static OUT.json [--target cuda:90]

Each edit has its own copy of an example. Three runs: record all copies, run them again unedited (all PASS), and run
them edited. A regression counts as found if a case of its copy is REGRESSED and names the finding and the cause that
the edit is about; a harmless edit if every case of its copy is PASS. Exits with 1 if any is missed. Growth of
instructions and registers and a fall of occupancy fail from 10 % on here (``kerntune_static``), by default they are
only noted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import ROOT, plugin_options
from benchmarks.verdicts.planted_edits import HARMLESS, REGRESSIONS, SMALLER, Edit, Harmless, Regression

INI = """[pytest]
filterwarnings = ignore:TRITON_DEFAULT_FP_FUSION
kerntune_static = instructions=10% registers=10% occupancy=10%
"""

PLANTED: dict[str, Regression | Harmless] = {
    **{f"regression_{i:02}": r for i, r in enumerate(REGRESSIONS, 1)},
    **{f"harmless_{i:02}": h for i, h in enumerate(HARMLESS, 1)},
}


def edited(text: str, edits: tuple[Edit, ...], where: str) -> str:
    """The text with every edit made; an error if there is no place for one."""
    for old, new in edits:
        if old not in text:
            raise SystemExit(f"{where}: has no {old!r} to plant in")
        text = text.replace(old, new)
    return text


def write(folder: Path, *, plant: bool) -> None:
    """All copies, planted or not."""
    for name, planted in PLANTED.items():
        text = (ROOT / "examples" / f"test_{planted.example}.py").read_text()
        text = edited(text, SMALLER[planted.example], name)
        text = edited(text, planted.edits, f"{name} ({planted.name})") if plant else text
        (folder / f"test_{name}.py").write_text(text)


def run(folder: Path, name: str, target: str) -> dict[str, Any]:
    """One ``pytest --kerntune``: its seconds, exit code and results by file."""
    report = folder / f"{name}.json"
    options = ["--kerntune", f"--kerntune-target={target}", f"--kerntune-json={report}", "-q", "-p", "no:cacheprovider"]
    environ = harness.child_environment()
    environ.pop("CI", None)
    start = time.perf_counter()
    command = [sys.executable, "-m", "pytest", *plugin_options(), *options]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    if not report.exists():
        raise SystemExit(f"{name}: pytest wrote no report\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    results = json.loads(report.read_text())["results"]
    by_file: dict[str, list[Any]] = {}
    for result in results:
        by_file.setdefault(result["case"]["nodeid"].partition(".py")[0].removeprefix("test_"), []).append(result)
    verdicts = dict(Counter(r["verdict"] for r in results))
    print(f"{name}: exit {done.returncode}, {verdicts}", flush=True)
    seconds = round(time.perf_counter() - start, 1)
    return {"name": name, "exit_code": done.returncode, "seconds": seconds, "verdicts": verdicts, "by_file": by_file}


def judged(name: str, planted: Regression | Harmless, results: list[Any]) -> dict[str, Any]:
    """Whether the gate reported one edit as it should."""
    verdicts = dict(Counter(r["verdict"] for r in results))
    out = {"name": planted.name, "example": planted.example, "verdicts": verdicts}
    if isinstance(planted, Harmless):
        return {**out, "right": bool(results) and verdicts.keys() == {"PASS"}, "messages": _failing(results)}
    hits = [r for r in results if r["verdict"] == "REGRESSED" and _says(r, planted)]
    shown = hits or [r for r in results if r["verdict"] != "PASS"] or results
    return {
        **out,
        "expected": [planted.finding, planted.cause],
        "right": bool(hits),
        "findings": [f for r in shown[:1] for f in r.get("findings", [])],
        "causes": [c for r in shown[:1] for c in r.get("causes", [])],
    }


def _says(result: Any, planted: Regression) -> bool:
    findings, causes = result.get("findings", []), result.get("causes", [])
    return any(planted.finding in f for f in findings) and any(planted.cause in c for c in causes)


def _failing(results: list[Any]) -> list[str]:
    return [r["message"] for r in results if r["verdict"] != "PASS"]


def main() -> int:
    """See the module's text."""
    parser = harness.parser(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", default="cuda:90")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "pytest.ini").write_text(INI)
        write(folder, plant=False)
        runs = [run(folder, "record", args.target), run(folder, "again", args.target)]
        write(folder, plant=True)
        runs.append(run(folder, "edited", args.target))
    found = {name: judged(name, p, runs[-1]["by_file"].get(name, [])) for name, p in PLANTED.items()}
    regressions = [f for n, f in found.items() if n.startswith("regression")]
    harmless = [f for n, f in found.items() if n.startswith("harmless")]
    result = {
        "environment": harness.environment(target=args.target),
        "regressions_found": f"{sum(f['right'] for f in regressions)} of {len(regressions)}",
        "harmless_passed": f"{sum(f['right'] for f in harmless)} of {len(harmless)}",
        "unedited_all_pass": runs[1]["verdicts"].keys() == {"PASS"},
        "runs": [{k: v for k, v in r.items() if k != "by_file"} for r in runs],
        "regressions": regressions,
        "harmless": harmless,
    }
    harness.write(args.out, result)
    for entry in (*regressions, *harmless):
        if not entry["right"]:
            print(f"wrong: {entry}")
    print(result["regressions_found"], "regressions found,", result["harmless_passed"], "harmless edits passed")
    return 0 if result["unedited_all_pass"] and all(f["right"] for f in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
