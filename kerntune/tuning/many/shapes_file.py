"""Has a file of described calls, a line each, to which many processes add at once.

Processes that run at once may add the same, which readers drop. ``KERNTUNE_SHAPES=FILE`` notes the calls that a run
would tune, and tunes nothing.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from kerntune.base import codec
from kerntune.base.config import Config
from kerntune.base.tuning_job import TuningJob
from kerntune.base.warn import warn
from kerntune.errors import KerntuneError, StoreError, UsageError
from kerntune.tuning.cache.entries import append
from kerntune.tuning.many.describing import describe

MAX_SHAPES = 268_435_456
"""Bytes that such a file may have: 256 MiB, some hundred thousand calls of 1 KB each."""


@dataclass(frozen=True)
class ShapesFile:
    """JSON lines of :class:`~kerntune.base.tuning_job.TuningJob`.

    A line is one write to a file that is open for appending: lines of several processes never mix. Each begins with a
    line feed, so that half a line (a full disk, a killed process) spoils no other.
    """

    path: Path

    def add(self, job: TuningJob) -> bool:
        """Append a job that the file isn't known to have; whether it was appended. :class:`StoreError` if the file
        can't be written."""
        digest = job.digest()
        if digest in self._known:
            return False
        try:
            append(self.path, b"\n" + job.to_json() + b"\n")
        except OSError as exc:
            why = f"can't be written ({exc.strerror}); name another file for the shapes"
            raise StoreError(f"{self.path}: {why}") from exc
        self._known.add(digest)
        return True

    @cached_property
    def _known(self) -> set[str]:
        """Digests of what the file had at the first :meth:`add`, and of what was added here since."""
        try:
            return {job.digest() for job in self.read()[0]}
        except KerntuneError:
            return set()

    def read(self) -> tuple[list[TuningJob], list[str]]:
        """All jobs, each once, and a line for each that is damaged. :class:`UsageError` if there is no such file,
        :class:`StoreError` if it can't be read."""
        data = None if self.path.is_dir() else codec.read_file(self.path, limit=MAX_SHAPES)
        if data is None:
            what = "is a folder" if self.path.is_dir() else "no such file"
            how = "`kerntune shapes record -- COMMAND` writes a file of shapes"
            raise UsageError(f"{self.path}: {what}; {how}")
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


SHAPES = "KERNTUNE_SHAPES"
"""The file. Every process of a run may have the same."""

_LOCK = threading.Lock()


def noting() -> bool:
    """Whether this process notes calls."""
    return bool(os.environ.get(SHAPES))


def note_call(tuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any], configs: Sequence[Config] = ()) -> None:
    """Note a call. What can't be described or written is a warning: the run goes on as without."""
    path = os.environ.get(SHAPES)
    if not path:
        return
    try:
        job = describe(tuner, args, kwargs, configs)
        with _LOCK:
            _file(os.path.abspath(path)).add(job)
        if job.unknown:
            _warn(f"{job} is noted, but can't be tuned from {path}: {job.unknown}")
    except KerntuneError as exc:
        _warn(str(exc))


@lru_cache(maxsize=8)
def _file(path: str) -> ShapesFile:
    return ShapesFile(Path(path))


@lru_cache(maxsize=1024)
def _warn(text: str) -> None:
    """Once a process."""
    warn(text)
