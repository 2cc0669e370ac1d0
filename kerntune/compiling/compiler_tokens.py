"""Tokens that all processes of a host share: who compiles holds one, so there are no more compilers than cores.

A token is a file in the folder for temporary files that is locked (``flock``) while its holder compiles. The system
unlocks it when the holder ends, however it ends; a jobserver of ``make`` would lose a killed holder's tokens, since
they are bytes in a pipe (GNU make manual, "Job Slots").
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from kerntune.base.locks import let_go, locked_file, locks_work, open_lock_file
from kerntune.errors import UsageError

SWITCH = "KERNTUNE_COMPILERS"
"""Environment variable: how many compilers may run at once on this host, 0 for as many as each process likes."""

POLL_S = 0.005
"""Seconds between two attempts, of one thread a process: compiling a config takes 0.1 s and more."""

_NAME = "kerntune-compiler-{}.lock"


def token_count() -> int:
    """As many as the cores that this process may use, or as ``KERNTUNE_COMPILERS`` says; 0 for no limit.
    :class:`UsageError` for what is no number."""
    text = os.environ.get(SWITCH, "").strip()
    if not text:
        return len(os.sched_getaffinity(0))
    if not text.isdecimal():
        raise UsageError(f"{SWITCH} is {text!r}; give a number of compilers, 0 for no limit of the host")
    return int(text)


class CompilerTokens:
    """This process's part. Threads wait in a queue of their own, so that one at a time asks the system."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._asking = threading.Lock()
        self._held: set[int] = set()
        self._pid = os.getpid()

    @contextlib.contextmanager
    def token(self, stopped: Callable[[], bool]) -> Iterator[bool]:
        """Hold one, once there is one; whether it is held. Without one because ``stopped`` became true meanwhile, or
        because there are none on this machine."""
        found = self._wait(stopped) if token_count() else None
        try:
            yield found is not None
        finally:
            if found is not None:
                self._give_back(*found)

    def _wait(self, stopped: Callable[[], bool]) -> tuple[int, int] | None:
        if self._pid != os.getpid():  # forked: the threads are the parent's
            self._begin()
        while not stopped() and can_be_had():
            if self._asking.acquire(timeout=POLL_S):
                try:
                    if (found := self._taken()) is not None:
                        return found
                    time.sleep(POLL_S)
                except OSError:  # no more descriptors, or the folder is gone: waiting would not end
                    return None
                finally:
                    self._asking.release()
        return None

    def _taken(self) -> tuple[int, int] | None:
        """``OSError`` if no file can be opened, and this process holds none that it will give back."""
        numbers, refused = [n for n in range(token_count()) if n not in self._held], list[OSError]()
        for number in numbers:
            try:
                handle = locked_file(_path(number))
            except OSError as exc:
                refused.append(exc)
                continue
            if handle is not None:
                self._held.add(number)
                return number, handle
        if refused and not self._held and len(refused) == len(numbers):
            raise refused[0]
        return None

    def _give_back(self, number: int, handle: int) -> None:
        let_go(handle)
        self._held.discard(number)


TOKENS = CompilerTokens()
"""Those of this process."""


def tell_if_none() -> None:
    """Say once that compilers of several processes aren't counted together, if so. Call it where a warning may be
    raised."""
    if token_count() and not can_be_had():
        _tell(tempfile.gettempdir())


@lru_cache(maxsize=4)
def _tell(folder: str) -> None:
    warnings.warn(
        f"no locks can be had in {folder}, so each process runs as many compilers as there are cores, and several "
        "processes together more; set TMPDIR to a folder on a local disk that can be written",
        RuntimeWarning,
        stacklevel=3,
    )


def can_be_had() -> bool:
    """Whether there are tokens on this machine: not in a folder that can't be written, or whose locks do nothing."""
    return _works(tempfile.gettempdir())


@lru_cache(maxsize=16)
def _works(folder: str) -> bool:
    try:
        os.close(open_lock_file(_path(0)))
    except OSError:
        return False
    return locks_work(Path(folder))


def _path(number: int) -> str:
    return os.path.join(tempfile.gettempdir(), _NAME.format(number))
