"""Finds the best candidate of one launch: compile what isn't known, race what may win, verify the winner."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

from kerntune.capture import Capture
from kerntune.capture.recorder import Recorded
from kerntune.errors import BackendError, TrialError
from kerntune.gpu.memory import Memory
from kerntune.gpu.program import Loader, Program, memory_at
from kerntune.tuning.candidates import Prospects, prospects_of
from kerntune.tuning.consensus import Jury
from kerntune.tuning.isolation import FirstLaunches, Isolation
from kerntune.tuning.prescreen import Outlook
from kerntune.tuning.race import Heats, Trial, decided
from kerntune.tuning.searching import Searching
from kerntune.tuning.stored_trials import Trials
from kerntune.tuning.trial_set import Entrants
from kerntune.tuning.tune_options import DEFAULTS, TuneOptions
from kerntune.tuning.tuning_result import Tuned, nothing_left
from kerntune.tuning.verification import Verifier, Verify

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
    prospects: Prospects | None = None,
    proven: bool = False,
    trusted: bool = False,
    refuted: Mapping[int, str] = MappingProxyType({}),
    progress: Callable[[str], None] = lambda text: None,
    ahead: Callable[[int], None] = lambda index: None,
    isolation: Isolation | None = None,
) -> Tuned:
    """Race the candidates of launch ``index``. Call inside ``capture.active()`` and the GPU's lock.

    With ``trials``, what earlier runs know of a candidate is not tried again, but for those that may win: they are
    always timed side by side. Remembered failures are tried again only if nothing else is left. Candidates that
    ``options`` have verified must write what most others do, or what the captured run writes if that is ``trusted``,
    since a test has compared its result; candidates ``refuted`` otherwise have failed with that reason. ``prospects``
    are the site's, if they were looked up already. Stragglers among the compilations that patience did not wait for are
    part of the outcome. A ``proven`` incumbent has won and been verified before: the others are held against it, and
    the device needs no warming up. Candidates that ``static_prune`` leaves out (:mod:`kerntune.static.pruning`) run
    where no other can be used. A site with a search of its own (:attr:`kerntune.capture.Site.search`) is searched
    first, and candidates that the search chooses are raced with the others. ``ahead`` is called with the candidate that
    is ahead when the finals begin. Raises :class:`TuningError`, listing every reason, if none is left.
    """
    site = capture.launches[index].site
    assert site is not None
    stored = trials.at(site) if trials is not None else None
    if prospects is None:
        prospects = prospects_of(capture, site, stored)
        capture.compiler.warm(prospects.to_compile())
    if isolation is not None and prospects.probes.keys() - prospects.known.ran.keys() - prospects.known.failed.keys():
        isolation.begin()
    options, memory = options.searching(site.search), memory_before(recorded, index, loader)
    strict = options.verification.all_compared
    elsewhere = FirstLaunches(isolation, site.kernel, memory) if isolation is not None else None
    entrants = Entrants(
        capture, recorded, index, loader, memory, prospects, incumbent, proven, strict, elsewhere=elsewhere
    )
    outlook = Outlook(prospects, loader.gpu.spec, options.static_prune, incumbent)
    with contextlib.closing(_Tuning(entrants, outlook, options, proven, trusted, progress, ahead)) as it:
        entrants.take_over(refuted)
        for candidates in it.stages():
            winner = it.best_of(candidates)
            if winner is not None:
                return it.outcome(winner)
    raise nothing_left(site, list(entrants.failures.values()))


@dataclass
class _Tuning:
    """One launch's tuning under way."""

    entrants: Entrants
    outlook: Outlook
    options: TuneOptions
    proven: bool
    trusted: bool
    progress: Callable[[str], None]
    ahead: Callable[[int], None] = lambda index: None
    jury: Jury | None = None
    """Decides which candidates are wrong; None until one is suspected."""

    heats: Heats = field(default_factory=Heats)

    def __post_init__(self) -> None:
        self.site, self.prospects = self.entrants.site, self.entrants.prospects

    def close(self) -> None:
        """Leave memory that isn't ours as it was, and what was compiled where Triton finds it."""
        try:
            self.entrants.memory.give_back()
        finally:
            if self.entrants.elsewhere is not None:
                self.entrants.elsewhere.close()
            self.entrants.capture.compiler.flush()

    def stages(self) -> Iterator[list[int]]:
        """Candidates to try together; the next stage only if nothing of the one before can be used."""
        first, slower, failed = self.prospects.stages()
        yield first
        yield slower
        self.entrants.forget()
        yield failed
        yield self.outlook.readmitted()
        if last := self._with_one_stage():
            yield [last]

    def _with_one_stage(self) -> int | None:
        """If all lack resources, mostly shared memory: the last once more without pipelining."""
        last = len(self.site.listed) - 1
        config = self.site.candidates[last].config
        if not self.entrants.all_lack_resources() or config.num_stages == 1:
            return None
        capture = self.entrants.capture
        new = capture.add_candidate(self.site, last, config.replace(num_stages=1))
        self.prospects.probes.update(prospects_of(capture, self.site, among={new}).probes)
        return new if new in self.prospects.probes else None

    def best_of(self, candidates: Sequence[int]) -> Trial | None:
        """The best that writes what the reference writes; None if none can be used."""
        alive = self._looked_at(candidates)
        if alive:
            self.progress(f"{self.site.kernel}: timing {len(alive)} of {len(self.site.candidates)} configs")
        best = None
        while alive and best is None:
            best = self._winner(alive)
        if best is None and (late := self.prospects.rejoin()):
            self.options = replace(self.options, patience=None)
            return self.best_of(late)
        with ThreadPoolExecutor(WRITERS, "kerntune-trials") as writers:
            list(writers.map(self.entrants.keep, alive))
        return best

    def outcome(self, best: Trial) -> Tuned:
        """What :func:`tune` returns."""
        recording, (launch,) = self.entrants.recorded.recording, best.recording.launches
        return Tuned(
            best.index,
            recording.with_launch(self.entrants.index, launch, best.recording.binary_of(launch)),
            self.entrants.times,
            tuple(self.entrants.failures.values()),
            self.entrants.remembered(),
            self.entrants.slots,
            self.prospects.take_stragglers(),
            left_out=self.outlook.left_out,
            partly=self.jury is not None and self.jury.partly,
            notes=self._notes(),
            predicted_rank=self.outlook.rank(best.index),
        )

    def _notes(self) -> tuple[str, ...]:
        notes = self.jury.notes() if self.jury is not None else ()
        why = self.entrants.elsewhere.why_here if self.entrants.elsewhere is not None else ""
        return (*notes, *([f"kernel {self.site.kernel}: first launches ran in this process: {why}"] if why else []))

    # first looks

    def _looked_at(self, candidates: Sequence[int]) -> list[Trial]:
        """Compile, load and estimate each candidate, while others are still compiled, and those that a search finds."""
        if candidates:
            self.progress(f"{self.site.kernel}: compiling {len(candidates)} configs")
        searching = Searching(self.entrants, self.outlook, self.progress) if self._may_search() else None
        self.heats = Heats()
        self.entrants.begin(candidates)
        with contextlib.closing(self.prospects.compiled(candidates, self._pause_of())) as stream:
            for i, compiled in self.outlook.worth_a_look(stream):
                self.entrants.admit(i, compiled)
        if searching is not None:
            searching.run()
        self.entrants.judge_faults()
        self.entrants.name()
        return self.entrants.looked_at()

    def _may_search(self) -> bool:
        return self.options.search is not None and not self.site.searched

    def _pause_of(self) -> Callable[[], float]:
        """What is done while only stragglers are compiled: the others are raced. The fastest of them is what stragglers
        have to beat, or the winner if patience ends."""
        end = math.inf

        def pause() -> float:
            nonlocal end
            if math.isinf(end) and self.options.patience is not None:
                end = self.options.patience.end(time.monotonic())
            alive = self.entrants.looked_at()
            if len(alive) > 1:
                self.heats.finalists_of(alive)
            return end if alive else math.inf

        return pause

    # the race, and who is right

    def _winner(self, alive: list[Trial]) -> Trial | None:
        """The best of a race; None, and those that are wrong no longer among ``alive``, if one was wrong."""
        mode = self.options.verification.mode
        if mode is Verify.ALL and self._drop_wrong(alive, list(alive)):
            return None
        finalists = self.heats.finalists_of(alive)
        self.ahead(min(finalists, key=lambda trial: trial.time_ns).index)
        if mode is Verify.FINALISTS and self._drop_wrong(alive, finalists):
            return None
        best = decided(finalists, self.entrants.incumbent)[0]
        return None if self._drop_wrong(alive, [best] if mode is not Verify.OFF else []) else best

    def _drop_wrong(self, alive: list[Trial], suspects: Sequence[Trial]) -> bool:
        self.entrants.note_times(alive)
        if not suspects:
            return False
        jury = self._jury(alive)
        wrong = jury.wrong(suspects, alive)
        if wrong:
            self.heats = Heats()  # a wrong one may have dropped others
        for trial in [t for t in alive if t.index in wrong]:
            alive.remove(trial)
            self.entrants.note_wrong(trial, wrong[trial.index], remember=jury.verifier.confirmed)
        return bool(wrong)

    def _jury(self, alive: Sequence[Trial]) -> Jury:
        """Its reference is the captured run; if nothing ran, a proven incumbent, else at first the list's first."""
        if self.jury is None:
            program = self._captured_program()
            incumbent = [t for t in alive if self.proven and t.index == self.entrants.incumbent]
            ignored = partial(self.options.verification.ignores, self.site.kernel)
            if program is not None:
                first = Verifier(program, "the captured run", self.trusted, self.trusted, ignored=ignored)
            elif incumbent:
                first = Verifier(incumbent[0].program, "the winner", settled=True, ignored=ignored)
            else:
                first = Verifier(min(alive, key=lambda t: t.index).program, ignored=ignored)
            self.jury = Jury(self.site.kernel, self.options.verification, first)
        return self.jury

    def _captured_program(self) -> Program | None:
        """What the captured run launched, if it ran, can be loaded, and did not fault where it was launched first."""
        it = self.entrants
        if not it.capture.launches[it.index].ran:
            return None
        with contextlib.suppress(TrialError, BackendError):
            captured = it.recorded.recording.only(it.index).pruned()
            return None if it.is_faulty(captured) else it.program(captured)
        return None


def memory_before(recorded: Recorded, index: int, loader: Loader) -> Memory:
    """Memory as launch ``index`` found it; large written content may move to the host meanwhile."""
    return memory_at(loader, recorded.recording, recorded.sources, recorded.artifacts, index, frugal=True)
