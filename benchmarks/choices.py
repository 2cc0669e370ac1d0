"""Decides six operations with three implementations each for eight sizes, and holds the choices against a long look.

Run ``python benchmarks/choices.py OUT.json`` on a machine with a GPU (about 150 s on an H200 with 16 cores). What is
known is written after each size. For each size:

* The first call of the choice, with an empty cache of winners, decides: ``seconds`` in all, of which ``alone_s`` in the
  implementations' first calls, which tune what they launch, and ``elsewhere_s`` in launches in another process, of
  kernels that nothing tunes. What isn't ``alone_s`` is what deciding costs.
* An independent instrument then takes the implementations in turn, ``ROUNDS`` times: a stream of calls of ``STREAM_S``
  seconds by the host's clock, with the device awaited at both ends. ``best`` has the lowest median; ``behind`` is how
  far the chosen one's median lies above it.
* At each operation's first size: the host's time of a decided call beside that of the winner's function, in turn, as
  medians in microseconds; also as if a function with a tuned kernel had won. The queue of launches holds all calls.

``--scripted`` tries the script on a scripted GPU, with few sizes: its times say nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import statistics
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("KERNTUNE_PATIENCE", "all")

import torch

import kerntune
from benchmarks.choices_operations import CASES, OperationCase
from benchmarks.dispatch import environment

ROUNDS, STREAM_S, MOST_CALLS = 21, 2e-3, 400
"""Streams of each implementation, the seconds that one lasts, and the calls that it has at most: none that the queue of
launches doesn't hold."""

HOST_CALLS, HOST_REPEATS = 300, 25

SCRIPTED = {"ROUNDS": 2, "STREAM_S": 1e-4, "MOST_CALLS": 3, "HOST_CALLS": 3, "HOST_REPEATS": 2}
"""Of a scripted GPU, whose times say nothing."""

NEAR = 0.01
"""A choice within 1 % of the best is right."""


def choice_of(case: OperationCase) -> Any:
    """A choice over a case's implementations, keyed by all layouts."""
    names = case.functions[-1].__code__.co_varnames[: case.functions[-1].__code__.co_argcount]
    return kerntune.choice(list(case.functions), key=list(names))(case.functions[-1])


def short(name: str) -> str:
    """An implementation's name without its module."""
    return name.rpartition(".")[2]


def stream_s(call: Callable[[], Any], calls: int) -> float:
    """Seconds a call, of a stream of calls."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / calls


def exhaustive(case: OperationCase, args: tuple[Any, ...], usable: set[str], rounds: int) -> dict[str, float]:
    """Microseconds a call by implementation: medians of streams in turn."""
    calls = {f.__name__: (lambda f=f: f(*args)) for f in case.functions if f.__name__ in usable}
    counts = {}
    for name, call in calls.items():
        stream_s(call, 3)
        counts[name] = max(2, min(MOST_CALLS, int(STREAM_S / stream_s(call, 5))))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(rounds):
        for name in list(calls)[:: 1 if i % 2 else -1]:
            times[name].append(stream_s(calls[name], counts[name]))
    return {name: statistics.median(found) * 1e6 for name, found in times.items()}


def host_us(choice: Callable[..., Any], direct: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, float]:
    """The host's microseconds of a call through a choice, and directly; and the median of their differences."""
    found: dict[str, list[float]] = {"choice": [], "direct": []}
    for i in range(HOST_REPEATS):
        for name, f in (("choice", choice), ("direct", direct))[:: 1 if i % 2 else -1]:
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(HOST_CALLS):
                f(*args)
            found[name].append((time.perf_counter() - begin) / HOST_CALLS * 1e6)
    above = [a - b for a, b in zip(found["choice"], found["direct"], strict=True)]
    return {**{n: statistics.median(v) for n, v in found.items()}, "above": statistics.median(above)}


