"""Candidates that failed at their first launch, and whether they are to blame or the call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kerntune.capture.fault_limits import in_doubt, is_hopeless
from kerntune.compiling.compiler import Compiled
from kerntune.tuning.consensus import CandidateWork


@dataclass
class FirstLaunchFault:
    """What a first launch came to; ``same`` are the candidates of this very ``work``, ``code`` is what their trials are
    stored with (:func:`kerntune.tuning.consensus.stored_code`)."""

    reason: str
    compiled: Compiled
    work: CandidateWork
    code: str
    same: list[int]
    hung: bool = False
    passing: bool = False
    """Another run may not find that."""


@dataclass
class Faults:
    """Those of one kernel's tuning. A fault is settled once it is remembered."""

    kernel: str
    _open: list[FirstLaunchFault] = field(default_factory=list)
    _settled: list[FirstLaunchFault] = field(default_factory=list)

    def add(self, fault: FirstLaunchFault) -> None:
        """One more."""
        self._open.append(fault)

    def like(self, work: CandidateWork) -> FirstLaunchFault | None:
        """The fault of the very same launch on the same contents."""
        return next((f for f in (*self._open, *self._settled) if f.work == work), None)

    def has(self, launch: tuple[str, tuple[int, int, int]]) -> bool:
        """Whether a launch, by the first two of its work, has failed, on whatever contents."""
        return any(f.work[:2] == launch for f in (*self._open, *self._settled))

    def indices(self) -> list[int]:
        """The candidates."""
        return [i for fault in (*self._open, *self._settled) for i in fault.same]

    def take_hung(self) -> Iterator[FirstLaunchFault]:
        """Those that did not end, to be launched once more; they are no faults until then."""
        hung = [fault for fault in self._open if fault.hung]
        self._open = [fault for fault in self._open if not fault.hung]
        yield from hung

    @property
    def hangs(self) -> int:
        """How many did not end."""
        return sum(fault.hung for fault in self._open)

    def in_doubt(self, good: int) -> bool:
        """Whether so many have failed, and none is good, that others should be tried before the next in the list."""
        return not good and in_doubt(len(self._open), self.hangs)

    def without_hope(self, good: int, candidates: int) -> bool:
        """Whether it is clear before all were tried that the call is to blame."""
        return not good and is_hopeless(len(self._open), self.hangs, candidates)

    def blame_call(self, incumbent: int | None, good: int) -> bool:
        """Whether the incumbent is among them, or they are more than the ``good``."""
        return bool(self._open) and (incumbent in self.indices() or len(self._open) > good)

    def settle(self) -> list[FirstLaunchFault]:
        """Those that are to be remembered, once."""
        settled, self._open = self._open, []
        self._settled += settled
        return settled
