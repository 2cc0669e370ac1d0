"""Drives ops of liger-kernel and flash-linear-attention, forward and backward, and records what they launch.

    python -m benchmarks.ops.ops_capture OUT.json [--target cuda:90 | --gpu] [--jobs 2] [--only NAME ...] [--install]

Both packages as the package index has them, unedited. Without ``--gpu`` on kerntune's stand-ins for a target; with it
on the GPU, where every launch also really runs. Each launch is recorded with kernel, grid, config, specialization and
the code identity of what it compiles to. Autotuned kernels are not tuned: on both sides the first config runs that
pruning leaves and the device takes. ``--install`` calls ``kerntune.install()`` before the packages are imported, which
must change nothing here.

The ops are shared by ``--jobs`` processes, each with a few at a time: one that dies costs its current op only.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import harness

SLICE = 6
"""Ops that one process drives before another takes over, so that a memory-hungry one doesn't haunt the rest."""

PATIENCE_S = 400.0
PACKAGES = {"liger-kernel": "benchmarks.ops.ops_liger", "flash-linear-attention": "benchmarks.ops.ops_fla"}


def catalog() -> dict[str, tuple[str, Callable[[], Any]]]:
    """Every op by ``package/name``."""
    import importlib

    return {
        f"{package}/{name}": (package, run)
        for package, module in PACKAGES.items()
        for name, run in importlib.import_module(module).OPS.items()
    }


def drive(names: list[str], args: argparse.Namespace, log: Path) -> None:
    """Run each op, forward and backward, and append what it launched to ``log``, a line an op."""
    import kerntune
    from kerntune.compiling.compiler import Compiler
    from kerntune.gpu.probe import compiled_targets, find_backend
    from kerntune.kernels.compat import triton_compiler

    backend = find_backend(() if args.gpu else compiled_targets((args.target,)))
    with triton_compiler.without_line_info(), backend.activate():
        import triton

        if args.install:
            kerntune.install()
        if args.gpu:
            triton.set_allocator(_allocate)  # kernels with device-side descriptors need an allocator of scratch memory
        compiler, ops = Compiler(), catalog()
        for name in names:
            with log.open("a") as file:
                file.write(json.dumps({"op": name, "begun": True}) + "\n")
            entry = one(ops[name][1], backend, compiler)
            with log.open("a") as file:
                file.write(json.dumps({"op": name, "package": ops[name][0], **entry}) + "\n")
        compiler.close()


def one(run: Callable[[], Any], backend: Any, compiler: Any) -> dict[str, Any]:
    """What an op launches forward and backward, and its error if it has one."""
    from benchmarks.ops.ops_sides import Observed, first_line

    start, capture, error = time.perf_counter(), Observed(backend, compiler), ""
    import torch

    torch.manual_seed(0)
    forward = 0
    try:
        with capture.active():
            outputs = tensors(run())
            forward = len(capture.launches)
            torch.autograd.backward(outputs, [torch.ones_like(x) for x in outputs])
        if backend.gpu is not None:
            backend.gpu.synchronize()
    except Exception as exc:
        error = first_line(exc)
        ended = backend.end_reason(exc)
        error = f"needs values: {ended}" if ended else error
    seconds = time.perf_counter() - start
    launches = capture.entries()
    whole = time.perf_counter() - start
    return {
        "error": error,
        "forward": forward,
        "launches": launches,
        "capture_s": round(seconds, 2),
        "total_s": round(whole, 2),
    }


def tensors(value: Any) -> list[Any]:
    """The outputs that have a gradient."""
    import torch

    items = value if isinstance(value, (tuple, list)) else [value]
    return [x for x in items if isinstance(x, torch.Tensor) and x.requires_grad]


def _allocate(size: int, alignment: int, stream: int | None) -> Any:
    import torch

    return torch.empty(size, device="cuda", dtype=torch.int8)


def device() -> str:
    """The GPU's name."""
    from kerntune.gpu.probe import current_device

    return current_device().name


def chosen(names: list[str], only: list[str]) -> list[str]:
    """All, or those that are named; a word that names none is a part of names."""
    exact, parts = set(only) & set(names), set(only) - set(names)
    return [n for n in names if not only or n in exact or any(part in n for part in parts)]


def slices(names: list[str], jobs: int) -> Iterator[list[str]]:
    """The ops in portions, neighbours (which share imports and kernels) together."""
    portion = max(1, min(SLICE, -(-len(names) // jobs)))
    items = iter(names)
    while part := list(itertools.islice(items, portion)):
        yield part


def run_slice(names: list[str], args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Run some ops in a separate process; if it dies, continue with those after the op that ended it."""
    done: list[dict[str, Any]] = []
    rest = list(names)
    while rest:
        log = folder / f"{rest[0].replace('/', '-')}-{len(rest)}.jsonl"
        ended = _process(rest, args, log)
        lines = [json.loads(x) for x in log.read_text().splitlines()] if log.exists() else []
        finished = [x for x in lines if not x.get("begun")]
        done += finished
        rest = rest[len(finished) :]
        if rest:
            package = rest[0].partition("/")[0]
            failed = {"op": rest[0], "package": package, "error": f"its process died: {ended}", "launches": []}
            done.append(failed)
            rest = rest[1:]
    return done


def _process(names: list[str], args: argparse.Namespace, log: Path) -> str:
    command = [sys.executable, "-m", "benchmarks.ops.ops_capture", str(log), "--drive", *names, "--target", args.target]
    command += [f"--{flag}" for flag in ("gpu", "install") if getattr(args, flag)]
    try:
        done = subprocess.run(
            command, env=harness.child_environment(), capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
    except subprocess.TimeoutExpired:
        return f"no end after {PATIENCE_S:.0f} s"
    return f"exit {done.returncode}: {' '.join(done.stderr.strip().splitlines()[-2:])[-300:]}"


def main() -> int:
    """See the module's text."""
    parser = harness.parser(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", default="cuda:90")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--drive", nargs="*", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.drive:
        drive(args.drive, args, args.out)
        return 0
    names = chosen(list(catalog()), args.only)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(args.jobs) as pool:
        parts = list(pool.map(lambda part: run_slice(part, args, Path(scratch)), slices(names, args.jobs)))
    found = [entry for part in parts for entry in part]
    result = {
        "environment": harness.environment(
            *PACKAGES, "fla-core", target=args.target, side=device() if args.gpu else "stand-ins"
        ),
        "seconds": round(time.perf_counter() - start, 1),
        "ops": {entry.pop("op"): entry for entry in found},
    }
    harness.write(args.out, result)
    for name, entry in result["ops"].items():
        print(
            f"{name}: {entry.get('forward')} + {len(entry['launches']) - (entry.get('forward') or 0)} {entry['error']}"
        )
    print(f"{len(found)} ops, {sum(not e['error'] for e in found)} without an error, {result['seconds']} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
