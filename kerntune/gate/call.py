"""A call to check, the project's settings, and the result with the baselines that it may write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from kerntune.base.case_result import CaseId, CaseResult
from kerntune.base.config import Config
from kerntune.base.device import Target
from kerntune.base.policy import ACCEPTING, Missing, Outcome, Policy, TuneMode, Update, Verdict
from kerntune.gate.baselines import BaselineStore, StaticBaseline, TimeBaseline


@dataclass(frozen=True)
class Settings:
    """Project-wide choices. ``root`` is the folder of the ini file; ``targets`` empty means the default."""

    root: Path
    baselines: Path
    update: Update = Update.NONE
    tune: TuneMode = TuneMode.AUTO
    policy: Policy = field(default_factory=Policy)
    targets: tuple[str, ...] = ()
    cache_dir: Path | None = None
    yardstick: Path | None = None
    """A folder with whose baselines cases are compared; those in ``baselines`` are then written only."""

    yardstick_name: str = ""
    yardstick_targets: tuple[Target, ...] = ()
    """The targets of which that revision has baselines: without a GPU these are compiled for."""

    read_only: bool = False
    """Whether no baseline is written, whatever the verdict."""

    anchor: Path | None = None
    """A folder of older baselines that every case is compared with as well."""

    calibrate: bool = True
    """Whether a baseline that is written is calibrated."""

    profile: Path | None = None
    """The folder that gets a Chrome trace of each case."""
    code_changes: bool = False
    """Whether results have the hunks of changed code: a compilation of the baseline's TTIR for each changed kernel."""

    def known_targets(self, store: BaselineStore) -> tuple[Target, ...]:
        """The targets that are compiled for if none is named: of the revision that is compared with, else of the
        project's own ``store``."""
        return self.yardstick_targets or tuple(store.targets())


@dataclass(frozen=True)
class Call:
    """One ``autotune(fn, *args)`` of a test. ``name`` is the given name or the call's ordinal as text.

    ``candidates`` are configs for bare kernels, by kernel name. ``flops`` and ``bytes`` are of one call.
    """

    nodeid: str
    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    reference: Callable[[], Any] | None = None
    rtol: float | None = None
    atol: float | None = None
    scope: str = "kernels"
    candidates: Mapping[str, tuple[Config, ...]] = field(default_factory=dict)
    flops: float | None = None
    bytes: float | None = None
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Where nothing runs, what kernels leave in their arguments, by kernel and argument: tensors whose values are known
    without a GPU."""

    @property
    def case(self) -> CaseId:
        """The call's identity, without its fingerprint."""
        return CaseId(self.nodeid, self.name)


@dataclass(frozen=True)
class PendingBaseline:
    """A baseline that will be written once its test has passed."""

    baseline: TimeBaseline | StaticBaseline
    artifacts: Mapping[str, bytes]
    write: bool
    anew: bool = False
    """Whether it is written even if the stored one differs in its date alone: the date decides what it accepts."""

    def commit(self, store: BaselineStore) -> tuple[Path, bool]:
        """Write it, atomically; its path, and whether the file changed."""
        if isinstance(self.baseline, TimeBaseline):
            return store.put_time(self.baseline, self.artifacts), True
        same = not self.anew and store.says(self.baseline)
        return store.put_static(self.baseline, self.artifacts, anew=self.anew), not same


@dataclass(frozen=True)
class Checked:
    """What ``fn`` returned, and the results: one on a GPU, one per target without.

    ``pending`` has the baselines of what this run measured, ``obsolete`` is a baseline to remove; :meth:`commit` does
    both once the test has passed.
    """

    value: Any
    results: tuple[CaseResult, ...]
    pending: tuple[PendingBaseline | None, ...] = ()
    store: BaselineStore | None = None
    obsolete: Path | None = None
    ended: Exception | None = None
    """What ``fn`` raised after its launches because it needs a GPU's results: what it had launched is judged, and there
    is no value to go on with."""

    def commit(self) -> tuple[CaseResult, ...]:
        """Write and remove baselines; the results, marked where one was written."""
        if self.obsolete is not None and self.store is not None:
            self.store.remove(self.obsolete)
        out = []
        for result, pending in zip(self.results, self.pending or [None] * len(self.results), strict=True):
            if pending is not None and pending.write and self.store is not None:
                path, changed = pending.commit(self.store)
                recorded = result.recorded or changed
                result = msgspec.structs.replace(result, recorded=recorded, baseline_path=self.store.shown(path))
            out.append(result)
        return tuple(out)


def should_write(verdict: Verdict, update: Update, policy: Policy, *, known_otherwise: bool = False) -> bool:
    """Whether a case's baseline is written anew, given its verdict and the run's update mode.

    ``known_otherwise``: what is new may have a baseline under another name, so it isn't recorded unless that was asked
    for. Updates of other verdicts record nothing new: an edit of a renamed test would be accepted with them.
    """
    if update is Update.ALL:
        return True  # fewer launches than before too: that is how a fusion is accepted
    if verdict is Verdict.NEW:
        unasked = update is Update.NONE and policy.missing is Missing.RECORD and not known_otherwise
        return update is Update.NEW or unasked
    return (update, verdict) in ((Update.IMPROVED, Verdict.IMPROVED), (Update.REGRESSED, Verdict.REGRESSED))


def outcome_of(verdict: Verdict, policy: Policy, pending: PendingBaseline, update: Update) -> Outcome:
    """What the verdict does to the test; one whose baseline is rewritten on purpose passes."""
    return Outcome.PASS if pending.write and update in ACCEPTING else policy.outcome(verdict)
