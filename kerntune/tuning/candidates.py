"""Holds what each candidate of a tuning site would launch, and compiles candidates together.

A pool knows before anything is compiled what earlier runs say of its candidates. A batch compiles the rest, and says
how long to wait for the last of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Union

from kerntune.base.failed_candidates import is_fault
from kerntune.capture import Capture, Probe, Site
from kerntune.compiling.compiler import Compiled
from kerntune.compiling.farm import PrefetchedIterator
from kerntune.errors import TrialError
from kerntune.kernels.specialize import Specialized
from kerntune.tuning.cache import StoredTrial
from kerntune.tuning.race import DROP_FIRST, DROP_SECOND
from kerntune.tuning.stored_trials import NOTHING, KnownTrials, SiteTrials

CandidateResult = tuple[int, Union[Compiled, TrialError]]
"""A candidate's index and what its compilation came to."""

FEW, QUIET_SECONDS = 4, 0.05
"""With so few candidates left to be compiled, none of them waiting for a processor, a pause this long means stragglers:
one of 30 configs takes a third of all compile time where a thread holds 256 elements."""

LEAST_SECONDS = 0.005
"""Once patience has ended, this long a pause is enough."""

LATE_SHARE = 0.25
"""Of all candidates, no more than this may be left: the fastest of few would often not stay the winner."""


class BatchState(Enum):
    """A batch was begun ahead, its results are being taken, or those that were missing were left."""

    BEGUN = "begun"
    TAKEN = "taken"
    LEFT = "left"


@dataclass
class Batch:
    """Compilations of the candidates ``indices`` that were begun together; ``coming`` goes on with them, and keeps no
    tensors. ``launches`` are by candidate, also of those whose result has been taken."""

    state: BatchState
    indices: tuple[int, ...]
    launches: Mapping[int, Specialized]
    coming: PrefetchedIterator[tuple[Specialized, Union[Compiled, TrialError]]]

    def results(self) -> Iterator[CandidateResult]:
        """Results as they come, each with its candidate."""
        candidate = {id(launch): i for i, launch in self.launches.items()}
        return ((candidate[id(launch)], found) for launch, found in self.coming)


def wait_for_all() -> float:
    """What is done in a pause where nothing else is to be done: nothing, and wait on."""
    return math.inf


@dataclass
class BatchWait:
    """For the results of one batch of ``total`` candidates; ``queued()`` compilations wait for a processor.

    ``pause()`` is called again and again where only stragglers are missing, and says until when
    (:func:`time.monotonic`) to wait for them.
    """

    total: int
    queued: Callable[[], int]
    pause: Callable[[], float]

    def __post_init__(self) -> None:
        self._until = math.inf

    def gives_up(self, missing: int, coming: PrefetchedIterator[Any]) -> bool:
        """Wait for the next result; whether a pause has ended the wait for those that are ``missing``."""
        may_leave = missing <= LATE_SHARE * self.total
        while not coming.wait(self._quiet() if may_leave else QUIET_SECONDS):
            if (may_leave or missing <= FEW) and not self.queued():
                self._until = self.pause()
                if may_leave and time.monotonic() >= self._until and not coming.wait(0):
                    return True
        return False

    def _quiet(self) -> float:
        return max(LEAST_SECONDS, min(QUIET_SECONDS, self._until - time.monotonic()))


MARGIN = 1.05
"""How far a stored time must be above the limits to count: medians of one kernel differ by 2 to 4 % from process to
process (4096^3 matmul, H200), so stored times choose which candidates are timed again, never the winner."""


