"""Candidates that fault, hang or write outside of their tensors; what it costs to launch all elsewhere first.

    python benchmarks/quarantine.py OUT.json [--parts cost,faults,gate,writes,contents] [--seconds 90] [--scripted]

Needs one GPU (``--scripted``: none; what kernels do is scripted then, and times mean nothing). Parts:

cost      cold tuning of the 48-config matrix product and of a small kernel with first launches in another process and
          in the tuning one, in fresh processes with empty caches, in turn: seconds of the first call
start     how long a process takes to start, what its context takes on the device, how bytes travel, what one first
          launch takes, and how long it takes to get rid of a spinning process and until the device is free
faults    three of each kind of fault among 30 good configs, through ``kerntune.autotune``
gate      one of each kind among 30 good ones through ``pytest --kerntune``, and a test after that
writes    20 configs that write 4 B to 64 KiB outside of their tensor: which are named, whether neighbours are intact
contents  20 calls whose contents decide addresses: whether a good config fails

``cost`` runs first and alone, the others together (each with a device lock of its own). What is there when time is up
is in OUT.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

TOGETHER = ("start", "contents", "writes", "gate", "faults")
REPEATS = 3
COSTS = (("matmul", {"M": 4096, "N": 4096, "K": 4096}), ("softmax", None))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", default="cost," + ",".join(TOGETHER))
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--scripted", action="store_true")
    parser.add_argument("--child", default="")
    return parser.parse_args()


# cost


def cost(out: Path, deadline: float) -> None:
    from benchmarks.suite.cases import CASES
    from benchmarks.suite.children import Child
    from benchmarks.suite.results import merge

    rows: list[dict[str, Any]] = []
    jobs: list[tuple[str, dict[str, int], str]] = []
    for repeat in range(REPEATS):
        for name, shape in COSTS[: 1 + (repeat < 2)]:
            modes = ("off", "auto") if repeat % 2 == 0 else ("auto", "off")
            jobs += [(name, shape or dict(CASES[name].shapes[0]), mode) for mode in modes]
    jobs.sort(key=lambda job: job[0] != "matmul")
    children = []
    for name, shape, mode in jobs:
        os.environ["KERNTUNE_ISOLATE"] = mode
        children.append((name, mode, Child({"case": name, "shape": shape, "engine": "kerntune"})))
    try:
        for _, _, one in children:
            one.begin()
        for _, _, one in children:
            one.prepare()
        for name, mode, one in children:
            if time.monotonic() > deadline:
                break
            row = one.tune()
            known = {k: row.get(k) for k in ("seconds", "winner", "configs", "all_tried", "error")}
            rows.append({"case": name, "isolate": mode, **known})
            merge(out, cost=rows, cost_summary=summary(rows))
    finally:
        with ThreadPoolExecutor(len(children)) as pool:
            list(pool.map(lambda child: child[2].close(), children))


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians by case, and how much longer it took with first launches elsewhere."""
    found: dict[str, Any] = {}
    for name in {row["case"] for row in rows}:
        times = {
            m: [r["seconds"] for r in rows if (r["case"], r["isolate"]) == (name, m) and r["seconds"]]
            for m in ("off", "auto")
        }
        medians = {m: statistics.median(t) for m, t in times.items() if t}
        ratio = medians["auto"] / medians["off"] - 1 if len(medians) == 2 else None
        found[name] = {**{f"{m}_s": v for m, v in medians.items()}, "slower": ratio}
    return found


# the other parts, in processes of their own


