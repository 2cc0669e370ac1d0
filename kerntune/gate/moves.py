"""Baselines under another test's name: what they remember stays as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from kerntune.base.case_result import CaseId
from kerntune.errors import StoreError
from kerntune.gate.baselines import Baseline, BaselineStore, TimeBaseline

KernelHashes = tuple[tuple[str, str], ...]
"""Kernels and the hashes of their sources, in the order of their launches."""


@dataclass(frozen=True)
class Move:
    """A baseline, where it lies, and the case that it is to be of. ``replaces`` is what lies there already."""

    store: BaselineStore
    path: Path
    baseline: Baseline
    case: CaseId
    replaces: Baseline | None = None

    @property
    def renamed(self) -> Baseline:
        """The same baseline, of the other case."""
        return msgspec.structs.replace(self.baseline, case=self.case)

    @property
    def destination(self) -> Path:
        """Where it will lie."""
        return path_in(self.store, self.renamed)

    @property
    def loses(self) -> bool:
        """Whether it would replace a baseline of other work. One of the same work is no loss: it is a later record of
        it, made under the new name."""
        return self.replaces is not None and kernel_hashes(self.replaces) != kernel_hashes(self.baseline)

    def write(self) -> None:
        """Write it whole under its new name. The old file stays until :meth:`BaselineStore.remove`."""
        self.store.write(self.destination, self.renamed)


def moves_of(store: BaselineStore, cases: Mapping[CaseId, CaseId]) -> list[Move]:
    """The moves of all readable baselines of these cases in a folder: of every target, device and Triton series."""
    found = list(readable(store))
    moves = [Move(store, path, b, cases[b.case]) for path, b in found if cases.get(b.case, b.case) != b.case]
    leaving = {move.path for move in moves}
    staying = {path: b for path, b in found if path not in leaving}
    return [replace(move, replaces=staying.get(move.destination)) for move in moves]


def make(moves: list[Move]) -> None:
    """Make them all, also where names are exchanged: first every new file is written, then the old ones go. Broken off
    in between, some baselines are there twice and none is lost."""
    kept = {move.destination for move in moves}
    for move in moves:
        move.write()
    for move in moves:
        if move.path not in kept:
            move.store.remove(move.path)


def readable(store: BaselineStore) -> Iterator[tuple[Path, Baseline]]:
    """All baselines of a folder but those that can't be read."""
    for path, found in store.summaries():
        if not isinstance(found, StoreError):
            yield path, found


def path_in(store: BaselineStore, baseline: Baseline) -> Path:
    """Where a folder keeps a baseline."""
    if isinstance(baseline, TimeBaseline):
        return store.time_path(baseline.device, baseline.case, baseline.fingerprint)
    return store.static_path(baseline.target, baseline.triton, baseline.case, baseline.fingerprint)


def kernel_hashes(baseline: Baseline) -> KernelHashes:
    """What a baseline's launches are of."""
    launches = baseline.recording.launches if isinstance(baseline, TimeBaseline) else baseline.launches
    return tuple((launch.kernel, launch.source) for launch in launches)
