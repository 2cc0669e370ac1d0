"""A search on a device: the configs that it chooses are compiled together, estimated, and stored for later runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from kerntune.base.config import Config
from kerntune.compiling.compiler import Compiled
from kerntune.search import ComboSearch, Descent, Measured, Search
from kerntune.search.register_scaling import RegisterScaling
from kerntune.tuning.prescreen import Prescreen
from kerntune.tuning.trial_set import TrialSet


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
        search: Search | Descent | ComboSearch | RegisterScaling = self._trial_set.site.search
        starts = list(self._places)
        self._trial_set.keep_estimates(self._places.values())
        if isinstance(search, Descent):
            self._read_codes(list(self._places.values()))
        search.run(self._measure, self._prepare, starts, time.monotonic() - self._begin)
        self._trial_set.site.searched = True
        self._estimate(self._trial_set.worth_repeating())

    def _prepare(self, configs: Sequence[Config]) -> None:
        """Compile and estimate new configs."""
        it = self._trial_set
        new = [config for config in configs if config not in self._places]
        for config in new:
            self._places[config] = it.capture.add_candidate(it.site, 0, config)
        if new:
            self._progress(f"{it.site.kernel}: searching, {len(self._places)} configs so far")
            self._estimate(it.join([self._places[config] for config in new]))
            if isinstance(it.site.search, Descent):
                self._read_codes([self._places[config] for config in new])

    def _estimate(self, candidates: Sequence[int]) -> None:
        self._trial_set.expect(candidates)
        self._trial_set.paused()
        with contextlib.closing(self._trial_set.pool.compiled(candidates)) as stream:
            for group in self._prescreen.in_order(stream):
                self._trial_set.admit_all(group)
        self._trial_set.keep_estimates(candidates)

    def _read_codes(self, candidates: Sequence[int]) -> None:
        """What these are launched as; an earlier run's or the list's are compiled for it, from Triton's cache."""
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
