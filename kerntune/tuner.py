"""Finds the best candidate of one launch: compile what isn't known, race what may win, verify the winner."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from kerntune.capture import Capture, Site
from kerntune.compile import Compiled
from kerntune.errors import BackendError, CompileError, OutOfResourcesError, TrialError, TuningError
from kerntune.fits import misfit
from kerntune.launch import Loader, Program, memory_at
from kerntune.memory import Memory
from kerntune.outlook import Outlook
from kerntune.patience import Patience
from kerntune.policy import StaticPrune
from kerntune.prospects import Prospects, Stragglers, prospects_of
from kerntune.race import Heats, Looks, Trial, decided
from kerntune.recorder import Recorded, with_candidate
from kerntune.recording import Recording
from kerntune.result import FailedTrial
from kerntune.static.prune import static_prune_of
from kerntune.trials import NOTHING, Trials
from kerntune.verify import Verifier, Verify, verify_mode

PASSING = (OSError, MemoryError)
"""Causes of a failed compilation that say nothing of the candidate: a full disk, a full memory. Not remembered."""

WRITERS = 8
"""Threads that store trials, a small file each: on a slow file system that is 10 ms of waiting."""

Work = tuple[str, tuple[int, int, int]]
"""What makes two candidates one: code identity and grid."""


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

    stragglers: Stragglers | None = None
    """Candidates that were not waited for."""

    left_out: dict[int, str] = field(default_factory=dict)
    """Why candidates were not run, for what their static figures say."""

    predicted_rank: int | None = None
    """The winner's place by the resource model among the candidates that were compiled; None where it can't tell."""


def tune(
    capture: Capture,
    recorded: Recorded,
    index: int,
    loader: Loader,
    *,
    incumbent: int | None = None,
    trials: Trials | None = None,
    verify: str | Verify | None = None,
    prospects: Prospects | None = None,
    patience: Patience | None = None,
    proven: bool = False,
    static_prune: StaticPrune | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Tuned:
    """Race the candidates of launch ``index``. Call inside ``capture.active()`` and the GPU's lock.

    With ``trials``, what earlier runs know of a candidate is not tried again, but for those that may win: they are
    always timed side by side. Remembered failures are tried again only if nothing else is left. ``verify`` says who has
    to write what the captured run writes (:func:`kerntune.verify.verify_mode`). ``prospects`` are the site's, if they
    were looked up already. With ``patience``, stragglers among the compilations are waited for that long at most, and
    those that are left are the outcome's. A ``proven`` incumbent has won and been verified before: the others are held
    against it, and the device needs no warming up.
    ``static_prune`` says who is left out unrun (:mod:`kerntune.static.prune`), unless nobody else can be used.
    Raises :class:`TuningError`, listing every reason, if none is left.
    """
    site = capture.launches[index].site
    assert site is not None
    stored = trials.at(site) if trials is not None else None
    if prospects is None:
        prospects = prospects_of(capture, site, stored)
        capture.compiler.warm(prospects.to_compile())
    outlook = Outlook(prospects, loader.gpu.spec, static_prune_of(static_prune), incumbent)
    with contextlib.closing(
        _Tuning(capture, recorded, index, loader, incumbent, prospects, outlook, verify_mode(verify))
    ) as it:
        it.progress, it.patience, it.proven = progress, patience, proven
        it.look_up()
        for candidates in it.stages():
            winner = it.best_of(candidates)
            if winner is not None:
                return it.outcome(winner)
    raise nothing_left(site, list(it.failures.values()))


def nothing_left(site: Site, failures: Sequence[FailedTrial]) -> TuningError:
    """The error of a site none of whose candidates can be used."""
    lines = "\n".join(f"  {f.config}: {f.reason}" for f in failures)
    return TuningError(f"kernel {site.kernel}: none of its {len(site.candidates)} configs can be used\n{lines}")


@dataclass
class _Tuning:
    """One launch's tuning under way."""

    capture: Capture
    recorded: Recorded
    index: int
    loader: Loader
    incumbent: int | None
    prospects: Prospects
    outlook: Outlook
    verify: Verify
    progress: Callable[[str], None] = lambda text: None
    patience: Patience | None = None
    proven: bool = False
    times: dict[int, float] = field(default_factory=dict)
    slots: dict[int, tuple[float, ...]] = field(default_factory=dict)
    failures: dict[int, FailedTrial] = field(default_factory=dict)
    tried: set[int] = field(default_factory=set)
    recordings: dict[int, Recording] = field(default_factory=dict)
    verifier: Verifier | None = None
    misfits: set[int] = field(default_factory=set)
    right: set[Work] = field(default_factory=set)
    """What has been verified."""

    heats: Heats = field(default_factory=Heats)

    def __post_init__(self) -> None:
        self.site, self.stored, self.known = self.prospects.site, self.prospects.stored, self.prospects.known
        self.memory = memory_before(self.recorded, self.index, self.loader)
        self.captured = self.recorded.recording.only(self.index).pruned()

    def close(self) -> None:
        """Leave memory that isn't ours as it was, and what was compiled where Triton finds it."""
        try:
            self.memory.give_back()
        finally:
            self.capture.compiler.flush()

    def look_up(self) -> None:
        """Take over what is known before anything is compiled."""
        for i, why in self.prospects.refused.items():
            self._fail(i, why)
        for i, trial in self.known.failed.items():
            self._fail(i, trial.failure)
        self.times = {i: t.time_ns or t.estimate_ns or 0.0 for i, t in self.known.ran.items()}

    def stages(self) -> Iterator[list[int]]:
        """Candidates to try together; the next stage only if nothing of the one before can be used."""
        first, slower, failed = self.prospects.stages()
        yield first
        yield slower
        self.known = NOTHING
        yield failed
        yield self.outlook.readmitted()
        if last := self._with_one_stage():
            yield [last]

    def _with_one_stage(self) -> int | None:
        """If all lack resources, mostly shared memory: the last once more without pipelining."""
        last = len(self.site.candidates) - 1
        config = self.site.candidates[last].config
        if not self.misfits or self.misfits != set(self.failures) or config.num_stages == 1:
            return None
        new = self.capture.add_candidate(self.site, last, config.replace(num_stages=1))
        self.prospects.probes.update(prospects_of(self.capture, self.site, among={new}).probes)
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
            self.patience = None
            return self.best_of(late)
        with ThreadPoolExecutor(WRITERS, "kerntune-trials") as writers:
            list(writers.map(self._keep, alive))
        return best

    def _winner(self, alive: list[Trial]) -> Trial | None:
        """The best of a race; None, and those that are wrong no longer among ``alive``, if one was wrong."""
        if self.verify is Verify.ALL and self._drop_wrong(alive, list(alive)):
            return None
        finalists = self.heats.finalists_of(alive)
        if self.verify is Verify.FINALISTS and self._drop_wrong(alive, finalists):
            return None
        best = decided(finalists, self.incumbent)[0]
        return None if self._drop_wrong(alive, [best]) else best

    def _drop_wrong(self, alive: list[Trial], suspects: Sequence[Trial]) -> bool:
        self.times.update({t.index: t.time_ns for t in alive})
        self.slots.update({t.index: tuple(t.times) for t in alive if t.times})
        wrong = {trial.index: why for trial in suspects if (why := self._disagreement(trial, alive)) is not None}
        if wrong:
            self.heats = Heats()  # a wrong one may have dropped others
        for trial in [t for t in alive if t.index in wrong]:
            alive.remove(trial)
            self._wrong(trial, wrong[trial.index])
        return bool(wrong)

    def _disagreement(self, trial: Trial, alive: Sequence[Trial]) -> str | None:
        """How a trial differs from the reference."""
        self.verifier = self.verifier or Verifier(self._reference(alive))
        work = _work(trial.recording)
        if work == _work(self.verifier.reference.recording) or work in self.right:
            return None
        why = self.verifier.disagreement(trial.program)
        self.right |= {work} if why is None else set()
        return why

    def _reference(self, alive: Sequence[Trial]) -> Program:
        """The captured run, whose result the user's reference has been compared with; if nothing ran, or it can't be
        loaded, a proven incumbent, else the first in config order."""
        if self.capture.launches[self.index].ran:
            with contextlib.suppress(TrialError, BackendError):
                return Program(self.loader, self.captured, self.memory, self.recorded.artifacts)
        return min(alive, key=lambda t: (not self.proven or t.index != self.incumbent, t.index)).program

    def outcome(self, best: Trial) -> Tuned:
        """What :func:`tune` returns."""
        (launch,) = best.recording.launches
        recording = self.recorded.recording.with_launch(self.index, launch, best.recording.binary_of(launch))
        remembered = (set(self.known.ran) | set(self.known.failed)) - self.tried
        failures = tuple(self.failures.values())
        return Tuned(
            best.index,
            recording,
            self.times,
            failures,
            frozenset(remembered),
            self.slots,
            self.prospects.take_stragglers(),
            left_out=self.outlook.left_out,
            predicted_rank=self.outlook.rank(best.index),
        )

    # candidates one by one

    def _looked_at(self, candidates: Sequence[int]) -> list[Trial]:
        """Compile, load and look at each candidate, while others are still compiled."""
        self.tried.update(candidates)
        if candidates:
            self.progress(f"{self.site.kernel}: compiling {len(candidates)} configs")
        found: dict[Work, Trial] = {}
        looks = Looks(warm=self.proven)
        self.heats = Heats()
        for i in candidates:
            self.failures.pop(i, None)
            self.times.pop(i, None)
        with self._pauses(found), contextlib.closing(self.prospects.compiled(candidates)) as stream:
            for i, compiled in self.outlook.worth_a_look(stream):
                self._admit(i, compiled, found, looks)
        for trial in found.values():
            self._name(trial)
        return sorted((t for t in found.values() if t.looked), key=lambda t: t.index)

    @contextlib.contextmanager
    def _pauses(self, found: dict[Work, Trial]) -> Iterator[None]:
        """While stragglers are compiled, race the others: whoever is left is all that stragglers have to beat, or the
        winner if patience ends."""
        end = math.inf

        def pause() -> float:
            nonlocal end
            if math.isinf(end) and self.patience is not None:
                end = self.patience.end(time.monotonic())
            alive = [t for t in found.values() if t.looked]
            if len(alive) > 1:
                self.heats.finalists_of(sorted(alive, key=lambda t: t.index))
            return end if alive else math.inf

        before, self.prospects.pause = self.prospects.pause, pause
        try:
            yield
        finally:
            self.prospects.pause = before  # a cycle would keep memory that the next call needs

    def _admit(self, i: int, compiled: Compiled | TrialError, found: dict[Work, Trial], looks: Looks) -> None:
        try:
            if isinstance(compiled, TrialError):
                raise compiled
            if (trial := self._trial(i, compiled, found)) is not None:
                looks.take(trial)
        except (CompileError, OutOfResourcesError) as exc:
            code = compiled.binary.code if isinstance(compiled, Compiled) else ""
            self._fail(i, str(exc), remember=not isinstance(exc.__cause__, PASSING), code=code)
            self.misfits |= {i} if isinstance(exc, OutOfResourcesError) else set()
        except (TrialError, BackendError) as exc:
            self._fail(i, str(exc))

    def _trial(self, i: int, compiled: Compiled, found: dict[Work, Trial]) -> Trial | None:
        """A trial of its own; None for a candidate that is the same as another one."""
        probe = self.prospects.probes[i]
        recording = with_candidate(self.recorded, self.capture, self.index, probe, i, compiled)
        single = self.recordings[i] = recording.only(self.index).pruned()
        work = (compiled.binary.code, probe.grid)
        if work in self.known.bad:
            self._fail(i, self.known.bad[work], remember=True, code=work[0])
        elif work in found:
            found[work].same.append(i)
            self._fail_like(found[work], i)
        else:
            self._refuse_misfit(compiled)
            found[work] = Trial(i, single, Program(self.loader, single, self.memory, self.recorded.artifacts), [i])
            return found[work]
        return None

    def _refuse_misfit(self, compiled: Compiled) -> None:
        why = misfit(compiled.binary, compiled.data, self.loader.gpu.spec)
        if why:
            raise OutOfResourcesError(why)

    def _fail_like(self, trial: Trial, i: int) -> None:
        """The same code as one that could not be launched fails the same."""
        if not trial.looked and trial.index in self.failures:
            self._fail(i, self.failures[trial.index].reason)

    def _name(self, trial: Trial) -> None:
        """A trial goes by the incumbent if that is the same, else by the first in config order."""
        trial.index = self.incumbent if self.incumbent in trial.same else min(trial.same)
        trial.recording = self.recordings[trial.index]

    def _fail(self, i: int, why: str, *, remember: bool = False, code: str = "") -> None:
        self.failures[i] = FailedTrial(self.site.kernel, self.site.candidates[i].config, why)
        if remember and self.stored is not None:
            self.stored.keep(i, self.prospects.probes[i], failure=why, code=code)

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
                self.prospects.probes[i],
                estimate_ns=trial.estimate,
                time_ns=trial.time_ns if timing else None,
                timing=timing,
                code=trial.recording.binaries[0].code,
            )


def _work(single: Recording) -> Work:
    return single.binaries[0].code, single.launches[0].grid


def memory_before(recorded: Recorded, index: int, loader: Loader) -> Memory:
    """Memory as launch ``index`` found it; large written content may move to the host meanwhile."""
    return memory_at(loader, recorded.recording, recorded.sources, recorded.artifacts, index, frugal=True)
