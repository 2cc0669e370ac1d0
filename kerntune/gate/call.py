"""A call to check, the project's settings, and the result with the baselines that it may write.

The captured run's result is compared with its reference here, and so are further runs with the winning configs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from kerntune.base.case_result import CaseId, CaseResult
from kerntune.base.config import Config
from kerntune.base.device import Target
from kerntune.base.policy import ACCEPTING, Missing, Outcome, Policy, TuneMode, Update, Verdict
from kerntune.capture import Capture
from kerntune.errors import ReferenceMismatch
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import StaticBaseline, TimeBaseline
from kerntune.gate.case_identity import tensor_leaves
from kerntune.gpu.base import Backend
from kerntune.tuning.tune_options import TuneOptions, options_of_policy


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
    yardstick_targets: tuple[Target, ...] = ()
    """The targets of which the revision has baselines that is compared with: without a GPU these are compiled for."""

    read_only: bool = False
    """Whether no baseline is written, whatever the verdict."""

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

    @cached_property
    def options(self) -> TuneOptions:
        """How what it launches is tuned."""
        return options_of_policy(self.policy)


class PendingBaseline(NamedTuple):
    """A baseline that will be written once its test has passed."""

    baseline: TimeBaseline | StaticBaseline
    artifacts: Mapping[str, bytes]
    write: bool
    anew: bool = False
    """Whether it is written even if the stored one differs in its date alone: the date decides what it accepts."""

    def commit(self, store: BaselineStore) -> tuple[Path, bool]:
        """Write it, atomically; its path, and whether the file changed."""
        same = isinstance(self.baseline, StaticBaseline) and not self.anew and store.says(self.baseline)
        return store.put(self.baseline, self.artifacts, anew=self.anew), not same


class Checked(NamedTuple):
    """What ``fn`` returned, and the result.

    ``pending`` has the baseline of what this run measured, ``obsolete`` is a baseline to remove; :meth:`commit` does
    both once the test has passed.
    """

    value: Any
    result: CaseResult
    pending: PendingBaseline | None = None
    store: BaselineStore | None = None
    obsolete: Path | None = None
    ended: Exception | None = None
    """What ``fn`` raised after its launches because it needs a GPU's results: what it had launched is judged, and there
    is no value to go on with."""

    def commit(self) -> CaseResult:
        """Write and remove baselines; the result, marked if one was written."""
        if self.store is None:
            return self.result
        if self.obsolete is not None:
            self.store.remove(self.obsolete)
        if self.pending is None or not self.pending.write:
            return self.result
        path, changed = self.pending.commit(self.store)
        recorded = self.result.recorded or changed
        return self.result.but(recorded=recorded, baseline_path=self.store.shown(path))


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


def compare_reference(actual: Any, expected: Any, *, rtol: float | None, atol: float | None, case: str) -> None:
    """:class:`ReferenceMismatch` with where and by how much, unless ``actual`` is ``expected`` within tolerance.

    Tensors, or nested tuples, lists and dicts of them, ``expected`` on any device; for a tensor a numpy array of its
    shape will do, in any floating type if the tensor's is one. ``rtol`` and ``atol`` are those of
    ``torch.testing.assert_close``, both or neither given, with its defaults by dtype.
    """
    import torch

    if (rtol is None) != (atol is None):
        rtol, atol = rtol or 0.0, atol or 0.0
    try:
        actual, expected = _plain(actual), _plain(expected)
        torch.testing.assert_close(actual, _beside(expected, actual), rtol=rtol, atol=atol, check_device=False)
    except (AssertionError, TypeError) as exc:  # the latter of a tensor beside a list, say
        raise ReferenceMismatch(f"{case}: the result disagrees with its reference. {exc}") from None


def compare_call(call: Call, value: Any, expected: Any) -> None:
    """:func:`compare_reference` of a call's result, within the call's tolerances."""
    compare_reference(value, expected, rtol=call.rtol, atol=call.atol, case=str(call.case))


def _plain(value: Any) -> Any:
    """A list for a tuple, and no gradients: torch compares types strictly, users don't mean that."""
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value.detach() if hasattr(value, "detach") else value


def _beside(expected: Any, actual: Any) -> Any:
    """Numpy's arrays and numbers as tensors where the result has them: on its device, and of its type if both are
    floating-point ones, since numpy computes in float64 and has no bfloat16."""
    import numpy as np
    import torch

    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        return [_beside(e, a) for e, a in zip(expected, actual, strict=True)]
    if isinstance(expected, dict) and isinstance(actual, dict):
        return {k: _beside(v, actual.get(k)) for k, v in expected.items()}
    if not isinstance(expected, (np.ndarray, np.generic)) or not isinstance(actual, torch.Tensor):
        return expected
    tensor = torch.from_numpy(np.array(expected, order="C")).to(actual.device)
    return tensor.to(actual.dtype) if tensor.is_floating_point() and actual.is_floating_point() else tensor


class Rerun:
    """Further runs of a captured call, which was given a reference and returned ``value``.

    Each starts from what the call's tensors held before their first launch; afterwards these, what the call was given
    and what it returned, and their gradients, hold again what the captured run has left.
    """

    def __init__(self, backend: Backend, capture: Capture, call: Call, value: Any) -> None:
        self._backend, self._capture, self._call, self._value = backend, capture, call, value

    def mismatch(self) -> str | None:
        """How the result with the configs that are settled now disagrees with the reference; None if it agrees. A call
        that fails (a backward pass has freed its graph, say) disagrees."""
        call, plan = self._call, self._capture.plan
        assert call.reference is not None
        with plan.preserving(self._tensors()):
            plan.rewind()
            with self._capture.pinned():
                try:
                    value = call.fn(*call.args, **call.kwargs)
                except Exception as exc:
                    return f"the call fails: {exc}"
            try:
                compare_call(call, value, call.reference())
            except ReferenceMismatch as exc:
                return str(exc).partition(": ")[2]
        return None

    def _tensors(self) -> list[Any]:
        call, plan = self._call, self._capture.plan
        given = tensor_leaves(self._backend, (call.fn, call.args, call.kwargs, self._value))
        grads = [g for t in given if (g := getattr(t, "grad", None)) is not None]
        address = self._backend.tensors.storage_address
        return list({address(t): t for t in (*plan.tensors(), *given, *grads)}.values())


def dumps_asked() -> bool:
    """Whether ``KERNTUNE_DUMP`` is set."""
    return bool(os.environ.get("KERNTUNE_DUMP"))