def together(parts: list[str], options: argparse.Namespace, deadline: float) -> None:
    from benchmarks.suite.results import merge

    with tempfile.TemporaryDirectory(prefix="kerntune-quarantine-") as scratch:
        running = {}
        for part in parts:
            folder = Path(scratch) / part
            folder.mkdir()
            env = {
                **os.environ,
                "TMPDIR": str(folder),
                "TRITON_CACHE_DIR": str(folder / "triton"),
                "KERNTUNE_CACHE_DIR": str(folder / "kerntune"),
            }
            env.pop("KERNTUNE_ISOLATE", None)
            words = [sys.executable, __file__, str(folder / "out.json"), "--child", part]
            words += ["--scripted"] if options.scripted else []
            log = open(folder / "log", "w")  # noqa: SIM115 - the process's
            running[part] = (
                subprocess.Popen(words, env=env, stdout=log, stderr=log, start_new_session=True, cwd=ROOT),
                folder,
            )
        while running:
            time.sleep(0.25)
            late = time.monotonic() > deadline
            for part, (process, folder) in list(running.items()):
                if process.poll() is None and not late:
                    continue
                if late:
                    end(process)
                found = json.loads((folder / "out.json").read_text()) if (folder / "out.json").exists() else {}
                if process.returncode != 0:
                    found["ended"] = {
                        "code": process.returncode,
                        "late": late,
                        "log": (folder / "log").read_text()[-3000:],
                    }
                merge(options.out, **{part: found})
                del running[part]


def end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Notes:
    """What a part has found so far, in its file."""

    def __init__(self, path: Path) -> None:
        self._path, self._found = path, dict[str, Any]()
        self._begin = time.monotonic()

    def put(self, **values: Any) -> None:
        self._found |= {**values, "seconds": round(time.monotonic() - self._begin, 2)}
        text = json.dumps(self._found, default=str)
        self._path.write_text(text.replace(f"{ROOT}/", ""))  # where the checkout lies says nothing


def scripted_backend() -> Any:
    """A GPU on which what the kernels are meant to do is scripted."""
    from benchmarks import quarantine_kernels as kernels
    from kerntune.gpu import scripted
    from kerntune.gpu.scripted import FakeBackend, Rule, Script

    faults = {
        kernels.ILLEGAL: scripted.ILLEGAL_ADDRESS, kernels.MISALIGNED: scripted.MISALIGNED_ADDRESS,
        kernels.ENDLESS: scripted.HANG, kernels.ASSERTS: scripted.ASSERT, kernels.TRAPS: scripted.TRAP,
        kernels.LOCAL: scripted.OUT_OF_MEMORY,
    }  # fmt: skip
    rules = [Rule("faulty_kernel", {"FAULT": kind}, fault=fault) for kind, fault in faults.items()]
    for first, count in kernels.plants():
        beside = (4 * (first - kernels.PLANTED) if first > 0 else 4 * first, 4 * count)
        rules.append(Rule("planted_kernel", {"FIRST": first, "COUNT": count}, beside=beside))
    return FakeBackend(Script(rules, isolated=True))


@contextlib.contextmanager
def scripted_library() -> Iterator[None]:
    """The library tunes on such a GPU."""
    from kerntune.tuning import context

    backend = scripted_backend()
    with backend.activate():
        context.this_gpu = lambda: backend
        yield


def trials() -> list[Any]:
    """What the cache has of all trials."""
    from kerntune.tuning.cache import TrialCache

    return TrialCache().entries()


def works() -> bool:
    """Whether the device of this process still does."""
    import torch

    one = torch.ones(1 << 16, device="cuda")
    return SCRIPTED or bool((one + one).sum().item() == 1 << 17)


SCRIPTED = False


def start(notes: Notes) -> None:
    import torch

    from kerntune.tuning import context
    from kerntune.tuning.isolation import Isolation

    torch.zeros(1, device="cuda")
    backend = context.this_gpu()
    starts = []
    for _ in range(3):
        free, isolation, begin = backend.gpu.free_bytes(), Isolation(backend.gpu), time.monotonic()
        isolation.process()
        starts.append(round(time.monotonic() - begin, 3))
        notes.put(start_s=starts, context_bytes=free - backend.gpu.free_bytes())
        isolation.close()


