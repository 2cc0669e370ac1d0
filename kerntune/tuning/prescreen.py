"""Leaves out compiled candidates before any GPU time, if asked, and takes in those that a search chooses.

Static figures say which candidates aren't run. The configs that a search chooses are compiled together, estimated, and
stored for later runs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.base.policy import StaticPrune
from kerntune.compiling.compiler import Compiled
from kerntune.errors import TrialError
from kerntune.heuristics import without_spilling
from kerntune.search import AnySearch, Descent, Measured
from kerntune.static import resource_model
from kerntune.tuning.candidates import CandidatePool, CandidateResult
from kerntune.tuning.trial_set import TrialSet

T = TypeVar("T")

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
