"""The farm's end of one worker process: starts it, sends it jobs, ends it with everything that it started.

What a job failed of is the kernel's, or the machine's: a full disk, no memory, a signal from outside. A message
names what to do about the machine's.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import tempfile
import threading
from dataclasses import dataclass
from typing import IO

from kerntune.base.child_process import ChildEnded, ChildProcess, how_it_ended, kill_group, module_command
from kerntune.base.folders import TemporaryFolder
from kerntune.base.frames import encode
from kerntune.compiling.fork_client import Child, ForkClient
from kerntune.compiling.protocol import Answer, CompileFailed, CompilerEnvironment, Done, Hello, Job
from kerntune.errors import FrameError, PeerTimeout

START_SECONDS = 60.0
"""A worker sends its first message after 0.15 to 0.45 s; more than this is a broken installation."""

WORDS_LINES, WORDS_WIDTH = 8, 300
"""Of a worker's output, the lines and columns that messages show."""

_ERROR = re.compile(r"\berror\s*:\s", re.IGNORECASE)


@dataclass(frozen=True)
class Died:
    """The process ended, or was ended, instead of answering. ``passing``: a signal from outside killed it, mostly the
    system for want of memory, which has nothing to do with its job."""

    reason: str
    passing: bool = False


@dataclass(frozen=True)
class JobOutcome:
    """The answer to a job, and what the process printed meanwhile."""

    answer: Done | CompileFailed | Died
    output: str


class Process:
    """One worker, used by one thread; only :meth:`interrupt` may come from another."""

    def __init__(
        self, surroundings: CompilerEnvironment, memory_limit: int, fork_client: ForkClient | None = None
    ) -> None:
        self.surroundings, self._memory_limit, self._fork_client = surroundings, memory_limit, fork_client
        self._child: ChildProcess[Answer] | None = None
        self._scratch: TemporaryFolder | None = None
        self._interrupted = threading.Event()

    def start(self) -> str:
        """Start it and wait for its first message. Returns the reason if that fails, else an empty text."""
        import triton

        try:
            self._child = self._spawned()
        except OSError as exc:
            self.kill()
            return f"no process can be started ({exc})"
        if self._interrupted.is_set():
            kill_group(self._child.pid)
        answer = self._answer(None, START_SECONDS, "")
        if isinstance(answer, Hello) and (answer.triton, answer.path) == (triton.__version__, triton.__file__):
            return ""
        words = self._child.said()
        self.kill()
        if isinstance(answer, Hello):
            return f"another process finds another Triton ({answer.triton} in {answer.path})"
        reason = answer.reason if isinstance(answer, (Died, CompileFailed)) else "it answers out of turn"
        return f"a worker process does not start: {with_words(reason, words)}"

    def _spawned(self) -> ChildProcess[Answer]:
        if self._fork_client is not None and not self._fork_client.serves(self.surroundings):  # waits until it is ready
            self._fork_client = None
        self._check_interrupted()
        self._scratch = TemporaryFolder("compile")
        words = (str(self._memory_limit), self.surroundings.knobs, str(self._scratch.folder))
        command = module_command("kerntune.compiling.compile_worker", *words)
        return ChildProcess(command, Answer, {**os.environ, **dict(self.surroundings.env)}, fork=self._forked)

    def _forked(self, errors: IO[bytes]) -> Child | None:
        if self._fork_client is None or self._scratch is None:
            return None
        folder = str(self._scratch.folder)
        child = self._fork_client.fork(self.surroundings, self._memory_limit, folder, errors)
        if child is None:
            self._check_interrupted()
        return child

    def _check_interrupted(self) -> None:
        if self._interrupted.is_set():
            raise InterruptedError("it was ended before")

    @property
    def alive(self) -> bool:
        """Whether it runs. A process that has ended is reaped."""
        return self._child is not None and self._child.alive

    @property
    def pid(self) -> int:
        """Its process id, which is its process group's too; 0 when it doesn't run."""
        return self._child.pid if self._child else 0

    def ask(self, job: Job, seconds: float, why: str) -> JobOutcome:
        """Send a job and return its outcome. A process that doesn't answer within ``seconds`` is ended; ``why``
        explains that limit."""
        child = self._child
        assert child is not None
        mark = child.printed
        try:
            data = encode(job)
        except (TypeError, FrameError) as exc:
            why = f"it can't be sent to another process ({exc})"
            return JobOutcome(CompileFailed(why, refused=True), "")
        answer = self._answer(data, seconds, why)
        if isinstance(answer, Hello):
            answer = Died("the compiler process answered out of turn")
        if isinstance(answer, Died):
            self.kill()
        return JobOutcome(answer, child.said(mark))

    def _answer(self, job: bytearray | None, seconds: float, why: str) -> Answer | Died:
        assert self._child is not None
        try:
            return self._child.exchange(job, seconds)
        except PeerTimeout:
            return Died(f"the compiler did not come back and was ended after {why or f'{seconds:.0f} s'}")
        except ChildEnded as exc:
            how = "closed its pipe" if exc.code is None else how_it_ended(exc.code)
            return Died(f"the compiler process {how}", passing=exc.signal in FROM_OUTSIDE)
        except FrameError as exc:
            return Died(f"the compiler process answered with {exc}")

    def interrupt(self) -> None:
        """From another thread: end the process group, so that the thread that waits for an answer goes on. One that
        has not started yet ends when it has, and no further one is started."""
        self._interrupted.set()
        child = self._child
        if child is not None and child.process.returncode is None:
            kill_group(child.pid)

    def kill(self) -> None:
        """End the process group, reap it and remove its temporary files."""
        child, self._child = self._child, None
        if child is not None:
            child.end()
        if self._scratch is not None:
            self._scratch.remove()


