"""What each candidate of a tuning site would launch, and what earlier runs know of it: before anything is compiled."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union

from kerntune.cache import StoredTrial
from kerntune.capture import Capture, Probe, Site
from kerntune.compile import Compiled
from kerntune.errors import TrialError
from kerntune.race import DROP_FIRST, DROP_SECOND
from kerntune.trials import NOTHING, Known, SiteTrials

MARGIN = 1.05
"""How much more a stored time must be above the limits to be believed: medians of one kernel differ by 2 to 4 % from
process to process (4096^3 matmul, H200), so stored times choose who is timed again, never who wins."""


Result = tuple[int, Union[Compiled, TrialError]]
"""A candidate's index and what its compilation came to."""


def nothing() -> None:
    """What is done in a pause unless somebody wants it."""


@dataclass
class Prospects:
    """A site's candidates by index: ``probes`` of those that can be specialized, reasons of the ``refused``, and what
    is ``known`` from earlier runs."""

    capture: Capture
    site: Site
    stored: SiteTrials | None
    probes: dict[int, Probe] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    known: Known = NOTHING
    idle: Callable[[], None] = nothing
    """Called where only stragglers are left to be compiled: whoever takes the results may set it at any time."""

    def __post_init__(self) -> None:
        self._pulled: list[Result] = []
        self._begun: tuple[list[int], Generator[Result, None, None]] | None = None

    def stages(self) -> Iterator[list[int]]:
        """Candidates to try together; the next stage only if nothing of the one before can be used."""
        failed = set(self.known.failed)
        slower = set(self.known.ran) - contenders(self.known.ran)
        yield [i for i in self.probes if i not in slower | failed]
        yield sorted(slower)
        yield sorted(failed)

    def to_compile(self) -> int:
        """How many candidates a compiler will probably be asked for: not those of earlier runs, nor of this process."""
        new = [p.specialized for i, p in self.probes.items() if i not in {*self.known.ran, *self.known.failed}]
        return self.capture.compiler.missing(new)

    def first_compiled(self, indices: Sequence[int]) -> Iterator[Result]:
        """As :meth:`compiled`, for a caller who stops early; the next :meth:`compiled` of the same candidates has
        these results again and goes on."""
        self.close()
        self._begun = (list(indices), self._compiling(indices))
        for result in self._begun[1]:
            self._pulled.append(result)
            yield result

    def compiled(self, indices: Sequence[int]) -> Generator[Result, None, None]:
        """Candidates as they are compiled, equal ones one after the other."""
        begun, self._begun = self._begun, None
        pulled = [result for result in self._pulled if result[0] in indices]
        self._pulled = [result for result in self._pulled if result[0] not in indices]
        yield from pulled
        if begun is not None and begun[0] == list(indices):
            yield from begun[1]
        else:
            had = {i for i, _ in pulled}
            yield from self._compiling([i for i in indices if i not in had])

    def _compiling(self, indices: Sequence[int]) -> Generator[Result, None, None]:
        by_launch = {id(self.probes[i].specialized): i for i in indices}
        launches = [self.probes[i].specialized for i in indices]
        made_before = {id(self.probes[i].specialized) for i in indices if i in self.known.ran}
        for launch, found in self.capture.compiler.compile_stream(launches, made_before, lambda: self.idle()):
            yield by_launch[id(launch)], found

    def ready(self) -> bool:
        """Whether the next result of :meth:`compiled` comes without waiting."""
        return False

    def close(self) -> None:
        """Cancel what is still compiled for nobody."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun[1].close()


def prospects_of(capture: Capture, site: Site, stored: SiteTrials | None = None) -> Prospects:
    """Find what each candidate would launch. Only inside ``capture.active()``; nothing runs but hooks."""
    out = Prospects(capture, site, stored)
    for i, found in capture.probe_all(site).items():
        if isinstance(found, Probe):
            out.probes[i] = found
        else:
            out.refused[i] = str(found)
    if stored is not None:
        out.known = stored.known(out.probes)
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
