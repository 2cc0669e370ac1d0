"""What sealed processes do for a run under ``--kerntune-sealed``: run the tests, and compile what these launched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from kerntune.base.codec import MAX_REPORT
from kerntune.base.orphans import bound_command
from kerntune.base.strict import StrictStruct
from kerntune.gate.claimed_cases import CodeFigures, CodeRequest, figures_of
from kerntune.referee.sealed_process import Roles, main

MOST_PRINTED = 256 << 10
"""Bytes of what tests have printed last that are handed on."""

OWN_PLACES = ("HOME", "TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "KERNTUNE_CACHE_DIR")
"""Variables that a sealed process sets for itself: folders in which it may write."""

REPORT = "run.json"


class TestRun(StrictStruct, frozen=True):
    """``words`` are the arguments of pytest, which runs in ``folder``, ``environment`` all its variables but for
    :data:`OWN_PLACES`."""

    __test__ = False

    words: tuple[str, ...]
    folder: str
    environment: dict[str, str]


class TestsRan(StrictStruct, frozen=True):
    """The exit code of pytest, the end of what it printed, and its JSON; empty if it left none."""

    __test__ = False

    code: int
    printed: bytes
    report: bytes


def run_tests(data: bytes) -> TestsRan:
    """Run pytest in a process of its own, in the working folder's bounds: the role ``tests``."""
    task = msgspec.msgpack.decode(data, type=TestRun)
    scratch = Path.cwd()
    own = {name: os.environ[name] for name in OWN_PLACES if name in os.environ}
    end = task.words.index("--") if "--" in task.words else len(task.words)
    words = (*task.words[:end], f"--kerntune-json={scratch / REPORT}", *task.words[end:])
    environment = {**task.environment, **own, "PYTHONDONTWRITEBYTECODE": "1"}
    with open(scratch / "printed", "w+b") as printed:
        code = subprocess.run(
            bound_command([sys.executable, "-m", "pytest", *words]), cwd=task.folder, env=environment,
            stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT, check=False,
        ).returncode  # fmt: skip
        size = os.fstat(printed.fileno()).st_size
        tail = os.pread(printed.fileno(), MOST_PRINTED, max(0, size - MOST_PRINTED))
    path = scratch / REPORT
    report = path.read_bytes() if path.is_file() and path.stat().st_size <= MAX_REPORT else b""
    return TestsRan(code, tail, report)


def compile_code(data: bytes) -> list[CodeFigures]:
    """The role ``figures``."""
    return figures_of(msgspec.msgpack.decode(data, type=list[CodeRequest]))


ROLES: Roles = {"tests": run_tests, "figures": compile_code}

if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), ROLES)
