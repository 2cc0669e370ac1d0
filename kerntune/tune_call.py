"""Tunes the one open launch of a call that has not run yet: the user's tensors are looked at, and stay as they are."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

from kerntune import compat
from kerntune.capture import Capture, Site
from kerntune.compile import Compiled
from kerntune.launch import Loader
from kerntune.policy import StaticPrune
from kerntune.prospects import Prospects, prospects_of
from kerntune.recorder import record
from kerntune.result import FailedTrial
from kerntune.trials import Trials
from kerntune.tuner import Tuned, nothing_left, tune
from kerntune.verify import Verify


def tune_call(
    capture: Capture,
    site: Site,
    *,
    incumbent: int | None = None,
    trials: Trials | None = None,
    verify: str | Verify | None = None,
    static_prune: StaticPrune | None = None,
) -> Tuned:
    """The winner of a site that nobody has launched; nothing is launched on the user's tensors.

    Call inside the GPU's lock, outside ``capture.active()``. A call whose memory is too large for a second copy is
    tuned in its own memory, from which the first content moves to the host meanwhile.
    :class:`TuningError` as :func:`kerntune.tuner.tune`.
    """
    gpu = capture.backend.gpu
    assert gpu is not None
    capture.compiler.warm(0)
    stored = trials.at(site) if trials is not None else None
    capture.compiler.warm(1 if stored is not None and stored.any() else len(site.candidates))
    loader = Loader(gpu)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_quick_switches())
        stack.callback(loader.close)
        stack.enter_context(capture.active())
        prospects = prospects_of(capture, site, stored)
        stack.callback(prospects.close)
        _prepare_launch(capture, prospects)
        _stage_first(capture, site, prospects)
        recorded = record(capture, capture.backend.targets[0])
        index = len(capture.launches) - 1
        return tune(
            capture,
            recorded,
            index,
            loader,
            incumbent=incumbent,
            verify=verify,
            prospects=prospects,
            static_prune=static_prune,
        )


SWITCH_SECONDS = 0.0005
"""Python's threads wait 5 ms for each other by default, and there are hundreds of short turns to be had."""


@contextlib.contextmanager
def _quick_switches() -> Iterator[None]:
    """Let threads that start processes, read answers and hash files have their turns sooner meanwhile."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SWITCH_SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _stage_first(capture: Capture, site: Site, prospects: Prospects) -> None:
    """Take the first candidate that compiles for what the call launches: which memory, through which views."""
    failures = []
    for stage in prospects.stages():
        for i, found in prospects.first_compiled(stage):
            if isinstance(found, Compiled):
                capture.stage(site, i, prospects.probes[i])
                return
            failures.append(FailedTrial(site.kernel, site.candidates[i].config, str(found)))
    refused = [FailedTrial(site.kernel, site.candidates[i].config, why) for i, why in prospects.refused.items()]
    raise nothing_left(site, [*refused, *failures])


def _prepare_launch(capture: Capture, prospects: Prospects) -> None:
    """Have Triton build what it launches the winner with (0.6 s of a C compiler at worst) while we race."""
    if capture.backend.name != "cuda" or not prospects.probes:
        return
    launch = next(iter(prospects.probes.values())).specialized
    work = (launch.jit, launch.signature, launch.constexprs, launch.attrs)
    threading.Thread(target=compat.prepare_driver, name="kerntune-driver", daemon=True).start()
    threading.Thread(target=compat.prepare_launcher, args=work, name="kerntune-launcher", daemon=True).start()
