"""Ends a worker process, and all that it has started, when its parent has ended, in whatever way."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Thread
from typing import NamedTuple

_BOUND = (
    "import ctypes, os, sys\n"
    "libc = ctypes.CDLL(None)\n"
    "if hasattr(libc, 'prctl'): libc.prctl(1, 9, 0, 0, 0)\n"  # PR_SET_PDEATHSIG, SIGKILL: <linux/prctl.h>
    "if os.getppid() != int(sys.argv[1]): os._exit(1)\n"
    "try: os.execvp(sys.argv[2], sys.argv[2:])\n"
    "except OSError as exc: sys.exit(f'{sys.argv[2]}: {exc.strerror}')\n"
)


def bound_command(command: Sequence[str]) -> list[str]:
    """``command``, to be started by this process as one that the system kills when the thread ends that started it:
    for a thread that waits for it, as ``subprocess.run`` does.

    A small Python (10 ms) asks the system for that and becomes the command, so that this process needn't be forked,
    which ``preexec_fn`` would take: it has threads, and memory of a GPU. It exits with code 1 and a line on standard
    error where there is no such program.
    """
    return [sys.executable, "-I", "-S", "-c", _BOUND, str(os.getpid()), *command]


LAST_LINES = 15
"""Of what a program has printed, shown where it failed."""


class EndedProgram(NamedTuple):
    """The exit code of a program, and the lines that it has printed, without empty ones."""

    code: int
    output: list[str]
    errors: list[str]

    def last(self, count: int = LAST_LINES) -> str:
        """The last lines, those on standard error behind the others."""
        return "\n".join([*self.output, *self.errors][-count:])


def run_to_end(
    command: Sequence[str], cwd: str | os.PathLike[str] | None = None, env: Mapping[str, str] | None = None
) -> EndedProgram:
    """Wait for a program that ends with this process at the latest, and can ask nothing."""
    import subprocess  # most processes of ours start none

    done = subprocess.run(
        bound_command(command), cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        errors="replace", check=False,
    )  # fmt: skip
    output, errors = ([x for x in t.splitlines() if x.strip()] for t in (done.stdout, done.stderr))
    return EndedProgram(done.returncode, output, errors)


def end_with_parent(pipe: int, parent: int) -> Thread:
    """From now on, end this process group once the other end of ``pipe`` is closed, or process ``parent`` has ended,
    which a forked copy of the parent that still holds the pipe doesn't hide.

    The thread that waits for it is returned: a process that has met the end of its pipe joins it, and is ended. A
    signal at the parent's death (``PR_SET_PDEATHSIG``) would come as soon as the parent's *thread* has ended that
    started this process.
    """
    thread = Thread(target=_wait, args=(pipe, parent), name="kerntune-parent", daemon=True)
    thread.start()
    return thread


def _wait(pipe: int, parent: int) -> None:
    poll = select.poll()
    poll.register(pipe, 0)  # hang-ups are always reported, data is not wanted here
    watched = process_end(parent)
    if watched is not None:
        poll.register(watched, select.POLLIN)
    poll.poll()
    os.killpg(0, signal.SIGKILL)


def process_end(pid: int) -> int | None:
    """A descriptor that can be read once process ``pid`` has ended; None for 0 and where the system has none (Linux
    before 5.3, a sandbox that forbids it, a process that has ended already)."""
    with suppress(OSError, AttributeError):
        return os.pidfd_open(pid) if pid else None
    return None
