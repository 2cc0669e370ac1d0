"""Tuned kernels in compiled functions: winners, the cold first call, and what a call costs on the host.

    python benchmarks/compiled_graphs.py OUT.json [--parts calls,cold,winners] [--cold-runs 3]

It needs a GPU, and for ``winners`` liger-kernel and flash-linear-attention. Parts run in the order given; results are
written as they come, and parts that OUT.json has already and that aren't asked for stay in it. ``--scripted`` needs no
GPU: it measures the calls alone, on a driver that launches nothing, beside ``kernel[grid](...)`` in eager code and a
launcher of Inductor's form that launches nothing either. Tensors are stand-ins there, asked more slowly than torch's.

* ``winners``: kernels of ``compiled_graph_kernels.py``, three sizes each, ``dynamic`` or not, and compiled again when
  all winners are known. Per kernel and size: whether the compiled function launched a binary of the config that eager
  code has won with, whether results are equal, and how many configs Inductor timed of the user's kernel (it must be
  none); those of kernels that Inductor has generated beside it are counted apart. A graph break is an error:
  ``fullgraph=True``. Winners are kept in a folder of this run's own, so the first call of each is cold.
* ``cold``: the first call of a compiled function with a matrix product of 48 configs, in fresh processes with empty
  caches, with kerntune and with Inductor's own tuning, in turns.
* ``calls``: microseconds per call of compiled functions and of the launch's line in their generated code, against
  Inductor's launch of the same kernel with one config. Sides take turns in short blocks; what is said is the median
  difference of neighbouring blocks and its 99 % interval.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
os.environ.setdefault("KERNTUNE_PATIENCE", "all")
if "--cold" not in sys.argv:  # whose caches are given
    OWN = tempfile.TemporaryDirectory(prefix="kerntune-compiled-graphs-")
    os.environ["KERNTUNE_CACHE_DIR"] = OWN.name

import torch
import triton

CALLS, ROUNDS, COLD = 100, 300, 3
"""Calls of a block, fewer than fill the GPU's queue; blocks of a side; cold calls of a side."""

PARTS = ("calls", "cold", "winners")

Write = Callable[[Any], None]


def main() -> None:
    """Measure, and write as results come."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?", default=Path("compiled_graphs.json"))
    parser.add_argument("--scripted", action="store_true", help="without a GPU: the calls alone")
    parser.add_argument("--parts", nargs="+", default=[*PARTS], help=f"of {', '.join(PARTS)}, in this order")
    parser.add_argument("--cold-runs", type=int, default=COLD, help="first calls of each side")
    parser.add_argument("--cold", choices=["kerntune", "inductor"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    chosen = [part for word in options.parts for part in word.split(",") if part]
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"--parts: {', '.join(sorted(unknown))}: only {', '.join(PARTS)} exist")
    if options.cold:
        print(json.dumps(cold_call(options.cold)))
        return
    parts: dict[str, Callable[[Write], Any]] = {
        "calls": calls,
        "cold": lambda write: cold(write, options.cold_runs),
        "winners": winners,
    }
    if options.scripted:
        parts = {"calls": scripted_calls}
    found: dict[str, Any] = json.loads(options.results.read_text()) if options.results.exists() else {}
    found["environment"] = environment()
    for name in parts if options.scripted else chosen:
        run_part(name, parts[name], found, options.results)


def run_part(name: str, measure: Callable[[Write], Any], found: dict[str, Any], results: Path) -> None:
    """One part's results, written as they come; an error is a result, and the next part runs."""

    def write(value: Any) -> None:
        found[name] = value
        results.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    begin = time.perf_counter()
    try:
        write(measure(write))
    except Exception:
        write({**found.get(name, {}), "error": traceback.format_exc()})
    found.setdefault("seconds", {})[name] = round(time.perf_counter() - begin, 1)
    write(found[name])
    told = {k: v for k, v in found[name].items() if k != "rows"}
    print(name, found["seconds"][name], "s", json.dumps(told, indent=1), flush=True)


def environment() -> dict[str, Any]:
    """Where this ran."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "date": datetime.date.today().isoformat(),
        "device": device,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
    }


# winners


def winners(write: Write) -> dict[str, Any]:
    """Each kernel's configs in compiled functions beside those that eager code has."""
    from compiled_graph_kernels import cases

    rows: list[dict[str, Any]] = []
    for name, case in cases().items():
        for dynamic, known in ((False, False), (True, False), (False, True), (True, True)):
            rows += of_case(name, case, dynamic, known)
            write({**winners_summary(rows), "rows": rows})
    return {**winners_summary(rows), "rows": rows}


