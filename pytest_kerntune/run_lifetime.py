"""What begins before pytest's own session, and ends outside of it.

The session of a run without a GPU opens before users' conftests are imported. The system may ask for a run's end: a CI
job that is cancelled, ``kill``, a service that stops.
"""

from __future__ import annotations

import gc
import os
import signal
from contextlib import suppress
from functools import partial
from threading import current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING

import pytest

from kerntune.base.changed_items import changed_items
from kerntune.errors import KerntuneError
from pytest_kerntune import interpret, options

if TYPE_CHECKING:
    from kerntune.gate.api import Session


NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""torch's (docs.pytorch.org/docs/stable/torch_environment_variables.html)."""

SESSION: pytest.StashKey[Session] = pytest.StashKey()
"""On the config, from initial conftests to the session's start."""


def begin(config: pytest.Config) -> None:
    """Open and start a session on stand-ins if this run will need one; :class:`pytest.UsageError` for wrong options.

    What can't be opened is left for the session's start, which says why: a conftest may give another backend by then.
    """
    given = config.known_args_namespace
    if given.help or given.version:
        return
    interprets = options.interprets(config, given)
    if not interprets and not options.enabled(config, given):
        return
    _refuse_tritons_interpreter()
    if interprets:
        interpret.begin(config)
        return
    resolved = options.resolve(config, given)
    if not _without_gpu(resolved):
        return
    from kerntune.gate.api import open_session

    with suppress(KerntuneError):
        session = open_session(resolved.settings())
        config.add_cleanup(session.close)
        session.start()
        config.stash[SESSION] = session


def take(config: pytest.Config) -> Session | None:
    """The session that :func:`begin` started, if any. It closes with the config."""
    session = config.stash.get(SESSION, None)
    if session is not None:
        del config.stash[SESSION]
    return session


def _refuse_tritons_interpreter() -> None:
    """A kernel that is decorated for Triton's own interpreter runs there: neither compiled, nor watched."""
    if not os.environ.get("TRITON_INTERPRET"):
        return
    from kerntune.kernels.compat import tuners

    if tuners.interprets():
        raise pytest.UsageError(
            "TRITON_INTERPRET is set: Triton's own interpreter would run every kernel, and kerntune see none. "
            "Unset it; --kerntune-interpret does without"
        )


def _without_gpu(resolved: options.Options) -> bool:
    """Whether targets are asked for, or known where there is no GPU. torch is imported only if that decides it."""
    if resolved.targets:
        return True
    from kerntune.gate.baseline_files import BaselineStore

    if not resolved.settings().known_targets(BaselineStore(resolved.baselines)):
        return False
    from kerntune.gpu.probe import has_cuda

    # CUDA reads CUDA_VISIBLE_DEVICES when it starts, and conftests that set it (for xdist's workers, say) come later
    with changed_items(os.environ, {NVML_CHECK: "1"}):
        return not has_cuda()


ENDED = 128 + signal.SIGTERM
"""The exit code of a process that SIGTERM has ended, as shells give it."""

SWITCH = "KERNTUNE_SIGTERM"
"""Environment variable for runs whose handling of SIGTERM must stay: with ``0`` it does."""


def end_in_order(config: pytest.Config) -> None:
    """Let SIGTERM end this run as Ctrl-C does: worktrees, temporary folders and compiling processes go, and the results
    so far are reported. Nothing changes where SIGTERM has a handler already, nor with ``KERNTUNE_SIGTERM=0``."""
    if os.environ.get(SWITCH) == "0":
        return
    if current_thread() is not main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def as_before() -> None:
        if signal.getsignal(signal.SIGTERM) is _end:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    signal.signal(signal.SIGTERM, _end)
    config.add_cleanup(as_before)


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the second one is obeyed at once
    pytest.exit("SIGTERM", returncode=ENDED)


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
    tensors for the first one, and reads it from the device, which waits for whatever runs there. An interrupt may
    arrive between two lines, where a frame has none: pytest fails at such a frame.
    """
    placed = excinfo.traceback.filter(lambda entry: entry._rawentry.tb_lineno is not None)
    last = placed[-LAST_FRAMES:]
    excinfo.traceback = placed if all(entry.ishidden(excinfo) for entry in last) else last
    place = partial(excinfo.getrepr, style="no", chain=False)
    excinfo.getrepr = lambda *_, **__: place()  # type: ignore[method-assign]
