"""The end of a run that the system asks for: a CI job that is cancelled, ``kill``, a service that stops."""

from __future__ import annotations

import gc
import os
import signal
import threading
from functools import partial
from types import FrameType

import pytest

ENDED = 128 + signal.SIGTERM
"""The exit code of a process that SIGTERM has ended, as shells give it."""

SWITCH = "KERNTUNE_SIGTERM"
"""Environment variable for runs whose handling of SIGTERM must stay: with ``0`` it does."""


def end_in_order(config: pytest.Config) -> None:
    """Let SIGTERM end this run as Ctrl-C does: worktrees, temporary folders and compiling processes go, and the results
    so far are reported. Nothing changes where SIGTERM has a handler already, nor with ``KERNTUNE_SIGTERM=0``."""
    if os.environ.get(SWITCH) == "0":
        return
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    signal.signal(signal.SIGTERM, _end)
    config.add_cleanup(_as_before)


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the second one is obeyed at once
    pytest.exit("SIGTERM", returncode=ENDED)


def _as_before() -> None:
    if signal.getsignal(signal.SIGTERM) is _end:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


FROZEN = pytest.StashKey[bool]()
"""On the config: whether this module has taken objects out of collections."""


def collect_less(config: pytest.Config) -> None:
    """Take all objects out of garbage collections until the run has ended. pytest collects twice or more at its end, to
    warn of what is collected then; with torch's objects each takes 0.1 to 0.2 s of processor time, most of what an
    interrupted run takes for its end."""
    if gc.get_freeze_count() == 0:
        config.stash[FROZEN] = True
        gc.freeze()


def collect_again(config: pytest.Config) -> None:
    """As before :func:`collect_less`."""
    if config.stash.get(FROZEN, False):
        del config.stash[FROZEN]
        gc.unfreeze()


LAST_FRAMES = 4


def only_where(excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Leave of an interrupt's traceback the last frames, without their arguments: pytest shows the last one's place.

    It would print some 50 frames for that, and those of errors that were being handled, with their arguments. That
    takes half a second of processor time at Ctrl-C, and tensors among them much longer: torch imports its distributed
    tensors for the first one, and reads it from the device, which waits for whatever runs there.
    """
    last = excinfo.traceback[-LAST_FRAMES:]
    if not all(entry.ishidden(excinfo) for entry in last):
        excinfo.traceback = last
    place = partial(excinfo.getrepr, style="no", chain=False)
    excinfo.getrepr = lambda *_, **__: place()  # type: ignore[method-assign]
