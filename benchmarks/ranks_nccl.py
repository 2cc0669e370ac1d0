"""Ranks that hold each other up by a collective that is already enqueued: none hangs, and both launch one config.

    python benchmarks/ranks_nccl.py benchmarks/results/ranks_nccl_h200.json [--keys 12]     # on a host with two GPUs
    python benchmarks/ranks_nccl.py OUT.json --scripted                                     # anywhere

Two processes, a GPU each, one empty cache for both, and NCCL. For each key, in turn:

``none``: both call a kernel that isn't tuned yet, and then reduce together.
``first``: rank 0 enqueues its part of a reduction, then calls the kernel; rank 1 calls the kernel, and enqueues its
part then. To tune, rank 0 would wait for a reduction that waits for rank 1, which waits for rank 0's winner.
``second``: the same with the ranks exchanged.
``both`` (the last key): each rank has enqueued its part of a reduction in a group of its own whose other part the other
rank enqueues after its call. No rank can measure before ``--busy`` seconds; both go on with the nearest key's winner.
The reductions run beside the kernel here (``async_op``, waited for after the call). A kernel that is ordered behind its
rank's reduction can't be part of such a program: each reduction would wait for the other on the devices, whatever
launches the kernel.

Of each key: seconds that each rank's call took, and the config it launched. At the end both ranks'
``kerntune.fingerprint()``. Rows are written as they come. A key that takes longer than ``--limit`` seconds counts as
hung: its row then has the last step of each rank and the stacks of all its threads; its processes are killed.

The reductions of the last key are the only ones beside which nothing can be loaded: to load code may wait for all that
the device does (CUDA C++ Programming Guide, "Lazy Loading"). So kerntune goes on with the nearest key's winner there,
which both ranks have launched before.

``--controls`` runs keys ``none`` and ``both`` without kerntune, each in new processes, to show what a hang is due to;
with ``--without-kerntune`` nothing else runs, and what OUT.json has of kerntune stays. Three controls that all hang
take 75 s with ``--control-limit 12``, and kerntune's own run 40 s with ``--keys 5 --limit 15 --busy 8``:

``plain``: the kernel is launched by Triton with one config, which is new to the process.
``eager``: the same with ``CUDA_MODULE_LOADING=EAGER``: functions are loaded with their module.
``loaded``: as ``plain``, with a config that the process has launched before the reductions: nothing is loaded.
``synchronizing``: as ``plain``, while another thread waits for the device, as kerntune's question whether it is idle.
``autotune``: ``triton.autotune``; it synchronizes, so it should hang.
``circle``: as ``plain``, but the kernel is ordered behind the reductions; it should hang.

``--scripted`` has scripted GPUs, whose "collectives" are events between the processes; there are no controls there.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import faulthandler
import json
import multiprocessing
import os
import platform
import queue
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

import kerntune
from kerntune.tuning import agreement, context

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("none", "first", "second")
CONTROLS = ("plain", "eager", "loaded", "synchronizing", "autotune", "circle")
START_S = 60.0
"""Until a rank's first message: torch, the devices and NCCL's communicators."""

ELEMENTS = 1 << 20
MOST_TEXT = 8000
"""Characters of a rank's log that come into the results."""

CONFIGS = [triton.Config({"BLOCK": b}, num_warps=w) for b in (256, 512, 1024, 2048) for w in (2, 4, 8)]


@triton.jit
def add_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) + 1.0, mask=i < n)


def launcher(way: str) -> Callable[[Any, Any, int, int], str]:
    """What calls the kernel for a number of elements and a key's number; it returns the config that was launched."""

    def grid_of(n: int) -> Any:
        return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)

    if way in ("plain", "eager", "loaded", "synchronizing", "circle"):

        def plain(x: Any, y: Any, n: int, key: int) -> str:
            config = CONFIGS[0 if way == "loaded" else key]
            if way == "synchronizing":
                threading.Thread(target=torch.cuda.synchronize, args=(x.device,), daemon=True).start()
                time.sleep(1.0)  # it waits by now
            add_kernel[grid_of(n)](x, y, n, **config.all_kwargs())
            return str(config)

        return plain
    tuner = (triton if way == "autotune" else kerntune).autotune(configs=list(CONFIGS), key=["n"])(add_kernel)

    def tuned(x: Any, y: Any, n: int, key: int) -> str:
        tuner[grid_of(n)](x, y, n)
        return str(tuner.best_config)

    return tuned


