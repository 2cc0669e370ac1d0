"""A search on a device: the configs that it chooses are compiled together, estimated, and stored for later runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from kerntune.base.config import Config
from kerntune.search import Measured, Search
from kerntune.tuning.prescreen import Outlook
from kerntune.tuning.trial_set import Entrants


class Searching:
    """Searches beyond a tuning's list, whose candidates have estimates by then: further candidates join the site, and
    the fastest of them the race. The search sees estimates, of today or of earlier runs."""

    def __init__(self, entrants: Entrants, outlook: Outlook, progress: Callable[[str], None]) -> None:
        self._begin = time.monotonic()
        self._entrants, self._outlook, self._progress = entrants, outlook, progress
        self._places = {c.config: i for i, c in enumerate(entrants.site.candidates)}

    def run(self) -> None:
        """Search until the budget is spent, of which the list has taken its part."""
        search: Search = self._entrants.site.search
        starts = list(self._places)
        self._entrants.keep_looks(self._places.values())
        search.run(self._measure, self._prepare, starts, time.monotonic() - self._begin)
        self._entrants.site.searched = True
        self._look_at(self._entrants.worth_repeating())

    def _prepare(self, configs: Sequence[Config]) -> None:
        """Compile and estimate new configs."""
        it = self._entrants
        new = [config for config in configs if config not in self._places]
        for config in new:
            self._places[config] = it.capture.add_candidate(it.site, 0, config)
        if new:
            self._progress(f"{it.site.kernel}: searching, {len(self._places)} configs so far")
            self._look_at(it.join([self._places[config] for config in new]))

    def _look_at(self, candidates: Sequence[int]) -> None:
        self._entrants.expect(candidates)
        self._entrants.paused()
        with contextlib.closing(self._entrants.prospects.compiled(candidates)) as stream:
            for i, compiled in self._outlook.worth_a_look(stream):
                self._entrants.admit(i, compiled)
        self._entrants.keep_looks(candidates)

    def _measure(self, config: Config) -> Measured:
        i = self._places[config]
        failed = self._entrants.failures.get(i)
        return Measured(self._entrants.look_ns(i), failed.reason if failed is not None else "")