def faults(notes: Notes) -> None:
    tune_faulty(notes, 3)


def tune_faulty(notes: Notes, each: int) -> None:
    import torch

    import kerntune
    from benchmarks import quarantine_kernels as kernels
    from kerntune.tuning import isolation as isolation_module

    kills: list[float] = []
    held = torch.empty(kernels.HELD_BYTES, dtype=torch.uint8, device="cuda")
    real = isolation_module.Isolation.drop

    def drop(self: Any, late: bool = False) -> None:
        real(self, late)
        if late:
            kills.append(round(self.killed_s[-1], 3))

    isolation_module.Isolation.drop = drop  # type: ignore[method-assign]
    configs = kernels.faulty_configs(each)
    tuner, grid, args = kernels.faulty_call(configs, kerntune.autotune)
    begin = time.monotonic()
    tuner[grid](*args)
    seconds = time.monotonic() - begin
    notes.put(winner=str(tuner.best_config), tuning_s=round(seconds, 2), works=works(), killed_in_s=kills)
    named = [t for t in trials() if t.failure]
    rows = [
        {
            "kind": kernels.KINDS.get(int(t.config.kwargs["FAULT"]), "good"),
            "config": str(t.config),
            "reason": t.failure[:200],
        }
        for t in named
    ]
    failed = {str(c) for c, ms in tuner.configs_timings.items() if ms[0] == float("inf")}
    bad = {str(c) for c in configs if c.kwargs["FAULT"]}
    right = tuner.best_config.kwargs["FAULT"] == 0
    good = bool(SCRIPTED or (args[1] == args[0] * 2).all().item())
    del held
    notes.put(
        good=30,
        bad=len(bad),
        bad_failed=len(failed & bad),
        good_failed=sorted(failed - bad),
        winner_is_good=right,
        result_is_right=good,
        remembered=rows,
    )


GATE_TEST = """
import pytest, torch, triton
from benchmarks import quarantine_kernels as kernels

CONFIGS = kernels.faulty_configs(1)

def test_faulty(autotune):
    held = torch.empty(kernels.HELD_BYTES, dtype=torch.uint8, device="cuda")
    tuner, grid, args = kernels.faulty_call(CONFIGS, triton.autotune)
    autotune(lambda: tuner[grid](*args))
    assert {scripted} or torch.equal(args[1], args[0] * 2)

def test_later(autotune):
    configs = [c for c in CONFIGS if not c.kwargs["FAULT"]][:6]
    tuner, grid, args = kernels.faulty_call(configs, triton.autotune, 1 << 20)
    autotune(lambda: tuner[grid](*args))
    assert {scripted} or torch.equal(args[1], args[0] * 2)
"""

GATE_CONFTEST = """
def pytest_kerntune_backend(config):
    from benchmarks import quarantine
    return quarantine.scripted_backend()
"""


def gate(notes: Notes) -> None:
    from benchmarks import quarantine_kernels as kernels

    folder = Path(tempfile.mkdtemp())
    (folder / "test_gate.py").write_text(GATE_TEST.format(scripted=SCRIPTED))
    if SCRIPTED:
        (folder / "conftest.py").write_text(GATE_CONFTEST)
    plugin = ["-p", "pytest_kerntune.plugin"] if os.environ.get("KERNTUNE_NO_ENTRY_POINT") else []
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        *plugin,
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
        "--kerntune",
        f"--kerntune-json={folder}/run.json",
        str(folder),
    ]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), "CI": ""}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    notes.put(exit_code=done.returncode, output=done.stdout[-1500:])
    run = json.loads((folder / "run.json").read_text())
    rows = []
    for case in run["results"]:
        failed = case.get("failed_trials", [])
        reasons = [
            {"kind": kernels.KINDS.get(int(f["config"]["kwargs"]["FAULT"]), "good"), "reason": f["reason"][:200]}
            for f in failed
        ]
        rows.append(
            {
                "case": case["case"],
                "verdict": case["verdict"],
                "tuning_s": case.get("tuning_seconds"),
                "failed": reasons,
            }
        )
    notes.put(cases=rows)