class NcclCollectives:
    """Reductions on streams of their own, as an overlapped backward pass has them."""

    def __init__(self, rank: int, folder: Path) -> None:
        torch.cuda.set_device(rank)
        torch.distributed.init_process_group("nccl", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
        self._groups = [torch.distributed.new_group([0, 1]) for _ in range(2)]
        self._values = [torch.ones(ELEMENTS, device="cuda") for _ in self._groups]
        self.tensors = tuple(torch.empty(ELEMENTS, device="cuda") for _ in range(2))
        self._enqueued: list[Any] = []
        for group in range(2):  # communicators and NCCL's kernels are loaded by the first call, by both ranks at once
            self.enqueue(0, group)
            self.finish()

    def enqueue(self, key: int, group: int = 0, ordered: bool = True) -> None:
        """This rank's part; returns at once. Work of the current stream waits for it if it is ``ordered``."""
        part = torch.distributed.all_reduce(self._values[group], group=self._groups[group], async_op=True)
        part.wait() if ordered else self._enqueued.append(part)

    def finish(self) -> None:
        for part in self._enqueued:
            part.wait()
        self._enqueued.clear()
        torch.cuda.synchronize()

    def close(self) -> None:
        torch.distributed.destroy_process_group()


class ScriptedCollectives:
    """Each part is an event; a device is busy while a part of its own waits for the other's."""

    def __init__(self, rank: int, events: Any, gpu: Any) -> None:
        self._rank, self._events, self._waiting = rank, events, list[Any]()
        self.tensors = tuple(torch.empty(ELEMENTS, device="cuda") for _ in range(2))
        gpu.other_work = self._idle

    def enqueue(self, key: int, group: int = 0, ordered: bool = True) -> None:
        self._events[2 * key + group][self._rank].set()
        self._waiting.append(self._events[2 * key + group][1 - self._rank])

    def _idle(self, limit_s: float) -> bool:
        end = time.monotonic() + limit_s
        return all(event.wait(max(0.0, end - time.monotonic())) for event in self._waiting)

    def finish(self) -> None:
        for event in self._waiting:
            event.wait()
        self._waiting.clear()

    def close(self) -> None:
        pass


@contextlib.contextmanager
def device(rank: int, folder: Path, events: Any) -> Iterator[Any]:
    """The rank's GPU is ready; its collectives."""
    if events is None:
        yield NcclCollectives(rank, folder)
        return
    from kerntune.gpu.scripted import FakeBackend, Rule, Script

    rules = [Rule(constexprs={"BLOCK": b}, time_ns=1000.0 + abs(b - (512, 1024)[rank])) for b in (256, 512, 1024, 2048)]
    backend = FakeBackend(Script(rules))
    context.this_gpu = lambda: backend  # type: ignore[assignment,return-value]
    with backend.activate():
        yield ScriptedCollectives(rank, events, backend.gpu)


@dataclass(frozen=True)
class Plan:
    """What both ranks do."""

    way: str
    kinds: Sequence[str]
    limit_s: float
    busy_s: float
    folder: Path

    def log(self, rank: int) -> Path:
        """Of all that a rank writes, and of its stacks."""
        return self.folder / f"rank{rank}.log"


def work(rank: int, plan: Plan, events: Any, meet: Any, told: Any) -> None:
    """One rank."""
    log = plan.log(rank).open("w", buffering=1)
    os.dup2(log.fileno(), 2)
    sys.stderr = log
    os.environ |= {"KERNTUNE_CACHE_DIR": str(plan.folder / "cache"), "TRITON_CACHE_DIR": str(plan.folder / "triton")}
    os.environ |= {"WORLD_SIZE": "2", "KERNTUNE_PATIENCE": "all"}
    if plan.way == "eager":
        os.environ["CUDA_MODULE_LOADING"] = "EAGER"  # read when the driver starts
    agreement.LIMITS = agreement.Limits(busy_s=plan.busy_s)
    faulthandler.dump_traceback_later(START_S, file=log)
    try:
        with device(rank, plan.folder, events) as collectives:
            call = launcher(plan.way)
            for key, kind in enumerate(plan.kinds):
                meet.wait()
                faulthandler.dump_traceback_later(0.8 * plan.limit_s, file=log)
                one_key(rank, key, kind, plan.way, call, collectives, told)
            told.put((rank, None, "fingerprint", kerntune.fingerprint()))
            faulthandler.cancel_dump_traceback_later()
            meet.wait()
            collectives.close()
    except BaseException:
        told.put((rank, None, "error", traceback.format_exc()[-MOST_TEXT:]))
        raise


def one_key(rank: int, key: int, kind: str, way: str, call: Any, collectives: Any, told: Any) -> None:
    """The call, with reductions before and after it as the kind has them; each step is reported."""

    def step(name: str, value: Any = None) -> None:
        told.put((rank, key, name, value))

    n = ELEMENTS - 1024 * key
    early = {"none": (), "first": (0,), "second": (1,), "both": (0, 1)}[kind]
    ordered = kind != "both" or way == "circle"
    if rank in early:
        collectives.enqueue(key, rank if kind == "both" else 0, ordered)
    step("calls")
    begin = time.perf_counter()
    config = call(*collectives.tensors, n, key)
    step("called", {"seconds": round(time.perf_counter() - begin, 3), "config": config})
    if kind == "both":
        collectives.enqueue(key, 1 - rank, ordered)
    elif rank not in early:
        collectives.enqueue(key)
    step("enqueued")
    collectives.finish()
    step("finished")


@dataclass
class Told:
    """What both ranks have reported, as rows."""

    plan: Plan
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    prints: dict[int, str] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)

    def take(self, rank: int, key: int | None, name: str, value: Any) -> None:
        """One message of a rank."""
        if key is None:
            (self.prints if name == "fingerprint" else self.errors)[rank] = value
            return
        row = self.rows.setdefault(key, {"key": key, "kind": self.plan.kinds[key]}).setdefault(f"rank{rank}", {})
        row["step"] = name
        row.update(value or {})

    @property
    def ended(self) -> bool:
        """Whether nothing more comes."""
        return len(self.prints) == 2 or bool(self.errors)

    def found(self) -> dict[str, Any]:
        """The figures so far; what isn't finished counts as hung."""
        rows = [self.rows[key] for key in sorted(self.rows)]
        done = [r for r in rows if all(r.get(name, {}).get("step") == "finished" for name in ("rank0", "rank1"))]
        called = [r for r in rows if all("config" in r.get(name, {}) for name in ("rank0", "rank1"))]
        return {
            "keys": len(self.plan.kinds),
            "hung": len(self.plan.kinds) - len(done),
            "disagreements": sum(r["rank0"]["config"] != r["rank1"]["config"] for r in called),
            "fingerprints_agree": len(self.prints) == 2 and len(set(self.prints.values())) == 1,
            "errors": self.errors,
            "rows": rows,
        }


