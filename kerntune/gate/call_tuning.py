"""Finds the configs that a call's open launches run with, before it is timed.

The leases of the keys that a call is about to tune are taken here, so that no two processes tune one key.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from kerntune.base.case_result import CaseResult, LeftOut, TrialReport
from kerntune.base.failed_candidates import WRONG, FailedTrial, told_once
from kerntune.base.policy import TuneMode
from kerntune.base.recording import Recording
from kerntune.capture import Capture, Site
from kerntune.capture.recorder import Recorded
from kerntune.errors import TuningError
from kerntune.gate.baselines import TimeBaseline
from kerntune.gate.call import Rerun
from kerntune.gpu.base import Gpu
from kerntune.gpu.program import Loader
from kerntune.tuning.agreement import tuning_turn
from kerntune.tuning.candidates import pool_of
from kerntune.tuning.isolation import Isolation
from kerntune.tuning.stored_trials import Trials
from kerntune.tuning.stored_winners import Winners, candidate_of, index_of
from kerntune.tuning.tune_options import TuneOptions
from kerntune.tuning.tuning_result import TuningResult, log_config, log_path, tell_failed


class TuningOutcome(NamedTuple):
    """What tuning a launch came to; the recording ``before``, the candidate that was ``captured`` in it, and those that
    the call's reference had ``refuted``."""

    tuned: TuningResult
    before: Recording
    captured: int
    refuted: Mapping[int, str]


