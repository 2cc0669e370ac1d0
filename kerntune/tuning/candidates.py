"""What each candidate of a tuning site would launch, and what earlier runs know of it: before anything is compiled."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from kerntune.base.case_result import is_fault
from kerntune.capture import Capture, Probe, Site
from kerntune.compiling.compiler import Compiled
from kerntune.compiling.prefetch import Pulled
from kerntune.errors import TrialError
from kerntune.kernels.specialize import Specialized
from kerntune.tuning.cache import StoredTrial
from kerntune.tuning.race import DROP_FIRST, DROP_SECOND
from kerntune.tuning.stored_trials import NOTHING, KnownTrials, SiteTrials

MARGIN = 1.05
"""How much more a stored time must be above the limits to be believed: medians of one kernel differ by 2 to 4 % from
process to process (4096^3 matmul, H200), so stored times choose who is timed again, never who wins."""


CandidateResult = tuple[int, Union[Compiled, TrialError]]
"""A candidate's index and what its compilation came to."""


FEW, QUIET_SECONDS = 4, 0.05
"""With so few candidates left to be compiled, none of them waiting for a processor, a pause this long means stragglers:
one of 30 configs takes a third of all compile time where a thread holds 256 elements."""

LEAST_SECONDS = 0.005
"""Once patience has ended, this long a pause is enough."""

LATE_SHARE = 0.25
"""Of all candidates, no more than this may be left: who wins among few would often not stay the winner."""


@dataclass(frozen=True)
class Stragglers:
    """Candidates, by index, that are still being compiled; ``coming`` goes on with it, and keeps no tensors."""

    indices: frozenset[int]
    coming: Pulled[Any]


def _wait_on() -> float:
    """What is done in a pause unless somebody wants it: nothing, and go on waiting."""
    return math.inf