def decided(case: OperationCase, choice: Any, size: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """One size of one operation."""
    torch.manual_seed(0)
    args = case.make(*size)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    choice(*args)
    torch.cuda.synchronize()
    first_s = time.perf_counter() - begin
    decision = choice.operation.decisions[-1]
    usable = {f.__name__ for f in case.functions} - {short(n) for n in decision.left_out}
    long = exhaustive(case, args, usable, rounds)
    best, winner = min(long, key=lambda name: long[name]), short(decision.winner)
    out = {
        "operation": case.name,
        "size": size,
        "winner": winner,
        "best": best,
        "behind": long[winner] / long[best] - 1,
        "race_us": {short(n): ns / 1e3 for n, ns in decision.times_ns.items()},
        "long_us": long,
        "left_out": {short(n): why for n, why in decision.left_out.items()},
        "first_call_s": first_s,
        "seconds": decision.seconds,
        "alone_s": decision.alone_s,
        "elsewhere_s": decision.elsewhere_s,
    }
    if size == case.sizes[0]:
        direct = next(f for f in case.functions if f.__name__ == winner)
        out["host_us"] = {winner: host_us(choice, direct, args)}
        for f in case.functions[:-1]:  # also as if a tuned kernel had won
            one = choice_of(case)
            one.operation._remember(dict(zip([p.name for p in one.operation.parameters], args, strict=True)), f)
            out["host_us"][f.__name__] = host_us(one, f, args)
    return out


def summary(sizes: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures over all sizes that were measured."""
    good = [one for one in sizes if "error" not in one]
    if not good:
        return {"sizes": 0}
    alone, whole = sum(one["alone_s"] for one in good), sum(one["seconds"] for one in good)
    above = {f"{o['operation']}.{n}": v["above"] for o in good for n, v in o.get("host_us", {}).items()}
    kernels = {n: v for n, v in above.items() if not n.partition(".")[2].startswith("torch_")}
    return {
        "sizes": len(good),
        "errors": len(sizes) - len(good),
        "within_1_percent": sum(one["behind"] <= NEAR for one in good),
        "worst_behind": max(one["behind"] for one in good),
        "torch_won": sum(one["winner"].startswith("torch_") for one in good),
        "deciding_above_tuning": whole / alone - 1,
        "deciding_s": whole,
        "tuning_alone_s": alone,
        "elsewhere_s": sum(one["elsewhere_s"] for one in good),
        "host_us_above_most": max(above.values(), default=None),
        "host_us_above_tuned_kernel_most": max(kernels.values(), default=None),
    }


@contextlib.contextmanager
def scripted_gpu() -> Iterator[None]:
    """A scripted GPU in the place of a real one."""
    from kerntune.gpu.scripted import FakeBackend
    from kerntune.tuning import context

    backend = FakeBackend()
    context.this_gpu = lambda: backend
    with backend.activate():
        yield


def run(out: Path, seconds: float, only: list[str], scripted: bool) -> dict[str, Any]:
    """All sizes, as far as the time allows; written after each."""
    begin = time.monotonic()
    data: dict[str, Any] = {"environment": {} if scripted else environment(), "sizes": []}
    for case in CASES:
        if only and case.name not in only:
            continue
        choice = choice_of(case)
        for size in case.sizes[: 2 if scripted else None]:
            if time.monotonic() - begin > seconds:
                data.setdefault("not_reached", []).append([case.name, *size])
                continue
            try:
                data["sizes"].append(decided(case, choice, size, ROUNDS))
            except Exception:
                data["sizes"].append({"operation": case.name, "size": size, "error": traceback.format_exc()})
            data["summary"] = {**summary(data["sizes"]), "run_s": time.monotonic() - begin}
            out.write_text(json.dumps(data, indent=1) + "\n")
            one = data["sizes"][-1]
            print(case.name, size, one.get("winner", "error"), f"{one.get('behind', 0):.2%} behind", flush=True)
            print(*one.get("error", "").splitlines()[-1:], end="", flush=True)
        with contextlib.suppress(Exception):
            regrets = choice.operation.regrets(*case.make(*case.sizes[0]))
            found = [[r.arguments.partition(";")[0], r.nearest.partition(";")[0], r.share] for r in regrets]
            data.setdefault("nearest_regret", {})[case.name] = found
    out.write_text(json.dumps(data, indent=1) + "\n")
    return data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="operations")
    parser.add_argument("--seconds", type=float, default=190.0, help="no size is begun after this")
    parser.add_argument("--scripted", action="store_true", help="on a scripted GPU, to try the script")
    parser.add_argument("--keep-cache", action="store_true", help="winners of the user's cache count")
    options = parser.parse_args()
    faulthandler.enable()
    warnings.simplefilter("ignore", RuntimeWarning)  # what is left out is in the file
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        if not options.keep_cache:
            os.environ["KERNTUNE_CACHE_DIR"] = folder
        if options.scripted:
            globals().update(SCRIPTED)
            stack.enter_context(scripted_gpu())
        data = run(options.out, options.seconds, options.only, options.scripted)
    print(json.dumps(data.get("summary"), indent=1))


if __name__ == "__main__":
    main()