def run_ranks(plan: Plan, scripted: bool, write: Callable[[dict[str, Any]], object]) -> None:
    """Both ranks, to their end or to the limit; ``write`` has the figures again and again."""
    multi = multiprocessing.get_context("spawn")
    events = [[multi.Event(), multi.Event()] for _ in range(2 * len(plan.kinds))] if scripted else None
    meet, messages, told = multi.Barrier(2), multi.Queue(), Told(plan)
    ranks = [multi.Process(target=work, args=(rank, plan, events, meet, messages)) for rank in range(2)]
    for process in ranks:
        process.start()
    try:
        with contextlib.suppress(queue.Empty):
            while not told.ended:
                told.take(*messages.get(timeout=plan.limit_s if told.rows else START_S))
                write(told.found())
    finally:
        for process in ranks:
            process.join(10 if told.ended and not told.errors else 0)
            process.kill()
            process.join()
    found = told.found()
    write({**found, "logs": logs(plan)} if found["hung"] or found["errors"] else found)


def logs(plan: Plan) -> dict[str, str]:
    """The end of what each rank wrote, its stacks included, with paths as the repository and Python have them."""
    found = {}
    for rank in range(2):
        text = plan.log(rank).read_text(errors="replace") if plan.log(rank).exists() else ""
        for folder in (str(Path(triton.__file__).parents[1]), sys.prefix, sys.base_prefix, str(ROOT)):
            text = text.replace(folder + "/", "")
        found[f"rank{rank}"] = text[-MOST_TEXT:]
    return found


def environment(scripted: bool) -> dict[str, Any]:
    """Where this ran."""
    found: dict[str, Any] = {"python": platform.python_version(), "torch": torch.__version__}
    found |= {"triton": triton.__version__, "date": datetime.date.today().isoformat()}
    found["device"] = "scripted" if scripted else torch.cuda.get_device_name(0)
    if not scripted:
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        found["CUDA_MODULE_LOADING"] = os.environ.get("CUDA_MODULE_LOADING", "")
    return found


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--keys", type=int, default=12)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that a step may take, beside --busy")
    parser.add_argument("--busy", type=float, default=30.0, help="seconds after which ranks that are all busy go on")
    parser.add_argument("--controls", default="", help=f"of {','.join(CONTROLS)}, after the run itself")
    parser.add_argument("--control-limit", type=float, default=30.0)
    parser.add_argument("--without-kerntune", action="store_true", help="the controls alone")
    parser.add_argument("--scripted", action="store_true")
    args = parser.parse_args()
    kinds = [KINDS[key % len(KINDS)] for key in range(args.keys - 1)] + ["both"]
    before = json.loads(args.out.read_text()) if args.without_kerntune and args.out.exists() else {}
    report = {**before, **environment(args.scripted)}

    def write(part: str, found: dict[str, Any]) -> None:
        report.update(found) if part == "kerntune" else report.setdefault("controls", {}).update({part: found})
        args.out.write_text(json.dumps(report, indent=1) + "\n")

    controls = [way for way in args.controls.split(",") if way]
    if unknown := set(controls) - set(CONTROLS):
        parser.error(f"there is no control {', '.join(sorted(unknown))}; they are {', '.join(CONTROLS)}")
    for way in [*([] if args.without_kerntune else ["kerntune"]), *controls]:
        own = way == "kerntune"
        limit_s = args.limit + args.busy if own else args.control_limit
        with tempfile.TemporaryDirectory() as name:
            plan = Plan(way, kinds if own else ("none", "both"), limit_s, args.busy, Path(name))
            run_ranks(plan, args.scripted, lambda found, way=way: write(way, found))
        part = report if own else report["controls"][way]
        print(way, json.dumps({k: part[k] for k in ("hung", "disagreements", "errors")}), flush=True)


if __name__ == "__main__":
    main()
