"""The baselines that a run could have met: of its device or targets; which of them are stale or can't be read."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from kerntune.base.case_result import CaseId, CaseResult
from kerntune.base.policy import Policy, Verdict
from kerntune.errors import StoreError
from kerntune.gate.baselines import Baseline, BaselineStore, StaticBaseline
from kerntune.gate.case_identity import Inputs, renamed_to
from kerntune.gate.nearest_inputs import nearest_of_run
from kerntune.gpu.base import Backend
from kerntune.kernels import compat

RUN_JSON = "run.json"
"""What messages call a run's JSON, where the run wrote none."""

TEST_GONE = "its test is gone"
"""Which ``kerntune baselines prune`` finds by itself; what a test calls shows only in a run."""

CALL_GONE = "its test ran, but not with this call, shape, dtype or stride"


class RunBaselines:
    """Those in ``store`` for ``backend``, and which cases the run has met so far."""

    def __init__(self, store: BaselineStore, backend: Backend) -> None:
        self._store, self._backend = store, backend
        self._seen: dict[CaseId, dict[str, Inputs]] = {}

    def note(self, case: CaseId, fingerprint: str, inputs: Inputs = ()) -> None:
        """The run has met ``case`` with this fingerprint, which these inputs have."""
        self._seen.setdefault(case, {})[fingerprint] = inputs

    def stale(self, ran: Collection[str], policy: Policy, *, selected_all: bool) -> list[CaseResult]:
        """A result of each baseline whose case's test ran without it, or whose test is gone.

        ``ran`` are the node ids that ran; ``selected_all`` tells that the run was not narrowed.
        """
        found = [(path, b) for path, b in self._read() if not isinstance(b, StoreError)]  # the others' case is unknown
        living = [b for _, b in found if b.case.nodeid in ran]
        out = []
        for path, baseline in found:
            case, shown = baseline.case, self._store.shown(path)
            if case.nodeid in ran and baseline.fingerprint not in self._seen.get(case, {}):
                out.append(_stale(baseline, shown, f"{self._call_gone(baseline)}; {removal(by_run=True)}", policy))
            elif selected_all and case.nodeid not in ran:
                why = TEST_GONE + renamed_to(baseline, living)
                out.append(_stale(baseline, shown, f"{why}; {removal(by_run=False)}", policy))
        return out

    def _call_gone(self, baseline: Baseline) -> str:
        """With what tells the nearest of the calls of this name that the run has met."""
        told = nearest_of_run(baseline.arguments, self._seen.get(baseline.case, {}).values())
        return CALL_GONE + (f" ({told})" if told else "")

    def unreadable(self) -> dict[Path, str]:
        """Why some can't be read, by path."""
        return {path: str(found) for path, found in self._read() if isinstance(found, StoreError)}

    def _read(self) -> Iterator[tuple[Path, Baseline | StoreError]]:
        for path, read in self._files():
            try:
                baseline = read(path)
            except StoreError as exc:
                yield path, exc
            else:
                if baseline is not None:
                    yield path, baseline

    def _files(self) -> list[tuple[Path, Callable[[Path], Baseline | None]]]:
        if self._backend.gpu is not None:
            spec = self._backend.spec
            return [(p, self._store.read_time) for p in self._store.time_files(spec.slug, spec.target.slug)]
        series = compat.triton_series()
        targets = [t.slug for t in self._backend.targets]
        return [(p, self._store.read_static) for slug in targets for p in self._store.static_files(slug, series)]


def prune_command(by_run: bool, report: str = RUN_JSON) -> str:
    """The command that removes stale baselines: by what a run wrote to ``report``, or of tests that are gone."""
    return f"kerntune baselines prune --stale-from {shlex.quote(report)}" if by_run else "kerntune baselines prune"


def removal(*, by_run: bool) -> str:
    """What removes a baseline; it is said before the baseline's path."""
    first = f"`pytest --kerntune --kerntune-json={RUN_JSON}` and then " if by_run else ""
    return f"{first}`{prune_command(by_run)}` removes"


def _stale(baseline: Baseline, path: str, why: str, policy: Policy) -> CaseResult:
    return CaseResult(
        case=baseline.case,
        fingerprint=baseline.fingerprint,
        verdict=Verdict.STALE,
        outcome=policy.outcome(Verdict.STALE),
        message=f"STALE {baseline.case}: {why} {path}",
        target=str(baseline.target if isinstance(baseline, StaticBaseline) else baseline.device.target),
        baseline_path=path,
    )
