"""How fast a candidate is beside the reference: both recordings, in turn, in processes that hold a driver alone.

Without a GPU there are no speeds. Those of a scripted GPU follow a script, and verdicts say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kerntune.base.recording import Launch, Recording, Storage
from kerntune.base.stats import DEFAULT_LEVEL, Estimate, median
from kerntune.gpu.base import Executor, binary_of_ptx
from kerntune.referee.hostile_recording import CheckedCall
from kerntune.referee.verdicts import TimedLaunch, Word, word_of_change
from kerntune.timing.paired_processes import compare
from kerntune.timing.worker.pool import LocalPairs, Pairs
from kerntune.timing.worker.requests import PairRequest

LIVE = "live_reference"
"""The name of a reference's work that isn't Triton's, on a scripted GPU."""


@dataclass(frozen=True)
class TimedPair:
    """Both sides' times in ns, and the change from the reference to the candidate (0.12: the candidate is 12 %
    slower)."""

    change: Estimate
    reference_ns: float
    candidate_ns: float
    bandwidth: float | None = None
    warm: Estimate | None = None
    launch_ns: tuple[float, ...] = ()
    remarks: tuple[str, ...] = ()

    def shares(self, launches: Sequence[TimedLaunch]) -> tuple[TimedLaunch, ...]:
        """The launches with their times and shares, where they were taken."""
        if len(self.launch_ns) != len(launches):
            return tuple(launches)
        whole = sum(self.launch_ns) or 1.0
        return tuple(
            msgspec.structs.replace(x, ns=ns, share=ns / whole) for x, ns in zip(launches, self.launch_ns, strict=True)
        )


class Speeds:
    """Where times come from. ``ordinal`` is the GPU's number, None where nothing is loaded on one."""

    origin = "none"
    device = ""
    why_not = "speeds on a GPU are not measured yet"
    ordinal: int | None = None

    def start(self) -> None:
        """Start and import everything, before a candidate runs."""

    def measure(self, candidate: CheckedCall, reference: CheckedCall | None) -> TimedPair | None:
        """Times of both; ``reference`` is None where it can't be replayed. None without a GPU."""
        raise NotImplementedError

    def close(self) -> None:
        """End every process."""


class NoSpeeds(Speeds):
    """Without a GPU: verdicts are WRONG, REFUSED or UNTIMED."""

    def measure(self, candidate: CheckedCall, reference: CheckedCall | None) -> TimedPair | None:
        """None."""
        return None


class ScriptedSpeeds(Speeds):
    """Times of a scripted GPU: its rules name kernels, and the work of a reference that isn't Triton's as
    :data:`LIVE`."""

    origin = "scripted"

    def __init__(self, gpu: Executor, bandwidth: float | None = None) -> None:
        self._gpu, self._bandwidth = gpu, bandwidth
        self._pairs: Pairs = LocalPairs(gpu)
        self.device = f"{gpu.spec.name} (scripted)"

    def measure(self, candidate: CheckedCall, reference: CheckedCall | None) -> TimedPair | None:
        """By the script."""
        before = live_stand_in(candidate.recording) if reference is None else reference.recording
        request = side_by_side(before, candidate.recording, scripted=True)
        replay = compare(
            self._pairs, request, DEFAULT_LEVEL, None, lambda change, ns: word_of_change(change) is not Word.UNDECIDED
        )
        return TimedPair(replay.change, median(replay.a_ns), median(replay.b_ns), self._bandwidth)


def live_stand_in(like: Recording) -> Recording:
    """One launch of :data:`LIVE`, for a scripted GPU alone."""
    binary = msgspec.structs.replace(binary_of_ptx(LIVE, 4), arch=f"sm_{like.target.arch}")
    return Recording(like.target, (Launch(LIVE, "", 0, (1, 1, 1), ()),), (binary,), (), ())


def side_by_side(reference: Recording, candidate: Recording, scripted: bool = False) -> PairRequest:
    """A request whose sides share no memory: a candidate finds no result of the reference's where it looks."""
    count, replace = len(reference.storages), msgspec.structs.replace
    views = tuple(replace(v, storage=v.storage + count) for v in candidate.views)
    launches = tuple(
        replace(x, reads=tuple(i + count for i in x.reads), writes=tuple(i + count for i in x.writes))
        for x in candidate.launches
    )
    storages: tuple[Storage, ...] = (*reference.storages, *candidate.storages)
    moved = replace(candidate, views=views, launches=launches, storages=storages)
    first = replace(reference, storages=storages)
    artifacts = {b.sha256: b"" for side in (first, moved) for b in side.binaries} if scripted else {}
    return PairRequest(first, moved, storages, artifacts)
