"""Edits that change results, and edits that don't, through ``pytest --kerntune``: which are named, and what it costs.

    python benchmarks/numerics.py OUT.json [--seconds 185] [--scripted | --static] [--only NAME,...]

A project with a test for each edit of ``benchmarks/numerics_edits.py`` is run twice: before all edits, which records
baselines, and after them. What is said of results is held against an oracle: torch, which has the outputs of both
versions in the second run's process, compares them by itself. That run gates ``bitwise``. In it each paired decision is
taken twice while there is time, with the comparison of results and without, in turn: the seconds of both are the cost.

Needs a GPU. ``--scripted``: none; which bits change is scripted, and times mean nothing. ``--static``: none; kernels
are compiled for cuda:90 and nothing runs. OUT.json is written after each run. A run that is late skips the tests that
are left, so that it still reports the others; ``output`` has the end of what each run printed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from numerics_edits import CHANGES, KEPT, VARYING, Edit  # noqa: E402 - by the path above
from plugin_options import plugin_options  # noqa: E402 - by the path above

GROUPS = {"changes": CHANGES, "kept": KEPT, "varying": VARYING}
FLIPPED = ((0, 1), (64, 2))
"""Of scripted changes: two elements of every format up to eight bytes."""

CONFTEST = '''
import json, os, time
import msgspec
import pytest
from kerntune.gate.baseline_builder import BaselineBuilder
from kerntune.gate.comparison import Comparer

real, rows = Comparer.against, []
BaselineBuilder._calibration = lambda *given: None  # four replays of each case, which are not asked for here
Comparer.attribution = lambda *given: None  # neither are replays that look for the cause of another time


def against(self, baseline, stored, sample, policy, results=False):
    """Both ways, in turn."""
    if not (results and os.environ.get("NUMERICS_COST")):
        return real(self, baseline, stored, sample, policy, results)
    found, seconds = {}, {}
    both = (False, True) if len(rows) % 2 == 0 else (True, False)
    for with_results in both if time.time() < float(os.environ["NUMERICS_ONCE_FROM"]) else (True,):
        begin = time.perf_counter()
        found[with_results] = real(self, baseline, stored, sample, policy, with_results)
        seconds["with" if with_results else "without"] = time.perf_counter() - begin
    numerics = msgspec.to_builtins(found[True].numerics)
    rows.append({"case": str(self.case.id), "rung": found[True].used.rung, "numerics": numerics, **seconds})
    with open(os.environ["NUMERICS_COST"] + ".new", "w") as file:
        json.dump(rows, file)
    os.replace(file.name, os.environ["NUMERICS_COST"])
    return found[True]


Comparer.against = against
'''

SCRIPTED = """

def pytest_kerntune_backend(config):
    from kerntune.gpu.scripted import FakeBackend, Rule, Script

    side, rules = os.environ["NUMERICS_SIDE"], json.loads(os.environ["NUMERICS_FLIPPED"])
    flips = tuple(tuple(x) for x in rules["flips"]) if side == "after" else ()
    return FakeBackend(Script([Rule(kernel=f"{name}_after", flips=flips) for name in rules["names"]]))
"""

TESTS = '''
import importlib, json, os, time
import pytest
import torch

NAMES, SIDE = os.environ["NUMERICS_NAMES"].split(), os.environ["NUMERICS_SIDE"]
WIDTHS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@pytest.mark.parametrize("name", NAMES)
def test_edit(autotune, name):
    if time.time() > float(os.environ["NUMERICS_STOP_AT"]):
        pytest.skip("out of time")
    module = importlib.import_module(f"{SIDE}.{name}")
    given = module.given(autotune.device)
    try:
        autotune(module.launch, *given.values())
    finally:  # a result that is gated may end the test here
        if os.environ.get("NUMERICS_ORACLE"):
            with open(os.environ["NUMERICS_ORACLE"], "a") as file:
                file.write(json.dumps({"name": name, **oracle(name)}) + "\\n")


def oracle(name):
    """What torch says of both versions' outputs, from equal inputs, outputs filled with bytes of 0x7f."""
    outputs = []
    for side in ("before", "after"):
        module = importlib.import_module(f"{side}.{name}")
        given = module.given("cuda")
        out = given[module.OUT]
        if not module.IN_PLACE:
            out.view(torch.uint8).fill_(0x7F)
        module.launch(*given.values())
        torch.cuda.synchronize()
        outputs.append(out.clone())
    return {"output": f"{module.OUT}_ptr", **distance(*outputs, poisoned=not module.IN_PLACE)}


