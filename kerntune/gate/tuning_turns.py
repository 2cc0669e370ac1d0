"""The leases of the keys that a call is about to tune: no two processes tune one key."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kerntune.base.policy import TuneMode
from kerntune.capture import Capture, Site
from kerntune.gpu.base import Gpu
from kerntune.tuning.agreement import tuning_turn
from kerntune.tuning.stored_winners import Winners


@contextlib.contextmanager
def tuning_turns(winners: Winners, capture: Capture, gpu: Gpu) -> Iterator[contextlib.ExitStack]:
    """Inside of it, and until what it gives is closed, this process has the turn to tune each key of the call that has
    no winner, as a call of the library has; those that another process has tuned meanwhile have one now.

    Enter it before the GPU's lock: a process takes its lease first there, too. All take several in one order.
    """
    with contextlib.ExitStack() as stack:
        for site in _open_sites(winners, capture):
            stack.enter_context(tuning_turn(winners, site, gpu, unfinished=False))
        yield stack


def _open_sites(winners: Winners, capture: Capture) -> list[Site]:
    """One site of each key without a winner, in the order of keys."""
    if winners.mode is not TuneMode.AUTO:
        return []
    sites = [p.site for p in capture.launches if p.site is not None and 0 not in p.grid]
    found = {winners.key(site).digest(): site for site in sites if winners.find(site) is None}
    return [found[digest] for digest in sorted(found)]
