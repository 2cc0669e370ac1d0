"""Finds the best candidate of one launch: compile what isn't known, race what may win, verify the winner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kerntune.cache import StoredTrial
from kerntune.capture import Capture, Probe, Site
from kerntune.errors import (
    BackendError,
    CompileError,
    ConfigError,
    OutOfResourcesError,
    TrialError,
    TuningError,
)
from kerntune.launch import Loader, Program, memory_at
from kerntune.measure.base import Slot
from kerntune.measure.timing import estimate_ns, same_kind, slot_for
from kerntune.memory import Memory
from kerntune.recorder import Recorded, with_candidate
from kerntune.recording import Recording
from kerntune.result import FailedTrial
from kerntune.stats import median
from kerntune.trials import NOTHING, Known, SiteTrials, Trials
from kerntune.verify import Outputs, disagreement, outputs_of

DROP_FIRST = 1.5
"""After a first look (three executions), candidates slower than this times the best are hopeless."""

DROP_SECOND = 1.05
FIRST_ROUNDS, FINAL_ROUNDS = 3, 9
"""Slots a candidate gets in turn with the others, before and after the second drop."""

TIE = 0.005
"""Candidates within 0.5 % of the best tie; the incumbent wins a tie, so that winners don't flip from run to run."""


MARGIN = 1.05
"""How much more a stored time must be above the limits to be believed: medians of one kernel differ by 2 to 4 % from
process to process (4096^3 matmul, H200), so stored times choose who is timed again, never who wins."""


PASSING = (OSError, MemoryError)
"""Causes of a failed compilation that say nothing of the candidate: a full disk, a full memory. Not remembered."""


@dataclass
class Trial:
    """A candidate that runs: the recording it makes, its program, its times. ``same`` are all candidates with this very
    code and grid."""

    index: int
    recording: Recording
    program: Program
    same: list[int] = field(default_factory=list)
    estimate: float = 0.0
    slot: Slot | None = None
    times: list[float] = field(default_factory=list)

    @property
    def time_ns(self) -> float:
        """Median over its slots, or the first look's estimate."""
        return median(self.times) if self.times else self.estimate


@dataclass(frozen=True)
class Tuned:
    """The outcome for one launch: the winner's index among the site's candidates, times by index, failures.

    ``remembered`` are the candidates that were not tried again because earlier runs had; their times and failures are
    among the others.
    """

    winner: int
    recording: Recording
    times_ns: dict[int, float]
    failures: tuple[FailedTrial, ...]
    remembered: frozenset[int] = frozenset()
    slots_ns: dict[int, tuple[float, ...]] = field(default_factory=dict)
    """Each slot's time of the candidates that were raced."""


