"""Ranks that hold each other up by a collective that is already enqueued: none hangs, and both launch one config.

    python benchmarks/ranks_nccl.py benchmarks/results/ranks_nccl_h200.json [--keys 12]     # on a host with two GPUs
    python benchmarks/ranks_nccl.py OUT.json --scripted                                     # anywhere

Two processes, a GPU each, one empty cache for both, and NCCL. For each key, in turn:

``none``: both call a kernel that isn't tuned yet, and then reduce together.
``first``: rank 0 enqueues its part of a reduction, then calls the kernel; rank 1 calls the kernel, and enqueues its
part then. To tune, rank 0 would wait for a reduction that waits for rank 1, which waits for rank 0's winner.
``second``: the same with the ranks exchanged.
``both`` (the last key): each rank has enqueued its part of a reduction in a group of its own whose other part the other
rank enqueues after its call. No rank can measure before ``busy_s``; both go on with the first config.

Of each key: seconds that each rank's call took, and the config it launched. At the end both ranks'
``kerntune.fingerprint()``. A rank that doesn't end within ``--limit`` seconds is killed and counted as hung. Rows are
written as they come. ``--scripted`` has scripted GPUs, whose "collectives" are events between the processes.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import multiprocessing
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

import kerntune
from kerntune.tuning import agreement, context

KINDS = ("none", "first", "second")
ELEMENTS = 1 << 20


@kerntune.autotune(
    configs=[triton.Config({"BLOCK": b}, num_warps=w) for b in (256, 512, 1024, 2048) for w in (2, 4, 8)], key=["n"]
)
@triton.jit
def add_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) + 1.0, mask=i < n)


def call(n: int) -> tuple[float, str]:
    """One call of a key that is new; seconds, and the config that was launched."""
    x, y = (torch.empty(ELEMENTS, device="cuda") for _ in range(2))
    begin = time.perf_counter()
    add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n)
    return time.perf_counter() - begin, str(add_kernel.best_config)


class NcclCollectives:
    """Reductions on streams of their own, as an overlapped backward pass has them."""

    def __init__(self, rank: int, folder: Path) -> None:
        torch.cuda.set_device(rank)
        torch.distributed.init_process_group("nccl", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
        self._groups = [torch.distributed.new_group([0, 1]) for _ in range(2)]
        self._stream = torch.cuda.Stream()
        self._values = torch.ones(1 << 20, device="cuda")
        for group in self._groups:  # communicators are made by the first call of each, which waits for both ranks
            torch.distributed.all_reduce(self._values, group=group)
        torch.cuda.synchronize()

    def enqueue(self, key: int, group: int = 0) -> None:
        """This rank's part; returns at once. Work of the current stream waits for it."""
        torch.distributed.all_reduce(self._values, group=self._groups[group], async_op=True).wait()

    def finish(self) -> None:
        torch.cuda.synchronize()

    def close(self) -> None:
        torch.distributed.destroy_process_group()


class ScriptedCollectives:
    """Each part is an event; a device is busy while a part of its own waits for the other's."""

    def __init__(self, rank: int, events: Any, gpu: Any) -> None:
        self._rank, self._events, self._waiting = rank, events, list[Any]()
        gpu.other_work = self._idle

    def enqueue(self, key: int, group: int = 0) -> None:
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


def work(rank: int, folder: Path, kinds: list[str], events: Any, meet: Any, told: Any, busy_s: float) -> None:
    """One rank."""
    os.environ |= {"KERNTUNE_CACHE_DIR": str(folder / "cache"), "WORLD_SIZE": "2", "KERNTUNE_PATIENCE": "all"}
    agreement.LIMITS = agreement.Limits(busy_s=busy_s)
    with device(rank, folder, events) as collectives:
        for key, kind in enumerate(kinds):
            meet.wait()
            told.put((rank, key, *one_key(rank, key, kind, collectives)))
        told.put((rank, "fingerprint", kerntune.fingerprint(), ""))
        meet.wait()
        collectives.close()


def one_key(rank: int, key: int, kind: str, collectives: Any) -> tuple[float, str]:
    """The call, with reductions before and after it as the kind has them."""
    n = ELEMENTS - 1024 * key
    early = {"none": (), "first": (0,), "second": (1,), "both": (0, 1)}[kind]
    if rank in early:
        collectives.enqueue(key, rank if kind == "both" else 0)
    found = call(n)
    if kind == "both":
        collectives.enqueue(key, 1 - rank)
    elif rank not in early:
        collectives.enqueue(key)
    collectives.finish()
    return found


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--keys", type=int, default=12)
    parser.add_argument("--limit", type=float, default=180.0)
    parser.add_argument("--busy", type=float, default=30.0, help="seconds after which ranks that are all busy go on")
    parser.add_argument("--scripted", action="store_true")
    args = parser.parse_args()
    kinds = [KINDS[key % len(KINDS)] for key in range(args.keys - 1)] + ["both"]
    multi = multiprocessing.get_context("spawn")
    events = [[multi.Event(), multi.Event()] for _ in range(2 * args.keys)] if args.scripted else None
    found: dict[str, Any] = {"python": platform.python_version(), "torch": torch.__version__}
    found |= {"triton": triton.__version__, "date": datetime.date.today().isoformat(), "rows": []}
    found["device"] = "scripted" if args.scripted else torch.cuda.get_device_name(0)
    with tempfile.TemporaryDirectory() as name:
        meet, told = multi.Barrier(2), multi.Queue()
        words = (Path(name), kinds, events, meet, told, args.busy)
        ranks = [multi.Process(target=work, args=(rank, *words)) for rank in range(2)]
        for process in ranks:
            process.start()
        try:
            gather(found, kinds, told, args.limit, lambda: args.out.write_text(json.dumps(found, indent=1) + "\n"))
        finally:
            for process in ranks:
                process.join(10)
                process.kill()
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({k: v for k, v in found.items() if k != "rows"}, indent=1))


def gather(found: dict[str, Any], kinds: list[str], told: Any, limit_s: float, write: Callable[[], object]) -> None:
    """Rows as they come; what is missing at the end counts as hung."""
    import queue

    rows: dict[int, dict[str, Any]] = {}
    prints: dict[int, str] = {}
    with contextlib.suppress(queue.Empty):
        while len(prints) < 2:
            rank, key, value, config = told.get(timeout=limit_s)
            if key == "fingerprint":
                prints[rank] = value
                continue
            row = rows.setdefault(key, {"key": key, "kind": kinds[key]})
            row[f"rank{rank}"] = {"seconds": round(value, 3), "config": config}
            found["rows"] = list(rows.values())
            write()
            print(row, flush=True)
    both = [row for row in rows.values() if "rank0" in row and "rank1" in row]
    found["keys"] = len(kinds)
    found["hung"] = len(kinds) - len(both)
    found["disagreements"] = sum(row["rank0"]["config"] != row["rank1"]["config"] for row in both)
    found["fingerprints_agree"] = len(prints) == 2 and len(set(prints.values())) == 1


if __name__ == "__main__":
    main()
