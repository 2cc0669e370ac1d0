"""One group of figures of the checkout that is imported, for ``before_after.py``: JSON of seconds or counts on stdout.

    python benchmarks/before_after/before_after_child.py GROUP [CORE]

PYTHONPATH and the working directory are set to a checkout.

Modules are looked up under the names that the two revisions have; the newer name comes first.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MODULES = {
    "compile worker": ("kerntune.compiling.compile_worker", "kerntune.farm.worker"),
    "timing worker": ("kerntune.timing.worker.serve", "kerntune.worker.serve"),
    "gate": ("kerntune.gate.api", "kerntune.check"),
    "command": ("kerntune.cli.command", "kerntune.cli"),
    "launch path": ("kerntune.kernels.dispatch.launch_path", "kerntune.dispatch.path"),
    "native": ("kerntune.kernels.dispatch.native", "kerntune.dispatch.native"),
    "fake driver": ("tests.kernels.dispatch.fake_driver", "tests.dispatch.fake_driver"),
}
"""What is measured, by the names of its module in the newer and in the older revision."""

IMPORTED = {
    "import kerntune": ("kerntune",),
    "compile worker": MODULES["compile worker"],
    "timing worker": MODULES["timing worker"],
    "gate": MODULES["gate"],
    "command": MODULES["command"],
    "plugin": ("pytest_kerntune.plugin",),
}

IMPORT_NAMES = {f"import {key.removeprefix('import ')}": key for key in IMPORTED}

LAYOUTS, LOOPS, CALLS = 5, 40, 500
"""Of a dispatch: kernels that are made one after the other, each at other addresses; loops over each, and calls of a
loop, which takes a millisecond: it lies between two interruptions even where other processes want the core."""

WAYS = ("driver", "launcher", "python")


def name_of(names: tuple[str, ...]) -> str:
    """The first of the names that this checkout has a file for (``find_spec`` would import the packages above it)."""
    root = Path(checkout())
    for name in names:
        place = root.joinpath(*name.split("."))
        if place.with_suffix(".py").is_file() or (place / "__init__.py").is_file():
            return name
    raise SystemExit(f"this checkout has none of {', '.join(names)}")


def checkout() -> str:
    """The folder that is measured."""
    return os.environ["PYTHONPATH"].partition(os.pathsep)[0]


def module(key: str) -> Any:
    """The module, imported."""
    return importlib.import_module(name_of(MODULES[key]))


def counts() -> dict[str, dict[str, int]]:
    """By entry point, the modules that importing it loads in a fresh process: all, and those of this project."""
    code = (
        "import sys; before = set(sys.modules); import {0}; new = set(sys.modules) - before; "
        "print(len(new), sum(n.partition('.')[0] in ('kerntune', 'pytest_kerntune') for n in new))"
    )
    found = {}
    for key, names in IMPORTED.items():
        command = [sys.executable, "-c", code.format(name_of(names))]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        every, own = map(int, done.stdout.split())
        found[key] = {"all": every, "own": own}
    return found


def import_time(key: str) -> dict[str, float]:
    """Seconds that an import takes in this process, which has imported next to nothing so far."""
    name = name_of(IMPORTED[key])
    wall, cpu = time.perf_counter(), time.process_time()
    importlib.import_module(name)
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def dispatches() -> dict[str, dict[str, float]]:
    """Each way of dispatching, in one process: most of its time is the import of Triton."""
    return {f"dispatch {way}": dispatch(way) for way in WAYS}


def dispatch(way: str) -> dict[str, float]:
    """Seconds a call of a tuned kernel of ten arguments, whose launch does nothing: no GPU is needed.

    ``way`` is ``driver`` (C calls the driver's entry, here a libc function that returns 0), ``launcher`` (C calls
    Triton's launcher, here an empty Python function) or ``python`` (the launch path without C). The median over
    :data:`LAYOUTS` kernels, with pieces of memory of random sizes between them.
    """
    import triton

    import kerntune

    fake, native = module("fake driver"), module("native")
    if native.module() is None:
        raise SystemExit("there is no C compiler")
    fake.told = lambda *args: None
    found: list[dict[str, float]] = []
    between: list[Any] = []
    with without_c(way == "python"), fake.fake_cuda(1, way == "driver") as cuda:
        cuda.launches = Discard()
        if way == "driver":
            equal = ctypes.CDLL(None).pthread_equal  # of a function's address and a grid's size: 0, which is success
            native.module().use_driver(ctypes.cast(equal, ctypes.c_void_p).value)
        for _ in range(LAYOUTS):
            between.append([bytes(random.randrange(16, 512)) for _ in range(random.randrange(256))])
            kernel = kerntune.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])(ten())
            kernel.cache = AnyWinner(kernel.configs[1])
            tensors = [fake.FakeTensor(4096 * i) for i in range(1, 6)]
            found.append(timed(kernel, (*tensors, 4096, 3, 7, 0.5)))
            between.append(kernel)
    return {kind: statistics.median(times[kind] for times in found) for kind in found[0]}


@contextlib.contextmanager
def without_c(wanted: bool) -> Iterator[None]:
    """Launch paths made meanwhile have no C in front, if ``wanted``."""
    path = module("launch path")
    before = path.native_front
    if wanted:
        path.native_front = lambda *args: None
    try:
        yield
    finally:
        path.native_front = before


def ten() -> Any:
    """A kernel of ten arguments, compiled by the fake driver to nothing."""
    import triton
    import triton.language as tl

    @triton.jit
    def kernel(a, b, c, d, out, n, stride, step, alpha, BLOCK: tl.constexpr):
        pass

    return kernel


class Discard(list[Any]):
    """A list that keeps nothing."""

    def append(self, value: Any) -> None:
        """Leave it out."""


class AnyWinner(dict[Any, Any]):
    """A tuner's cache that has a winner for every key."""

    def __init__(self, config: Any) -> None:
        self._config = config

    def get(self, key: Any, default: Any = None) -> Any:
        """The one config."""
        return self.setdefault(key, self._config)


def timed(kernel: Any, args: tuple[Any, ...]) -> dict[str, float]:
    """Seconds a launch: the least over :data:`LOOPS` loops of :data:`CALLS`, which other processes disturb least."""
    for _ in range(CALLS):
        kernel[(4,)](*args)
    walls, cpus = [], []
    for _ in range(LOOPS):
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(CALLS):
            kernel[(4,)](*args)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return {"wall": min(walls) / CALLS, "cpu": min(cpus) / CALLS}


WORKER = """
import inspect, os
from {name} import main
words = dict(memory_limit=0, knobs='[]', folder={folder!r}, parent=os.getppid(), inherited=0)
main(**{{key: words[key] for key in inspect.signature(main).parameters if key in words}})
"""
"""Starts a worker with those of its arguments that a revision's takes."""


def worker_start() -> dict[str, float]:
    """Seconds until a compiling process that isn't forked has sent its first message; of the processor, until it has
    ended. It ends, or is killed by itself, when its standard input closes."""
    name = name_of(MODULES["compile worker"])
    before, wall = processor_time_of_children(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as errors:
        command = [sys.executable, "-c", WORKER.format(name=name, folder=folder)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, start_new_session=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            first = process.stdout.read(1)
            wall = time.perf_counter() - wall
            process.stdin.close()
        if not first:
            errors.seek(0)
            raise SystemExit(f"the worker ended with {process.returncode}: {errors.read().decode(errors='replace')}")
    return {"wall": wall, "cpu": processor_time_of_children() - before}


def processor_time_of_children() -> float:
    """Seconds, of the child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


GROUPS: dict[str, Callable[[], Any]] = {
    "counts": counts,
    "dispatch": dispatches,
    "worker start": lambda: {"worker start": worker_start()},
    **{name: lambda name=name, key=key: {name: import_time(key)} for name, key in IMPORT_NAMES.items()},
}
"""What a process measures, each as its figures by name; of ``counts`` the numbers of modules."""


def main() -> None:
    """See the module's text."""
    if len(sys.argv) > 2:
        os.sched_setaffinity(0, {int(sys.argv[2])})
    spec = importlib.util.find_spec("kerntune")
    if spec is None or not str(spec.origin).startswith(checkout()):
        raise SystemExit(f"kerntune is imported from {spec and spec.origin}, not from {checkout()}")
    print(json.dumps(GROUPS[sys.argv[1]]()))


if __name__ == "__main__":
    main()
