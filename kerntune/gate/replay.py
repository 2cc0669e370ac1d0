"""Today's recording beside the baseline's: its binary, else its TTIR compiled today, else its stored sample."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property

from kerntune.base.numerics import OWN, ComparedResults
from kerntune.base.recording import Artifacts, Recording, Storage, same_arguments, scalar_addresses
from kerntune.base.stats import Estimate, median
from kerntune.capture.memory_plan import describe
from kerntune.capture.recorder import Recorded
from kerntune.compiling.farm import Farm
from kerntune.compiling.recompile import recompiled
from kerntune.errors import MeasurementError, OutOfResourcesError, ReplayError
from kerntune.gate.baselines import TimeBaseline
from kerntune.gate.calibration import against_stored
from kerntune.gpu.base import Backend
from kerntune.gpu.memory import Memory
from kerntune.gpu.program import Loader, Program
from kerntune.timing.paired import Pairing, common_plan, live_memory, pair
from kerntune.timing.paired_processes import BLOCKS, MORE_BLOCKS, PairedWork, Replay, combine, compare, once
from kerntune.timing.sample import Sample
from kerntune.timing.worker.pool import Pairs
from kerntune.timing.worker.requests import PairReply

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
        the first process compares what both write, too."""
        mine = self._recorded.recording
        if self._in_place(before, mine):
            return self._replay_here(before, mine, artifacts, level, bias, settled)
        work = replace(self.work(before, mine, artifacts), results=results)
        return compare(self._pairs, work, level, bias, settled)

    def results(self, before: Recording, artifacts: Artifacts) -> ComparedResults:
        """What ``before`` and today's recording write in this process, from what the call found in memory. Only after a
        replay: then the baseline's code has run well on such memory elsewhere."""
        from kerntune.gpu.result_compare import compare_results  # not loaded where nothing is replayed

        try:
            a, b, memory, found = self._on_live_memory(before, self._recorded.recording, artifacts)
            return compare_results(Program(self._loader, a, memory, found), Program(self._loader, b, memory, found))
        except (MeasurementError, OutOfResourcesError, ReplayError) as exc:
            return ComparedResults(OWN, why_not=str(exc))

    def change(self, a: Recording, b: Recording, artifacts: Artifacts) -> float:
        """The change from ``a`` to ``b`` as one process sees it."""
        if self._in_place(a, b):
            return self._pairing(a, b, artifacts).run(BLOCKS, 0.99).change.point
        return once(self._pairs, self.work(a, b, artifacts))

    def work(self, a: Recording, b: Recording, artifacts: Artifacts) -> PairedWork:
        """Both sides on today's storages, described, and those that only they have."""
        storages, contents = self._described
        (more_a, a), (more_b, b) = (common_plan(self._recorded.recording, x) for x in (a, b))
        added = max(more_a, more_b, key=len)[len(storages) :]
        found = ChainMap(contents, self._recorded.artifacts, artifacts)  # type: ignore[arg-type]  # only read
        return PairedWork(a, b, (*storages, *added), found, self._timer, self._recorded.writes_outside)

    @cached_property
    def _described(self) -> tuple[tuple[Storage, ...], dict[str, bytes]]:
        storages = self._recorded.recording.storages
        return describe(storages, self._recorded.sources, self._backend, HANDED_OVER)

    @staticmethod
    def _in_place(*sides: Recording) -> bool:
        return any(side.hidden_pointers for side in sides)

    def _replay_here(
        self,
        before: Recording,
        mine: Recording,
        artifacts: Artifacts,
        level: float,
        bias: float | None,
        settled: Settled,
    ) -> Replay:
        """One process has one bias, by which its interval is widened as by that of several."""
        pairing = self._pairing(before, mine, artifacts)

        def look(blocks: int) -> Replay:
            seen = pairing.run(blocks, level)
            return combine([PairReply(seen.a_ns, seen.b_ns, astuple(seen.foreign))], level, bias)

        first = look(BLOCKS)
        return first if settled(first.change, median(first.a_ns)) else look(MORE_BLOCKS)

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
        """Both sides, numbered for one memory with the call's own contents, and all artifacts."""
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


@dataclass(frozen=True)
class RungUsed:
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
    now: Recording | None = None,
) -> RungUsed:
    """Replay the baseline in turn with today's recording ``now``, by the best kind of comparison that is possible.
    ``replay`` does one."""
    before, why_not = baseline.recording, []
    hidden = scalar_addresses(before)
    if hidden:
        return RungUsed(STORED, why_not=(f"it takes addresses as numbers ({', '.join(hidden)}); pass tensors instead",))
    try:
        return _on_rung(REPLAY, before, stored, replay)
    except UNREPLAYABLE as exc:
        why_not.append(str(exc))
    try:
        before, made = recompiled(farm, before, stored, now)
        artifacts = ChainMap(made, stored)  # type: ignore[arg-type]  # only read
        return _on_rung(RECOMPILED, before, artifacts, replay, why_not)
    except UNREPLAYABLE as exc:
        why_not.append(str(exc))
    return RungUsed(STORED, why_not=tuple(dict.fromkeys(why_not)))


def _on_rung(
    rung: str,
    before: Recording,
    artifacts: Artifacts,
    replay: Callable[[Recording, Artifacts], Replay],
    why_not: Sequence[str] = (),
) -> RungUsed:
    """The kind of comparison with its replay; without one if the measuring processes failed."""
    try:
        return RungUsed(rung, replay(before, artifacts), before, artifacts, tuple(why_not))
    except MeasurementError as exc:
        return RungUsed(rung, why_not=(*why_not, str(exc)))


def stored_change(baseline: TimeBaseline, sample: Sample, level: float) -> Estimate | None:
    """Today's time against the stored one, the last kind of comparison; None for a case without a calibration."""
    today, stored = median(sample.times_ns), median(baseline.sample.times_ns)
    if baseline.calibration is None or min(today, stored) <= 0:
        return None
    return against_stored(today, stored, baseline.calibration, level)