def winners_summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of the claim."""
    right = sum(row["same_config"] and row["equal"] for row in rows)
    told = {name: sum(row[name] for row in rows) for name in ("inductor_trials", "own_kernels_trials")}
    return {"right": right, "of": len(rows), **told}


def of_case(name: str, case: Any, dynamic: bool, known: bool) -> list[dict[str, Any]]:
    """One kernel's rows; an error is a row as well. ``known``: earlier rows have tuned it for these sizes."""
    import torch._dynamo

    torch._dynamo.reset()
    rows = []
    graph = torch.compile(case.run, fullgraph=True, dynamic=dynamic)
    for size in case.sizes:
        row: dict[str, Any] = {"kernel": name, "size": size, "dynamic": dynamic, "known": known}
        row |= {"same_config": False, "equal": False}
        try:
            with trials_of_inductor() as trials, launched_configs() as launched:
                torch.manual_seed(0)
                result = graph(*case.inputs(size))
            with launched_configs() as expected:
                torch.manual_seed(0)
                eager = case.run(*case.inputs(size))
            torch.testing.assert_close(result, eager)
            launched = [told for told in launched if not told.startswith("triton_")]  # Inductor's own kernels
            row |= {"equal": True, "same_config": launched == expected and bool(launched), "configs": launched}
            row |= {} if launched == expected else {"eager": expected}
            row |= counted(trials)
        except Exception:
            row |= {"error": traceback.format_exc(limit=-6), **counted([])}
        rows.append(row)
    return rows


def counted(trials: list[tuple[bool, str]]) -> dict[str, Any]:
    """How often Inductor has timed a kernel of the user's, and its own generated ones beside them."""
    users, own = ([name for mine, name in trials if mine is users] for users in (True, False))
    return {"inductor_trials": len(users), "own_kernels_trials": len(own), "timed": sorted({*users, *own})}


class trials_of_inductor:
    """The configs that Inductor times meanwhile: whether of a kernel of the user's, and the kernel's name."""

    def __enter__(self) -> list[tuple[bool, str]]:
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner

        from kerntune.kernels.compat.inductor_parts import is_users_kernel, kernel_word

        self._bench, seen = CachingAutotuner.bench, []

        def bench(tuner: Any, launcher: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append((is_users_kernel(tuner), kernel_word(tuner)))
            return self._bench(tuner, launcher, *args, **kwargs)

        CachingAutotuner.bench = bench
        return seen

    def __exit__(self, *error: object) -> None:
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner

        CachingAutotuner.bench = self._bench


class launched_configs:
    """The binaries that are launched meanwhile, from eager code and generated: kernel, constants, warps, stages. Only
    while a launch hook is set does a launch ask for its metadata, in Triton's way of launching and in Inductor's."""

    def __enter__(self) -> list[str]:
        from triton import knobs
        from triton.compiler.compiler import CompiledKernel

        self._metadata, seen = CompiledKernel.launch_metadata, []

        def launch_metadata(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(binary_text(kernel))
            return self._metadata(kernel, *args, **kwargs)

        CompiledKernel.launch_metadata = launch_metadata
        knobs.runtime.launch_enter_hook.add(nothing)
        return seen

    def __exit__(self, *error: object) -> None:
        from triton import knobs
        from triton.compiler.compiler import CompiledKernel

        CompiledKernel.launch_metadata = self._metadata
        knobs.runtime.launch_enter_hook.remove(nothing)


def nothing(metadata: Any) -> None:
    """A launch hook."""


def binary_text(kernel: Any) -> str:
    """What a config has settled of a binary: ``constexpr`` arguments, warps, stages."""
    params = kernel.src.fn.params
    constants = {params[place[0]]: value for place, value in kernel.src.constants.items() if len(place) == 1}
    named = sorted(f"{param.name}={value}" for param, value in constants.items() if param.is_constexpr)
    data = kernel.metadata
    return f"{kernel.name} {' '.join(named)} num_warps={data.num_warps} num_stages={data.num_stages}"


# cold


def cold(write: Write, runs: int) -> dict[str, Any]:
    """Seconds of the first call, in fresh processes in turns."""
    seconds: dict[str, list[float]] = {"kerntune": [], "inductor": []}
    for _ in range(runs):
        for side, found in seconds.items():
            with tempfile.TemporaryDirectory() as folder:
                names = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "KERNTUNE_CACHE_DIR")
                env = {**os.environ, **{name: os.path.join(folder, name) for name in names}}
                command = [sys.executable, __file__, "--cold", side]
                done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{' '.join(command)}:\n{done.stderr[-4000:]}")
            found.append(json.loads(done.stdout.splitlines()[-1])["seconds"])
            write({"seconds": seconds})
    middle = {side: statistics.median(found) for side, found in seconds.items()}
    return {"seconds": seconds, "median": middle, "ratio": middle["inductor"] / middle["kerntune"]}


def cold_call(side: str) -> dict[str, Any]:
    """The first call of a compiled function in this process. torch's own first graph of all is made before."""
    from compiled_graph_kernels import matmul_function

    torch.compile(lambda x: x + 1)(torch.ones(8, device="cuda"))
    f = matmul_function(side)
    a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.float16) for _ in range(2))
    torch.cuda.synchronize()
    begin = time.perf_counter()
    result = torch.compile(f, fullgraph=True)(a, b)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    torch.testing.assert_close(result, a @ b, atol=1e-1, rtol=1e-2)
    return {"seconds": seconds}


