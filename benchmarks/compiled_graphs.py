"""Tuned kernels in compiled functions: winners, the cold first call, and what a call costs on the host.

Run ``python benchmarks/compiled_graphs.py benchmarks/results/compiled_graphs_h200.json`` on a machine with a GPU, and
with liger-kernel and flash-linear-attention installed; results are written after each part. ``--scripted`` needs no
GPU: it measures the calls alone, on a driver that launches nothing, beside ``kernel[grid](...)`` in eager code and a
launcher of Inductor's form that launches nothing either. Tensors are stand-ins there, asked more slowly than torch's.

* ``winners``: kernels of ``compiled_graph_kernels.py``, three sizes each, ``dynamic`` or not. Per kernel and size:
  whether the compiled function launched the config that eager code has won with, whether results are equal, and how
  many configs Inductor timed (it must be none). A graph break is an error: ``fullgraph=True``.
* ``cold``: the first call of a compiled function with a matrix product of 48 configs, in fresh processes with empty
  caches, with kerntune and with Inductor's own tuning, in turns.
* ``calls``: microseconds per call of compiled functions, against Inductor's launch of the same kernel with one config.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
os.environ.setdefault("KERNTUNE_PATIENCE", "all")

import torch
import triton

CALLS, REPEATS, COLD = 2000, 15, 3


def main() -> None:
    """Measure, and write after each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?", default=Path("compiled_graphs.json"))
    parser.add_argument("--scripted", action="store_true", help="without a GPU: the calls alone")
    parser.add_argument("--cold", choices=["kerntune", "inductor"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cold:
        print(json.dumps(cold_call(options.cold)))
        return
    found: dict[str, Any] = {"environment": environment()}
    parts = {"calls": scripted_calls} if options.scripted else {"winners": winners, "calls": calls, "cold": cold}
    for name, measure in parts.items():
        found[name] = measure()
        options.results.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(name, json.dumps(found[name], indent=1))


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


def winners() -> dict[str, Any]:
    """Each kernel's configs in compiled functions beside those that eager code has."""
    from compiled_graph_kernels import cases

    rows = [row for name, case in cases().items() for dynamic in (False, True) for row in of_case(name, case, dynamic)]
    right = sum(row["same_config"] and row["equal"] for row in rows)
    trials = sum(row["inductor_trials"] for row in rows)
    return {"right": right, "of": len(rows), "inductor_trials": trials, "rows": rows}


def of_case(name: str, case: Any, dynamic: bool) -> list[dict[str, Any]]:
    """One kernel's rows; an error is a row as well."""
    import torch._dynamo

    torch._dynamo.reset()
    rows = []
    graph = torch.compile(case.run, fullgraph=True, dynamic=dynamic)
    for size in case.sizes:
        row: dict[str, Any] = {"kernel": name, "size": size, "dynamic": dynamic, "same_config": False, "equal": False}
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
            row["inductor_trials"] = len(trials)
        except Exception as exc:
            row |= {"error": f"{type(exc).__name__}: {str(exc)[:300]}", "inductor_trials": 0}
        rows.append(row)
    return rows


class trials_of_inductor:
    """The configs that Inductor times meanwhile."""

    def __enter__(self) -> list[Any]:
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner

        self._bench, seen = CachingAutotuner.bench, []

        def bench(tuner: Any, launcher: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(launcher)
            return self._bench(tuner, launcher, *args, **kwargs)

        CachingAutotuner.bench = bench
        return seen

    def __exit__(self, *error: object) -> None:
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner

        CachingAutotuner.bench = self._bench


class launched_configs:
    """The kernels and configs that Triton's launchers are called with meanwhile, from eager code and generated."""

    def __enter__(self) -> list[str]:
        from triton import knobs

        self._seen: list[str] = []
        self._hook = lambda metadata: self._seen.append(_told(metadata.get()))
        knobs.runtime.launch_enter_hook.add(self._hook)
        return self._seen

    def __exit__(self, *error: object) -> None:
        from triton import knobs

        knobs.runtime.launch_enter_hook.remove(self._hook)


def _told(metadata: dict[str, Any]) -> str:
    return f"{metadata.get('name')} {metadata.get('hash', '')}"


# cold


def cold() -> dict[str, Any]:
    """Seconds of the first call, in fresh processes in turns."""
    seconds: dict[str, list[float]] = {"kerntune": [], "inductor": []}
    for _ in range(COLD):
        for side, found in seconds.items():
            with tempfile.TemporaryDirectory() as folder:
                names = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "KERNTUNE_CACHE_DIR")
                env = {**os.environ, **{name: os.path.join(folder, name) for name in names}}
                done = subprocess.run(
                    [sys.executable, __file__, "--cold", side], env=env, capture_output=True, text=True, check=True
                )
                found.append(json.loads(done.stdout.splitlines()[-1])["seconds"])
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


def calls() -> dict[str, Any]:
    """Microseconds per call of the whole compiled function, with kerntune's operator and with Inductor's launch."""
    import torch._dynamo
    from compiled_graph_kernels import one_config, scale_function, tuned_scale

    x = torch.randn(1024, device="cuda")
    sides: dict[str, Callable[[], Any]] = {}
    for name, dynamic in (("static", False), ("dynamic", True)):
        kernel = tuned_scale()
        torch._dynamo.reset()
        ours = torch.compile(scale_function(kernel), fullgraph=True, dynamic=dynamic)
        ours(x)
        theirs = torch.compile(scale_function(one_config(kernel)), fullgraph=True, dynamic=dynamic)
        theirs(x)
        known = torch.compile(scale_function(kernel, again=True), fullgraph=True, dynamic=dynamic)
        known(x)
        sides |= {
            f"{name}: operator": lambda f=ours: f(x),
            f"{name}: inductor": lambda f=theirs: f(x),
            f"{name}: compiled after tuning": lambda f=known: f(x),
        }
    torch.cuda.synchronize()
    return per_call(sides)


def per_call(sides: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Median microseconds of a call in a loop, all sides in turns."""
    seen: dict[str, list[float]] = {name: [] for name in sides}
    for call in sides.values():
        for _ in range(CALLS):
            call()
    for _ in range(REPEATS):
        for name, call in sides.items():
            begin = time.thread_time()  # other processes don't count
            for _ in range(CALLS):
                call()
            seen[name].append((time.thread_time() - begin) / CALLS * 1e6)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
    return {name: round(statistics.median(found), 3) for name, found in seen.items()}


def scripted_calls() -> dict[str, Any]:
    """The wrapper's line alone: kerntune's over a driver that launches nothing, Inductor's over a runner that does
    nothing at all, which is less than its real one does."""
    sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / name) for name in ("kernels/dispatch", ".")]
    from compiled_graph_kernels import tuned_scale
    from fake_driver import FakeTensor, fake_cuda
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

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
        for given in (grid, (16,), launch.grid_of(n)):
            for _ in range(3):
                path.front(given, x, y, n, 2.0)
        compiled = native.module()
        nothing = ctypes.CDLL(None).isatty  # of a file that isn't open: 0, as the driver's success
        if compiled is not None:
            compiled.use_driver(ctypes.cast(nothing, ctypes.c_void_p).value)
        inductors = CachingAutotuner.__new__(CachingAutotuner)
        inductors._cached_launcher = launcher
        triple = (16, 1, 1)
        return {
            "in_c": compiled is not None,
            **per_call(
                {
                    "kerntune in eager code, grid of numbers": lambda: kernel[triple](x, y, n, 2.0),
                    "kerntune in eager code, grid function": lambda: kernel[grid](x, y, n, 2.0),
                    "kerntune, grid of numbers": lambda: path.front(triple, x, y, n, 2.0),
                    "kerntune, grid function": lambda: path.front(grid, x, y, n, 2.0),
                    "kerntune, grid that closes over a size": lambda: path.front(launch.grid_of(n), x, y, n, 2.0),
                    "inductor": lambda: inductors.run(x, y, n, 2.0, stream=0),
                    "an empty call": lambda: None,
                }
            ),
        }


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
