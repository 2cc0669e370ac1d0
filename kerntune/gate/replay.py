"""Today's recording beside the baseline's: its binary, else its TTIR compiled today, else its stored sample.

A calibration compares a case with itself in fresh processes. It gives the smallest detectable change, and how much
processes vary.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import cached_property
from math import log
from statistics import NormalDist, stdev
from typing import NamedTuple

import msgspec

from kerntune.base.numerics import OWN, ComparedResults
from kerntune.base.recording import Artifacts, Recording, Storage, same_arguments, scalar_addresses
from kerntune.base.stats import DEFAULT_LEVEL, Estimate, hodges_lehmann, median, student_quantile
from kerntune.capture.memory_plan import describe
from kerntune.capture.recorder import Recorded
from kerntune.compiling.compiler import recompiled
from kerntune.compiling.farm import Farm
from kerntune.errors import MeasurementError, OutOfResourcesError, ReplayError
from kerntune.gate.baselines import Calibration, TimeBaseline
from kerntune.gpu.base import Backend
from kerntune.gpu.memory import Memory
from kerntune.gpu.program import Loader, Program
from kerntune.timing.paired import Pairing, common_plan, live_memory, pair
from kerntune.timing.paired_processes import (
    BLOCKS,
    MORE_BLOCKS,
    ONE_SIGMA,
    Replay,
    between,
    combine,
    compare,
    log_ratios,
    once,
    paired_work,
)
from kerntune.timing.timers import Sample
from kerntune.timing.worker.pool import Pairs
from kerntune.timing.worker.requests import PairReply, PairRequest

CALIBRATION_PROCESSES = 4
"""Fresh processes of a calibration: under a second for a short kernel, and a first baseline pays it once."""

VERSION = 2
"""The rule that :func:`calibrate` follows; raised with any change by which the same case has other figures.

1 had 12 blocks a process; 2 has 24 (:data:`kerntune.timing.paired_processes.BLOCKS`), whose floor is lower.
"""

UNVERSIONED = {12: 1, 24: 2}
"""The rule of a calibration that doesn't say its version, by its blocks."""

STATE_BLOCKS = 3
STATE_MARGIN = 1.25
"""A quarter more, since four processes within a second or two don't meet a device's fastest and slowest state. On an
H200 under its power limit, a matmul of 4096 x 4096 x 4096 took 224 us when rested and 252 to 258 us when not."""

MIN_MEDIAN_SD = 0.002
"""A floor, as plain medians of one session agree better than those of two: on one H200, 0.1 to 0.7 % between
processes."""


def calibrate(
    pairs: Pairs,
    work: PairRequest,
    processes: int = CALIBRATION_PROCESSES,
    seen_ns: Sequence[float] = (),
    throttle: Callable[[], str] = lambda: "",
) -> Calibration:
    """Time ``work``, whose two sides are equal, in several processes.

    The floor is how far the interval of a first look reaches from zero, the truth being zero. ``seen_ns`` are times
    of the same work by the same timer at other moments, for example of its stored sample; ``throttle`` gives the
    device's throttle reasons now. Raises what :func:`kerntune.timing.paired_processes.compare` raises.
    """
    pairs.expect(processes)
    replies, reasons = [], {throttle()}
    for seed in range(processes):
        replies.append(pairs.run(msgspec.structs.replace(work, blocks=BLOCKS, seed=seed)))
        reasons.add(throttle())
    change = combine(replies, DEFAULT_LEVEL, bias=0.0).change
    bias = between([hodges_lehmann(log_ratios(r), ONE_SIGMA) for r in replies], centre=0.0)
    medians = [log(median(r.a_ns + r.b_ns)) for r in replies]
    states = [x for times in (*map(both, replies), seen_ns) for x in states_of(times) if x > 0]
    return Calibration(
        processes=processes,
        blocks=BLOCKS,
        floor=_rounded(max(abs(change.low), abs(change.high))),
        bias=_rounded(bias),
        median_sd=_rounded(stdev(medians) if processes > 1 else 0.0),
        state_range=_rounded(STATE_MARGIN * (max(states) / min(states) - 1)),
        throttle=tuple(sorted(reasons - {""})),
        version=VERSION,
    )


def version_of(found: Calibration) -> int:
    """The rule that a calibration was made by; 0 for one that is unknown."""
    return UNVERSIONED.get(found.blocks, 0) if found.version is msgspec.UNSET else found.version


def is_current(found: Calibration) -> bool:
    """Whether it was made by today's rule. The figures of rule 1 have the same meaning and serve until the baseline is
    written or ``kerntune calibrate`` is run: in simulated processes its floor, bias and deviation come out up to 1.4
    times as large, so that less is called a change, and its range up to a sixth smaller."""
    return version_of(found) == VERSION


