"""Twenty compiled functions in the gate: recorded, checked again, with planted regressions and with harmless edits.

    python benchmarks/compiled_callables.py OUT.json [--gpu] [--target cuda:90] [--only WORD] [--scratch DIR [--resume]]

Without ``--gpu`` Inductor's kernels are generated and compiled for ``--target`` and nothing runs. With it they run and
are timed on this machine's GPU, and torch's profiler counts the Triton launches of each function beside the gate. The
suite is ``benchmarks/compiled_suite``. Each step is a pytest process of its own, or a few, in this order:

* ``record``: every function, some at a time; ``again``: the same in a new process;
* ``planted`` and ``harmless``: the edits of the suite, on the functions that they change alone. A process has no two
  edits of one function, so each kind is one process;
* ``profiled``: torch's profiler counts launches (with ``--gpu``); ``elsewhere``: in another folder with empty caches.

What is known is written to OUT.json after each process. With ``--scratch`` baselines and caches stay in that folder,
and ``--resume`` goes on there with what OUT.json doesn't have yet.
``found`` of a planted regression: its verdict is REGRESSED, and the message names a kernel of the function's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SUITE = Path(__file__).parent / "compiled_suite"
STATIC_PLANTED = ("lost fusion: pointwise", "lost fusion: softmax", "lost fusion: rms_norm", "spills: chain")
STATIC_PLANTED = (*STATIC_PLANTED, "spills: dynamic")
"""The five of the row without a GPU: spills and lost fusions. All ten are run in both modes."""

PROFILED = """
import json, sys, torch
from callables import CASES
out = {}
for name, make in CASES.items():
    function, args = make()
    for _ in range(3):
        function(*args)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        function(*args)
        torch.cuda.synchronize()
    names = [e.name for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    out[name] = sum(n.startswith("triton_") for n in names)
    torch._dynamo.reset()
json.dump(out, sys.stdout)
"""
"""Counts the Triton launches of each function by torch's profiler: generated kernels, templates too, are called so."""


@dataclass
class Study:
    """The runs of one study. ``result`` is what is written."""

    out: Path
    scratch: Path
    target: str | None
    result: dict[str, Any] = field(default_factory=dict)

    def write(self) -> None:
        """Write what is known so far."""
        self.out.write_text(json.dumps(self.result, indent=1, sort_keys=True) + "\n")

    def run(
        self, folder: Path, caches: str, edits: Sequence[str] = (), only: Sequence[str] = ()
    ) -> tuple[dict[str, dict[str, Any]], float]:
        """One pytest process on a copy of the suite: results by function, and seconds."""
        report = self.scratch / "report.json"
        report.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--kerntune", "--show-capture=no"]
        command += [f"--kerntune-json={report}", *([f"--kerntune-target={self.target}"] if self.target else [])]
        command += [f"test_callables.py::test_compiled[{case}]" for case in only]
        start = time.perf_counter()
        done = subprocess.run(
            command, cwd=folder, env=self._environment(caches, edits), capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - start
        if not report.exists():
            raise SystemExit(f"{' '.join(command)}:\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}")
        return by_function(json.loads(report.read_text())), seconds

    def _environment(self, caches: str, edits: Sequence[str]) -> dict[str, str]:
        own = {
            "CALLABLES_EDITS": ";".join(edits),
            "KERNTUNE_CACHE_DIR": str(self.scratch / caches / "kerntune"),
            "TRITON_CACHE_DIR": str(self.scratch / caches / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.scratch / caches / "inductor"),
        }
        left_out = ("PYTEST_ADDOPTS", "CI")
        return {**{k: v for k, v in os.environ.items() if k not in left_out}, **own}


def by_function(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The results of a report by the function's name."""
    out = {}
    for result in report["results"]:
        if result["verdict"] == "STALE":
            continue
        name = result["case"]["nodeid"].partition("[")[2].rstrip("]")
        out[name] = {
            "verdict": result["verdict"],
            "message": result["message"],
            "launches": [launch["kernel"] for launch in result.get("launches", [])],
            "elsewhere": result.get("elsewhere", {}),
        }
    return out


def copied(study: Study, name: str, baselines: Path | None = None) -> Path:
    """The suite in a folder of its own, with baselines if they are given."""
    folder = study.scratch / name
    shutil.copytree(SUITE, folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    if baselines is not None:
        shutil.copytree(baselines, folder / "baselines", dirs_exist_ok=True)
    return folder


def verdicts(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: case["verdict"] for name, case in found.items()}


def step(study: Study, name: str, folder: Path, caches: str, cases: Sequence[str]) -> None:
    """A step's results, those that are known already kept; written after each process."""
    found = study.result.setdefault(name, {"verdicts": {}, "seconds": 0.0, "unlike": {}})
    todo = [case for case in cases if case not in found["verdicts"]]
    size = AT_ONCE if name == "record" else len(todo)
    for begin in range(0, len(todo), size or 1):
        add(study, name, *study.run(folder, caches, only=todo[begin : begin + size]))
        study.write()
    print(name, found["seconds"], "s", sorted(set(found["verdicts"].values())), flush=True)


AT_ONCE = 7
"""Functions that one process records: what a process was killed in is lost."""


def add(study: Study, name: str, results: dict[str, dict[str, Any]], seconds: float) -> None:
    """Add a process's results to a step's."""
    found, wanted = study.result[name], "NEW" if name == "record" else "PASS"
    found["seconds"] = round(found["seconds"] + seconds, 1)
    found["verdicts"].update(verdicts(results))
    found["unlike"].update({n: c["message"] for n, c in results.items() if c["verdict"] != wanted})
    if name == "record":
        study.result.setdefault("launches", {}).update({n: c["launches"] for n, c in results.items()})
        elsewhere = {n: c["elsewhere"] for n, c in results.items() if c["elsewhere"]}
        study.result.setdefault("no_triton_launch", {}).update(elsewhere)


def rounds(table: dict[str, str]) -> list[list[str]]:
    """The edits in groups of which none changes a function twice: a group is one process."""
    out: list[list[str]] = []
    for edit, case in table.items():
        free = next((group for group in out if case not in {table[e] for e in group}), None)
        if free is None:
            out.append([edit])
        else:
            free.append(edit)
    return out


def edited(study: Study, kind: str, table: dict[str, str], baselines: Path) -> None:
    """Each edit of a kind, on the functions that they change alone."""
    rows = study.result.setdefault(kind, {})
    for number, group in enumerate(rounds({edit: case for edit, case in table.items() if edit not in rows})):
        folder = copied(study, f"{kind}{number}", baselines)
        found, seconds = study.run(folder, "caches", group, [table[edit] for edit in group])
        for edit in group:
            row = found.get(table[edit], {"verdict": "none", "message": "", "launches": []})
            named = any(kernel in row["message"] for kernel in row["launches"])
            rows[edit] = {"case": table[edit], "verdict": row["verdict"], "message": row["message"]}
            rows[edit]["found"] = row["verdict"] == "REGRESSED" and named
        study.result.setdefault("seconds", {})[f"{kind} {number}"] = round(seconds, 1)
        print(kind, {edit: rows[edit]["verdict"] for edit in group}, flush=True)
        study.write()
        shutil.rmtree(folder)


def edit_tables(study: Study) -> dict[str, dict[str, str]]:
    """The edits' cases by kind, asked of the suite in a process without kerntune."""
    ask = "import json; from callables import *; print(json.dumps({'planted': {k: v[0] for k, v in PLANTED.items()}, "
    ask += "'harmless': {k: v[0] for k, v in HARMLESS.items()}, 'timed': {k: k for k in TIMED}, "
    ask += "'cases': {k: k for k in CASES}}))"
    done = subprocess.run([sys.executable, "-c", ask], cwd=SUITE, capture_output=True, text=True, check=True)
    tables: dict[str, dict[str, str]] = json.loads(done.stdout)
    return tables


def summary(study: Study, timed: set[str]) -> dict[str, Any]:
    """The figures of the study's claims."""
    result = study.result
    gated = [n for n in result["record"]["verdicts"] if study.target is None or n not in timed]
    planted = result.get("planted", {})
    return {
        "functions": len(gated),
        "recorded": sum(result["record"]["verdicts"].get(n) == "NEW" for n in gated),
        "again_pass": sum(result.get("again", {"verdicts": {}})["verdicts"].get(n) == "PASS" for n in gated),
        "elsewhere_pass": sum(result.get("elsewhere", {"verdicts": {}})["verdicts"].get(n) == "PASS" for n in gated),
        "refused_by_name": sorted(n for n in timed if result["record"]["verdicts"].get(n) == "INCOMPLETE"),
        "planted_found": f"{sum(x['found'] for x in planted.values())} of {len(planted)}",
        "planted_spills_and_fusions_found": sum(planted[x]["found"] for x in STATIC_PLANTED if x in planted),
        "harmless_pass": sum(x["verdict"] == "PASS" for x in result.get("harmless", {}).values()),
        "harmless": len(result.get("harmless", {})),
    }


def profiled(study: Study) -> None:
    """On a GPU: the share of Triton launches, by the profiler, that the gate has captured. Inductor reads the gate's
    cache, so that it makes the same choices among templates."""
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(study.scratch / "caches" / "kerntune" / "inductor")}
    command = [sys.executable, "-c", PROFILED]
    done = subprocess.run(command, cwd=SUITE, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        study.result["profiled"] = {"error": done.stderr[-2000:]}
        return
    seen = json.loads(done.stdout)
    captured = {name: len(launches) for name, launches in study.result["launches"].items()}
    both = [(min(captured.get(name, 0), count), count) for name, count in seen.items()]
    share = sum(a for a, _ in both) / max(1, sum(b for _, b in both))
    study.result["profiled"] = {"launches": seen, "captured": captured, "share": round(share, 4)}


def environment(target: str | None) -> dict[str, Any]:
    import torch
    import triton

    device = torch.cuda.get_device_name() if target is None and torch.cuda.is_available() else None
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cores": os.cpu_count(),
        "device": device,
        "target": target,
        "date": time.strftime("%Y-%m-%d"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--target", default="cuda:90")
    parser.add_argument("--only", default="", help="a word that planted and harmless edits must have in their names")
    parser.add_argument("--scratch", type=Path, help="a folder that stays, for baselines and caches")
    parser.add_argument("--resume", action="store_true", help="go on in --scratch with what OUT hasn't yet")
    args = parser.parse_args()
    if args.resume and (args.scratch is None or not args.scratch.is_dir()):
        parser.error("--resume goes on in the folder of an earlier run: give its --scratch")
    target = None if args.gpu else args.target
    with tempfile.TemporaryDirectory(prefix="kerntune-compiled-") as temporary:
        scratch = (args.scratch or Path(temporary)).resolve()
        if not args.resume and args.scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True, exist_ok=True)
        known = json.loads(args.out.read_text()) if args.resume and args.out.exists() else {}
        known["environment"] = environment(target)
        measure(Study(args.out.resolve(), scratch, target, known), args.only)


def measure(study: Study, only: str) -> None:
    """All steps, or those that aren't known yet."""
    tables = edit_tables(study)
    cases = list(tables["cases"])
    folder = copied(study, "suite")
    for name in ("record", "again"):
        step(study, name, folder, "caches", cases)
    for kind in ("planted", "harmless"):
        edited(study, kind, {e: c for e, c in tables[kind].items() if only in e}, folder / "baselines")
    if study.target is None and "share" not in study.result.get("profiled", {}):
        profiled(study)
    step(study, "elsewhere", copied(study, "other", folder / "baselines"), "empty", cases)
    study.result["summary"] = summary(study, set(tables["timed"]))
    study.write()
    print(json.dumps(study.result["summary"], indent=1))


if __name__ == "__main__":
    main()
