"""What the experiments share: native libraries, environment, children with a time limit, results as JSON."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WORK = Path(os.environ.get("EXPERIMENTS_WORK", "/tmp/kerntune-experiments"))
"""Built libraries, recordings and code of kernels; nothing of it is kept."""

NATIVE = ("recorder", "window", "subscriber", "confine")
GIB = 1 << 30
BASES = (0x400000000000, 0x4A5640000000)
"""Windows of the two recordings. The distance has bits set in the middle, so that chance doesn't give it."""
TARGET = 0x590000000000
"""The window of the replay: a third one."""
RESERVED = 64 * GIB
SLOT = int(os.environ.get("EXPERIMENTS_SLOT", 512 << 20))
"""Of each call in a window of many."""
COMMON = int(os.environ.get("EXPERIMENTS_COMMON", 256 << 20))
GRANULE = 2 << 20
POISON = 0xA5


def build(names: tuple[str, ...] = NATIVE, folder: Path = WORK) -> dict[str, Path]:
    """Compile the native libraries with the system's C compiler; paths by name."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for name in names:
        paths[name] = folder / f"{name}.so"
        source = HERE / "native" / f"{name}.c"
        if paths[name].exists() and paths[name].stat().st_mtime > source.stat().st_mtime:
            continue
        options = ["-O2", "-fPIC", "-shared", "-fvisibility=hidden"]
        command = [os.environ.get("CC", "gcc"), *options, "-o", str(paths[name]), str(source), "-ldl", "-lpthread"]
        subprocess.run(command, check=True, capture_output=True, text=True)
    return paths


def library(name: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(WORK / f"{name}.so"))


DEADLINE = [float("inf")]
"""When, by time.monotonic(), no child may run any longer."""


def child(
    arguments: list[str], seconds: float, extra: dict[str, str] | None = None, recorder: Path | None = None
) -> dict[str, Any]:
    """Run a Python script of this folder; its last line that is JSON, or what went wrong. It never waits longer."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    environment.update(extra or {})
    if recorder is not None:
        environment.update(LD_PRELOAD=str(WORK / "recorder.so"), RECORDER_OUT=str(recorder))
    begin = time.monotonic()
    seconds = min(seconds, DEADLINE[0] - begin)
    if seconds < 1:
        return {"error": "not begun: the time was over"}
    texts = [WORK / f"{kind}.{os.getpid()}.{next(NUMBERS)}" for kind in ("out", "err")]
    with texts[0].open("wb") as out, texts[1].open("wb") as err:
        process = subprocess.Popen([sys.executable, *arguments], cwd=HERE, env=environment, stdout=out, stderr=err)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
    stdout, stderr = (t.read_text(errors="replace") for t in texts)
    if process.returncode is None:
        return {"error": f"not done after {seconds:.0f} s", "stderr": stderr[-800:], "stdout": stdout[-300:]}
    for line in reversed(stdout.splitlines()):
        if line.startswith("{"):
            answer: dict[str, Any] = json.loads(line)
            answer.setdefault("process_seconds", round(time.monotonic() - begin, 2))
            return answer
    return {"error": f"exit code {process.returncode}", "stderr": stderr[-1500:], "stdout": stdout[-500:]}


NUMBERS = itertools.count()


def guarded(function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """What ``function`` gives; what it raises is part of the result and ends nothing else."""
    begin = time.monotonic()
    try:
        result = function(*arguments)
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}", "where": traceback.format_exc()[-1200:]}
    answer: dict[str, Any] = result if isinstance(result, dict) else {"result": result}
    answer["seconds"] = round(time.monotonic() - begin, 2)
    return answer


def answer(result: dict[str, Any]) -> None:
    """A child's answer: one line of JSON, the last that it prints."""
    print(json.dumps(result), flush=True)


def environment() -> dict[str, Any]:
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "python": platform.python_version()}
    found.update(kernel=platform.release(), cpus=os.cpu_count())
    for name in ("torch", "triton", "nvidia-cutlass-dsl", "liger-kernel", "cupy-cuda13x", "nvidia-cuda-cupti"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    try:
        asked = "--query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu,memory.used"
        found["gpu"] = subprocess.run(
            ["nvidia-smi", asked, "--format=csv,noheader"], capture_output=True, text=True, timeout=20
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        found["gpu"] = f"none: {error}"
    return found
