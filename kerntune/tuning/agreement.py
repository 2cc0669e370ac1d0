"""Says which process tunes a key, what the others do meanwhile, and which configs this process goes on with.

The others wait for a winner, never for ever. Ranks of one program must not wait for each other in a circle: a rank
whose device waits for a collective that another has yet to enqueue can't measure, and must hold nothing that the other
waits for. Ranks compare fingerprints of their configs to see whether they agree.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kerntune.base.config import Config
from kerntune.base.policy import TuneMode
from kerntune.base.warn import warn
from kerntune.capture import Site
from kerntune.gpu.base import Gpu
from kerntune.gpu.device_lock import sharing_suspended
from kerntune.tuning.cache import WinnerKey
from kerntune.tuning.cache.leases import Lease, several_ranks
from kerntune.tuning.stored_winners import Winners, index_of


@dataclass(frozen=True)
class Limits:
    """Seconds. ``idle_s`` a device's own work is waited for at a time; a device that is busy for ``busy_s`` won't be
    idle before another rank does something, so its rank goes on untuned; who has waited ``wait_s`` for another
    process's winner tunes itself. ``poll_s`` lies between two looks into the cache, ``ask_s`` between two into the
    store."""

    idle_s: float = 1.0
    busy_s: float = 30.0
    wait_s: float = 120.0
    poll_s: float = 0.05
    ask_s: float = 0.5


LIMITS = Limits()


@contextlib.contextmanager
def tuning_turn(
    winners: Winners,
    site: Site,
    gpu: Gpu,
    *,
    unfinished: bool,
    untuned: Callable[[int | None], int] = lambda near: near or 0,
) -> Iterator[int | None]:
    """Held while a site is tuned: gives None when it is this process's turn, else the index of a winner that another
    process has found meanwhile.

    The device is asked first, while nothing is held, whether its other work comes to an end. A rank whose device stays
    busy waits for the winner of a rank whose device is idle; if there is none, the unfinished winner of an earlier run,
    else the candidate that ``untuned()`` gives, is stored as an unfinished winner, so that all go on with the same.
    ``untuned`` is given the nearest call's winner, if there is one, for which this call may be too large.
    Nothing here waits for the device, and ``untuned`` mustn't: a rank whose device is busy may be the one that others'
    collectives wait for.
    """
    if winners.mode is TuneMode.FORCE:
        yield None
        return
    waiting = _KeyWait(winners, site, gpu, unfinished, untuned)
    found = None
    try:
        found = waiting.outcome()
        yield found
        found = found if found is not None else 0
    finally:
        waiting.lease.release(found is not None)


@dataclass
class _KeyWait:
    winners: Winners
    site: Site
    gpu: Gpu
    unfinished: bool
    untuned: Callable[[int | None], int]

    def __post_init__(self) -> None:
        self.lease: Lease = self.winners.lease(self.site)
        self._begin = time.monotonic()
        self._ask_at = 0.0

    def outcome(self) -> int | None:
        """The winner's index once there is one, None when it is this process's turn. Who tunes may have to wait for a
        device that this process shares: it gives way while it waits."""
        over, found = self._look()
        if not over:
            with sharing_suspended():
                while not over:
                    time.sleep(LIMITS.poll_s)
                    over, found = self._look()
        return found

    def _look(self) -> tuple[bool, int | None]:
        """Whether the wait is over, and the winner that was found; None when it is this process's turn then."""
        idle = self.gpu.idle(LIMITS.idle_s)
        if idle and self.lease.take():
            return True, self.winners.arrived(self.site, self.unfinished)
        if not idle:
            self.lease.release(False)
        ask = time.monotonic() >= self._ask_at  # another process has stored a winner there, maybe
        if ask:
            self._ask_at = time.monotonic() + LIMITS.ask_s
        found = self.winners.arrived(self.site, self.unfinished, ask)
        if found is not None:
            return True, found
        waited = time.monotonic() - self._begin
        if idle:
            return waited >= LIMITS.wait_s, None
        if waited < LIMITS.busy_s:
            return False, None
        return True, self._untuned() if several_ranks() else None

    def _untuned(self) -> int:
        """Go on with a candidate that this run has not timed, or with what another rank has stored instead."""
        before, index = self.winners.stored(self.site), self.winners.incumbent(self.site)
        index = self.untuned(self._near()) if index is None else index
        used = self.site.candidates[index].config
        left = [c.config for c in self.site.candidates] if before is None else before.untried
        why = f"the device was busy for {LIMITS.busy_s:.0f} s with work that seems to wait for another rank"
        then = f"config {used} is used, and the next start tunes it"
        warn(f"kernel {self.site.kernel}: not tuned, since {why}; {then}")
        rest = [i for i, c in enumerate(self.site.candidates) if i != index and c.config in left]
        return self.winners.keep(self.site, index, 0.0 if before is None else before.time_ns, untried=rest)

    def _near(self) -> int | None:
        """The winner of the nearest call of today's kernel. The ranks have launched that, so its code is on their
        devices, most likely: to load code may wait for all that a device does (CUDA C++ Programming Guide, "Lazy
        Loading": "Loading a kernel might require context synchronization"), and so for the collective."""
        near = self.winners.nearest(self.site)
        return None if near is None or near.other else index_of(self.site, near.winner.config)


_chosen: dict[str, str] = {}
_chosen_lock = threading.Lock()


def note_chosen(key: WinnerKey, config: Config) -> None:
    """A key is launched with this config from now on."""
    with _chosen_lock:
        _chosen[key.digest()] = config.key()


def fingerprint() -> str:
    """SHA-256, as 64 hexadecimal digits, of the configs that this process launches tuned kernels with.

    It covers every key that was called so far (kernel by name and source, target, kind of device, Triton's version,
    arguments, list of configs) with the config that it goes on with: raced, stored or, where nothing can be raced, the
    first. The order of calls doesn't count, nor do times. So it is equal in two processes that have called the same
    keys on equal GPUs and go on with the same configs, and differs otherwise::

        prints = [None] * world_size
        torch.distributed.all_gather_object(prints, kerntune.fingerprint())
        assert len(set(prints)) == 1

    It doesn't cover kernels of a single config, nor what a test with ``--kerntune`` tunes.
    """
    with _chosen_lock:
        lines = sorted(f"{digest} {config}\n" for digest, config in _chosen.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()
