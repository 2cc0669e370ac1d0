"""Finds the best candidate of one launch: compile what isn't known, race what may win, verify the winner.

Compiled candidates may be left out before any GPU time. The configs that a search chooses are compiled together,
estimated, and stored for later runs.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.base.policy import StaticPrune
from kerntune.capture import Capture
from kerntune.capture.recorder import Recorded
from kerntune.compiling.compiler import Compiled
from kerntune.errors import BackendError, TrialError
from kerntune.gpu.host_gpus import is_limited
from kerntune.gpu.memory import Memory
from kerntune.gpu.program import Loader, Program, memory_at
from kerntune.heuristics import without_pipelining, without_spilling
from kerntune.search import AnySearch, Descent, Measured
from kerntune.static import resource_model
from kerntune.tuning.candidates import CandidatePool, CandidateResult, pool_of
from kerntune.tuning.consensus import Consensus
from kerntune.tuning.first_launches import FirstLaunches
from kerntune.tuning.isolation import Isolation
from kerntune.tuning.race import Screening, Trial, decided
from kerntune.tuning.stored_trials import Trials
from kerntune.tuning.trial_set import TrialSet
from kerntune.tuning.tune_options import DEFAULTS, TuneOptions
from kerntune.tuning.tuning_result import TuningResult, log_begin, log_end, log_race, nothing_left
from kerntune.tuning.verification import Verifier, Verify

T = TypeVar("T")

WRITERS = 8
"""Threads that store trials, a small file each: on a slow file system that is 10 ms of waiting."""


def tune(
    capture: Capture,
    recorded: Recorded,
    index: int,
    loader: Loader,
    options: TuneOptions = DEFAULTS,
    *,
    incumbent: int | None = None,
    trials: Trials | None = None,
    pool: CandidatePool | None = None,
    proven: bool = False,
    trusted: bool = False,
    refuted: Mapping[int, str] = MappingProxyType({}),
    progress: Callable[[str], None] = lambda text: None,
    ahead: Callable[[int], None] = lambda index: None,
    isolation: Isolation | None = None,
) -> TuningResult:
    """Race the candidates of launch ``index``. Call inside ``capture.active()`` and the GPU's lock.

    With ``trials``, what earlier runs know of a candidate is not tried again, but for those that may win: they are
    always timed side by side. Remembered failures are tried again only if nothing else is left. Candidates that
    ``options`` have verified must write what most others do, or what the captured run writes if that is ``trusted``,
    since a test has compared its result; candidates ``refuted`` otherwise have failed with that reason. ``pool``
    are the site's, if they were looked up already. Stragglers among the compilations that patience did not wait for are
    part of the outcome. A ``proven`` incumbent has won and been verified before: the others are held against it, and
    the device needs no warming up. Candidates that ``static_prune`` leaves out
    (:mod:`kerntune.static.resource_model`) run where no other can be used. A site with a search of its own
    (:attr:`kerntune.capture.Site.search`) is searched first, and candidates that the search chooses are raced with the
    others. ``ahead`` is called with the candidate that is ahead when the finals begin. Raises :class:`TuningError`,
    listing every reason, if none is left.
    """
    site, begin = capture.launches[index].site, time.monotonic()
    assert site is not None
    log_begin(site, loader.gpu.spec.name)
    stored = trials.at(site) if trials is not None else None
    if pool is None:
        pool = pool_of(capture, site, stored)
        capture.compiler.warm(pool.to_compile())
    if isolation is not None and pool.probes.keys() - pool.known.ran.keys() - pool.known.failed.keys():
        isolation.begin()
    options, memory = options.searching(site.search), memory_before(recorded, index, loader)
    strict = options.verification.all_compared
    elsewhere = FirstLaunches(isolation, site.kernel, memory) if isolation is not None else None
    trial_set = TrialSet(capture, recorded, index, loader, memory, pool, incumbent, proven, strict, elsewhere)
    prescreen = Prescreen(pool, loader.gpu.spec, options.static_prune, incumbent, site.most_spilled)
    with contextlib.closing(_Tuning(trial_set, prescreen, options, proven, trusted, progress, ahead)) as it:
        trial_set.take_over(refuted)
        for candidates in it.stages():
            winner = it.best_of(candidates)
            if winner is not None:
                seconds = time.monotonic() - begin
                log_end(site, winner.index, trial_set.times, prescreen.left_out, seconds)
                return it.outcome(winner)
    raise nothing_left(site, list(trial_set.failures.values()))


@dataclass
class _Tuning:
    trial_set: TrialSet
    prescreen: Prescreen
    options: TuneOptions
    proven: bool
    trusted: bool
    progress: Callable[[str], None]
    ahead: Callable[[int], None]
    consensus: Consensus | None = None
    """Decides which candidates are wrong; None until one is compared."""

    screening: Screening = field(default_factory=Screening)

    def __post_init__(self) -> None:
        self.site, self.pool = self.trial_set.site, self.trial_set.pool

    def close(self) -> None:
        """Leave memory that isn't ours as it was, and what was compiled where Triton finds it."""
        try:
            self.trial_set.memory.give_back()
        finally:
            if self.trial_set.elsewhere is not None:
                self.trial_set.elsewhere.close()
            self.trial_set.capture.compiler.flush()

    def stages(self) -> Iterator[list[int]]:
        """Candidates to try together; the next stage only if nothing of the one before can be used."""
        first, slower, failed = self.pool.stages()
        yield first
        yield slower
        self.trial_set.forget()
        yield failed
        yield self.prescreen.readmitted()
        if last := self._with_one_stage():
            yield [last]

    def _with_one_stage(self) -> int | None:
        """If all lack resources, mostly shared memory: the last once more without pipelining."""
        last = len(self.site.listed) - 1
        config = self.site.candidates[last].config
        if not self.trial_set.all_lack_resources() or without_pipelining(config) == config:
            return None
        capture = self.trial_set.capture
        new = capture.add_candidate(self.site, last, without_pipelining(config))
        self.pool.probes.update(pool_of(capture, self.site, among={new}).probes)
        return new if new in self.pool.probes else None

    def best_of(self, candidates: Sequence[int]) -> Trial | None:
        """The fastest that writes what the reference writes; None if none can be used."""
        alive = self._estimated(candidates)
        if alive:
            self.progress(f"{self.site.kernel}: timing {len(alive)} of {len(self.site.candidates)} configs")
        best = None
        while alive and best is None:
            best = self._winner(alive)
        if best is None and (late := self.pool.rejoin()):
            self.options = replace(self.options, patience=None)
            return self.best_of(late)
        with ThreadPoolExecutor(WRITERS, "kerntune-trials") as writers:
            list(writers.map(self.trial_set.keep, alive))
        return best

    def outcome(self, best: Trial) -> TuningResult:
        """What :func:`tune` returns."""
        recording, (launch,) = self.trial_set.recorded.recording, best.recording.launches
        told_by = (self.consensus, self.trial_set.elsewhere)
        return TuningResult(
            best.index,
            recording.with_launch(self.trial_set.index, launch, best.recording.binary_of(launch)),
            self.trial_set.times,
            tuple(self.trial_set.failures.values()),
            self.trial_set.remembered(),
            self.trial_set.slots,
            self.pool.take_stragglers(),
            left_out=self.prescreen.left_out,
            partly=self.consensus is not None and self.consensus.partly,
            notes=tuple(note for one in told_by if one is not None for note in one.notes()),
        )

    # estimates

    def _estimated(self, candidates: Sequence[int]) -> list[Trial]:
        """Compile and estimate candidates, some while others are compiled; then those that a search chooses."""
        if candidates:
            self.progress(f"{self.site.kernel}: compiling {len(candidates)} configs")
        may_search = self.options.search is not None and not self.site.searched
        searching = Searching(self.trial_set, self.prescreen, self.progress) if may_search else None
        self.screening = Screening()
        self.trial_set.begin(candidates)
        with contextlib.closing(self.pool.compiled(candidates, self._pause_of())) as stream:
            for group in self.prescreen.groups(stream):
                self.trial_set.admit_all(group)
        self.trial_set.admit_put_off()
        if searching is not None:
            searching.run()
        self.trial_set.judge_faults()
        self.trial_set.name()
        return self.trial_set.estimated_trials()

    def _pause_of(self) -> Callable[[], float]:
        """What a pause does, while only stragglers are compiled: race the others, which they have to beat."""
        end = math.inf

        def pause() -> float:
            nonlocal end
            if math.isinf(end) and self.options.patience is not None:
                end = self.options.patience.end(time.monotonic())
            alive = self.trial_set.estimated_trials()
            if len(alive) > 1:
                self.screening.finalists_of(alive)
            return end if alive else math.inf

        return pause

    # the race and the verification

    def _winner(self, alive: list[Trial]) -> Trial | None:
        """The fastest of a race; None, and the wrong ones removed from ``alive``, if one was wrong."""
        mode = self.options.verification.mode
        if mode in (Verify.ALL, Verify.BITWISE) and self._drop_wrong(alive, list(alive)):
            return None
        finalists = self.screening.finalists_of(alive)
        self.ahead(min(finalists, key=lambda trial: trial.time_ns).index)
        if mode is Verify.FINALISTS and self._drop_wrong(alive, finalists):
            return None
        best = decided(finalists, self.trial_set.incumbent, self._clock_is_limited)[0]
        log_race(self.site, alive, finalists, best)
        return None if self._drop_wrong(alive, [best] if mode is not Verify.OFF else []) else best

    def _clock_is_limited(self) -> bool:
        gpu = self.trial_set.capture.backend.gpu
        return gpu is not None and is_limited(gpu.environment().throttle)

    def _drop_wrong(self, alive: list[Trial], suspects: Sequence[Trial]) -> bool:
        self.trial_set.note_times(alive)
        if not suspects:
            return False
        consensus = self._consensus(alive)
        wrong = consensus.wrong(suspects, alive)
        if wrong:
            self.screening = Screening()  # a wrong one may have dropped others
        for trial in [t for t in alive if t.index in wrong]:
            alive.remove(trial)
            remember = consensus.verifier.confirmed and not consensus.verifier.bitwise
            self.trial_set.note_wrong(trial, wrong[trial.index], remember=remember)
        return bool(wrong)

    def _consensus(self, alive: Sequence[Trial]) -> Consensus:
        """Its reference is the captured run; if nothing ran, a proven incumbent, else at first the list's first. To the
        bit, most configs may well agree with none: that reference stays."""
        if self.consensus is None:
            program = self._captured_program()
            incumbent = [t for t in alive if self.proven and t.index == self.trial_set.incumbent]
            bits = self.options.verification.mode is Verify.BITWISE
            ignored = partial(self.options.verification.ignores, self.site.kernel)
            if program is not None:
                first = Verifier(program, "the captured run", self.trusted or bits, self.trusted, ignored=ignored)
            elif incumbent:
                first = Verifier(incumbent[0].program, "the winner", settled=True, ignored=ignored)
            else:
                first = Verifier(min(alive, key=lambda t: t.index).program, settled=bits, ignored=ignored)
            first.bitwise = bits
            self.consensus = Consensus(self.site.kernel, self.options.verification, first)
        return self.consensus

    def _captured_program(self) -> Program | None:
        """What the captured run launched, if it ran, can be loaded, and did not fault where it was launched first."""
        it = self.trial_set
        if not it.capture.launches[it.index].ran:
            return None
        with contextlib.suppress(TrialError, BackendError):
            captured = it.recorded.recording.only(it.index).pruned()
            return None if it.is_faulty(captured) else it.program(captured)
        return None