# calls


def calls(write: Write) -> dict[str, Any]:
    """Compiled functions whole, and the launch's line in the code that Inductor has generated for each: without
    kerntune (``inductor``), with its operator, and compiled when the winner was known."""
    from compiled_graph_kernels import one_config, scale_function, tuned_scale

    x = torch.randn(1024, device="cuda")
    whole: dict[str, Callable[[], Any]] = {}
    lines: dict[str, Callable[[], Any]] = {}
    for name, dynamic in (("static", False), ("dynamic", True)):
        kernel = tuned_scale()
        for side in SIDES:
            launched = one_config(kernel) if side == "inductor" else kernel
            graph = torch.compile(own_code(scale_function(launched)), fullgraph=True, dynamic=dynamic)
            graph(x)
            whole[f"{name}: {side}"] = lambda f=graph: f(x)
            lines[f"{name}: {side}"] = line_of(graph, x, kernel)
            write({"made": list(whole)})
    found = {}
    for level, sides in (("whole function", whole), ("launch line", lines)):
        found[level] = compared(sides)
        write(found)
    return found


SIDES = ("operator", "inductor", "known winner")
"""In this order: the operator's first call finds the winner, which Inductor's own launch then has as its one config."""


def own_code(function: Any) -> Any:
    """A copy with a code object of its own: Dynamo keeps graphs by it, and asks those of other functions first."""
    code = function.__code__.replace(co_name=f"run_{next(NUMBERS)}")
    return types.FunctionType(code, function.__globals__, None, function.__defaults__, function.__closure__)


NUMBERS = itertools.count()


def line_of(graph: Callable[[Any], Any], x: Any, kernel: Any) -> Callable[[], Any]:
    """The launch of a compiled function's call, as its generated code makes it: Inductor's ``kernel.run(...)``, or
    ``front`` of kerntune's prepared launch with the grid for the integers that the graph hands over."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    from kerntune.tuning.torch_compile import graph_launch
    from kerntune.tuning.torch_compile.argument_plan import Given

    seen: list[Callable[[], Any]] = []
    run = CachingAutotuner.run

    def noting(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(lambda: tuner.run(*args, **kwargs))
        return run(tuner, *args, **kwargs)

    CachingAutotuner.run = noting
    try:
        graph(x)
    finally:
        CachingAutotuner.run = run
    if seen:
        return seen[-1]
    (launch,) = [found for found in graph_launch._launches.values() if found.tuner is kernel]
    path, grid_of, y, n = launch.path, launch.grid_of, torch.empty_like(x), x.numel()
    if isinstance(launch.args[2], Given):
        return lambda: path.front(grid_of(n), x, y, n, 2.0)
    return lambda: path.front(grid_of(), x, y, n, 2.0)


def compared(sides: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Microseconds of a call of each side, and what each takes more than the ``inductor`` of its name."""
    seen: dict[str, list[float]] = {name: [] for name in sides}
    for call in sides.values():
        block(call)
    order = list(sides)
    for _ in range(ROUNDS):
        for name in order:
            seen[name].append(block(sides[name]))
        order.append(order.pop(0))  # no side is always after the same other
    out: dict[str, Any] = {"microseconds": {name: round(statistics.median(found), 3) for name, found in seen.items()}}
    out["more_than_inductor"] = {
        name: median_difference(found, seen[other])
        for name, found in seen.items()
        if (other := f"{name.partition(':')[0]}: inductor") in seen and other != name
    }
    return out