@dataclass
class Tuning:
    """The tuning of one call: changes ``recorded`` to what the winners launch, and keeps what was tried."""

    capture: Capture
    recorded: Recorded
    loader: Loader
    winners: Winners
    options: TuneOptions
    progress: Callable[[str], None]
    isolation: Isolation | None = None
    """Where candidates are launched first."""

    trials: list[TrialReport] = field(default_factory=list)
    failures: list[FailedTrial] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What a reader should know of the verification."""

    seconds: float = 0.0

    def run(self, baseline: TimeBaseline | None, rerun: Rerun | None = None) -> None:
        """Settle every launch whose config is open; ties go to the winner that is known, else to the baseline's.

        With ``rerun`` the captured run's result has been compared with a reference: it is trusted, and a winner some of
        whose results could not be compared has to agree with the reference, too.
        """
        start = time.perf_counter()
        sites = _working_sites(self.capture)
        tuned = {i: it for i, site in sites.items() if (it := self._site(i, site, baseline, rerun)) is not None}
        if rerun is not None:
            self._confirm(sites, tuned, baseline, rerun)
        for index, it in tuned.items():
            self._take(sites[index], it)
        self.seconds = time.perf_counter() - start

    def with_trials(self, result: CaseResult) -> CaseResult:
        """A result with what was tried, in how many seconds; a long reason is written once."""
        return result.but(
            trials=tuple(self.trials),
            failed_trials=told_once(self.failures),
            left_out=tuple(self.left_out),
            tuning_seconds=self.seconds,
        )

    def leave(self) -> None:
        """Settle what was launched as it was: where nothing can be timed, a later call must not try to."""
        for site in _working_sites(self.capture).values():
            site.settle(site.chosen)

    def _site(
        self,
        index: int,
        site: Site,
        baseline: TimeBaseline | None,
        rerun: Rerun | None,
        refuted: Mapping[int, str] = MappingProxyType({}),
    ) -> TuningOutcome | None:
        stored = self.winners.find(site)
        if stored is None and self.winners.mode is TuneMode.NEAREST:
            stored = self._nearest(site)
        if stored is not None and stored == site.chosen:
            site.settle(stored)
            if log_path() and (winner := self.winners.stored(site)) is not None:  # none of a single candidate
                log_config(site, "stored winner", stored, time_ns=winner.time_ns)
            return None
        before = self.recorded.recording
        words: dict[str, Any] = {"trusted": rerun is not None, "refuted": refuted}
        words |= {"trials": Trials(self.winners), "progress": self.progress, "isolation": self.isolation}
        with self.capture.active():
            tuned = None
            if stored is not None and not refuted:  # another process has stored it since the call ran
                pool = pool_of(self.capture, site, words["trials"].at(site), among={stored})
                with suppress(TuningError):
                    tuned = self._tune(index, incumbent=stored, pool=pool, **words)
            if tuned is None:
                incumbent = self._incumbent(index, site, baseline) if stored is None else stored
                tuned = self._tune(index, incumbent=incumbent, **words)
        self.recorded.recording = tuned.recording
        captured, site.chosen = site.chosen, tuned.winner
        site.settle(tuned.winner)
        return TuningOutcome(tuned, before, captured, refuted)

    def _nearest(self, site: Site) -> int:
        """The nearest call's winner, else what was launched: nothing is tuned."""
        near = self.winners.nearest(site)
        index = None if near is None else index_of(site, near.winner.config)
        told = f"it runs with {near}" if index is not None else "no call near it has one, so the first config runs"
        self.notes.append(f"kernel {site.kernel} has no winner of its own (--kerntune-tune=nearest): {told}")
        site.searched = True  # and nothing else is looked for
        return site.chosen if index is None else index

    def _tune(self, index: int, **words: Any) -> TuningResult:
        from kerntune.tuning.tuner import tune  # not loaded by runs that know all winners

        return tune(self.capture, self.recorded, index, self.loader, self.options, **words)

    def _take(self, site: Site, outcome: TuningOutcome) -> None:
        tuned = outcome.tuned
        tell_failed(self.capture, site, tuned.failures)
        self.failures += tuned.failures
        self.notes += tuned.notes
        self.left_out += [LeftOut(site.kernel, site.candidates[i].config, why) for i, why in tuned.left_out.items()]
        self.trials += [
            TrialReport(site.kernel, site.candidates[i].config, round(ns, 1)) for i, ns in tuned.times_ns.items()
        ]
        if self.winners.mode is not TuneMode.NEAREST:  # it was held against no other
            self.winners.keep(site, tuned.winner, tuned.times_ns[tuned.winner])
        Trials(self.winners).share(site)

    # winners that are compared with the reference

    def _confirm(
        self, sites: Mapping[int, Site], tuned: dict[int, TuningOutcome], baseline: TimeBaseline | None, rerun: Rerun
    ) -> None:
        """Tune anew, without their winners, the launches whose winners the reference refutes."""
        while doubtful := {i: it for i, it in tuned.items() if it.tuned.partly and it.tuned.winner != it.captured}:
            self.progress("running the call with its winners, to compare the result with its reference")
            if (why := rerun.mismatch()) is None:
                return
            _settle(sites, {i: it.captured for i, it in doubtful.items()})
            if (again := rerun.mismatch()) is not None:
                _settle(sites, {i: it.tuned.winner for i, it in doubtful.items()})
                self.notes.append(f"a second run of the call fails its reference, whatever the configs: {again}")
                return
            for i, it in doubtful.items():
                self._rewind(i, it.before)
                refuted = {**it.refuted, it.tuned.winner: f"{WRONG} than the reference: {why}"}
                anew = self._site(i, sites[i], baseline, rerun, refuted)
                if anew is None:  # meanwhile another process has stored the captured config as the winner
                    del tuned[i]
                else:
                    tuned[i] = anew

    def _rewind(self, index: int, before: Recording) -> None:
        launch = before.launches[index]
        recording = self.recorded.recording
        self.recorded.recording = recording.with_launch(index, launch, before.binary_of(launch))

    def _incumbent(self, index: int, site: Site, baseline: TimeBaseline | None) -> int | None:
        """The baseline's config, else the winner among other candidates for the same arguments."""
        launches = baseline.recording.launches if baseline else ()
        config = launches[index].config if index < len(launches) and launches[index].kernel == site.kernel else None
        known = None if config is None else candidate_of(site, config)
        return self.winners.incumbent(site) if known is None else known


@contextmanager
def tuning_turns(winners: Winners, capture: Capture, gpu: Gpu) -> Iterator[ExitStack]:
    """Inside of it, and until what it gives is closed, this process has the turn to tune each key of the call that has
    no winner, as a call of the library has; those that another process has tuned meanwhile have one now.

    Enter it before the GPU's lock: a process takes its lease first there, too. All take several in one order.
    """
    sites = _working_sites(capture).values() if winners.mode is TuneMode.AUTO else ()
    still_open = {winners.key(site).digest(): site for site in sites if winners.find(site) is None}
    with ExitStack() as stack:
        for _, site in sorted(still_open.items()):
            stack.enter_context(tuning_turn(winners, site, gpu, unfinished=False))
        yield stack


def _working_sites(capture: Capture) -> dict[int, Site]:
    return {i: p.site for i, p in enumerate(capture.launches) if p.site is not None and 0 not in p.grid}


def _settle(sites: Mapping[int, Site], chosen: Mapping[int, int]) -> None:
    for index, candidate in chosen.items():
        sites[index].chosen = candidate
        sites[index].settle(candidate)
