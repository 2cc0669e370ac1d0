"""Processes that have imported torch and Triton, for runs of pytest: the import takes most of a short run."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from kerntune.base.orphans import bound_command
from kerntune.cli.bisect.bisected_version import Checkout

SharedImports = tuple[str, tuple[str, ...]]
"""An interpreter, and the entries of the path that all its versions share."""

READY = "ready"
"""The first line of a process that has the imports."""


class CommandRuns:
    """Runs commands of kerntune in checkouts: in copies of a process with all imports, or each in its own process."""

    def __init__(self) -> None:
        self._idle: dict[SharedImports, list[RunServer]] = defaultdict(list)
        self._all: list[RunServer] = []
        self._lock = threading.Lock()

    def run(self, layout: Checkout, arguments: Sequence[str], output: Path, reads: Path | None = None) -> int:
        """Run one; its exit code. ``output`` takes what it prints, ``reads`` which files it reads, if that is known."""
        if layout.shared_path is not None:
            code = self._in_copy(layout, (layout.python, layout.shared_path), arguments, output, reads)
            if code is not None:
                return code
            if reads is not None:
                reads.unlink(missing_ok=True)
        return run_alone(layout, arguments, output)

    def close(self) -> None:
        """End the processes."""
        for server in self._all:
            server.close()

    def _in_copy(
        self, layout: Checkout, place: SharedImports, arguments: Sequence[str], output: Path, reads: Path | None
    ) -> int | None:
        with self._lock:
            server = self._idle[place].pop() if self._idle[place] else None
        if server is None:
            server = RunServer(*place, layout.env)
            self._all.append(server)
        code = server.run(layout, arguments, output, reads)
        with self._lock:
            self._idle[place].append(server)
        return code


def run_alone(layout: Checkout, arguments: Sequence[str], output: Path) -> int:
    """Run a command of kerntune in a process of its own; its exit code."""
    with open(output, "wb") as out:
        return subprocess.run(
            bound_command([layout.python, "-m", "kerntune.cli", *arguments]),
            cwd=layout.root,
            env=layout.env,
            stdout=out,
            stderr=out,
            check=False,
        ).returncode


class RunServer:
    """A process that has the imports, and runs one command at a time in a copy of itself."""

    def __init__(self, python: str, shared_path: Sequence[str], env: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [python, "-m", "kerntune.cli.bisect.run_server"],
            cwd="/",
            env={**env, "PYTHONPATH": os.pathsep.join(shared_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._works = self._answer() == READY

    def run(self, layout: Checkout, arguments: Sequence[str], output: Path, reads: Path | None) -> int | None:
        """The exit code; None if it can't run in a copy."""
        asked = {
            "cwd": str(layout.root),
            "env": layout.env,
            "arguments": list(arguments),
            "output": str(output),
            "reads": str(reads or ""),
        }
        if not self._works:
            return None
        answer = ""
        with contextlib.suppress(OSError):  # its process was killed
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            answer = self._answer()
        self._works = bool(answer)
        return int(answer) if answer.lstrip("-").isdecimal() and int(answer) >= 0 else None

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        """End the process, and its copy."""
        with contextlib.suppress(OSError):
            self._process.communicate()
