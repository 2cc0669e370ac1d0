"""One figure of the checkout that is imported, for ``before_after.py``: a JSON object of seconds or counts on stdout.

    python benchmarks/before_after_child.py FIGURE        with PYTHONPATH and the working directory set to a checkout

Modules are looked up under the names that the two revisions have; the newer name comes first.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODULES = {
    "compile worker": ("kerntune.compiling.compile_worker", "kerntune.farm.worker"),
    "timing worker": ("kerntune.timing.worker.serve", "kerntune.worker.serve"),
    "gate": ("kerntune.gate.api", "kerntune.check"),
    "command": ("kerntune.cli.command", "kerntune.cli"),
    "launch path": ("kerntune.kernels.dispatch.launch_path", "kerntune.dispatch.path"),
    "native": ("kerntune.kernels.dispatch.native", "kerntune.dispatch.native"),
    "compat": ("kerntune.kernels.compat", "kerntune.compat"),
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

CALLS, LOOPS = 10_000, 5


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


def dispatch(way: str) -> dict[str, float]:
    """Seconds a call of a tuned kernel of ten arguments, whose launch does nothing: no GPU is needed.

    ``way`` is ``driver`` (C calls the driver's entry, here a libc function that returns 0), ``launcher`` (C calls
    Triton's launcher, here an empty Python function) or ``python`` (the launch path without C).
    """
    import triton

    import kerntune

    fake, native = module("fake driver"), module("native")
    if way == "python":
        module("launch path").native_front = lambda *args: None
    elif native.module() is None:
        raise SystemExit("there is no C compiler")
    fake.told = lambda *args: None
    with fake.fake_cuda(1, way == "driver") as cuda:
        cuda.launches = Discard()
        if way == "driver":
            equal = ctypes.CDLL(None).pthread_equal  # of a function's address and a grid's size: 0, which is success
            native.module().use_driver(ctypes.cast(equal, ctypes.c_void_p).value)
        kernel = kerntune.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])(ten())
        kernel.cache = AnyWinner(kernel.configs[1])
        tensors = [fake.FakeTensor(4096 * i) for i in range(1, 6)]
        return timed(lambda: kernel[(4,)](*tensors, 4096, 3, 7, 0.5))


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


def timed(call: Callable[[], Any]) -> dict[str, float]:
    """Seconds a call: the least over :data:`LOOPS` loops of :data:`CALLS`, which other processes disturb least."""
    for _ in range(1000):
        call()
    walls, cpus = [], []
    for _ in range(LOOPS):
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(CALLS):
            call()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return {"wall": min(walls) / CALLS, "cpu": min(cpus) / CALLS}


def worker_start() -> dict[str, float]:
    """Seconds until a compiling process that isn't forked has sent its first message and ended."""
    name = name_of(MODULES["compile worker"])
    code = f"from {name} import main; main(0, '[]')"
    before, wall = processor_time_of_children(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, start_new_session=True, check=False
    )
    if done.returncode or not done.stdout:
        raise SystemExit(f"the worker ended with {done.returncode}: {done.stderr.decode(errors='replace')[-2000:]}")
    return {"wall": time.perf_counter() - wall, "cpu": processor_time_of_children() - before}


def processor_time_of_children() -> float:
    """Seconds, of the child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


FIGURES: dict[str, Callable[[], Any]] = {
    "counts": counts,
    "worker start": worker_start,
    **{f"dispatch {way}": lambda way=way: dispatch(way) for way in ("driver", "launcher", "python")},
    **{f"import {key.removeprefix('import ')}": lambda key=key: import_time(key) for key in IMPORTED},
}


def main() -> None:
    """See the module's text."""
    spec = importlib.util.find_spec("kerntune")
    if spec is None or not str(spec.origin).startswith(checkout()):
        raise SystemExit(f"kerntune is imported from {spec and spec.origin}, not from {checkout()}")
    print(json.dumps(FIGURES[sys.argv[1]]()))


if __name__ == "__main__":
    main()