@dataclass
class Prospects:
    """A site's candidates by index: ``probes`` of those that can be specialized, reasons of the ``refused``, and what
    is ``known`` from earlier runs."""

    capture: Capture
    site: Site
    stored: SiteTrials | None
    probes: dict[int, Probe] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    known: KnownTrials = NOTHING
    pause: Callable[[], float] = _wait_on
    """Called where only stragglers are left to wait for, again and again: until when (:func:`time.monotonic`) to wait
    for them. Whoever takes the results may set it at any time."""

    stragglers: Stragglers | None = None
    """Those that were left."""

    def __post_init__(self) -> None:
        self._pulled: list[CandidateResult] = []
        self._begun: tuple[list[int], Pulled[Any]] | None = None
        self._coming: Pulled[Any] | None = None
        self._by_launch: dict[int, tuple[int, Specialized]] = {}
        self._until = math.inf

    def add(self, indices: Collection[int]) -> None:
        """Find what these candidates would launch, and what is known of them. Only inside ``capture.active()``; nothing
        runs but hooks."""
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

    def begin(self, indices: Sequence[int]) -> Pulled[Any]:
        """Have candidates compiled from now on: the next caller who asks for the very same takes the results."""
        if self._begun is None or self._begun[0] != list(indices):
            self.close()
            self._begun = (list(indices), self._compiling(indices))
        return self._begun[1]

    def first_compiled(self, indices: Sequence[int]) -> Iterator[CandidateResult]:
        """As :meth:`compiled`, for a caller who stops early; the next :meth:`compiled` of the same candidates has
        these results again and goes on."""
        for result in self._named(self.begin(indices)):
            self._pulled.append(result)
            yield result

    def compiled(self, indices: Sequence[int]) -> Generator[CandidateResult, None, None]:
        """Candidates as they are compiled, equal ones one after the other; without :attr:`stragglers` if they were
        left in a pause."""
        begun, self._begun = self._begun, None
        pulled = [result for result in self._pulled if result[0] in indices]
        self._pulled = [result for result in self._pulled if result[0] not in indices]
        left = set(indices) - {i for i, _ in pulled}
        if begun is not None and begun[0] != list(indices):
            begun[1].stop()
            begun = None
        coming = self._coming = begun[1] if begun else self._compiling(sorted(left, key=list(indices).index))
        try:
            yield from pulled
            while left and not self._left(left, coming):
                result = next(self._named(coming))
                left.discard(result[0])
                yield result
        finally:
            self._coming = None
            if self.stragglers is None:
                coming.stop()

    def _left(self, left: set[int], coming: Pulled[Any]) -> bool:
        """Wait for the next result; whether it was decided in a pause to go on without those that are left."""
        may_leave = len(left) <= LATE_SHARE * len(self.probes)
        while not coming.wait(self._quiet() if may_leave else QUIET_SECONDS):
            if (may_leave or len(left) <= FEW) and not self.capture.compiler.farm.queued:
                self._until = self.pause()
                if may_leave and time.monotonic() >= self._until and not coming.wait(0):
                    self.stragglers = Stragglers(frozenset(left), coming)
                    return True
        return False

    def _quiet(self) -> float:
        return max(LEAST_SECONDS, min(QUIET_SECONDS, self._until - time.monotonic()))

    def rejoin(self) -> list[int]:
        """Wait for the stragglers after all: their indices, for the next :meth:`compiled`."""
        late, self.stragglers = self.stragglers, None
        if late is None:
            return []
        self._begun = (sorted(late.indices), late.coming)
        return sorted(late.indices)

    def take_stragglers(self) -> Stragglers | None:
        """Those that were left, if any; they are the caller's now, and not ended by :meth:`close`."""
        late, self.stragglers = self.stragglers, None
        return late

    def compile_behind(self) -> Stragglers:
        """Have all candidates compiled that aren't in Triton's cache, while the caller goes on."""
        return Stragglers(frozenset(self.probes), self._compiling(list(self.probes), self.probes))

    def _compiling(self, indices: Sequence[int], made_before: Collection[int] = ()) -> Pulled[Any]:
        launches = {i: self.probes[i].specialized.without_arguments() for i in indices}
        self._by_launch.update({id(launch): (i, launch) for i, launch in launches.items()})
        made = {id(launch) for i, launch in launches.items() if i in self.known.ran or i in made_before}
        return self.capture.compiler.compile_aside(list(launches.values()), made)

    def _named(self, coming: Pulled[Any]) -> Iterator[CandidateResult]:
        return ((self._by_launch[id(launch)][0], found) for launch, found in coming)

    @property
    def has_results(self) -> bool:
        """Whether one of what was :meth:`begun <begin>` is compiled, and nobody has taken it."""
        return self._begun is not None and self._begun[1].wait(0)

    def ready(self) -> bool:
        """Whether the next result of the :meth:`compiled` under way, or its end, comes without waiting."""
        return self._coming is not None and self._coming.wait(0)

    def close(self) -> None:
        """Cancel what is still compiled for nobody."""
        self.rejoin()
        begun, self._begun = self._begun, None
        if begun is not None:
            begun[1].stop()


def prospects_of(
    capture: Capture, site: Site, stored: SiteTrials | None = None, among: Collection[int] | None = None
) -> Prospects:
    """What each candidate (each ``among`` these) would launch: :meth:`Prospects.add`."""
    out = Prospects(capture, site, stored)
    out.add(range(len(site.candidates)) if among is None else among)
    return out


def contenders(known: Mapping[int, StoredTrial]) -> set[int]:
    """Those of the known trials that may win: within the race's limits, and :data:`MARGIN` for other processes."""
    looks = {i: t.estimate_ns for i, t in known.items() if t.estimate_ns is not None}
    limit = DROP_FIRST * MARGIN * min(looks.values(), default=0.0)
    near = {i for i in known if i not in looks or looks[i] <= limit}
    best: dict[tuple[str, int], float] = {}
    for t in known.values():
        if t.time_ns is not None and t.timing is not None:
            kind = (t.timing.timer, t.timing.version)
            best[kind] = min(best.get(kind, t.time_ns), t.time_ns)
    return {i for i in near if not _left_behind(known[i], best)}


def _left_behind(trial: StoredTrial, best: Mapping[tuple[str, int], float]) -> bool:
    if trial.time_ns is None or trial.timing is None:
        return False
    return trial.time_ns > best[trial.timing.timer, trial.timing.version] * DROP_SECOND * MARGIN
