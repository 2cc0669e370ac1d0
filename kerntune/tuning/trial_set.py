"""The candidates of a race: each compiled one is estimated, joined with its equal, or failed with a reason."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from kerntune.base.failed_candidates import FailedTrial
from kerntune.base.recording import Recording
from kerntune.capture import Capture
from kerntune.capture.launch import spread
from kerntune.capture.recorder import Recorded, with_candidate
from kerntune.compiling.compiler import Compiled
from kerntune.compiling.stream import is_passing
from kerntune.errors import (
    BackendError,
    CaptureError,
    CompileError,
    ConfigError,
    LaunchFault,
    LaunchTimeout,
    OutOfResourcesError,
    TrialError,
    TuningError,
)
from kerntune.gpu.memory import Memory
from kerntune.gpu.program import ALIKE, First, Loader, Program
from kerntune.tuning.admission import FirstLaunchFault, FirstLaunchFaults, first_contents, misfit
from kerntune.tuning.candidates import CandidatePool, CandidateResult, contenders
from kerntune.tuning.consensus import CandidateWork, content_of, stored_code, work_of_single
from kerntune.tuning.first_launches import FirstLaunches
from kerntune.tuning.race import Estimates, Trial
from kerntune.tuning.stored_trials import NOTHING
from kerntune.tuning.tuning_result import log_config, ratio_to


@dataclass
class TrialSet:
    """The candidates of one tuning by index: their times, and why those that can't be used have failed.

    They vary launch ``index`` of ``recorded``, and run in ``memory``. Candidates with the same code, arguments and grid
    are one trial. What is found of a candidate is stored for later runs, where these keep trials.
    """

    capture: Capture
    recorded: Recorded
    index: int
    loader: Loader
    memory: Memory
    pool: CandidatePool
    incumbent: int | None
    warm: bool
    """Whether the device needs no warming up before the first estimate."""

    believing_wrong: bool
    """Whether a candidate that was wrong in an earlier run counts as wrong today."""

    elsewhere: FirstLaunches | None
    """Runs each candidate first in another process, where that can be."""

    times: dict[int, float] = field(default_factory=dict)
    slots: dict[int, tuple[float, ...]] = field(default_factory=dict)
    failures: dict[int, FailedTrial] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.site, self.known, self._stored = self.pool.site, self.pool.known, self.pool.stored
        self._tried: set[int] = set()
        self._recordings: dict[int, Recording] = {}
        self._singles: dict[int, tuple[Recording, CandidateWork]] = {}
        """Of the candidates that are admitted together."""

        self._misfits: set[int] = set()
        self._faults = FirstLaunchFaults()
        self._kept: set[int] = set()
        self._put_off: list[tuple[int, Compiled]] = []
        self._first = first_contents(self.capture, self.index, self.memory, self.pool.probes)
        self.begin(())

    def take_over(self, refuted: Mapping[int, str]) -> None:
        """Take what is known before compiling: from earlier runs, and which candidates are ``refuted``."""
        everybody = {*self.pool.probes, *self.pool.refused}
        for i, why in refuted.items():
            self.pool.probes.pop(i, None)
            self._fail(i, why)
        self._take_known(everybody)

    def join(self, indices: Sequence[int]) -> list[int]:
        """Add candidates: those of them that are unknown, and so to be tried.

        :class:`ConfigError` where hooks leave one config other memory than another: what an added one would find
        is not known any more.
        """
        if len({content_of(first) for first in self._first.values()}) > 1:
            raise ConfigError(
                f"kernel {self.site.kernel}: what hooks leave in memory depends on the config, so configs can't be "
                "searched; list them, or let the hook do the same for all"
            )
        self.pool.add(indices)
        self._take_known(set(indices))
        known = {*self.known.ran, *self.known.failed}
        return [i for i in indices if i in self.pool.probes and i not in known]

    def _take_known(self, among: Set[int]) -> None:
        if not self.believing_wrong:
            self.pool.known = self.pool.known.without_wrong()
        refused, self.known = self.pool.refused, self.pool.known
        for i in sorted(among & refused.keys()):
            self._fail(i, refused[i])
        for i in sorted(among & self.known.failed.keys()):
            self._fail(i, self.known.failed[i].failure)
        for i in sorted(among & self.known.ran.keys()):
            self.times[i] = self.known.ran[i].time_ns or self.known.ran[i].estimate_ns or 0.0

    def forget(self) -> None:
        """From now on earlier runs don't count: what failed there is tried again."""
        self.known = NOTHING

    def worth_repeating(self) -> list[int]:
        """Those that were not tried, since earlier runs had, but may win."""
        return sorted(contenders(self.known.ran) - self._tried)

    def remembered(self) -> frozenset[int]:
        """Those that were not tried, since earlier runs had."""
        return frozenset((set(self.known.ran) | set(self.known.failed)) - self._tried)

    def all_lack_resources(self) -> bool:
        """Whether all candidates failed for that reason."""
        return bool(self._misfits) and self._misfits == set(self.failures)

    # one stage

    def begin(self, candidates: Sequence[int]) -> None:
        """These are going to be tried, together and from scratch."""
        self._found: dict[CandidateWork, Trial] = {}
        self._estimates = Estimates(warm=self.warm)
        self._put_off.clear()
        self.expect(candidates)

    def expect(self, candidates: Sequence[int]) -> None:
        """These are going to be tried, too."""
        self._tried.update(candidates)
        for i in candidates:
            self.failures.pop(i, None)
            self.times.pop(i, None)

    def admit_all(self, results: Sequence[CandidateResult]) -> None:
        """:meth:`admit` compiled candidates, after their first launches elsewhere, which disturb no estimate so."""
        self._look_ahead(results)
        for i, compiled in results:
            self.admit(i, compiled)

    def admit(self, i: int, compiled: Compiled | TrialError) -> None:
        """Estimate a candidate, or note why not. After many faults and no good one it waits (:meth:`admit_put_off`)."""
        if isinstance(compiled, Compiled) and not self._has_run(i) and self._faults.in_doubt(self._good()):
            self._put_off.append((i, compiled))
        else:
            self._admit(i, compiled)

    def admit_put_off(self) -> None:
        """Now that all are compiled: those that were put off, the incumbent first, then some from all over the list;
        the rest once one of them is good. :class:`TuningError` if none is: then the call is to blame."""
        waiting, self._put_off = self._put_off, []
        for i, compiled in sorted(spread(waiting), key=lambda pair: pair[0] != self.incumbent):
            if self._faults.without_hope(self._good(), len(self.pool.probes)):
                raise self._call_is_to_blame()
            self._admit(i, compiled)

    def _admit(self, i: int, compiled: Compiled | TrialError) -> None:
        try:
            if isinstance(compiled, TrialError):
                raise compiled
            log_config(self.site, "compiled", i, seconds=compiled.seconds, shared_bytes=compiled.binary.shared)
            if (trial := self._trial(i, compiled)) is not None:
                self._estimates.take(trial)
                ratio = ratio_to(trial.estimate, self._estimates.best)
                log_config(self.site, "first launch", i, estimate_ns=trial.estimate, ratio=ratio)
            self._keep_estimate(i)
        except LaunchFault as exc:
            assert isinstance(compiled, Compiled)
            self._note_fault(i, compiled, exc)
        except (CompileError, OutOfResourcesError) as exc:
            code = stored_code(self._singles[i][0]) if i in self._singles else ""
            self._fail(i, str(exc), remember=not is_passing(exc), code=code)
            self._misfits |= {i} if isinstance(exc, OutOfResourcesError) else set()
        except (TrialError, BackendError, CaptureError) as exc:
            self._fail(i, str(exc))

    def _look_ahead(self, results: Sequence[CandidateResult]) -> None:
        """Have the first launches of those that need one run elsewhere, if it is several, without a pause between
        them. What comes of each is found when it is admitted."""
        self._singles.clear()
        if self.elsewhere is None or self._faults.in_doubt(self._good()):
            return
        wanted: dict[CandidateWork, tuple[Recording, First]] = {}
        for i, compiled in results:
            with contextlib.suppress(TrialError, BackendError, CaptureError):
                if isinstance(compiled, Compiled) and not self._has_run(i) and i not in self.site.faults:
                    single, work = self._single(i, compiled)
                    fits = not misfit(compiled.binary, compiled.data, self.loader.gpu.spec)
                    known = (stored_code(single), work[1]) in self._bad or work in self._found
                    if fits and not known and self._faults.like(work) is None:
                        wanted.setdefault(work, (single, self._begin(i)))
        if len(wanted) > 1:
            self.elsewhere.run_ahead(list(wanted.values()), self.recorded.artifacts)

    def _note_fault(self, i: int, compiled: Compiled, exc: LaunchFault) -> None:
        """It has failed; whether that is remembered is decided when all of a stage are in."""
        hung = isinstance(exc, LaunchTimeout)
        single, work = self._single(i, compiled)
        self._faults.add(FirstLaunchFault(str(exc), compiled, work, stored_code(single), [i], hung, exc.passing))
        self._fail(i, str(exc))

    def _good(self) -> int:
        """How many are known to run: trials of today, and others that ran in the captured call or in an earlier run."""
        trials = self.estimated_trials()
        raced = {i for trial in trials for i in trial.same}
        return len(trials) + sum(self._has_run(i) for i in self.pool.probes.keys() - raced - self.failures.keys())

    def judge_faults(self) -> None:
        """Now that all are in: repeat what has hung while nothing else runs, and remember who has failed so.
        :class:`TuningError` if the incumbent or most have: then the call is to blame."""
        if self._faults.in_doubt(self._good()):
            raise self._call_is_to_blame()
        for fault in self._faults.take_hung():
            for i in fault.same:
                self.expect([i])
                self.admit(i, fault.compiled)
        if self._faults.blame_call(self.incumbent, self._good()):
            raise self._call_is_to_blame()
        for fault in self._faults.settle():
            for i in fault.same:
                self._fail(i, fault.reason, remember=not fault.passing, code=fault.code)

    def _has_run(self, i: int) -> bool:
        return i in self.pool.known.ran or (i == self.site.chosen and self.capture.launches[self.index].ran)

    def is_faulty(self, single: Recording) -> bool:
        """Whether a recording of one launch is one that has failed so."""
        return self._faults.has(work_of_single(single, ALIKE))

    def _call_is_to_blame(self) -> TuningError:
        failed = [self.failures[i] for i in self._faults.indices() if i in self.failures]
        known = ", among them the one that was known to work" if self.incumbent in self._faults.indices() else ""
        return TuningError(
            f"kernel {self.site.kernel}: {len(failed)} of {len(self.site.candidates)} configs fail at first launch"
            f"{known}, so the call is to blame (a kernel's own mistake, arguments or grid that don't fit), and nothing "
            f"was remembered: {failed[0].config}: {failed[0].reason}",
            list(self.failures.values()),
        )

    def paused(self) -> None:
        """The device has had nothing to do for a while: its clocks have fallen."""
        self._estimates.warm = False

    def estimate_of(self, i: int) -> float | None:
        """A candidate's estimate, of today or of an earlier run; None if it can't be used."""
        if i in self.failures:
            return None
        trial, stored = self._trial_of(i), self.known.ran.get(i)
        if trial is not None:
            return trial.estimate
        return None if stored is None else stored.estimate_ns or stored.time_ns

    def _trial_of(self, i: int) -> Trial | None:
        return next((t for t in self._found.values() if i in t.same), None)

    def launched_as(self, i: int, compiled: Compiled) -> str:
        """Equal for candidates that are one trial; empty for one that can't be launched."""
        try:
            return str(self._single(i, compiled)[1])
        except (TrialError, BackendError, CaptureError):
            return ""

    def registers_of(self, i: int) -> int | None:
        """A candidate's registers a thread, as the driver gives them; None for one that was not loaded today."""
        if (trial := self._trial_of(i)) is None:
            return None
        (function,) = trial.program.functions
        return function.registers

    def estimated_trials(self) -> list[Trial]:
        """Those that may race, in config order."""
        return sorted((t for t in self._found.values() if t.estimated), key=lambda t: t.index)

    def name(self) -> None:
        """Each trial goes by the incumbent if that is the same, else by the first in config order."""
        for trial in self._found.values():
            trial.index = self.incumbent if self.incumbent in trial.same else min(trial.same)
            trial.recording = self._recordings[trial.index]

    def _trial(self, i: int, compiled: Compiled) -> Trial | None:
        """A trial of its own; None for a candidate that is the same as another one."""
        single, work = self._single(i, compiled)
        self._recordings[i] = single
        code, begin = stored_code(single), self._begin(i)
        if (code, work[1]) in self._bad:
            self._fail(i, self._bad[code, work[1]], remember=True, code=code)
        elif work in self._found:
            self._found[work].same.append(i)
            log_config(self.site, "same code", i, f"as {self.site.candidates[self._found[work].index].config}")
            self._fail_like(self._found[work], i)
        elif (fault := self._faults.like(work)) is not None:
            fault.same.append(i)
            self._fail(i, fault.reason)
        else:
            if why := misfit(compiled.binary, compiled.data, self.loader.gpu.spec):
                raise OutOfResourcesError(why)
            if i in self.site.faults:
                raise self.site.faults.pop(i)
            if self.elsewhere is not None and not self._has_run(i):
                self.elsewhere.run(single, self.recorded.artifacts, begin)
            self._found[work] = Trial(i, single, self.program(single, begin), [i])
            return self._found[work]
        return None

    @property
    def _bad(self) -> Mapping[tuple[str, tuple[int, int, int]], str]:
        """Code and grids that were wrong in an earlier run. With other hooks the same code may be right."""
        return {} if self._first else self.known.bad

    def _single(self, i: int, compiled: Compiled) -> tuple[Recording, CandidateWork]:
        """The launch as a candidate makes it; the same object for one that :meth:`_look_ahead` has seen."""
        if i not in self._singles:
            probe = self.pool.probes[i]
            recording = with_candidate(self.recorded, self.capture, self.index, probe, i, compiled)
            single = recording.only(self.index).pruned()
            self._singles[i] = single, work_of_single(single, self._begin(i))
        return self._singles[i]

    def program(self, single: Recording, first: First | None = None) -> Program:
        """A recording of one launch in the race's memory; it finds what that begins with, or what ``first`` says."""
        alike: First = dict.fromkeys(next(iter(self._first.values()), ()))
        begin = alike if first is None else first
        return Program(self.loader, single, self.memory, self.recorded.artifacts, begin)

    def _begin(self, i: int) -> First:
        """What a candidate finds; one that was added finds what the first of the list does that has its hook."""
        hook = self.site.candidates[i].hook
        same = (k for k in self._first if self.site.candidates[k].hook is hook)
        return self._first[i] if i in self._first else self._first.get(next(same, i), ALIKE)

    def _fail_like(self, trial: Trial, i: int) -> None:
        """The same code as one that could not be launched fails the same."""
        if not trial.estimated and trial.index in self.failures:
            self._fail(i, self.failures[trial.index].reason)

    # what is found of them

    def note_times(self, trials: Sequence[Trial]) -> None:
        """Take over what the race has measured so far."""
        self.times.update({t.index: t.time_ns for t in trials})
        self.slots.update({t.index: tuple(t.times) for t in trials if t.times})

    def note_wrong(self, trial: Trial, why: str, remember: bool) -> None:
        """A trial, and all that are the same, have failed: their results are wrong."""
        for i in trial.same:
            self._fail(i, why, remember=remember, code=stored_code(trial.recording))

    def _keep_estimate(self, i: int) -> None:
        """Store at once what a first look at a candidate took: a run that is killed goes on where it was."""
        trial = self._trial_of(i)
        if self._stored is not None and i not in self.failures and trial is not None and trial.estimated:
            code = stored_code(trial.recording)
            self._stored.keep(i, self.pool.probes[i], estimate_ns=trial.estimate, code=code)
            self._kept.add(i)

    def keep(self, trial: Trial) -> None:
        """Store a trial's times for later runs."""
        if self._stored is None:
            return
        timing = trial.slot.protocol if trial.slot is not None and trial.times else None
        times: dict[str, Any] = {"estimate_ns": trial.estimate, "time_ns": trial.time_ns if timing else None}
        for i in trial.same:
            probe, code = self.pool.probes[i], stored_code(trial.recording)
            self._stored.keep(i, probe, timing=timing, code=code, **times)

    def _fail(self, i: int, why: str, *, remember: bool = False, code: str = "") -> None:
        self.failures[i] = FailedTrial(self.site.kernel, self.site.candidates[i].config, why)
        log_config(self.site, "failed", i, why)
        if remember and self._stored is not None:
            self._stored.keep(i, self.pool.probes[i], failure=why, code=code)
        elif i in self._kept and self._stored is not None:
            self._stored.forget(i, self.pool.probes[i])