def earlier_text(found: Calibration) -> str:
    """What to say of a calibration that is not by today's rule, and what to do."""
    return (
        f"calibrated by an earlier rule ({found.blocks} blocks a process, now {BLOCKS}), which can't tell as small a "
        "change: `kerntune calibrate` does it anew"
    )


def both(reply: PairReply) -> list[float]:
    """Per block the mean time of both sides, which are equal."""
    return [(a + b) / 2 for a, b in zip(reply.a_ns, reply.b_ns, strict=True)]


def states_of(times_ns: Sequence[float]) -> list[float]:
    """The times that lasted for a while: medians of three in a row, so that one interrupted block is none, while a
    clock that is held back for three is. Of fewer, their median; none of none."""
    if not times_ns:
        return []
    return [median(times_ns[i : i + STATE_BLOCKS]) for i in range(max(1, len(times_ns) - STATE_BLOCKS + 1))]


def against_stored(today_ns: float, stored_ns: float, found: Calibration, level: float) -> Estimate:
    """Today's median against a stored one, with an interval for what two sessions of equal code differ by.

    Student's t with one degree of freedom less than the calibration's processes, for the standard deviation of their
    medians is an estimate itself.
    """
    tail, freedom = (1 - level) / 2, found.processes - 1
    quantile = student_quantile(tail, freedom) if freedom > 0 else NormalDist().inv_cdf(1 - tail) * 10
    margin = quantile * 2**0.5 * max(found.median_sd, MIN_MEDIAN_SD)
    ratio = log(today_ns / stored_ns)
    return Estimate(ratio, ratio - margin, ratio + margin, level).map_exp()


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


HANDED_OVER = 64 << 20
"""Whole numbers of up to this many bytes go to a worker as they are: indices and tables can't be made up."""

Settled = Callable[[Estimate, float], bool]


class Replayer:
    """Times two recordings in turn: in fresh processes, or in this one where kernels follow its addresses."""

    def __init__(self, backend: Backend, pairs: Pairs, loader: Loader, recorded: Recorded, timer: str = "auto") -> None:
        self._backend, self._pairs, self._loader, self._recorded = backend, pairs, loader, recorded
        self._timer = timer

    def replay(
        self,
        before: Recording,
        artifacts: Artifacts,
        level: float,
        bias: float | None,
        settled: Settled,
        results: bool = False,
    ) -> Replay:
        """``before`` beside today's recording, until the verdict is settled or the last look is done. With ``results``
        the first process compares what both write, too. This process alone has one bias, by which its interval is
        widened as by that of several."""
        mine = self._recorded.recording
        if not self._in_place(before, mine):
            work = msgspec.structs.replace(self.work(before, mine, artifacts), results=results)
            return compare(self._pairs, work, level, bias, settled)
        pairing = self._pairing(before, mine, artifacts)

        def look(blocks: int) -> Replay:
            seen = pairing.run(blocks)
            return combine([PairReply(seen.a_ns, seen.b_ns, astuple(seen.foreign))], level, bias)

        first = look(BLOCKS)
        return first if settled(first.change, median(first.a_ns)) else look(MORE_BLOCKS)

    def results(self, before: Recording, artifacts: Artifacts) -> ComparedResults:
        """What ``before`` and today's recording write in this process, from what the call found in memory. Only after a
        replay: then the baseline's code has run well on such memory elsewhere."""
        from kerntune.gpu.result_compare import compare_results  # only where something is replayed

        try:
            a, b, memory, found = self._on_live_memory(before, self._recorded.recording, artifacts)
            one, other = (Program(self._loader, side, memory, found) for side in (a, b))
            return compare_results(one, other)
        except (MeasurementError, OutOfResourcesError, ReplayError) as exc:
            return ComparedResults(OWN, why_not=str(exc))

    def change(self, a: Recording, b: Recording, artifacts: Artifacts) -> float:
        """The change from ``a`` to ``b`` as one process sees it."""
        if self._in_place(a, b):
            return self._pairing(a, b, artifacts).run(BLOCKS).change.point
        return once(self._pairs, self.work(a, b, artifacts))

    def work(self, a: Recording, b: Recording, artifacts: Artifacts) -> PairRequest:
        """Both sides on today's storages, described, and those that only they have."""
        storages, contents = self._described
        (more_a, a), (more_b, b) = (common_plan(self._recorded.recording, x) for x in (a, b))
        added = max(more_a, more_b, key=len)[len(storages) :]
        found = ChainMap(contents, self._recorded.artifacts, artifacts)  # type: ignore[arg-type]  # only read
        words = {"timer": self._timer, "spaced": self._recorded.writes_outside}
        return paired_work(a, b, (*storages, *added), found, **words)

    @cached_property
    def _described(self) -> tuple[tuple[Storage, ...], dict[str, bytes]]:
        storages = self._recorded.recording.storages
        return describe(storages, self._recorded.sources, self._backend, HANDED_OVER)

    @staticmethod
    def _in_place(*sides: Recording) -> bool:
        return any(side.hidden_pointers for side in sides)

    def _pairing(self, a: Recording, b: Recording, artifacts: Artifacts) -> Pairing:
        mine = self._recorded.recording
        if not (same_arguments(a, mine) and same_arguments(b, mine)):
            raise ReplayError("it follows addresses, and took other arguments: today's may not be what it expects")
        a, b, memory, found = self._on_live_memory(a, b, artifacts)
        if len(memory.storages) > len(mine.storages):
            raise ReplayError("it follows addresses, and its memory is not laid out as today's")
        return pair(self._loader, a, b, memory, found, self._timer)

    def _on_live_memory(
        self, a: Recording, b: Recording, artifacts: Artifacts
    ) -> tuple[Recording, Recording, Memory, Artifacts]:
        (more_a, a), (more_b, b) = (common_plan(self._recorded.recording, x) for x in (a, b))
        found = ChainMap(self._recorded.artifacts, artifacts)  # type: ignore[arg-type]  # only read
        storages, spaced = max(more_a, more_b, key=len), self._recorded.writes_outside
        memory = live_memory(self._loader.gpu, storages, self._recorded.sources, found, spaced)
        return a, b, memory, found


