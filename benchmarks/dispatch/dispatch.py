"""Times a tuned kernel's call on the host: kerntune beside ``triton.autotune``, Inductor and plain ``@triton.jit``.

    python -m benchmarks.dispatch.dispatch benchmarks/results/dispatch_h200.json

It runs on a machine with a GPU. Kernels are tiny, so that the GPU is never waited for; each figure is the median over
repeats of the time of a call in a loop of 2000, all sides of all cases taking turns within a repeat. ``driver`` is
Triton's C launcher alone with arguments made ready; ``driver_in_c`` is ``cuLaunchKernel`` in a loop of C, which nothing
can be faster than. ``allocator`` is the time to allocate a kernel's scratch memory, for which the user's allocator is
called at each launch. ``inductor`` is ``CachingAutotuner.run`` of a compiled pointwise function with as many tensors;
it launches by ``_FastCudaLauncher`` where torch has that (CUDA builds of 2.13, not 2.11; ``torch_launchers`` says which
there are).

A warm start is a fresh process (a fork of one that has done all imports) whose first call finds the winner and its
binary on disk, beyond a process that launches the same config of the same kernel plainly, its binary cached too. Since
processes differ by more than that, it is also taken within one: the plain launch first, then the tuned call's.
"""

from __future__ import annotations

import json
import os
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
os.environ.setdefault("KERNTUNE_PATIENCE", "all")  # what is timed is a call after tuning, all of it

import torch
import triton
import triton.language as tl

import kerntune
from benchmarks import harness

CALLS, REPEATS, WARM_STARTS = 2000, 9, 5
IN_C = "driver_in_c"
N = 256

Call = Callable[[], Any]