@dataclass
class CandidatePool:
    """A site's candidates by index: ``probes`` of those that can be specialized, reasons of the ``refused``, and what
    is ``known`` from earlier runs."""

    capture: Capture
    site: Site
    stored: SiteTrials | None
    probes: dict[int, Probe] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    known: KnownTrials = NOTHING

    def __post_init__(self) -> None:
        self._early: dict[int, CandidateResult] = {}
        self._batch: Batch | None = None

    def add(self, indices: Collection[int]) -> None:
        """What these would launch, and what is known of them. Only in ``capture.active()``; nothing runs but hooks."""
        for i, found in self.capture.probe_all(self.site, indices).items():
            if isinstance(found, Probe):
                self.probes[i] = found
            else:
                self.refused[i] = str(found)
        if self.stored is not None:
            self.known = self.stored.known(self.probes)

    def stages(self) -> Iterator[list[int]]:
        """Candidates to try together; the next stage only if nothing of the one before can be used."""
        failed = set(self.known.failed)
        slower = set(self.known.ran) - contenders(self.known.ran)
        yield [i for i in self.probes if i not in slower | failed]
        yield sorted(slower)
        yield sorted(i for i in failed if not is_fault(self.known.failed[i].failure))

    def to_compile(self) -> int:
        """How many candidates a compiler will probably be asked for: not those of earlier runs, nor of this process."""
        new = [p.specialized for i, p in self.probes.items() if i not in {*self.known.ran, *self.known.failed}]
        return self.capture.compiler.missing(new)

    def begin(self, indices: Sequence[int]) -> Batch:
        """Have candidates compiled from now on: the next :meth:`compiled` of the very same takes the results."""
        batch = self._begun(indices)
        if batch is None:
            self.close()
            self._batch = batch = self._compiling(indices)
        return batch

    def first_compiled(self, indices: Sequence[int]) -> Iterator[CandidateResult]:
        """As :meth:`compiled`, for a caller that stops early: the next :meth:`compiled` of the same has these, too."""
        for i, found in self.begin(indices).results():
            self._early[i] = i, found
            yield i, found

    def compiled(
        self, indices: Sequence[int], pause: Callable[[], float] = wait_for_all
    ) -> Generator[CandidateResult, None, None]:
        """Candidates as they are compiled, equal ones one after the other. Where only stragglers are missing, ``pause``
        is called (:class:`~kerntune.tuning.candidates.BatchWait`); without them, if it said so."""
        early = [self._early.pop(i) for i in list(self._early) if i in indices]
        left = set(indices) - {i for i, _ in early}
        batch = self._begun(indices) or self.begin([i for i in indices if i in left])
        batch.state = BatchState.TAKEN
        farm = self.capture.compiler.farm
        waiting, results = BatchWait(len(self.probes), lambda: farm.queued, pause), batch.results()
        try:
            yield from early
            while left:
                if waiting.gives_up(len(left), batch.coming):
                    batch.state, batch.indices = BatchState.LEFT, tuple(sorted(left))
                    return
                result = next(results)
                left.discard(result[0])
                yield result
        finally:
            if self._batch is batch and batch.state is BatchState.TAKEN:
                self.close()

    def rejoin(self) -> list[int]:
        """Wait for the stragglers after all: their indices, for the next :meth:`compiled`."""
        late = self._in(BatchState.LEFT)
        if late is None:
            return []
        late.state = BatchState.BEGUN
        return list(late.indices)

    def take_stragglers(self) -> Batch | None:
        """Those that were left, if any; they are the caller's now, and not ended by :meth:`close`."""
        late = self._in(BatchState.LEFT)
        if late is not None:
            self._batch = None
        return late

    def compile_behind(self) -> Batch:
        """Have all candidates compiled that aren't in Triton's cache, while the caller goes on."""
        batch = self._compiling(list(self.probes), self.probes)
        batch.state = BatchState.LEFT
        return batch

    @property
    def has_results(self) -> bool:
        """Whether one of what was :meth:`begun <begin>` is compiled and not taken yet."""
        batch = self._in(BatchState.BEGUN)
        return batch is not None and batch.coming.wait(0)

    def ready(self) -> bool:
        """Whether the next result of the :meth:`compiled` under way, or its end, comes without waiting."""
        batch = self._in(BatchState.TAKEN)
        return batch is not None and batch.coming.wait(0)

    def close(self) -> None:
        """Cancel compilations whose results no caller takes."""
        batch, self._batch = self._batch, None
        if batch is not None:
            batch.coming.stop()

    def _compiling(self, indices: Sequence[int], made_before: Collection[int] = ()) -> Batch:
        launches = {i: self.probes[i].specialized.without_arguments() for i in indices}
        made = {id(launch) for i, launch in launches.items() if i in self.known.ran or i in made_before}
        coming = self.capture.compiler.compile_aside(list(launches.values()), made)
        return Batch(BatchState.BEGUN, tuple(indices), launches, coming)

    def _in(self, state: BatchState) -> Batch | None:
        return self._batch if self._batch is not None and self._batch.state is state else None

    def _begun(self, indices: Sequence[int]) -> Batch | None:
        batch = self._in(BatchState.BEGUN)
        return batch if batch is not None and batch.indices == tuple(indices) else None


def pool_of(
    capture: Capture, site: Site, stored: SiteTrials | None = None, among: Collection[int] | None = None
) -> CandidatePool:
    """What each candidate (each ``among`` these) would launch: :meth:`CandidatePool.add`."""
    out = CandidatePool(capture, site, stored)
    out.add(range(len(site.candidates)) if among is None else among)
    return out


def contenders(known: Mapping[int, StoredTrial]) -> set[int]:
    """The known trials that may win: within the race's limits, and :data:`MARGIN` for other processes."""
    looks = {i: t.estimate_ns for i, t in known.items() if t.estimate_ns is not None}
    limit = DROP_FIRST * MARGIN * min(looks.values(), default=0.0)
    near = {i for i in known if i not in looks or looks[i] <= limit}
    raced: dict[object, dict[int, float]] = {}
    for i, t in known.items():
        if t.time_ns is not None and t.timing is not None:
            raced.setdefault((t.timing.timer, t.timing.version), {})[i] = t.time_ns
    limits = ((times, DROP_SECOND * MARGIN * min(times.values())) for times in raced.values())
    return near - {i for times, most in limits for i, ns in times.items() if ns > most}
