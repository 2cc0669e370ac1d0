"""A case that has no baseline, but whose test had another name: its baseline is that of a case which is no more."""

from __future__ import annotations

import difflib
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kerntune.base.case_result import CaseId
from kerntune.base.config import Config
from kerntune.base.policy import Update
from kerntune.base.recording import Recording
from kerntune.errors import BaselineError
from kerntune.gate.baselines import Baseline, BaselineStore, TimeBaseline
from kerntune.gate.moves import KernelHashes, kernel_hashes, make, moves_of, readable

TAKING_OVER = (Update.ALL, Update.NEW, Update.RENAMED)
"""Updates under which a renamed test's baselines go with it. ``all`` records it anew on top, as it does any case."""


@dataclass(frozen=True)
class Renamed:
    """What to say of a case that was renamed, empty for others; and whether it has its old baselines now."""

    said: str = ""
    taken: bool = False


class Renames:
    """Finds what cases were called before.

    The same case is one with equal tensors (fingerprint) and kernels of equal source, whose test is gone: ``gone``
    tells that of a node id, and says no where it can't know. Of several the one with the most similar name is meant;
    each is given away once.
    """

    def __init__(
        self,
        stores: Iterable[BaselineStore],
        update: Update = Update.NONE,
        gone: Callable[[str], bool] | None = None,
    ) -> None:
        self._gone = gone
        self._stores = tuple(stores)
        self._update = update
        self._by_fingerprint: dict[str, list[Baseline]] | None = None
        self._given: dict[CaseId, CaseId] = {}

    def settle(self, case: CaseId, fingerprint: str, recording: Recording, path: Path) -> Renamed:
        """What to say of a case whose own baseline would lie at ``path``: what it was called, and what became of that.

        Empty if it has a baseline, or never had another name. Where the run was asked to (:data:`TAKING_OVER`), the
        old name's baselines of all devices and targets, and its anchors, are moved here first.
        """
        if path.exists():
            return Renamed()
        work = tuple((launch.kernel, launch.source) for launch in recording.launches)
        old = self._named_before(case, fingerprint, work)
        if old is None:
            return Renamed()
        if self._update not in TAKING_OVER:
            return Renamed(f"renamed from {old}? {command(old, case)} keeps what is known of it")
        if self._take_over(old, case):
            return Renamed(f"renamed from {old}, whose baselines were taken over", True)
        return Renamed()

    def configs(self, case: CaseId, fingerprint: str | None) -> dict[str, list[Config]]:
        """Configs of what may be this case's old baselines, by kernel: worth trying first, whatever comes of it."""
        found: dict[str, list[Config]] = {}
        for baseline in sorted(self._candidates(fingerprint), key=lambda b: -_likeness(b.case, case)):
            for launch in baseline.recording.launches if isinstance(baseline, TimeBaseline) else baseline.launches:
                if launch.config is not None and launch.config not in found.setdefault(launch.kernel, []):
                    found[launch.kernel].append(launch.config)
        return found

    def _named_before(self, case: CaseId, fingerprint: str, work: KernelHashes) -> CaseId | None:
        if case in self._given.values():
            return next(old for old, new in self._given.items() if new == case)
        cases = {b.case for b in self._candidates(fingerprint) if kernel_hashes(b) == work}
        best = max(sorted(cases - self._given.keys()), key=lambda old: _likeness(old, case), default=None)
        if best is not None:
            self._given[best] = case
        return best

    def _candidates(self, fingerprint: str | None) -> Iterator[Baseline]:
        """Baselines of equal tensors whose test is gone. The folder is read once, by the first case that has none."""
        gone = self._gone
        if gone is None:
            return
        if self._by_fingerprint is None:
            self._by_fingerprint = defaultdict(list)
            for store in self._stores[:1]:
                for _, baseline in readable(store):
                    self._by_fingerprint[baseline.fingerprint].append(baseline)
        yield from (b for b in self._by_fingerprint.get(fingerprint or "", ()) if gone(b.case.nodeid))

    def _take_over(self, old: CaseId, case: CaseId) -> bool:
        """Whether there was something left to move: another process of this run may have taken it."""
        moves = [move for store in self._stores for move in moves_of(store, {old: case})]
        try:
            make([move for move in moves if not move.loses])
        except BaselineError:
            return False
        return bool(moves)


def renamed_to(stale: Baseline, living: Iterable[Baseline]) -> str:
    """What to say of a stale baseline if another case, recorded after it, does the same work on the same tensors."""
    same = [
        b.case
        for b in living
        if b.fingerprint == stale.fingerprint
        and b.recorded > stale.recorded
        and kernel_hashes(b) == kernel_hashes(stale)
    ]
    new = max(sorted(same), key=lambda case: _likeness(stale.case, case), default=None)
    return "" if new is None else f", renamed to {new}? {command(stale.case, new)} keeps what is known of it"


def command(old: CaseId, new: CaseId) -> str:
    """What moves a case's baselines."""
    return f"`{shlex.join(['kerntune', 'baselines', 'mv', str(old), str(new)])}`"


def _likeness(a: CaseId, b: CaseId) -> float:
    """0 to 1: how much two names have in common."""
    return difflib.SequenceMatcher(None, f"{a.nodeid}::{a.call}", f"{b.nodeid}::{b.call}", autojunk=False).ratio()
