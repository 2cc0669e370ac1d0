"""Finds the configs that a call's open launches run with, before it is timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kerntune.baseline import TimeBaseline
from kerntune.capture import Capture, Site
from kerntune.launch import Loader
from kerntune.policy import Policy
from kerntune.recorder import Recorded
from kerntune.result import FailedTrial, LeftOut, TrialReport
from kerntune.trials import Trials
from kerntune.tuner import tune
from kerntune.winners import Winners


@dataclass
class Tuning:
    """The tuning of one call: changes ``recorded`` to what the winners launch, and keeps what was tried.

    ``policy`` says which candidates are checked (:attr:`kerntune.policy.Policy.verify`) and which left out unrun
    (:attr:`~kerntune.policy.Policy.static_prune`).
    """

    capture: Capture
    recorded: Recorded
    loader: Loader
    winners: Winners
    policy: Policy
    progress: Callable[[str], None]
    trials: list[TrialReport] = field(default_factory=list)
    failures: list[FailedTrial] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    seconds: float = 0.0

    def run(self, baseline: TimeBaseline | None) -> None:
        """Settle every launch whose config is open; ties go to the winner that is known, else to the baseline's."""
        start = time.perf_counter()
        for index, pending in enumerate(self.capture.launches):
            if pending.site is not None:
                self._site(index, pending.site, baseline)
        self.seconds = time.perf_counter() - start

    def _site(self, index: int, site: Site, baseline: TimeBaseline | None) -> None:
        stored = self.winners.find(site)
        if stored is not None and stored == site.chosen:
            site.settle(stored)
            return
        with self.capture.active():
            tuned = tune(
                self.capture,
                self.recorded,
                index,
                self.loader,
                incumbent=self._incumbent(index, site, baseline) if stored is None else stored,
                trials=Trials(self.winners),
                verify=self.policy.verify or None,
                static_prune=self.policy.static_prune,
                progress=self.progress,
            )
        self.recorded.recording = tuned.recording
        self.failures += tuned.failures
        self.left_out += [LeftOut(site.kernel, site.candidates[i].config, why) for i, why in tuned.left_out.items()]
        self.trials += [
            TrialReport(site.kernel, site.candidates[i].config, round(ns, 1)) for i, ns in tuned.times_ns.items()
        ]
        site.chosen = tuned.winner
        site.settle(tuned.winner)
        self.winners.keep(site, tuned.winner, tuned.times_ns[tuned.winner])

    def _incumbent(self, index: int, site: Site, baseline: TimeBaseline | None) -> int | None:
        """The baseline's config, else who won among other candidates for the same arguments."""
        launches = baseline.recording.launches if baseline else ()
        configs = [c.config for c in site.candidates]
        if index < len(launches) and launches[index].kernel == site.kernel and launches[index].config in configs:
            return configs.index(launches[index].config)  # type: ignore[arg-type]  # None is never in configs
        return self.winners.incumbent(site)
