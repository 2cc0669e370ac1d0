"""Which compiled candidates are estimated first, and which aren't run: by static figures, before any GPU time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import TypeVar

from kerntune.base.device import DeviceSpec
from kerntune.base.policy import StaticPrune
from kerntune.compiling.compiler import Compiled
from kerntune.static import pruning
from kerntune.static.prediction import Predictions
from kerntune.tuning.batch import CandidateResult
from kerntune.tuning.candidates import CandidatePool

T = TypeVar("T")


class Prescreen:
    """Of one tuning. The order only decides which candidate is timed earlier; ``prune`` leaves candidates out, but
    neither the incumbent nor those that earlier runs have timed."""

    def __init__(self, pool: CandidatePool, spec: DeviceSpec, prune: StaticPrune, incumbent: int | None) -> None:
        self._pool, self._prune, self._incumbent = pool, prune, incumbent
        self._predictions = Predictions(spec)
        self.left_out: dict[int, str] = {}
        """Why each candidate that was left out was."""

    def in_order(self, compiled: Iterator[CandidateResult]) -> Iterator[CandidateResult]:
        """Of the results that are there together the cheapest by prediction first; where some may be left out, once all
        are there."""
        if not self._prune:
            return lowest_cost_first(compiled, self._pool.ready, self._cost)
        results = sorted(compiled, key=self._cost)
        figures = {i: self._predictions.figures[i] for i, _ in results if i in self._predictions.figures}
        protected = {*self._pool.known.ran, self._incumbent}
        self.left_out.update(pruning.left_out(figures, self._prune, protected))
        return (result for result in results if result[0] not in self.left_out)

    def readmitted(self) -> list[int]:
        """The candidates that were left out; from now on none is."""
        back, self.left_out, self._prune = sorted(self.left_out), {}, StaticPrune()
        return back

    def rank(self, index: int) -> int | None:
        """A candidate's predicted place, from 1; None where nothing can be predicted."""
        return self._predictions.rank(index)

    def _cost(self, result: CandidateResult) -> float:
        i, compiled = result
        if isinstance(compiled, Compiled):
            self._predictions.add(i, compiled, self._pool.probes[i].grid)
        return self._predictions.cost(i)


def lowest_cost_first(results: Iterator[T], ready: Callable[[], bool], cost: Callable[[T], float]) -> Iterator[T]:
    """All ``results``; of those that are ready at the same time the one with the lowest cost first, of equals the
    earliest.

    ``ready`` returns whether the next one is available without waiting; ``cost`` is called once for each.
    """
    held: list[tuple[float, int, T]] = []
    for number, result in enumerate(results):
        heapq.heappush(held, (cost(result), number, result))
        while held and not ready():
            yield heapq.heappop(held)[2]
    while held:
        yield heapq.heappop(held)[2]