def memory_before(recorded: Recorded, index: int, loader: Loader) -> Memory:
    """Memory as launch ``index`` found it; large written content may move to the host meanwhile."""
    words = {"frugal": True, "spaced": recorded.writes_outside}
    return memory_at(loader, recorded.recording, recorded.sources, recorded.artifacts, index, **words)


TOGETHER = 8
"""So many candidates, if they are compiled by then, have their first launches in another process without a pause
between them: each request alone waits for two processes to be scheduled while all cores compile."""

SPILL_BYTES = 8
"""Of :attr:`kerntune.static.resource_model.Figures.spill_bytes`, for a spilled register: four stored, four loaded."""


class Prescreen:
    """Of one tuning. ``prune`` leaves candidates out, but neither the incumbent nor those that earlier runs have
    timed."""

    def __init__(
        self,
        pool: CandidatePool,
        spec: DeviceSpec,
        prune: StaticPrune,
        incumbent: int | None,
        most_spilled: int | None,
    ) -> None:
        """``most_spilled`` are the registers that a candidate may spill without being put off: those that spill more
        are left out where any other can be compiled."""
        self._pool, self._spec, self._prune = pool, spec, prune
        self._incumbent, self._most_spilled = incumbent, most_spilled
        self.left_out: dict[int, str] = {}
        """Why each candidate that was left out was."""

    def groups(self, compiled: Iterator[CandidateResult]) -> Iterator[list[CandidateResult]]:
        """The results that are there together, up to :data:`TOGETHER` at a time; where some may be left out, once all
        are there."""
        if not self._prune:
            return self._spilling_last(_together(compiled, self._pool.ready))
        results = list(compiled)
        figures = {i: found for i, result in results if (found := self._figures(i, result)) is not None}
        protected = {*self._pool.known.ran, self._incumbent}
        self.left_out.update(resource_model.left_out(figures, self._prune, protected))
        return _together(result for result in results if result[0] not in self.left_out)

    def _spilling_last(self, groups: Iterator[list[CandidateResult]]) -> Iterator[list[CandidateResult]]:
        """Those that spill too much only if all do (:func:`kerntune.heuristics.without_spilling`)."""
        if self._most_spilled is None:
            yield from groups
            return
        spills: dict[int, int | None] = {}
        late: dict[int, CandidateResult] = {}
        for group in groups:
            tried = {*self._pool.known.ran, self._incumbent}
            for i, found in group:
                figures = self._figures(i, found)
                spills[i] = None if figures is None else figures.spill_bytes // SPILL_BYTES
                if (spills[i] or 0) > self._most_spilled and i not in tried:
                    late[i] = i, found
            yield [result for result in group if result[0] not in late]
        usable = [i for i, count in spills.items() if count is not None]
        kept = without_spilling(usable, spills, self._most_spilled)
        for i in late.keys() - set(kept):
            text = f"spills {spills[i]} registers a thread, more than {self._most_spilled}, and others don't"
            self.left_out[i] = text
        yield from _together(result for i, result in late.items() if i in kept)

    def _figures(self, i: int, compiled: Compiled | TrialError) -> resource_model.Figures | None:
        if not isinstance(compiled, Compiled):
            return None
        return resource_model.figures_of(compiled, self._pool.probes[i].grid, self._spec)

    def readmitted(self) -> list[int]:
        """The candidates that were left out; from now on none is."""
        back, self.left_out, self._prune = sorted(self.left_out), {}, StaticPrune()
        self._most_spilled = None
        return back