def tune(
    capture: Capture,
    recorded: Recorded,
    index: int,
    loader: Loader,
    *,
    incumbent: int | None = None,
    trials: Trials | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Tuned:
    """Race the candidates of launch ``index``. Call inside ``capture.active()`` and the GPU's lock.

    With ``trials``, what earlier runs know of a candidate is not tried again, but for those that may win: they are
    always timed side by side. Remembered failures are tried again only if nothing else is left.
    Raises :class:`TuningError`, listing every reason, if none is left.
    """
    site = capture.launches[index].site
    assert site is not None
    stored = trials.at(site) if trials is not None else None
    tuning = _Tuning(capture, recorded, index, site, loader, incumbent, stored, progress)
    tuning.look_up()
    for candidates in tuning.stages():
        winner = tuning.best_of(candidates)
        if winner is not None:
            return tuning.outcome(winner)
    lines = "\n".join(f"  {f.config}: {f.reason}" for f in tuning.failures.values())
    raise TuningError(f"kernel {site.kernel}: none of its {len(site.candidates)} configs can be used\n{lines}")


@dataclass
class _Tuning:
    """One launch's tuning under way."""

    capture: Capture
    recorded: Recorded
    index: int
    site: Site
    loader: Loader
    incumbent: int | None
    stored: SiteTrials | None
    progress: Callable[[str], None]
    probes: dict[int, Probe] = field(default_factory=dict)
    known: Known = NOTHING
    times: dict[int, float] = field(default_factory=dict)
    slots: dict[int, tuple[float, ...]] = field(default_factory=dict)
    failures: dict[int, FailedTrial] = field(default_factory=dict)
    tried: set[int] = field(default_factory=set)
    reference: Outputs | None = None

    def __post_init__(self) -> None:
        self.memory = memory_before(self.recorded, self.index, self.loader)

    def look_up(self) -> None:
        """Find what each candidate would launch, and what earlier runs know of it."""
        for i in range(len(self.site.candidates)):
            try:
                self.probes[i] = self.capture.probe(self.site, i)
            except (TrialError, ConfigError) as exc:
                self._fail(i, str(exc))
        if self.stored is not None:
            self.known = self.stored.known(self.probes)
        for i, trial in self.known.failed.items():
            self._fail(i, trial.failure)
        self.times = {i: t.time_ns or t.estimate_ns or 0.0 for i, t in self.known.ran.items()}

    def stages(self) -> Iterator[list[int]]:
        """Candidates to try together; the next stage only if nothing of the one before can be used."""
        hopeful = contenders(self.known.ran)
        slower = set(self.known.ran) - hopeful
        failed = set(self.known.failed)
        yield [i for i in self.probes if i not in slower | failed]
        yield sorted(slower)
        self.known = NOTHING
        yield sorted(failed)

    def best_of(self, candidates: Sequence[int]) -> Trial | None:
        """The best that writes what the first candidate writes; None if none can be used."""
        alive = self._launchable(self._programs(candidates))
        if alive:
            self.progress(f"{self.site.kernel}: timing {len(alive)} of {len(self.site.candidates)} configs")
        found: Trial | None = None
        while alive and found is None:
            best = race(alive, self.incumbent)[0]
            self.times.update({t.index: t.time_ns for t in alive})
            self.slots.update({t.index: tuple(t.times) for t in alive if t.times})
            why = self._disagreement(best, alive)
            if why is None:
                found = best
            else:
                alive.remove(best)
                self._wrong(best, why)
        for trial in alive:
            self._keep(trial)
        return found

    def _launchable(self, trials: Sequence[Trial]) -> list[Trial]:
        """A few executions of what isn't known yet; what can't be launched after all is a failed trial."""
        alive = []
        for trial in trials:
            try:
                trial.estimate = trial.estimate or estimate_ns(trial.program)
            except (TrialError, BackendError) as exc:
                self._fail(trial.index, str(exc))
            else:
                alive.append(trial)
        return alive

    def _disagreement(self, best: Trial, alive: Sequence[Trial]) -> str | None:
        """How ``best`` differs from the captured run, whose result the user's reference has been compared with; if that
        can't be loaded, from the first in config order."""
        captured = self.recorded.recording.only(self.index).pruned()
        if _work(best.recording) == _work(captured):
            return None
        if self.reference is None:
            try:
                program = Program(self.loader, captured, self.memory, self.recorded.artifacts)
            except (TrialError, BackendError):
                program = min(alive, key=lambda t: t.index).program
            self.reference = outputs_of(program)
        return disagreement(best.recording, self.reference, outputs_of(best.program))

    def outcome(self, best: Trial) -> Tuned:
        """What :func:`tune` returns."""
        (launch,) = best.recording.launches
        recording = self.recorded.recording.with_launch(self.index, launch, best.recording.binary_of(launch))
        remembered = (set(self.known.ran) | set(self.known.failed)) - self.tried
        failures = tuple(self.failures.values())
        return Tuned(best.index, recording, self.times, failures, frozenset(remembered), self.slots)

    def _programs(self, candidates: Sequence[int]) -> list[Trial]:
        self.tried.update(candidates)
        if candidates:
            self.progress(f"{self.site.kernel}: compiling {len(candidates)} configs")
        self.capture.compiler.compile_all([self.probes[i].specialized for i in candidates])
        found: dict[tuple[str, tuple[int, int, int]], Trial] = {}
        for i in candidates:
            self.failures.pop(i, None)
            self.times.pop(i, None)
            try:
                self._program(i, found)
            except (CompileError, OutOfResourcesError) as exc:
                self._fail(i, str(exc), remember=not isinstance(exc.__cause__, PASSING))
            except (TrialError, BackendError) as exc:
                self._fail(i, str(exc))
        return list(found.values())

    def _program(self, i: int, found: dict[tuple[str, tuple[int, int, int]], Trial]) -> None:
        recording, compiled = with_candidate(self.recorded, self.capture, self.index, self.probes[i], i)
        single = recording.only(self.index).pruned()
        same = (compiled.binary.code, self.probes[i].grid)
        if same in self.known.bad:
            self._fail(i, self.known.bad[same], remember=True, code=same[0])
        elif same in found:
            found[same].same.append(i)
            found[same].index = i if i == self.incumbent else found[same].index
            if i == self.incumbent:
                found[same].recording = single
        else:
            try:
                program = Program(self.loader, single, self.memory, self.recorded.artifacts)
            except OutOfResourcesError as exc:
                self._fail(i, str(exc), remember=True, code=same[0])
                return
            before = self.known.ran.get(i)
            estimate = (before.estimate_ns if before is not None else None) or 0.0
            found[same] = Trial(i, single, program, [i], estimate)

    def _fail(self, i: int, why: str, *, remember: bool = False, code: str = "") -> None:
        self.failures[i] = FailedTrial(self.site.kernel, self.site.candidates[i].config, why)
        if remember and self.stored is not None:
            self.stored.keep(i, self.probes[i], failure=why, code=code)

    def _wrong(self, trial: Trial, why: str) -> None:
        for i in trial.same:
            self._fail(i, why, remember=True, code=trial.recording.binaries[0].code)

    def _keep(self, trial: Trial) -> None:
        if self.stored is None:
            return
        timing = trial.slot.protocol if trial.slot is not None and trial.times else None
        for i in trial.same:
            self.stored.keep(
                i,
                self.probes[i],
                estimate_ns=trial.estimate,
                time_ns=trial.time_ns if timing else None,
                timing=timing,
                code=trial.recording.binaries[0].code,
            )


def _work(single: Recording) -> tuple[str, tuple[int, int, int]]:
    return single.binaries[0].code, single.launches[0].grid


def contenders(known: Mapping[int, StoredTrial]) -> set[int]:
    """Those of the known trials that may win: within the race's limits, and :data:`MARGIN` for other processes."""
    looks = {i: t.estimate_ns for i, t in known.items() if t.estimate_ns is not None}
    limit = DROP_FIRST * MARGIN * min(looks.values(), default=0.0)
    near = {i for i in known if i not in looks or looks[i] <= limit}
    best: dict[tuple[str, int], float] = {}
    for t in known.values():
        if t.time_ns is not None and t.timing is not None:
            kind = (t.timing.timer, t.timing.version)
            best[kind] = min(best.get(kind, t.time_ns), t.time_ns)
    return {i for i in near if not _left_behind(known[i], best)}


def _left_behind(trial: StoredTrial, best: Mapping[tuple[str, int], float]) -> bool:
    if trial.time_ns is None or trial.timing is None:
        return False
    return trial.time_ns > best[trial.timing.timer, trial.timing.version] * DROP_SECOND * MARGIN


def memory_before(recorded: Recorded, index: int, loader: Loader) -> Memory:
    """Memory as launch ``index`` found it."""
    return memory_at(loader, recorded.recording, recorded.sources, recorded.artifacts, index)


def race(trials: Sequence[Trial], incumbent: int | None = None) -> list[Trial]:
    """The trials, best first: few runs for all, more in turn for the hopeful.

    Ties go to the incumbent, then to config order.
    """
    for trial in trials:
        trial.estimate, trial.times = trial.estimate or estimate_ns(trial.program), []
    alive = _near_best(trials, DROP_FIRST)
    first: Slot | None = None
    for trial in alive if len(alive) > 1 else []:
        trial.slot = (
            slot_for(trial.program, min(t.estimate for t in alive))
            if first is None
            else same_kind(trial.program, first)
        )
        first = first or trial.slot
    for rounds, drop in ((FIRST_ROUNDS, DROP_SECOND), (FINAL_ROUNDS, None)):
        if len(alive) > 1:
            _rounds(alive, rounds)
        alive = _near_best(alive, drop) if drop else alive
    best = min((t.time_ns for t in alive), default=0.0)
    tied = [t for t in alive if t.time_ns <= best * (1 + TIE)]
    tied.sort(key=lambda t: (t.index != incumbent, t.index))
    head = tied[:1]
    return head + sorted((t for t in trials if t not in head), key=lambda t: (t not in alive, t.time_ns))


def _near_best(trials: Sequence[Trial], factor: float) -> list[Trial]:
    best = min((t.time_ns for t in trials), default=0.0)
    return [t for t in trials if t.time_ns <= best * factor]


def _rounds(trials: Sequence[Trial], rounds: int) -> None:
    for _ in range(rounds):
        for trial in trials:
            assert trial.slot is not None
            trial.times.append(trial.slot.enqueue()())