def distance(before, after, poisoned):
    bits = [x.flatten().view(WIDTHS[x.element_size()]).cpu() for x in (before, after)]
    differ = bits[0] != bits[1]
    found = {"count": int(differ.sum()), "total": differ.numel(), "ulp": None, "relative": None}
    if not before.is_floating_point() or not found["count"]:
        return found
    poison = int.from_bytes(b"\\x7f" * before.element_size(), "little")
    numbers = [x.flatten().cpu().double() for x in (before, after)]
    ok = differ & numbers[0].isfinite() & numbers[1].isfinite()
    if poisoned:
        ok &= (bits[0] != poison) & (bits[1] != poison)
    sign = -(1 << (8 * before.element_size() - 1))
    ordinals = [[b if b >= 0 else sign - b for b in x[ok].tolist()] for x in bits]
    a, b = (x[ok] for x in numbers)
    larger = torch.maximum(a.abs(), b.abs())
    relative = torch.where(larger == 0, torch.zeros_like(a), (a - b).abs() / larger)
    found["ulp"] = max((abs(p - q) for p, q in zip(*ordinals)), default=0)
    found["relative"] = float(relative.max()) if relative.numel() else 0.0
    return found
'''


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=185.0)
    parser.add_argument("--scripted", action="store_true")
    parser.add_argument("--static", action="store_true")
    parser.add_argument("--only", default="")
    return parser.parse_args()


class Study:
    """A project in a folder, and what its runs have shown."""

    def __init__(self, folder: Path, options: argparse.Namespace, groups: dict[str, tuple[Edit, ...]]) -> None:
        self.folder, self.options, self.groups = folder, options, groups
        self.names = [edit.name for edits in groups.values() for edit in edits]
        self.deadline = time.monotonic() + options.seconds
        self.failures: dict[str, str] = {}
        self.output: dict[str, str] = {}
        self._write()

    def _write(self) -> None:
        for side in (0, 1):
            package = self.folder / ("before", "after")[side]
            package.mkdir()
            (package / "__init__.py").touch()
            for edit in (e for edits in self.groups.values() for e in edits):
                text = edit.sources[side]
                if side and self.options.scripted:  # a script tells kernels by their names
                    text = text.replace(f"{edit.name}_kernel", f"{edit.name}_after")
                (package / f"{edit.name}.py").write_text(text)
        (self.folder / "conftest.py").write_text(CONFTEST + (SCRIPTED if self.options.scripted else ""))
        (self.folder / "test_edits.py").write_text(TESTS)
        (self.folder / "pytest.ini").write_text("[pytest]\n")

    def run(self, name: str, side: str, share: float, *words: str, **env: str) -> dict[str, Any]:
        """One run of pytest, in this share of the time that is left; its cases by edit, and its seconds."""
        target = ("--kerntune-target=cuda:90",) if self.options.static else ()
        out, begin = self.folder / f"{name}.json", time.monotonic()
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin_options(), "--kerntune"]
        limit = max((self.deadline - begin) * share, 1.0)
        try:
            done = subprocess.run(
                [*command, *target, *words, f"--kerntune-json={out}"], cwd=self.folder, text=True, timeout=limit,
                env={**self._environment(side, limit), **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            self.output[name] = done.stdout[-3000:]
            if done.returncode > 1 or not out.exists():
                self.failures[name] = done.stdout[-6000:]
        except subprocess.TimeoutExpired as exc:
            self.failures[name] = f"out of time: {(exc.stdout or b'')[-3000:]!r}"
        cases = json.loads(out.read_text())["results"] if out.exists() else []
        known = {edit_of(c["case"]["nodeid"]): c for c in cases}
        if name == "after" and not cases:  # it was ended: what it had noted by then
            known = {edit_of(row["case"]): row for row in decisions(self.folder / "cost")}
        return {"seconds": time.monotonic() - begin, "cases": known}

    def _environment(self, side: str, limit: float) -> dict[str, str]:
        """Of a run that ends by itself within ``limit`` seconds: the last test and the report need some of them."""
        paths = [str(self.folder), str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        scripted = {"flips": FLIPPED, "names": [e.name for e in self.groups.get("changes", ())]}
        last = time.time() + limit - min(LAST_SECONDS, limit / 4)
        return {
            **os.environ, "PYTHONPATH": os.pathsep.join(paths), "CI": "", "PYTEST_ADDOPTS": "",
            "TRITON_CACHE_DIR": str(self.folder / "triton"), "KERNTUNE_CACHE_DIR": str(self.folder / "kerntune"),
            "NUMERICS_SIDE": side, "NUMERICS_NAMES": " ".join(self.names), "NUMERICS_FLIPPED": json.dumps(scripted),
            "NUMERICS_STOP_AT": str(last), "NUMERICS_ONCE_FROM": str(last - limit / 4),
        }  # fmt: skip


LAST_SECONDS = 12.0
"""What is left of a run's time when its last test begins: that one's, and the report's."""


def edit_of(nodeid: str) -> str:
    """``mask_dropped`` of ``test_edits.py::test_edit[mask_dropped]``."""
    return nodeid.partition("[")[2].partition("]")[0]


def decisions(path: Path) -> list[dict[str, Any]]:
    """What a run has noted of its decisions so far."""
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def main() -> int:
    options = arguments()
    only = set(filter(None, options.only.split(",")))
    groups = {g: tuple(e for e in edits if not only or e.name in only) for g, edits in GROUPS.items()}
    found: dict[str, Any] = {"command": " ".join(sys.argv[1:]), "environment": environment(options), "seconds": {}}
    with tempfile.TemporaryDirectory(prefix="kerntune-numerics-", ignore_cleanup_errors=True) as scratch:
        study, folder = Study(Path(scratch), options, groups), Path(scratch)
        real = not (options.scripted or options.static)
        shown = {"NUMERICS_ORACLE": str(folder / "oracle")} if real else {}
        for name, share, words, env in (
            ("before", 0.5, ["--kerntune-update=new"], {}),
            ("after", 1.0, ["-o", "kerntune_numerics=bitwise"], {"NUMERICS_COST": str(folder / "cost"), **shown}),
        ):
            done = study.run(name, name, share, *words, **env)
            found["seconds"][name], found["failures"] = round(done["seconds"], 1), study.failures
            found["output"] = study.output
            if name == "before":
                study.names = [n for n in study.names if n in done["cases"]] or study.names
            else:
                found["rows"] = rows(study, done["cases"], oracle_of(folder / "oracle", study))
                found["cost"] = cost(folder / "cost")
                found["gated"] = {e: c["verdict"] for e, c in done["cases"].items() if "verdict" in c}
            found["summary"] = summary(found, groups)
            options.out.write_text(json.dumps(found, indent=1) + "\n")
            print(name, json.dumps(found["summary"]), flush=True)
    return 1 if study.failures else 0


def environment(options: argparse.Namespace) -> dict[str, Any]:
    import torch
    import triton

    device = "scripted" if options.scripted else "none" if options.static else torch.cuda.get_device_name()
    return {"device": device, "torch": torch.__version__, "triton": triton.__version__, "date": time.strftime("%F")}


def oracle_of(path: Path, study: Study) -> dict[str, dict[str, Any]]:
    """By edit; of scripted changes what the script says."""
    if study.options.scripted:
        changed = {e.name for e in study.groups.get("changes", ())}
        return {name: {"count": 2 if name in changed else 0} for name in study.names}
    lines = path.read_text().splitlines() if path.exists() else []
    return {row["name"]: row for row in map(json.loads, lines)}


def rows(study: Study, cases: dict[str, Any], oracle: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """For each edit what was said, and whether the oracle says the same."""
    out = []
    for group, edits in study.groups.items():
        for edit in edits:
            case, true = cases.get(edit.name, {}), oracle.get(edit.name, {})
            report = case.get("numerics") or {}
            said = [o for o in report.get("outputs", ()) if o.get("count")]
            own = [o for o in said if o.get("content", OWN) == OWN]
            out.append({
                "name": edit.name, "group": group, "verdict": case.get("verdict"), "rung": case.get("rung"),
                "oracle": true, "said": said, "not_compared": report.get("not_compared"),
                "unsure": report.get("unsure"), "right": right(own, true) if true else None, "named": bool(said),
                "message": case.get("message", "")[:600],
            })  # fmt: skip
    return out


OWN = "the call's own content"


def right(own: list[dict[str, Any]], true: dict[str, Any]) -> bool:
    """Whether exactly the output that changed is named, with the oracle's size."""
    if not true.get("count"):
        return not own
    if len(own) != 1:
        return False
    (said,) = own
    near = true.get("relative") is None or abs(said.get("relative", 0.0) - true["relative"]) <= 1e-9
    return (
        all(said.get(k) == true[k] for k in ("count", "ulp") if true.get(k) is not None)
        and near
        and ("output" not in true or said["argument"] == true["output"])
    )


def cost(path: Path) -> dict[str, Any]:
    """Seconds of the decisions; the first one also starts the measuring processes."""
    known = [r for r in decisions(path) if r["rung"] == "paired replay" and "without" in r]
    found = [{k: v for k, v in r.items() if k != "numerics"} for r in known]
    ratios = [r["with"] / r["without"] - 1 for r in found[2:]]
    more = [r["with"] - r["without"] for r in found[2:]]
    if not ratios:
        return {"decisions": found}
    return {
        "median_share": statistics.median(ratios), "median_more_s": statistics.median(more),
        "share_of_medians": statistics.median(r["with"] for r in found[2:])
        / statistics.median(r["without"] for r in found[2:]) - 1,
        "share_of_sums": sum(more) / sum(r["without"] for r in found[2:]), "decisions": found,
    }  # fmt: skip


def summary(found: dict[str, Any], groups: dict[str, tuple[Edit, ...]]) -> dict[str, Any]:
    every = found.get("rows", [])
    of = {group: [r for r in every if r["group"] == group] for group in groups}
    planted = [r for r in of["changes"] if (r["oracle"] or {}).get("count")]
    gated = found.get("gated", {})
    return {
        "edits": {group: len(r) for group, r in of.items()},
        "planted": len(planted), "named": sum(r["named"] for r in planted),
        "right": sum(bool(r["right"]) for r in planted),
        "kept_by_oracle": sum(r["oracle"].get("count") == 0 for r in of["kept"]),
        "kept_named": [r["name"] for r in of["kept"] if r["named"]],
        "bitwise_fails": [sum(gated.get(r["name"]) == "REGRESSED" for r in planted), len(planted)] if gated else None,
        "bitwise_fails_kept": [r["name"] for r in of["kept"] if gated.get(r["name"]) == "REGRESSED"],
        "varying_gated": [r["name"] for r in of["varying"] if gated.get(r["name"]) == "REGRESSED"],
        "cost": {k: v for k, v in (found.get("cost") or {}).items() if k != "decisions"},
    }  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
