"""What the gate adds to a cold run of twelve compiled functions without a GPU: processor time of all processes.

    python -m benchmarks.ops.cold_run [OUT.json] [--rounds 5]

Both sides are pytest on :mod:`benchmarks.ops.cold_cases` in a new folder with empty caches, in turn. ``gate`` is
``pytest --kerntune`` without a baseline. ``plain`` has a fixture in the gate's place, under the same stand-ins: Dynamo
and Inductor generate the same code, and Inductor's own call compiles every config of every kernel with Triton. Python's
bytecode is there, as after an installation: a first round, which isn't counted, writes it.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import harness

TARGET = "cuda:90"
PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>

CONFTEST = """
import pytest
from kerntune.base.device import Target
from kerntune.gpu.fake_cuda.static_backend import StaticBackend
from kerntune.kernels.compat import inductor_parts

@pytest.fixture(scope="session")
def backend():
    backend = StaticBackend((Target.parse("TARGET"),))
    with backend.activate():
        yield backend

@pytest.fixture
def autotune(backend):
    compiled = {}

    def run(tuner, *args, **kwargs):
        if id(tuner) not in compiled:
            inductor_parts.loaded_kernel(tuner)
            made = [tuner._precompile_config(config) for config in tuner.configs]
            compiled[id(tuner)] = tuner, made

    def begin(stack):
        inductor_parts.inductor_part("reset")()
        inductor_parts.replace_part(stack, "run", run)

    def call(fn, *args):
        with backend.tensors.compiling(begin):
            fn(*args)

    return call
"""
"""The fixture of the plain side: every config is compiled at a kernel's first launch, and nothing is launched."""


def processor_seconds(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[float, str]:
    """Seconds that a command and all processes that it starts are running, and what it prints.

    Those that outlive their parent become children of this process, which waits for them.
    """
    before = os.times()
    with (folder / "output.txt").open("w") as output:
        done = subprocess.run(command, cwd=folder, env=environment, stdout=output, stderr=output, check=False)
        while True:
            try:
                os.wait()
            except ChildProcessError:
                break
    after = os.times()
    text = (folder / "output.txt").read_text()
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{text[-4000:]}")
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, text


def cold(side: str, folder: Path) -> float:
    """Processor time of one side's run in a new folder."""
    folder.mkdir()
    shutil.copy(Path(__file__).with_name("cold_cases.py"), folder / "test_cold.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    if side == "gate":
        command += [*harness.plugin_options(), "--kerntune", f"--kerntune-target={TARGET}"]
        command += ["--kerntune-json=report.json"]
    else:
        (folder / "conftest.py").write_text(CONFTEST.replace("TARGET", TARGET))
        command += ["-p", "no:kerntune"]
    caches = ("KERNTUNE_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
    own = {name: str(folder / name.lower()) for name in caches}
    environment = harness.child_environment(**own)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    seconds, _ = processor_seconds(command, folder, environment)
    return seconds


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    times: dict[str, list[float]] = {"gate": [], "plain": []}
    with harness.scratch() as scratch:
        for i in range(2 + 2 * options.rounds):
            side = ("gate", "plain")[(i + i // 2) % 2]  # ABBA
            seconds = round(cold(side, Path(scratch) / str(i)), 2)
            times[side] += [seconds] if i > 1 else []
            print(side, seconds, flush=True)
    added = [gate / plain - 1 for gate, plain in zip(times["gate"], times["plain"], strict=True)]
    report: dict[str, Any] = {
        **harness.environment(commit=harness.commit()),
        "target": TARGET,
        "load": [round(x, 1) for x in os.getloadavg()],
        "seconds": times,
        "added_percent": round(100 * statistics.median(added), 1),
    }
    print(json.dumps(report, indent=1))
    if options.out is not None:
        harness.write(options.out, report)


if __name__ == "__main__":
    main()