REPLAY, RECOMPILED, STORED = "paired replay", "recompiled TTIR", "stored sample"
"""The kinds of comparison after ``IDENTITY``, best first; the last gives PASS or INCONCLUSIVE only."""

REMEMBERED = "compared when recorded"
"""Of an anchor's comparison alone: both works are those of the baseline's own recording."""

UNREPLAYABLE = (ReplayError, OutOfResourcesError)
"""Errors after which the next kind of comparison is tried. A damaged file is none, since it has to be repaired; nor is
a failed measurement: the next one would fail as well, or clear the case with less evidence."""


class ComparisonMethod(NamedTuple):
    """The kind of comparison that was used. ``before`` is the recording that ran for the baseline, ``why_not`` are the
    reasons why better kinds could not be, and this one neither if it has no ``replay``."""

    rung: str
    replay: Replay | None = None
    before: Recording | None = None
    artifacts: Artifacts | None = None
    why_not: tuple[str, ...] = ()


def replay_baseline(
    baseline: TimeBaseline,
    stored: Artifacts,
    farm: Farm,
    replay: Callable[[Recording, Artifacts], Replay],
    now: Recording,
) -> ComparisonMethod:
    """Replay the baseline in turn with today's recording ``now``, by the best kind of comparison that is possible.
    ``replay`` does one."""
    before, why_not = baseline.recording, []
    hidden = scalar_addresses(before)
    if hidden:
        return ComparisonMethod(
            STORED, why_not=(f"it takes addresses as numbers ({', '.join(hidden)}); pass tensors instead",)
        )
    try:
        return _replayed_by(REPLAY, before, stored, replay)
    except UNREPLAYABLE as exc:
        why_not.append(str(exc))
    try:
        before, made = recompiled(farm, before, stored, now)
        artifacts = ChainMap(made, stored)  # type: ignore[arg-type]  # only read
        return _replayed_by(RECOMPILED, before, artifacts, replay, why_not)
    except UNREPLAYABLE as exc:
        why_not.append(str(exc))
    return ComparisonMethod(STORED, why_not=tuple(dict.fromkeys(why_not)))


def _replayed_by(
    rung: str,
    before: Recording,
    artifacts: Artifacts,
    replay: Callable[[Recording, Artifacts], Replay],
    why_not: Sequence[str] = (),
) -> ComparisonMethod:
    try:
        return ComparisonMethod(rung, replay(before, artifacts), before, artifacts, tuple(why_not))
    except MeasurementError as exc:
        return ComparisonMethod(rung, why_not=(*why_not, str(exc)))


def stored_change(baseline: TimeBaseline, sample: Sample, level: float) -> Estimate | None:
    """Today's time against the stored one, the last kind of comparison; None for a case without a calibration."""
    today, stored = median(sample.times_ns), median(baseline.sample.times_ns)
    if baseline.calibration is None or min(today, stored) <= 0:
        return None
    return against_stored(today, stored, baseline.calibration, level)