def block(call: Callable[[], Any]) -> float:
    """CPU microseconds of a call in this thread, in one block. The GPU is idle when it begins."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    begin = time.thread_time_ns()  # other processes don't count
    for _ in range(CALLS):
        call()
    return (time.thread_time_ns() - begin) / CALLS / 1e3


def median_difference(one: list[float], other: list[float]) -> dict[str, float]:
    """The median of the differences round by round, and its 99 % interval: order statistics of the binomial
    distribution, by its normal approximation."""
    differences = sorted(a - b for a, b in zip(one, other, strict=True))
    count = len(differences)
    reach = 2.576 * count**0.5 / 2
    low, high = max(0, int(count / 2 - reach)), min(count - 1, int(count / 2 + reach))
    middle = statistics.median(differences)
    return {"median": round(middle, 3), "from": round(differences[low], 3), "to": round(differences[high], 3)}


def scripted_calls(write: Write) -> dict[str, Any]:
    """The wrapper's line alone: kerntune's over a driver that launches nothing, Inductor's over a runner that does
    nothing at all, which is less than its real one does."""
    sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / name) for name in ("kernels/dispatch", ".")]
    from compiled_graph_kernels import tuned_scale
    from fake_driver import FakeTensor, fake_cuda
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    import kerntune
    from kerntune.kernels.dispatch import native, prepare_front
    from kerntune.tuning.torch_compile.argument_plan import Given, KnownValue, RebuiltFunction
    from kerntune.tuning.torch_compile.graph_launch import GraphLaunch

    prepare_front()
    with fake_cuda(devices=1):
        kernel = tuned_scale()
        x, y = (FakeTensor(4096 * i) for i in (1, 2))
        kernel.cache[kernel_key(kernel, x, y)] = kernel.configs[0]
        n = 1024

        def grid(meta: dict[str, Any]) -> tuple[int]:
            return (triton.cdiv(n, meta["BLOCK"]),)

        plan = RebuiltFunction(grid.__code__, grid.__globals__, (Given("ints", 0),), (), ())
        arguments = (KnownValue(x), KnownValue(y), Given("ints", 0), KnownValue(2.0))
        launch = GraphLaunch(kernel, arguments, (), plan)
        path = launch.path

        def reading_grid(meta: dict[str, Any]) -> tuple[int]:
            return (blocks_of(n, meta["BLOCK"]) * AXES,)

        plan = RebuiltFunction(reading_grid.__code__, globals(), (Given("ints", 0),), (), ())
        reading = GraphLaunch(kernel, arguments, (), plan)
        proposed = kerntune.pointwise(sizes={"x": "n"}, blocks={"x": "BLOCK"})(kernel.fn)
        proposed.cache[kernel_key(proposed, x, y)] = triton.Config({"BLOCK": 64})
        plan = RebuiltFunction(grid.__code__, globals(), (Given("ints", 0),), (), ())
        heuristic = GraphLaunch(proposed, arguments, (), plan, layouts=True)
        own_path = heuristic.path
        for _ in range(3):
            path.front(reading.grid_of(n), x, y, n, 2.0)
            own_path.front(heuristic.grid_of(n), x, y, n, 2.0)
        for given in (grid, (16,), launch.grid_of(n)):
            for _ in range(3):
                path.front(given, x, y, n, 2.0)
        compiled = native.module()
        nothing = ctypes.CDLL(None).pthread_equal  # of two addresses: 0, as the driver's success, without a system call
        if compiled is not None:
            compiled.use_driver(ctypes.cast(nothing, ctypes.c_void_p).value)
        inductors = CachingAutotuner.__new__(CachingAutotuner)
        inductors._cached_launcher = launcher
        triple = (16, 1, 1)
        return {
            "in_c": compiled is not None,
            **compared(
                {
                    "kerntune in eager code, grid of numbers": lambda: kernel[triple](x, y, n, 2.0),
                    "kerntune in eager code, grid function": lambda: kernel[grid](x, y, n, 2.0),
                    "kerntune, grid of numbers": lambda: path.front(triple, x, y, n, 2.0),
                    "kerntune, grid function": lambda: path.front(grid, x, y, n, 2.0),
                    "kerntune, grid that closes over a size": lambda: path.front(launch.grid_of(n), x, y, n, 2.0),
                    "kerntune, grid that reads a global and calls a function": lambda: path.front(
                        reading.grid_of(n), x, y, n, 2.0
                    ),
                    "kerntune, heuristics' decorator": lambda: own_path.front(heuristic.grid_of(n), x, y, n, 2.0),
                    "inductor": lambda: inductors.run(x, y, n, 2.0, stream=0),
                    "an empty call": lambda: None,
                }
            ),
        }


AXES = 1


def blocks_of(n: int, block: int) -> int:
    """Blocks for ``n`` elements."""
    return -(-n // block)


def kernel_key(kernel: Any, x: Any, y: Any) -> Any:
    """The tuner's key of the call."""
    from kerntune.kernels import compat

    return compat.autotuner_key(kernel, {"x_ptr": x, "y_ptr": y, "n": 1024, "factor": 2.0}, {})


def launcher(x_ptr: Any, y_ptr: Any, n: int, factor: float, stream: int) -> Any:
    """A launcher as Inductor writes it for a grid of one axis; its runner does nothing."""
    grid_0 = -(-n // 64)
    return runner(grid_0, 1, 1, stream, 1000, 4, None, None, x_ptr, y_ptr, n, factor)


def runner(*args: Any) -> None:
    """Takes a launch."""


if __name__ == "__main__":
    main()
