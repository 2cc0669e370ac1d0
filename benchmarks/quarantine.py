"""Candidates that fault, hang or write outside of their tensors; what it costs to launch all elsewhere first.

    python benchmarks/quarantine.py OUT.json [--parts cost,faults,...] [--seconds 1500] [--scripted] [--gpus 2]

One command for every row that needs a GPU. Needs one GPU (``--scripted``: none; what kernels do is scripted then, and
times mean nothing; ``cost`` is left out without ``--variants``). Parts, in this order, each with a time limit of its
own (``LIMITS_S``):

cost      cold tuning of the 48-config matrix product and of five more kernels with first launches in another process
          and in the tuning one, in fresh processes with empty caches, in turn: seconds of the first call, and of each
          of its steps (``phases``); printed as a table of both modes' steps as each kernel is done. With
          ``--variants`` (see :mod:`benchmarks.quarantine_child`; without names: eight, of three kernels each, as
          often as 240 s allow) ways to start the other process, held against each other, also with ``--scripted``
looks     what a first launch takes of another process, step by step: its code, run in this one
faults    three of each kind of fault among 30 good configs, through ``kerntune.autotune``; how long it takes to get rid
          of each spinning process, and until the device has its memory back
gate      the same through ``pytest --kerntune``, and a test after that
contents  20 calls whose contents decide addresses: whether a good config fails
writes    20 configs that write 4 B to 64 KiB outside of their tensor: which are named, whether neighbours are intact
outside   the same 20 as launches without candidates, through ``pytest --kerntune``
examples  ``pytest examples --kerntune`` from nothing: whether anything is found outside of a tensor
start     how long a process takes to start, what its context takes on the device
kills     20 runs of ``pytest --kerntune`` that are killed at random moments from the first test on, every other one
          while it refreshes baselines: what is left, on the device too, and how many trials are lost
interrupts  12 such runs that get SIGINT (Ctrl-C): how soon they end, what is left. Both parts run on all ``--gpus``,
          two runs at once on each, which wait for each other as two jobs do
foreign   how often the clock's watch finds other work on an idle device, and beside a process that is busy for all, a
          tenth and a hundredth of the time; what a watch costs

What is there when time is up is in OUT.json, which is written as parts go.
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
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

LIMITS_S = {
    "cost": 420.0, "looks": 40.0, "faults": 150.0, "gate": 180.0, "contents": 90.0, "writes": 90.0, "outside": 120.0,
    "examples": 300.0, "start": 40.0, "kills": 115.0, "interrupts": 85.0, "foreign": 60.0,
}  # fmt: skip
"""Parts in their order."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", default=",".join(LIMITS_S))
    parser.add_argument("--seconds", type=float, default=1500.0)
    parser.add_argument("--factor", type=float, default=1.0, help="of each part's limit, for a slow machine")
    parser.add_argument("--scripted", action="store_true")
    parser.add_argument("--gpus", type=int, default=1, help="for kills and interrupts")
    parser.add_argument("--cases", default="", help="of cost; all by default, or those of --variants")
    parser.add_argument("--repeats", type=int, default=0, help="of each case of cost, for each mode or variant")
    parser.add_argument(
        "--variants", nargs="?", const="default", default="", help="cost holds these ways to start against each other"
    )
    parser.add_argument("--child", default="")
    parser.add_argument("--lane", type=int, nargs=2, default=(0, 1), metavar=("NUMBER", "OF"))
    return parser.parse_args()


# the other parts, each in a process of its own


LANES = 2
"""Processes that end runs at once on each GPU: while one imports, another one tunes."""


def run_part(part: str, options: argparse.Namespace, deadline: float) -> None:
    """A part with caches of its own, until it ends or its time is up; what it has noted is in the file at any time."""
    from benchmarks.suite.results import merge

    count = LANES * options.gpus if part in ("kills", "interrupts") else 1
    with tempfile.TemporaryDirectory(prefix="kerntune-quarantine-", ignore_cleanup_errors=True) as scratch:
        lanes = [Lane(part, Path(scratch) / str(k), k, count, options) for k in range(count)]
        while True:
            time.sleep(0.5)
            late = time.monotonic() > deadline
            found = [lane.found(late) for lane in lanes]
            merge(options.out, **{part: found[0] if count == 1 else together(found)})
            if late or all(lane.process.poll() is not None for lane in lanes):
                return


