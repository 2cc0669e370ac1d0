"""A test whose body stops without a GPU: which of its calls, by its baselines, it didn't reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from kerntune.base.case_result import CaseId, CaseResult, End, incomplete_result
from kerntune.base.device import Target
from kerntune.base.policy import Outcome, Policy, Update, Verdict
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import StaticBaseline
from kerntune.gate.call import Checked, PendingBaseline
from kerntune.gate.stores import Stores


@dataclass(frozen=True)
class StoppedTest:
    """Where a test stopped (``end`` says it to people), a result of each call that it didn't reach and that isn't
    accepted to be left out, and its calls, the last of which accepts this end once its baseline is written."""

    end: str
    results: tuple[CaseResult, ...]
    checks: tuple[Checked, ...]


def stopped_test(
    nodeid: str, end: End, checks: Sequence[Checked], stores: Stores, targets: Sequence[Target], update: Update,
    policy: Policy,
) -> StoppedTest:  # fmt: skip
    """What follows from a test's stop at ``end`` after the calls ``checks``, the last of which may have stopped there.

    A call that isn't reached is INCOMPLETE, unless the baseline of the last call before it keeps this very end.
    """
    if not checks:
        return StoppedTest(str(end), (), ())  # that it got nowhere is said of the test itself
    met = {r.case for c in checks for r in c.results}
    unreached = {target: _unreached(stores.own, target, nodeid, met) for target in targets}
    index = max((i for i, c in enumerate(checks) if any(c.pending)), default=None)
    if index is None or not any(unreached.values()):
        results = _results(unreached, end, {}, policy)
        return StoppedTest(str(end), results, tuple(checks))
    accepted = {b.target for b, _ in _static(checks[index]) if _accepts(stores, b, end, update)}
    left = sorted({case.call for target in accepted for case in unreached[target]})
    told = f"{end}; not reached, which is accepted: {', '.join(left)}" if left else str(end)
    refreshed = _accepting(checks[index], end) if update is Update.ALL else checks[index]
    now = {b.target: Outcome.PASS for b, writes in _static(refreshed) if writes and update is Update.ALL}
    results = _results({t: cases for t, cases in unreached.items() if t not in accepted}, end, now, policy)
    return StoppedTest(told, results, (*checks[:index], refreshed, *checks[index + 1 :]))


def _unreached(store: BaselineStore, target: Target, nodeid: str, met: set[CaseId]) -> dict[CaseId, str]:
    """The test's cases that have a baseline for ``target`` and that it hasn't called by now, each with its file."""
    found = {b.case: store.shown(path) for path, b in store.of_test(target, nodeid)}
    return {case: found[case] for case in sorted(found.keys() - met)}


def _static(checked: Checked) -> list[tuple[StaticBaseline, bool]]:
    """A call's static baselines, and whether each will be written."""
    pending = [p for p in checked.pending if p is not None]
    return [(p.baseline, p.write) for p in pending if isinstance(p.baseline, StaticBaseline)]


def _accepts(stores: Stores, today: StaticBaseline, end: End, update: Update) -> bool:
    """Whether the stored baseline of a call keeps this end: of the call itself, or of the test after it."""
    kept = stores.accepted_end(today.target, today.case, today.fingerprint, update)
    return kept is not None and kept == msgspec.structs.replace(end, between=kept.between)


def _accepting(checked: Checked, end: End) -> Checked:
    """The call with baselines that keep the end of its test; those that keep its own end do so already."""
    after = msgspec.structs.replace(end, between=True)
    return replace(checked, pending=tuple(p if p is None else _with_end(p, after) for p in checked.pending))


def _with_end(pending: PendingBaseline, end: End) -> PendingBaseline:
    baseline = pending.baseline
    if not isinstance(baseline, StaticBaseline) or isinstance(baseline.end, End):
        return pending
    return replace(pending, baseline=msgspec.structs.replace(baseline, end=end))


def _results(
    unreached: dict[Target, dict[CaseId, str]], end: End, outcomes: dict[Target, Outcome], policy: Policy
) -> tuple[CaseResult, ...]:
    usual = policy.outcome(Verdict.INCOMPLETE)
    return tuple(
        _incomplete(case, target, end, path, outcomes.get(target, usual))
        for target, cases in unreached.items()
        for case, path in cases.items()
    )


def _incomplete(case: CaseId, target: Target, end: End, path: str, outcome: Outcome) -> CaseResult:
    text = (
        f" ({target}, static only): the test stopped before this call, at {end}. "
        "Call autotune before that line; if the stop is meant, a refresh (--kerntune-update) accepts it, or "
        f"outcomes={{'INCOMPLETE': 'warn'}}; if there is no such call any more, remove {path}"
    )
    result = incomplete_result(case, text, outcome, str(target))
    return msgspec.structs.replace(result, baseline_path=path, end=end)