def says_error(output: str) -> bool:
    """Whether a compiler's output contains a diagnostic of an error, as MLIR, LLVM and ptxas write them."""
    return _ERROR.search(output) is not None


SOME_PASS = "Failures have been detected while processing an MLIR pass pipeline"
"""An error line that says no more than the name of the pass does."""

_FAILING = re.compile(r"Pipeline failed while executing \[([^\]\n]{0,2000})\]")  # bounded: an output can be hostile
_PASS = re.compile(r"`([^`]+)`")


def with_words(reason: str, output: str, last: bool = True) -> str:
    """A reason and what the process printed of it: its error lines, or else (``last``) its last lines, and the pass
    that failed."""
    lines = [line.rstrip()[:WORDS_WIDTH] for line in output.splitlines() if line.strip()]
    found = (", in it ".join(_PASS.findall(passes)) for passes in _FAILING.findall(output))  # MLIR's own note
    failing = [f"failing pass: {names}" for names in dict.fromkeys(found) if names]
    errors = [line for line in lines if says_error(line) and not (failing and SOME_PASS in line)]
    words = (errors or (lines if last else []))[-WORDS_LINES:] + failing
    return reason + "".join(f"\n  {line}" for line in dict.fromkeys(words) if line not in reason)


PASSING = (OSError, MemoryError)
"""Exceptions of a compilation that aren't the launch's: a full disk or memory, a folder that can't be written."""

PROGRAM = re.compile(r"ptxas|ld\.lld", re.IGNORECASE)
"""Programs that Triton runs, and whose failures it reports as text."""

_CODE = re.compile(r"failed with error code (-?\d+)")
"""How Triton words an exit code of ptxas (``make_cubin`` of its NVIDIA backend), negative for a signal."""

FROM_OUTSIDE = frozenset(
    {
        signal.SIGHUP, signal.SIGINT, signal.SIGBUS, signal.SIGKILL, signal.SIGTERM, signal.SIGXCPU, signal.SIGXFSZ,
    }
)  # fmt: skip
"""Signals that a process of ours, or a program that one runs, gets from other processes or because of the system's
limits. SIGBUS is among them: the system has no page for a mapped file or for shared memory (a full disk, a container's
memory limit), which neither a kernel's source nor its launch brings about. SIGSEGV and SIGABRT come from the process
itself, and may be the kernel's fault."""

SHELL = 128
"""A shell that wraps a program adds this to the number of the signal that has ended it."""

_SYSTEM = re.compile(
    "|".join(
        re.escape(os.strerror(code))
        for code in (
            errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
            errno.EAGAIN, errno.ETXTBSY, errno.ENOEXEC,
        )
    )
    + r"|cannot find|could not open (?:in|out)put file|error while loading shared libraries"
    + r"|version `GLIBC[^']*' not found",
    re.IGNORECASE,
)  # fmt: skip
"""Messages that programs print when the system refuses a request."""

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_USED_UP = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})


def is_fault(why: BaseException | str) -> bool:
    """Whether the machine made a compilation fail, so that the same one may succeed another time."""
    if isinstance(why, PASSING):
        return True
    text = str(why)
    return PROGRAM.search(text) is not None and (_was_killed(text) or _SYSTEM.search(text) is not None)


def remedy(why: BaseException | str) -> str:
    """What to do about a fault, as the end of a sentence."""
    code = why.errno if isinstance(why, OSError) else None
    text = str(why)
    if code in _NO_ROOM or _names_error(text, _NO_ROOM):
        return f"make room in {tempfile.gettempdir()} (TMPDIR) and in the folder of TRITON_CACHE_DIR"
    if code in _USED_UP or _names_error(text, _USED_UP):
        return "raise the limits of this machine on memory, processes and open files, or run less beside it"
    if isinstance(why, MemoryError) or _was_killed(text) or "SIGKILL" in text:
        return "the system ends processes for want of memory, mostly: give it more, or run less beside it"
    if isinstance(why, OSError) and why.filename is not None:
        one = f"make {why.filename} one that this user can read and write"
        return f"{one}, or set TRITON_CACHE_DIR (else HOME) to another"
    return "look at HOME, TRITON_CACHE_DIR and TMPDIR (space, permissions) and at the compiler's installation"


def _was_killed(text: str) -> bool:
    found = _CODE.search(text)
    code = int(found[1]) if found else 0
    return -code in FROM_OUTSIDE or code - SHELL in FROM_OUTSIDE


def _names_error(text: str, codes: frozenset[int]) -> bool:
    return any(os.strerror(code).lower() in text.lower() for code in codes)