class Lane:
    """One process of a part, with a folder of its own, on one of the GPUs."""

    def __init__(self, part: str, folder: Path, number: int, count: int, options: argparse.Namespace) -> None:
        self.folder = folder
        (folder / "tmp").mkdir(parents=True)
        caches = {"TRITON_CACHE_DIR": str(folder / "triton"), "KERNTUNE_CACHE_DIR": str(folder / "kerntune")}
        env = {**os.environ, "TMPDIR": str(folder / "tmp"), **caches}
        env.pop("KERNTUNE_ISOLATE", None)
        if count > 1:
            visible = list(filter(None, env.get("CUDA_VISIBLE_DEVICES", "").split(","))) or list(map(str, range(64)))
            env["CUDA_VISIBLE_DEVICES"] = visible[number % options.gpus]
        words = [sys.executable, __file__, str(folder / "out.json"), "--child", part, "--lane", str(number), str(count)]
        words += ["--scripted"] if options.scripted else []
        with open(folder / "log", "w") as log:
            self.process = subprocess.Popen(words, env=env, stdout=log, stderr=log, start_new_session=True, cwd=ROOT)

    def found(self, late: bool) -> dict[str, Any]:
        """What it has noted; one that is ``late`` is ended."""
        code, path = self.process.poll(), self.folder / "out.json"
        if late and code is None:
            end(self.process)
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        if late or code:
            log_text = (self.folder / "log").read_text()[-3000:].replace(f"{ROOT}/", "")
            found["ended"] = {"code": self.process.returncode, "late": late and code is None, "log": log_text}
        return found


def together(lanes: list[dict[str, Any]]) -> dict[str, Any]:
    """What several processes of a part have noted of the runs they ended."""
    rows = [row for lane in lanes for row in lane.get("rows", ())]
    others = [{k: v for k, v in lane.items() if k not in ("rows", *ENDED)} for lane in lanes]
    return {**ended_summary(rows), "lanes": others, "rows": rows}


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
        new = self._path.with_suffix(".new")
        new.write_text(text.replace(f"{ROOT}/", ""))  # where the checkout lies says nothing
        new.replace(self._path)


def scripted_backend() -> Any:
    """A GPU on which what the kernels are meant to do is scripted."""
    from benchmarks import quarantine_kernels as kernels
    from kerntune.gpu import scripted
    from kerntune.gpu.scripted import FakeBackend, Rule, Script

    faults = {
        kernels.ILLEGAL: scripted.ILLEGAL_ADDRESS, kernels.MISALIGNED: scripted.MISALIGNED_ADDRESS,
        kernels.ENDLESS: scripted.HANG, kernels.ASSERTS: scripted.ASSERT, kernels.TRAPS: scripted.TRAP,
        kernels.LOCAL: scripted.OUT_OF_MEMORY, kernels.WORKSPACE: scripted.OUT_OF_MEMORY,
    }  # fmt: skip
    rules = [Rule("fixed_kernel", rule.constexprs, beside=rule.beside) for rule in planted_rules()]
    rules += [Rule("faulty_kernel", {"FAULT": kind}, fault=fault) for kind, fault in faults.items()]
    return FakeBackend(Script([*rules, *planted_rules()], isolated=True, unmapped=True))


def planted_rules() -> list[Any]:
    """What the planted writes are."""
    from benchmarks import quarantine_kernels as kernels
    from kerntune.gpu.scripted import Rule

    return [
        Rule(
            "planted_kernel",
            {"FIRST": first, "COUNT": count},
            beside=(4 * (first - kernels.PLANTED) if first > 0 else 4 * first, 4 * count),
        )
        for first, count in kernels.plants()
    ]


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
LANE = (0, 1)
"""The number of this process among those of its part, and how many there are."""