@triton.jit
def five(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def ten(a, b, c, d, out, n, stride, step, alpha, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    total = tl.load(a + i * stride, mask=inside) + tl.load(b + i, mask=inside) + tl.load(c + i, mask=inside) * alpha
    tl.store(out + i, total + tl.load(d + i * step, mask=inside), mask=inside)


@triton.jit
def copy_by_descriptors(source, target, BLOCK: tl.constexpr):
    target.store([0, 0], source.load([0, 0]))


@triton.jit
def copy_with_scratch(source, target, BLOCK: tl.constexpr):
    first = tl.make_tensor_descriptor(source, [BLOCK, BLOCK], [BLOCK, 1], [BLOCK, BLOCK])
    second = tl.make_tensor_descriptor(target, [BLOCK, BLOCK], [BLOCK, 1], [BLOCK, BLOCK])
    second.store([0, 0], first.load([0, 0]))


def blocks(*sizes: int, **options: Any) -> list[Any]:
    """Configs."""
    return [triton.Config({"BLOCK": size}, **options) for size in sizes]


def cdiv_grid(meta: dict[str, Any]) -> tuple[int]:
    """The grid function of the cases that have one."""
    return (triton.cdiv(N, meta["BLOCK"]),)


class Case:
    """A kernel, its configs and one call's arguments."""

    def __init__(self, jit: Any, args: tuple[Any, ...], key: list[str], configs: list[Any], grid: Any) -> None:
        self.jit, self.args, self.key, self.configs, self.grid = jit, args, key, configs, grid

    def sides(self) -> dict[str, Call]:
        """Ready calls by side; what isn't tuned launches with kerntune's winner."""
        ours = kerntune.autotune(self.configs, key=self.key)(self.jit)
        theirs = triton.autotune(self.configs, key=self.key)(self.jit)
        args, grid = self.args, self.grid
        kernel = ours[grid](*args)
        words = ours.best_config.all_kwargs()
        ours[grid](*args), theirs[grid](*args), ours[grid](*args)
        self.compiled = self.jit.run(*args, grid=grid, warmup=False, **words)
        del kernel
        return {
            "kerntune": lambda: ours[grid](*args),
            "triton_autotune": lambda: theirs[grid](*args),
            "triton_jit": lambda: self.jit[grid](*args, **words),
        }


def cases() -> dict[str, Case]:
    """What is measured; the first two are what a driver-level launcher can take, the others are the rest."""
    tensors = [torch.zeros(4 * N, device="cuda") for _ in range(5)]
    square = [torch.zeros(64, 64, device="cuda") for _ in range(2)]
    by_descriptor = tuple(descriptor(t) for t in square)
    hooked = [triton.Config({"BLOCK": b}, pre_hook=lambda named: None) for b in (256, 512)]
    ten_args = (*tensors, N, 1, 2, 0.5)
    return {
        "five arguments": Case(five, (*tensors[:3], N), ["n"], blocks(256, 512), (1,)),
        "ten arguments": Case(ten, ten_args, ["n"], blocks(256, 512), (1,)),
        "ten arguments, grid function": Case(ten, ten_args, ["n"], blocks(256, 512), cdiv_grid),
        "cluster": Case(five, (*tensors[:3], N), ["n"], blocks(256, 512, num_ctas=2), (1,)),
        "scratch memory": Case(copy_with_scratch, tuple(square), [], blocks(64, num_warps=4), (1,)),
        "descriptors": Case(copy_by_descriptors, by_descriptor, [], blocks(64, num_warps=4), (1,)),
        "hooks in configs": Case(five, (*tensors[:3], N), ["n"], hooked, (1,)),
    }


def descriptor(tensor: torch.Tensor) -> Any:
    """A host-side TMA descriptor of a whole matrix."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor.from_tensor(tensor, list(tensor.shape))


def driver_alone(case: Case) -> Call | None:
    """Triton's C launcher with everything ready; None where it isn't plain."""
    from kerntune.kernels.compat import launcher

    values = launcher.direct_values(case.compiled)
    if values is None or any(hasattr(a, "block_shape") for a in case.args):
        return None
    launch, cooperative, pdl, annotations, types, scratch = values[:6]
    if scratch:
        return None
    ready = [a.data_ptr() if hasattr(a, "data_ptr") else a for a in case.args]
    head = (1, 1, 1, torch._C._cuda_getCurrentRawStream(0), case.compiled.function, cooperative, pdl)
    packed = case.compiled.packed_metadata
    if triton.__version__.startswith("3.6"):
        full: tuple[Any, ...] = (*head, None, None, packed, None, None, None, *ready, None)
    else:
        full = (*head, packed, None, None, None, None, None, annotations, types, (*ready, None))
    return lambda: launch(*full)


def inductor(count: int) -> Call:
    """``CachingAutotuner.run`` of a pointwise kernel over ``count`` tensors, its size and (implied) its stream."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    seen: list[tuple[Any, Any, Any]] = []
    below = CachingAutotuner.run

    def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append((tuner, args, kwargs))
        return below(tuner, *args, **kwargs)

    CachingAutotuner.run = run
    try:
        compiled = torch.compile(lambda *tensors: sum(tensors[1:], tensors[0]))
        compiled(*[torch.zeros(N, device="cuda") for _ in range(count - 1)])
    finally:
        CachingAutotuner.run = below
    tuner, args, kwargs = seen[-1]
    return lambda: tuner.run(*args, **kwargs)


LOOP = """
#define PY_SSIZE_T_CLEAN
#include <Python.h>
typedef int (*Launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                      void **);
static PyObject *loop(PyObject *module, PyObject *args) {
  unsigned long long launch, function, stream, values[16] = {0};
  unsigned threads, calls;
  Py_buffer given;
  void *parameters[16];
  if (!PyArg_ParseTuple(args, "KKKIIy*", &launch, &function, &stream, &threads, &calls, &given)) return NULL;
  memcpy(values, given.buf, given.len);
  PyBuffer_Release(&given);
  for (int i = 0; i < 16; i++) parameters[i] = &values[i];
  int code = 0;
  for (unsigned i = 0; i < calls && !code; i++)
    code = ((Launch)(size_t)launch)((void *)(size_t)function, 1, 1, 1, threads, 1, 1, 0, (void *)(size_t)stream,
                                    parameters, NULL);
  return PyLong_FromLong(code);
}
static PyMethodDef methods[] = {{"loop", loop, METH_VARARGS, ""}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "kerntune_loop", NULL, -1, methods};
PyMODINIT_FUNC PyInit_kerntune_loop(void) { return PyModule_Create(&definition); }
"""


def driver_in_c(case: Case) -> Call:
    """``cuLaunchKernel`` in a loop of C, :data:`CALLS` times a call: no Python, no arguments to convert."""
    from kerntune.kernels.compat import launcher
    from kerntune.kernels.dispatch import native

    module = launcher.compile_c(LOOP, "kerntune_loop")
    numbers = [a.data_ptr() if hasattr(a, "data_ptr") else a for a in case.args]
    values = struct.pack(f"{len(numbers) + 2}Q", *numbers, 0, 0)
    stream = torch._C._cuda_getCurrentRawStream(0)
    head = (native.driver_address(), case.compiled.function, stream, 32 * case.compiled.metadata.num_warps)

    def loop() -> None:
        if module.loop(*head, CALLS, values):
            raise SystemExit("the driver refuses the launch")

    return loop


def time_sides(sides: dict[str, dict[str, Call]], calls: int, repeats: int) -> dict[str, dict[str, float]]:
    """Microseconds per call, the median over repeats; all sides of all cases take turns."""
    times: dict[str, dict[str, list[float]]] = {case: {name: [] for name in own} for case, own in sides.items()}
    for repeat in range(repeats + 1):
        for case, own in sides.items():
            for name, call in own.items():
                torch.cuda.synchronize()
                loops = 1 if name == IN_C else calls
                begin = time.perf_counter()
                for _ in range(loops):
                    call()
                seconds = time.perf_counter() - begin
                if repeat:
                    times[case][name].append(seconds / (CALLS if name == IN_C else calls) * 1e6)
    torch.cuda.synchronize()
    return {
        case: {name: round(statistics.median(found), 3) for name, found in own.items()} for case, own in times.items()
    }


def dispatch(calls: int, repeats: int) -> dict[str, dict[str, float]]:
    """All cases."""
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no processes that take time beside what is measured
    sides = {}
    for name, case in cases().items():
        own = sides[name] = case.sides()
        alone = driver_alone(case)
        if alone is not None:
            own["driver"] = alone
        tensors = {"five arguments": 3, "ten arguments": 5}.get(name)
        if tensors:
            own["inductor"] = inductor(tensors)
        if name == "five arguments":
            own[IN_C] = driver_in_c(case)
    sides["allocator"] = {"alone": lambda: torch.empty(128, device="cuda", dtype=torch.int8)}
    return time_sides(sides, calls, repeats)


def ten_args() -> tuple[Any, ...]:
    """Arguments of ``ten``."""
    return (*[torch.zeros(4 * N, device="cuda") for _ in range(5)], N, 1, 2, 0.5)


def first_call(folder: str, side: str, words: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """Milliseconds of the first call in a fresh process, and the config it launched with.

    The process is a copy of this one, which has done all imports and has not touched the GPU.
    """
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.environ.update(TRITON_CACHE_DIR=f"{folder}/triton", KERNTUNE_CACHE_DIR=f"{folder}/kerntune")
            os.write(write, json.dumps(timed_first_call(side, words)).encode())
        except BaseException as exc:
            os.write(write, json.dumps(f"{type(exc).__name__}: {exc}").encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        found = json.loads(pipe.read())
    os.waitpid(pid, 0)
    if isinstance(found, str):
        raise SystemExit(f"{side}: {found}")
    ms, best = found
    return ms, best


def timed_first_call(side: str, words: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """In a child: a call by ``side``; if that is a tuner and ``words`` are a config, after a plain launch of it."""
    case = Case(ten, ten_args(), ["n"], blocks(256, 512, 1024), cdiv_grid)
    torch.cuda.synchronize()
    kernel: Any = case.jit
    if side != "plain":
        make = kerntune.autotune if side == "kerntune" else triton.autotune
        kernel = make(case.configs, key=case.key, cache_results=True)(case.jit)
        if words:
            case.jit[case.grid](*case.args, **words)
            torch.cuda.synchronize()
    begin = time.perf_counter()
    kernel[case.grid](*case.args, **(words if side == "plain" else {}))
    seconds = time.perf_counter() - begin
    return seconds * 1e3, {} if side == "plain" else kernel.best_config.all_kwargs()


def warm_start(times: int) -> dict[str, Any]:
    """First calls in milliseconds, median and all; ``beyond_plain`` and ``after_plain`` are what a winner costs."""
    out: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for side in ("kerntune", "triton_autotune"):
            cold, best = first_call(folder, side, {})
            first_call(folder, "plain", best)
            found: dict[str, list[float]] = {side: [], "plain": []}
            for i in range(2 * times):
                which = (side, "plain")[(i + i // 2) % 2]
                found[which].append(first_call(folder, which, best if which == "plain" else {})[0])
            after = [first_call(folder, side, best)[0] for _ in range(times)]
            medians = {name: statistics.median(ms) for name, ms in found.items()}
            out[side] = {
                "cold_ms": round(cold, 1),
                "warm_ms": round(medians[side], 1),
                "plain_ms": round(medians["plain"], 1),
                "beyond_plain_ms": round(medians[side] - medians["plain"], 1),
                "after_plain_ms": round(statistics.median(after), 1),
                "all_ms": {n: [round(v, 1) for v in ms] for n, ms in (*found.items(), ("after plain", after))},
            }
    return out


def environment() -> dict[str, object]:
    """Where this ran."""
    with open("/proc/cpuinfo") as file:
        model = next((line.partition(":")[2].strip() for line in file if "model name" in line), "")
    launchers = [n for n in ("_FastCudaLauncher", "_StaticCudaLauncher") if hasattr(torch._C, n)]
    return harness.environment(device=harness.device_name(), torch_launchers=launchers, cpu=model)


def main() -> None:
    """See the module's text."""
    parser = harness.parser(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--warm-starts", type=int, default=WARM_STARTS)
    args = parser.parse_args()
    found: dict[str, Any] = {"calls": args.calls, "repeats": args.repeats}
    if args.warm_starts:
        found["warm_start"] = warm_start(args.warm_starts)  # first: it forks, which a process with a GPU can't
        print(json.dumps(found["warm_start"], indent=1), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KERNTUNE_CACHE_DIR"] = folder
        found["us_per_call"] = dispatch(args.calls, args.repeats)
    found = {"environment": environment(), **found}
    harness.write(args.out, found)
    print(json.dumps(found["us_per_call"], indent=1))


if __name__ == "__main__":
    main()
