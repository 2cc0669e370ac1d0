"""A file of described calls, a line each: many processes add to it at once, and nothing stands in it twice."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kerntune.base import codec
from kerntune.base.tuning_job import TuningJob
from kerntune.errors import StoreError, UsageError

MAX_SHAPES = 1 << 28
"""Bytes that such a file may have: 256 MiB, some hundred thousand calls of 1 KB each."""


@dataclass
class ShapesFile:
    """JSON lines of :class:`~kerntune.base.tuning_job.TuningJob`.

    A line is one write to a file that is open for appending, under ``flock`` where that works: lines of several
    processes never mix. Each begins with a line feed, so that half a line (a full disk, a killed process) spoils no
    other.
    """

    path: Path
    _known: set[str] = field(default_factory=set)
    _read_up_to: int = 0

    def add(self, job: TuningJob) -> bool:
        """Append a job that the file doesn't have; whether it was appended. :class:`StoreError` if the file can't be
        written."""
        digest, line = job.digest(), job.to_json()
        if digest in self._known:
            return False
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as exc:
            raise StoreError(
                f"{self.path}: can't be written ({exc.strerror}); name another file for the shapes"
            ) from exc
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
            self._learn(handle)
            if digest in self._known:
                return False
            os.write(handle, b"\n" + line + b"\n")
        except OSError as exc:
            raise StoreError(f"{self.path}: can't be written ({exc.strerror})") from exc
        finally:
            os.close(handle)  # and with it the lock
        self._known.add(digest)
        return True

    def _learn(self, handle: int) -> None:
        """Read what others have added since."""
        size = os.fstat(handle).st_size
        if size - self._read_up_to > MAX_SHAPES:
            return
        data = os.pread(handle, max(0, size - self._read_up_to), self._read_up_to)
        for _, line in _lines(data):
            with contextlib.suppress(StoreError):
                self._known.add(TuningJob.from_json(line).digest())
        self._read_up_to = size

    def read(self) -> tuple[list[TuningJob], list[str]]:
        """All jobs, each once, and a line for each that is damaged. :class:`UsageError` if there is no such file,
        :class:`StoreError` if it can't be read."""
        data = None if self.path.is_dir() else codec.read_file(self.path, limit=MAX_SHAPES)
        if data is None:
            what = "is a folder" if self.path.is_dir() else "no such file"
            raise UsageError(f"{self.path}: {what}; `kerntune shapes record -- COMMAND` writes a file of shapes")
        found: dict[str, TuningJob] = {}
        damaged = []
        for number, line in _lines(data):
            try:
                job = TuningJob.from_json(line, f"{self.path}:{number}")
                found.setdefault(job.digest(), job)
            except StoreError as exc:
                damaged.append(str(exc))
        return list(found.values()), damaged


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    for number, match in enumerate(re.finditer(rb"[^\n]*\n?", data), 1):
        if line := match.group().strip():
            yield number, line
