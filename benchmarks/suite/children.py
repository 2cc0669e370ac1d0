"""Fresh processes with empty caches, prepared several at a time and let go one by one."""

from __future__ import annotations

import contextlib
import json
import math
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks import harness
from benchmarks.harness import ROOT
from benchmarks.suite.child import MARK

PREPARE_SECONDS = 180.0
TUNE_SECONDS = 150.0
"""Patience; the longest, 48 configs under triton.autotune, took 23 s."""

EXIT_SECONDS = 10.0

TOGETHER = 12
"""Processes that import and make their inputs at the same time; then they sleep until it is their turn."""

PROGRAM = ("-m", "benchmarks.suite.child")

Job = dict[str, Any]


class ChildError(RuntimeError):
    """A process ended or kept silent; its last words."""


class Child:
    """A process that tunes one call. ``folder`` holds its caches: a new one unless it is given. ``program``: Python's
    arguments before the job."""

    def __init__(self, job: Job, folder: str | None = None, program: Sequence[str] = PROGRAM) -> None:
        self.job = job
        self._own = folder is None
        self.folder = folder or tempfile.mkdtemp(prefix="tuning-suite-")
        self._errors = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115  # closed with the process
        env = harness.child_environment(
            TRITON_CACHE_DIR=f"{self.folder}/triton", KERNTUNE_CACHE_DIR=f"{self.folder}/kerntune"
        )
        command = [sys.executable, *program, json.dumps({"lists": [False], **job})]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.startswith(MARK):
                    self._lines.put(line[len(MARK) :])
        self._lines.put(None)

    def hear(self, word: str, seconds: float) -> Job:
        """The process's next line, which must be ``word``."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise ChildError(f"{self.job}: no answer in {seconds:g} s\n{self._last_words()}") from None
        if line is None:
            raise ChildError(f"{self.job}: ended\n{self._last_words()}")
        found: Job = json.loads(line)
        if found.pop("word") != word:
            raise ChildError(f"{self.job}: said {line} instead of {word}")
        return found

    def go(self) -> None:
        """Let it take its next step."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def tune(self, limit: float | None = None) -> Job:
        """One step: the process's report, or the error that ended it; one that takes longer than ``limit`` is one."""
        try:
            self.go()
            return self.hear("done", limit or TUNE_SECONDS)
        except (ChildError, OSError) as exc:
            return {"error": str(exc)[-1000:]}

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-2000:]

    def begin(self) -> None:
        """Wait until it has its CUDA context, and let it make its inputs."""
        self.hear("context", PREPARE_SECONDS)
        self.go()

    def prepare(self) -> None:
        """Wait until it has its inputs."""
        self.hear("ready", PREPARE_SECONDS)

    def close(self) -> None:
        """End it; its caches go if they are its own."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(EXIT_SECONDS)
        self._errors.close()
        if self._own:
            shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def child(job: Job, folder: str | None = None) -> Iterator[Child]:
    """A prepared process."""
    one = Child(job, folder)
    try:
        one.begin()
        one.prepare()
        yield one
    finally:
        one.close()


def in_turn(
    jobs: Sequence[Job],
    together: int = TOGETHER,
    start: Callable[[Job], Child] = Child,
    limit: float | None = None,
    end: float = math.inf,
) -> Iterator[tuple[Job, Job]]:
    """Each job in a process of its own with what came of it: prepared ``together`` at a time, tuned one after the
    other while the rest sleep. None ends before all of its batch are done: taking a CUDA context down disturbs.
    ``limit``: seconds that one may take; ``end``: none is tuned after this moment of the monotonic clock."""
    for first in range(0, len(jobs), together):
        if time.monotonic() > end:
            return
        batch = [start(job) for job in jobs[first : first + together]]
        try:
            failed = {one: why for one in batch if (why := _error(one.begin))}
            failed |= {one: why for one in batch if one not in failed and (why := _error(one.prepare))}
            for one in batch:
                if time.monotonic() <= end:
                    yield one.job, {"error": failed[one]} if one in failed else one.tune(limit)
        finally:
            for one in batch:
                one.close()


def _error(step: Callable[[], None]) -> str:
    """Why a step failed; nothing if it didn't."""
    try:
        step()
    except (ChildError, OSError) as exc:
        return str(exc)[-1000:]
    return ""
