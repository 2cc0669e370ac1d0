"""Processes that have imported torch and Triton, for runs of pytest: the import takes most of a short run."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from kerntune.base.orphans import bound_command
from kerntune.cli.bisect.bisected_version import Checkout

SharedImports = tuple[str, tuple[str, ...]]
"""An interpreter, and the entries of the path that all its versions share."""


ANSWER = "kerntune-answer "
"""Begins the lines of a process that has the imports. What its interpreter prints at its start is none."""


class CommandRuns:
    """Runs commands of kerntune in checkouts: in copies of a process with all imports, or each in its own process."""

    def __init__(self) -> None:
        self.alone = 0
        """Runs that would have been copies, and took a process of their own."""

        self._servers: dict[SharedImports, RunServer] = {}
        self._lock = threading.Lock()

    def run(self, layout: Checkout, arguments: Sequence[str], output: Path) -> int:
        """Run one; its exit code. ``output`` takes what it prints."""
        if layout.shared_path is not None:
            code = self._in_copy(layout, (layout.python, layout.shared_path), arguments, output)
            if code is not None:
                return code
            with self._lock:
                self.alone += 1
        return run_alone(layout, arguments, output)

    def close(self) -> None:
        """End the processes."""
        for server in self._servers.values():
            server.close()

    def _in_copy(self, layout: Checkout, place: SharedImports, arguments: Sequence[str], output: Path) -> int | None:
        with self._lock:
            if place not in self._servers:
                self._servers[place] = RunServer(*place, layout.env)
            server = self._servers[place]
        return server.run(layout, arguments, output)


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
    """A process that has the imports, and runs commands in copies of itself, as many at once as are asked for."""

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
        self._numbers = itertools.count()
        self._asked: dict[int, Future[str]] = {}
        self._lock = threading.Lock()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def run(self, layout: Checkout, arguments: Sequence[str], output: Path) -> int | None:
        """The exit code; None if it can't run in a copy."""
        asked = {
            "cwd": str(layout.root),
            "env": layout.env,
            "arguments": list(arguments),
            "output": str(output),
        }
        answer = self._ask(asked).result()
        return int(answer) if answer.isdecimal() else None  # a copy that a signal ended has a number below 0

    def _ask(self, asked: Mapping[str, object]) -> Future[str]:
        """The answer when it comes; empty if the process ends before."""
        answer: Future[str] = Future()
        with self._lock:
            if self._ended:
                answer.set_result("")
                return answer
            number = next(self._numbers)
            self._asked[number] = answer
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):  # it has ended: the reader is about to see that, too
                self._process.stdin.write(json.dumps({**asked, "number": number}) + "\n")
                self._process.stdin.flush()
        return answer

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.startswith(ANSWER):
                    number, answer = line.removeprefix(ANSWER).split()
                    self._asked.pop(int(number)).set_result(answer)
        with self._lock:
            self._ended = True
            for left in self._asked.values():
                left.set_result("")

    def close(self) -> None:
        """End the process, and its copies."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()
        self._reader.join()