def start(notes: Notes) -> None:
    import torch

    from kerntune.tuning import context
    from kerntune.tuning.isolation import Isolation

    torch.zeros(1, device="cuda")
    gpu, starts, contexts, ends = context.this_gpu().gpu, list[float](), list[int](), list[float | None]()
    for _ in range(3):
        free, isolation, begin = gpu.free_bytes(), Isolation(gpu), time.monotonic()
        isolation.process()
        starts.append(round(time.monotonic() - begin, 3))
        with_it = gpu.free_bytes()
        contexts.append(free - with_it)
        begin = time.monotonic()
        isolation.drop()  # returns when the process is gone
        ends.append(seconds_until(lambda f=free: gpu.free_bytes() >= f - LEFT_BYTES, begin))
        isolation.close()
        notes.put(start_s=starts, context_bytes=contexts, device_free_after_s=ends)


LOOKED, LOOKS = 8, 40
"""Recordings, and looks at all of them together."""


def looks(notes: Notes) -> None:
    """Recordings as a tuning sends them, answered here: milliseconds of each step, median and most, without the time
    that messages take."""
    import tempfile as files

    import kerntune
    from benchmarks import quarantine_kernels as kernels
    from kerntune.gpu import guards, memory, program
    from kerntune.timing.worker.look_requests import LookReply
    from kerntune.timing.worker.looks import Looker
    from kerntune.tuning import context
    from kerntune.tuning import isolation as isolation_module

    asked, took, together = list[Any](), list[float](), list[int]()
    real = isolation_module.LookProcess._exchange

    def exchange(process: Any, request: Any, limit_s: float) -> Any:
        begin = time.monotonic()
        reply = real(process, request, limit_s)
        several = list(getattr(request, "looks", (request,)))
        if isinstance(several[0], isolation_module.LookRequest):
            asked.extend(several)
            together.append(len(several))
        if isinstance(reply, LookReply):
            took.append(round(1e3 * (time.monotonic() - begin), 3))
        return reply

    isolation_module.LookProcess._exchange = exchange  # type: ignore[method-assign]
    tuner, grid, args = kernels.faulty_call(kernels.faulty_configs(0)[:LOOKED], kerntune.autotune, 1 << 24)
    tuner[grid](*args)
    isolation_module.LookProcess._exchange = real  # type: ignore[method-assign]
    notes.put(asked_ms=took, asked_together=together)
    assert asked, "no launch ran elsewhere"
    gpu, steps = context.this_gpu().gpu, dict[str, list[float]]()
    watched = (
        (program.Loader, "load"), (memory.Memory, "__init__"), (program.Program, "__init__"),
        (program.Program, "enqueue"), (guards.GuardReader, "_read"), (guards.GuardReader, "_unchanged"),
        (guards.GuardReader, "damages"), (Looker, "prepare"),
        (Looker, "answer"),
    )  # fmt: skip
    for owner, name in watched:
        watch_ms(owner, name, steps)
    with files.TemporaryFile() as file:
        looker = Looker(gpu, file.fileno())
        for storage in {v.storage for request in asked for v in request.recording.views}:
            looker._make_room(storage, asked[0].recording.storages[storage].nbytes, 0)
            gpu.fill(looker._pristine[storage], 0)
        looker.prepare()
        for request in asked * (LOOKS // len(asked)):
            assert isinstance(looker.answer(request), LookReply)
    found = {name: {"median": statistics.median(x), "first": x[0], "most": max(x)} for name, x in steps.items() if x}
    for name, ms in found.items():
        print(f"{name:24} median {ms['median']:8.3f} first {ms['first']:8.3f} most {ms['most']:8.3f} ms", flush=True)
    notes.put(
        steps_ms=found,
        artifact_bytes=[sum(map(len, request.artifacts.values())) for request in asked],
    )


def watch_ms(owner: Any, name: str, steps: dict[str, list[float]]) -> None:
    """Note the milliseconds of each call of a method from now on."""
    plain, found = getattr(owner, name), steps.setdefault(f"{owner.__name__}.{name}", [])

    def watched(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        try:
            return plain(*args, **kwargs)
        finally:
            found.append(round(1e3 * (time.perf_counter() - begin), 3))

    setattr(owner, name, watched)


def faults(notes: Notes) -> None:
    tune_faulty(notes, 3)


def tune_faulty(notes: Notes, each: int) -> None:
    import torch

    import kerntune
    from benchmarks import quarantine_kernels as kernels
    from kerntune.tuning import autotuner_run

    held = torch.empty(kernels.HELD_BYTES, dtype=torch.uint8, device="cuda")
    kills = Kills()
    named, tell = list[Any](), autotuner_run.tell_failed
    autotuner_run.tell_failed = lambda capture, site, failures: (named.extend(failures), tell(capture, site, failures))  # type: ignore[assignment]
    configs = kernels.faulty_configs(each)
    tuner, grid, args = kernels.faulty_call(configs, kerntune.autotune)
    begin = time.monotonic()
    tuner[grid](*args)
    seconds = time.monotonic() - begin
    notes.put(
        winner=str(tuner.best_config),
        tuning_s=round(seconds, 2),
        works=works(),
        **kills.found(),
    )
    rows = [
        {
            "kind": kernels.KINDS.get(int(f.config.kwargs["FAULT"]), "good"),
            "config": str(f.config),
            "reason": f.reason[:200],
        }
        for f in named
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
        kinds={kind: sum(r["kind"] == kind for r in rows) for kind in kernels.KINDS.values()},
        named=rows,
        remembered=sum(bool(t.failure) for t in trials()),
    )


CONTEXT_BYTES, LEFT_BYTES = 200 << 20, 100 << 20
"""Less than any context takes; what others may have taken of the device meanwhile."""

FREE_LIMIT_S = 10.0


def seconds_until(true: Callable[[], bool], begin: float) -> float | None:
    """Since ``begin``, until something is true; None if that takes over :data:`FREE_LIMIT_S`."""
    while not SCRIPTED and time.monotonic() - begin < FREE_LIMIT_S:
        if true():
            return round(time.monotonic() - begin, 3)
        time.sleep(0.002)
    return None


class Kills:
    """Of each process that hung: seconds from its kill until it was gone, and until the device had its memory back.

    The latter is looked at in a thread, so that the tuning goes on; a process is killed where it is found to be late,
    which is before :meth:`~kerntune.tuning.isolation.Isolation.drop` is called.
    """

    def __init__(self) -> None:
        from kerntune.timing.worker.look_process import LookProcess
        from kerntune.tuning.isolation import Isolation

        self._gpu: Any = None
        self._killed, self._rows = list[float](), list[dict[str, Any]]()
        self._watches: dict[int, tuple[Any, dict[str, Any]]] = {}
        close, drop, begin = LookProcess.close, Isolation.drop, Isolation.begin

        def closed(process: Any) -> float:
            first = not process._closed
            before, start = self._gpu.free_bytes(), time.monotonic()
            seconds = close(process)
            if first:
                self._watch(process, before, start)
            return seconds

        def dropped(isolation: Any, late: bool = False) -> None:
            process = isolation._process
            drop(isolation, late)
            if late and id(process) in self._watches:
                self._killed.append(round(isolation.killed_s[-1], 3))
                self._rows.append(self._watches[id(process)][1])

        def begun(isolation: Any) -> None:
            self._gpu = isolation.gpu
            begin(isolation)

        LookProcess.close, Isolation.drop, Isolation.begin = closed, dropped, begun  # type: ignore[method-assign]

    def _watch(self, process: Any, before: int, start: float) -> None:
        row = {"before_mib": before >> 20, "gone_mib": self._gpu.free_bytes() >> 20}
        thread = threading.Thread(target=self._until_free, args=(row, before, start), daemon=True)
        self._watches[id(process)] = (process, row)  # a number is not another's while its object is held
        thread.start()

    def _until_free(self, row: dict[str, Any], before: int, start: float) -> None:
        row["seconds"] = seconds_until(lambda: self._gpu.free_bytes() >= before + CONTEXT_BYTES, start)
        row["free_mib"] = self._gpu.free_bytes() >> 20

    def found(self) -> dict[str, Any]:
        """What there is by now."""
        return {
            "killed_in_s": self._killed,
            "device_free_after_s": [row.get("seconds") for row in self._rows],
            "device_memory": self._rows,
        }


GATE_TEST = """
import pytest, torch, triton
from benchmarks import quarantine_kernels as kernels

CONFIGS = kernels.faulty_configs(3)

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


def pytest_run(folder: Path, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    """``pytest --kerntune`` of a test file in a folder of its own; its JSON is ``run.json`` there."""
    (folder / "test_it.py").write_text(test)
    if SCRIPTED:
        (folder / "conftest.py").write_text(GATE_CONFTEST)
    words = [*plugin_words(folder), f"--kerntune-json={folder}/run.json", *options, str(folder)]
    return subprocess.run(words, cwd=folder, env=pytest_environment(), capture_output=True, text=True, check=False)


def plugin_words(folder: Path) -> list[str]:
    """The start of such a command."""
    from plugin_options import plugin_options

    words = [sys.executable, "-m", "pytest", "-q", *plugin_options(), "-p", "no:cacheprovider"]
    return [*words, "--rootdir", str(folder), "--kerntune"]


def pytest_environment() -> dict[str, str]:
    """Of a run that may record."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    env.pop("CI", None)
    return env


def gate(notes: Notes) -> None:
    from benchmarks import quarantine_kernels as kernels

    folder = Path(tempfile.mkdtemp())
    done = pytest_run(folder, GATE_TEST.format(scripted=SCRIPTED))
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


OUTSIDE_TEST = """
import pytest, torch
from benchmarks import quarantine_kernels as kernels

@pytest.mark.parametrize("first, count", kernels.plants())
def test_planted(autotune, first, count):
    x = torch.randn(kernels.PLANTED, device="cuda")
    y, neighbours = kernels.between()
    autotune(lambda: kernels.fixed_call(x, y, first, count))

def test_good(autotune):
    x = torch.randn(kernels.PLANTED, device="cuda")
    autotune(lambda: kernels.fixed_call(x, torch.empty_like(x), 0, 0))
"""


def outside(notes: Notes) -> None:
    """The launches run on the test's own tensors first, so their neighbours are not looked at: that is the mistake."""
    from benchmarks import quarantine_kernels as kernels

    folder = Path(tempfile.mkdtemp())
    done = pytest_run(folder, OUTSIDE_TEST)
    results = json.loads((folder / "run.json").read_text())["results"]
    rows = [
        {"case": r["case"], "verdict": r["verdict"], "outcome": r["outcome"], "found": r.get("outside_writes", [])}
        for r in results
    ]
    planted = [r for r in rows if "test_planted" in str(r["case"])]
    right = [r for r in planted if r["verdict"] == "REGRESSED" and len(r["found"]) == 1]
    by_size = sorted(w["count"] for r in right for w in r["found"])
    notes.put(
        exit_code=done.returncode,
        planted=len(planted),
        named=len(right),
        bytes_are_right=by_size == sorted(4 * count for _, count in kernels.plants()),
        others=[r["verdict"] for r in rows if r not in planted],
        rows=rows,
        output=done.stdout[-1000:],
    )


def examples(notes: Notes) -> None:
    """Of the examples as they are, from nothing: a finding would be a false one."""
    import shutil

    folder = Path(tempfile.mkdtemp()) / "examples"
    shutil.copytree(ROOT / "examples", folder, ignore=shutil.ignore_patterns("__pycache__", "baselines"))
    if SCRIPTED:
        (folder / "conftest.py").write_text(GATE_CONFTEST)
    words = [*plugin_words(folder), f"--kerntune-json={folder}/run.json", "--kerntune-update=all", str(folder)]
    done = subprocess.run(words, cwd=folder, env=pytest_environment(), capture_output=True, text=True, check=False)
    results = json.loads((folder / "run.json").read_text())["results"]
    failed = [f["reason"] for r in results for f in r.get("failed_trials", [])]
    notes.put(
        exit_code=done.returncode,
        cases=len(results),
        outside_writes=[r["outside_writes"] for r in results if r.get("outside_writes")],
        faults=[reason[:200] for reason in failed if "first launch" in reason],
        not_looked=[w for r in results for w in r.get("warnings", []) if "not looked for" in w],
        verdicts={v: sum(r["verdict"] == v for r in results) for v in sorted({r["verdict"] for r in results})},
        output=done.stdout[-1500:],
    )


KILL_TEST = """
import pytest, torch, triton
from benchmarks import quarantine_kernels as kernels

@pytest.mark.parametrize("n", [1 << 20, 1 << 21])
def test_good(autotune, n):
    configs = kernels.faulty_configs(0)[:12]
    tuner, grid, args = kernels.faulty_call(configs, triton.autotune, n)
    autotune(lambda: tuner[grid](*args))
"""

KILLS, INTERRUPTS = 20, 12

END_LIMIT_S = 20.0
"""A run that was asked to end and has not by then is killed."""


def kills(notes: Notes) -> None:
    """SIGKILL to pytest alone."""
    ended_runs(notes, KILLS, lambda run: run.kill())


def interrupts(notes: Notes) -> None:
    """SIGINT to the whole group, as a terminal's Ctrl-C. This process is in it, too, so that whatever ends this part
    ends its runs; it has a handler, which programs that it starts don't have."""
    signal.signal(signal.SIGINT, lambda number, frame: None)
    ended_runs(notes, INTERRUPTS, lambda run: os.killpg(0, signal.SIGINT))


ENDED = (
    "runs", "while_running", "with_processes_left", "with_unreadable_files", "with_folders_after_next_start",
    "most_trials_lost", "ended_after_s", "gone_after_s", "device_never_free",
)  # fmt: skip


def ended_summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of all runs that were ended: how many left what; median and most of the seconds."""
    if not rows:
        return {"runs": 0}
    times = {
        name: {"median": statistics.median(r[name] for r in rows), "most": max(r[name] for r in rows)}
        for name in ("ended_after_s", "gone_after_s")
    }
    counts = {
        "runs": len(rows),
        "while_running": sum(not r["ended_before"] for r in rows),
        "while_timed": sum(r["timed"] > 0 for r in rows),
        "with_processes_left": sum(bool(r["left"]) for r in rows),
        "with_unreadable_files": sum(bool(r["unreadable"]) for r in rows),
        "with_folders_after_next_start": sum(bool(r["after_next_start"]) for r in rows),
        "most_trials_lost": max(r["lost"] for r in rows),
    }
    return counts | times


def ended_runs(notes: Notes, count: int, end_run: Callable[[subprocess.Popen[str]], object]) -> None:
    """End this lane's share of so many runs at random moments, and look at what is left. They are processes of their
    own: a GPU can't be used in a fork."""
    import ctypes
    import random

    from kill_random import PR_SET_CHILD_SUBREAPER

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    lane, lanes = LANE
    chance, rows, top = random.Random(lane), list[dict[str, Any]](), Path(tempfile.mkdtemp())
    gpu = None if SCRIPTED else driver_gpu()
    free = gpu.free_bytes() if gpu is not None else 0
    whole, begin = Ended(top / "whole", None), time.monotonic()
    begun = whole.wait_begun()
    whole.run.wait()
    longest = time.monotonic() - begin - begun
    notes.put(begun_s=round(begun, 2), whole_s=round(longest, 2), whole_code=whole.run.returncode, log=whole.said())
    for number in range(lane, count, lanes):
        refreshed = whole.folder if number // lanes % 2 else None
        row = Ended(top / str(number), refreshed).end(chance.uniform(0.0, longest), end_run)
        rows.append({"lane": lane, **row})
        notes.put(**ended_summary(rows), rows=rows)
    if gpu is not None:  # other lanes' runs may be on it as well
        notes.put(
            device_free_after_all_s=seconds_until(lambda: gpu.free_bytes() >= free - LEFT_BYTES, time.monotonic())
        )


class Ended:
    """One run in a folder of its own, whose caches and temporary files are there too. It refreshes the baselines of
    ``refreshed``, or records new ones."""

    def __init__(self, folder: Path, refreshed: Path | None) -> None:
        self.folder, self.known_trials = folder, 0
        (folder / "tmp").mkdir(parents=True)
        (folder / "test_it.py").write_text(KILL_TEST)
        (folder / "conftest.py").write_text(NOTING_CONFTEST + (GATE_CONFTEST if SCRIPTED else ""))
        env = {**pytest_environment(), "TMPDIR": str(folder / "tmp"), "TRITON_CACHE_DIR": str(folder / "triton")}
        words = [*plugin_words(folder), f"--kerntune-cache-dir={folder}/cache", str(folder)]
        if refreshed is not None:
            import shutil

            for name in ("baselines", "triton"):
                shutil.copytree(refreshed / name, folder / name)
            words.append("--kerntune-update=all")
        self.begin = time.monotonic()
        with open(folder / "log", "w") as log:
            self.run = subprocess.Popen(words, cwd=folder, env=env, stdout=log, stderr=log, text=True)

    def wait_begun(self) -> float:
        """Seconds until its first test, or its end."""
        while self.run.poll() is None and not (self.folder / "begun").exists():
            time.sleep(0.002)
        return time.monotonic() - self.begin

    def said(self) -> str:
        """The end of what it has printed."""
        return (self.folder / "log").read_text()[-1500:]

    def end(self, moment: float, end_run: Callable[[subprocess.Popen[str]], object]) -> dict[str, Any]:
        """End it so many seconds after its first test has begun: how soon it and the last process below it have gone,
        and what is left; what it said last if it has not ended in time."""
        from kill_random import descendants, files_of, running, words_of

        from kerntune.base.temporary_folders import sweep
        from kerntune.tuning.cache import TrialCache

        self.wait_begun()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.run.wait(moment)
        ended_before, alive, begin = self.run.returncode is not None, descendants(), time.monotonic()
        end_run(self.run)
        try:
            self.run.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.run.kill()
        ended = time.monotonic()
        while (left := running(alive)) and time.monotonic() - ended < 2.0:
            time.sleep(0.005)
        gone, said = time.monotonic(), [words_of(pid) for pid in left]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        unreadable, half = files_of(self.folder)
        folders = [p.name for p in (self.folder / "tmp").glob("kerntune-*") if p.is_dir()]
        sweep(self.folder / "tmp")
        after = [p.name for p in (self.folder / "tmp").glob("kerntune-*") if p.is_dir()]
        notes = self.folder / "timed"
        timed = notes.stat().st_size if notes.exists() else 0
        return {
            "moment_s": round(moment, 2),
            "refreshing": (self.folder / "baselines").exists() and "--kerntune-update=all" in self.run.args,
            "ended_before": ended_before,
            "processes": len(alive),
            "ended_after_s": round(ended - begin, 3),
            "gone_after_s": round(gone - begin, 3),
            "code": self.run.returncode,
            "left": said,
            "unreadable": unreadable,
            "half_written": half,
            "timed": timed,
            "lost": max(0, timed - len(TrialCache(self.folder / "cache").entries())),
            "folders": folders,
            "after_next_start": after,
            "load": os.getloadavg()[0],
            "said": self.said() if gone - begin > 2.0 else "",
        }


NOTING_CONFTEST = """
import os
from kerntune.tuning.race import Estimates

_take, _notes = Estimates.take, os.open("timed", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def noted(self, trial):
    _take(self, trial)
    os.write(_notes, b".")

Estimates.take = noted

def pytest_runtest_call(item):
    open("begun", "a").close()
"""
"""A byte for each candidate that was timed; a file from the first test on."""

BUSY = """
import sys, time, torch
sys.stdin.readline()
share, x = float(sys.argv[1]), torch.randn(4096, 4096, device="cuda")
torch.cuda.synchronize()
print("busy", flush=True)
while True:
    begin = time.monotonic()
    while time.monotonic() - begin < 0.02:
        x = torch.tanh(x @ x)
        torch.cuda.synchronize()
    time.sleep(0.02 / share - 0.02)
"""

WATCHES = 9
"""Those of one decision: three in each of three processes."""

IDLE_DECISIONS, BUSY_DECISIONS, PAUSE_S = 100, 12, 0.05
"""A decision beside a busy process takes half a second: of one that works every two seconds some meet the work."""


def foreign(notes: Notes) -> None:
    from kerntune.gpu.foreign_work import ClockWatch, together

    gpu = scripted_backend().gpu if SCRIPTED else driver_gpu()
    watch = ClockWatch(gpu)
    begin = time.monotonic()
    watch.watch()
    first = time.monotonic() - begin

    def decisions(count: int, pause: float) -> dict[str, Any]:
        every, spent = [], []
        for _ in range(count):
            seen = []
            for _ in range(WATCHES):
                begin = time.monotonic()
                seen.append(watch.watch())
                spent.append(time.monotonic() - begin)
                time.sleep(pause)
            every.append(together(seen))
        shares = sorted(x.share for x in every)
        return {
            "decisions": count,
            "disturbed": sum(x.disturbs for x in every),
            "share": {"median": shares[count // 2], "most": shares[-1]},
            "longest_ns": max(x.longest_ns for x in every),
            "watched_ns": every[0].watched_ns,
            "watch_s": statistics.median(spent),
        }

    shares = () if SCRIPTED else (1.0, 0.1, 0.01)
    with contextlib.ExitStack() as stack:
        others = {share: stack.enter_context(waiting(share)) for share in shares}  # they import meanwhile
        notes.put(first_watch_s=first, idle=decisions(IDLE_DECISIONS, 0.0))
        for share, process in others.items():
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            process.stdout.readline()
            notes.put(**{f"busy_{share:g}": decisions(BUSY_DECISIONS, PAUSE_S)})
            process.kill()
            process.wait()
    watch.close()


@contextlib.contextmanager
def waiting(share: float) -> Iterator[subprocess.Popen[str]]:
    """A process that will be busy for a share of its time once it reads a line; it opens no device before."""
    words = [sys.executable, "-c", BUSY, str(share)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def driver_gpu() -> Any:
    from kerntune.gpu.driver_gpu import DriverGpu

    return DriverGpu(0)


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


PARTS = {
    "looks": looks, "faults": faults, "gate": gate, "contents": contents, "writes": writes, "outside": outside,
    "examples": examples, "start": start, "kills": kills, "interrupts": interrupts, "foreign": foreign,
}  # fmt: skip
IN_PROCESSES = ("gate", "outside", "examples", "kills", "interrupts", "foreign")
"""Parts that open no device in their own process by ``kerntune.tuning.context``."""


def cost_part(options: argparse.Namespace, deadline: float) -> None:
    """Of the way that kerntune has, or of several."""
    from benchmarks import quarantine_cost as parts

    if options.variants:
        variants = (parts.VARIANTS if options.variants == "default" else options.variants).split(",")
        cases = (options.cases or parts.START_CASES).split(",")
        parts.starts(options.out, deadline, cases, variants, options.repeats or 6, options.scripted)
    elif not options.scripted:
        parts.cost(options.out, deadline, options.cases or ",".join(parts.COSTS), options.repeats or parts.REPEATS)


def main() -> None:
    options = arguments()
    begin = time.monotonic()
    if options.child:
        global SCRIPTED, LANE
        SCRIPTED, LANE = options.scripted, tuple(options.lane)
        with scripted_library() if SCRIPTED and options.child not in IN_PROCESSES else contextlib.nullcontext():
            PARTS[options.child](Notes(options.out))
        return
    from benchmarks.suite.results import environment, merge

    wanted, end_s = options.parts.split(","), begin + options.seconds
    merge(options.out, environment=environment() | {"scripted": options.scripted})
    for part in [part for part in LIMITS_S if part in wanted]:
        deadline = min(end_s, time.monotonic() + options.factor * LIMITS_S[part])
        if part == "cost":
            cost_part(options, deadline)
        elif part != "cost":
            run_part(part, options, deadline)
        merge(options.out, seconds=round(time.monotonic() - begin, 1))


if __name__ == "__main__":
    main()
