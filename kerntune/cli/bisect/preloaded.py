"""Processes that have imported torch and Triton, for runs of pytest: the import takes most of a short run."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from kerntune.base.frames import send_with
from kerntune.base.orphans import bound_command
from kerntune.base.strict import StrictStruct
from kerntune.cli.bisect.bisected_version import Checkout
from kerntune.errors import FrameError

SharedImports = tuple[str, tuple[str, ...]]
"""An interpreter, and the entries of the path that all its versions share."""


class RunRequest(StrictStruct, frozen=True):
    """A command of kerntune, to be run in a copy of a process that has the imports. ``output`` takes what it prints.
    A pipe travels with it, which the copy writes its exit code to."""

    cwd: str
    env: dict[str, str]
    arguments: list[str]
    output: str


class CommandRuns:
    """Runs commands of kerntune in checkouts: in copies of a process with all imports, or each in its own process."""

    def __init__(self) -> None:
        self._servers: dict[SharedImports, RunServer] = {}
        self._lock = Lock()

    def run(self, layout: Checkout, arguments: Sequence[str], output: Path) -> int:
        """Run one; its exit code. ``output`` takes what it prints."""
        if layout.shared_path is not None:
            place = layout.python, layout.shared_path
            with self._lock:
                if place not in self._servers:
                    self._servers[place] = RunServer(*place, layout.env)
                server = self._servers[place]
            code = server.run(layout, arguments, output)
            if code is not None:
                return code
        return run_alone(layout, arguments, output)

    def close(self) -> None:
        """End the processes."""
        for server in self._servers.values():
            server.close()


def run_alone(layout: Checkout, arguments: Sequence[str], output: Path) -> int:
    """Run a command of kerntune in a process of its own; its exit code."""
    with open(output, "wb") as out:
        return subprocess.run(
            bound_command([layout.python, "-m", "kerntune", *arguments]),
            cwd=layout.root,
            env=layout.env,
            stdout=out,
            stderr=out,
            check=False,
        ).returncode


class RunServer:
    """A process that has the imports, and runs commands in copies of itself, as many at once as are asked for."""

    def __init__(self, python: str, shared_path: Sequence[str], env: dict[str, str]) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [python, "-m", "kerntune.cli.bisect.run_server"],
                cwd="/",
                env={**env, "PYTHONPATH": os.pathsep.join(shared_path)},
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def run(self, layout: Checkout, arguments: Sequence[str], output: Path) -> int | None:
        """The exit code; None if it can't run in a copy, or something has ended the copy."""
        request = RunRequest(str(layout.root), layout.env, list(arguments), str(output))
        answer, theirs = os.pipe()
        with open(answer, "rb") as told:
            try:
                send_with(self._requests, request, [theirs])
            except (FrameError, UnicodeError, OSError):  # too long, no UTF-8, or it has ended
                return None
            finally:
                os.close(theirs)
            code = told.read(1)
        return code[0] if code else None

    def close(self) -> None:
        """End the process, and its copies."""
        self._requests.close()
        self._process.wait()