def _together(results: Iterable[T], ready: Callable[[], bool] = lambda: True) -> Iterator[list[T]]:
    """All ``results``, up to :data:`TOGETHER` at a time, fewer where the next one is not ``ready``."""
    held: list[T] = []
    for result in results:
        held.append(result)
        if len(held) == TOGETHER or not ready():
            yield held
            held = []
    if held:
        yield held


class Searching:
    """Searches beyond a tuning's list, whose candidates have estimates by then: further candidates join the site, and
    the fastest of them the race. The search sees estimates, of today or of earlier runs."""

    def __init__(self, trial_set: TrialSet, prescreen: Prescreen, progress: Callable[[str], None]) -> None:
        self._begin = time.monotonic()
        self._trial_set, self._prescreen, self._progress = trial_set, prescreen, progress
        self._places = {c.config: i for i, c in enumerate(trial_set.site.candidates)}
        self._codes: dict[int, str] = {}

    def run(self) -> None:
        """Search until the budget is spent, of which the list has taken its part."""
        search: AnySearch = self._trial_set.site.search
        starts = list(self._places)
        self._read_codes(list(self._places.values()))
        search.run(self._measure, self._prepare, starts, time.monotonic() - self._begin)
        self._trial_set.site.searched = True
        self._estimate(self._trial_set.worth_repeating())

    def _prepare(self, configs: Sequence[Config]) -> None:
        it = self._trial_set
        new = [config for config in configs if config not in self._places]
        for config in new:
            self._places[config] = it.capture.add_candidate(it.site, 0, config)
        if new:
            self._progress(f"{it.site.kernel}: searching, {len(self._places)} configs so far")
            self._estimate(it.join([self._places[config] for config in new]))
            self._read_codes([self._places[config] for config in new])

    def _estimate(self, candidates: Sequence[int]) -> None:
        self._trial_set.expect(candidates)
        self._trial_set.paused()
        with contextlib.closing(self._trial_set.pool.compiled(candidates)) as stream:
            for group in self._prescreen.groups(stream):
                self._trial_set.admit_all(group)

    def _read_codes(self, candidates: Sequence[int]) -> None:
        """What these are launched as, if the search asks; what an earlier run tried is compiled for it."""
        if not isinstance(self._trial_set.site.search, Descent):
            return
        pool = self._trial_set.pool
        usable = [i for i in candidates if i in pool.probes and i not in self._trial_set.failures]
        with contextlib.closing(pool.compiled(usable)) as stream:
            for i, compiled in stream:
                if isinstance(compiled, Compiled):
                    self._codes[i] = self._trial_set.launched_as(i, compiled)

    def _measure(self, config: Config) -> Measured:
        i = self._places[config]
        failed = self._trial_set.failures.get(i)
        why = failed.reason if failed is not None else ""
        code = self._codes.get(i, "")
        return Measured(self._trial_set.estimate_of(i), why, self._trial_set.registers_of(i), code)