def writes(notes: Notes) -> None:
    import torch
    import triton

    import kerntune
    from benchmarks import quarantine_kernels as kernels

    neighbours = [torch.full((1 << 16,), 7.0, device="cuda") for _ in range(4)]
    x = torch.randn(kernels.PLANTED, device="cuda")
    planted, rows = kernels.plants(), []
    for k in range(0, len(planted), 4):
        y = torch.empty_like(x)
        neighbours.append(torch.full((1 << 16,), 7.0, device="cuda"))
        few = planted[k : k + 4]
        good = [triton.Config({"FIRST": 0, "COUNT": 0, "BLOCK": b}, num_warps=4) for b in (256, 512, 1024, 2048, 4096)]
        bad = [triton.Config({"FIRST": first, "COUNT": count, "BLOCK": 1024}, num_warps=4) for first, count in few]
        tuner = kerntune.autotune([*good[:2], *bad, *good[2:]], key=["n"])(kernels.planted_kernel)
        tuner[lambda meta: (triton.cdiv(kernels.PLANTED, meta["BLOCK"]),)](x, y, kernels.PLANTED)
        failed = {
            (c.kwargs["FIRST"], c.kwargs["COUNT"]): c
            for c, ms in tuner.configs_timings.items()
            if ms[0] == float("inf")
        }
        reasons = {(t.config.kwargs["FIRST"], t.config.kwargs["COUNT"]): t.failure for t in trials() if t.failure}
        for one in few:
            first, count = one
            rows.append(
                {"first": first, "bytes": 4 * count, "failed": one in failed, "reason": reasons.get(one, "")[:200]}
            )
        right = bool(SCRIPTED or torch.equal(y, x * 2))
        intact = all(bool(SCRIPTED or (n == 7.0).all().item()) for n in neighbours)
        notes.put(
            named=sum("wrote outside" in r["reason"] for r in rows),
            of=len(rows),
            neighbours_intact=intact,
            result_is_right=right,
            rows=rows,
        )


def contents(notes: Notes) -> None:
    import kerntune
    from benchmarks import quarantine_kernels as kernels

    rows = []
    for name, kernel, grid, args, configs in kernels.content_cases():
        tuner = kerntune.autotune(configs, key=[])(kernel)
        begin = time.monotonic()
        tuner[grid](*args)
        failed = [str(c) for c, ms in tuner.configs_timings.items() if ms[0] == float("inf")]
        rows.append(
            {"case": name, "configs": len(configs), "failed": failed, "seconds": round(time.monotonic() - begin, 2)}
        )
        notes.put(cases=len(rows), with_failures=sum(bool(r["failed"]) for r in rows), rows=rows, works=works())
    notes.put(reasons=[t.failure[:300] for t in trials() if t.failure])


def main() -> None:
    options = arguments()
    begin = time.monotonic()
    if options.child:
        global SCRIPTED
        SCRIPTED = options.scripted
        parts_of = {"start": start, "faults": faults, "gate": gate, "writes": writes, "contents": contents}
        with scripted_library() if SCRIPTED and options.child != "gate" else contextlib.nullcontext():
            parts_of[options.child](Notes(options.out))
        return
    from benchmarks.suite.results import environment, merge

    parts = options.parts.split(",")
    merge(options.out, environment=environment() | {"scripted": options.scripted})
    if "cost" in parts:
        cost(options.out, begin + options.seconds * 0.5)
        merge(options.out, cost_part_s=round(time.monotonic() - begin, 1))
    together([part for part in TOGETHER if part in parts], options, begin + options.seconds)
    merge(options.out, seconds=round(time.monotonic() - begin, 1))


if __name__ == "__main__":
    main()
