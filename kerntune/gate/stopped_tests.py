"""A test whose body stops without a GPU: which of its calls, by its baselines, it didn't reach."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kerntune.base.case_result import CaseId, CaseResult, End, incomplete_result
from kerntune.base.device import Target
from kerntune.base.policy import Outcome, Policy, Update, Verdict
from kerntune.gate.baselines import StaticBaseline
from kerntune.gate.call import Checked
from kerntune.gate.stores import Stores


class StoppedTest(NamedTuple):
    """Where a test stopped (``end`` says it to people), a result of each call that it didn't reach and that isn't
    accepted to be left out, and its calls, the last of which accepts this end once its baseline is written."""

    end: str
    results: tuple[CaseResult, ...]
    checks: tuple[Checked, ...]


def stopped_test(
    nodeid: str, end: End, checks: Sequence[Checked], stores: Stores, target: Target, update: Update, policy: Policy
) -> StoppedTest:
    """What follows from a test's stop at ``end`` after the calls ``checks``, the last of which may have stopped there.

    A call that isn't reached is INCOMPLETE, unless the baseline of the last call before it keeps this very end.
    """
    if not checks:
        return StoppedTest(str(end), (), ())  # that it got nowhere is said of the test itself
    met = {c.result.case for c in checks}
    files = {b.case: stores.own.shown(path) for path, b in stores.own.of_test(target, nodeid)}
    unreached = sorted(files.keys() - met)
    told, outcome, calls = str(end), policy.outcome(Verdict.INCOMPLETE), list(checks)
    index = max((i for i, c in enumerate(checks) if c.pending is not None), default=None)
    if index is not None and unreached:
        pending = calls[index].pending
        assert pending is not None
        assert isinstance(pending.baseline, StaticBaseline)
        if update is Update.ALL:
            if not isinstance(pending.baseline.end, End):  # one that keeps its call's own end does so already
                kept_too = pending.baseline.but(end=end.but(between=True))
                calls[index] = calls[index]._replace(pending=pending._replace(baseline=kept_too))
            outcome = Outcome.PASS if pending.write else outcome
        today = pending.baseline
        kept = stores.accepted_end(target, today.case, today.fingerprint, update)
        if kept is not None and kept == end.but(between=kept.between):  # the call's, or its test's
            left = ", ".join(case.call for case in unreached)
            told, unreached = f"{end}; not reached, which is accepted: {left}", []
    results = tuple(_incomplete(case, target, end, files[case], outcome) for case in unreached)
    return StoppedTest(told, results, tuple(calls))


def _incomplete(case: CaseId, target: Target, end: End, path: str, outcome: Outcome) -> CaseResult:
    text = (
        f" ({target}, static only): the test stopped before this call, at {end}. "
        "Call autotune before that line; if the stop is meant, a refresh (--kerntune-update) accepts it, or "
        f"outcomes={{'INCOMPLETE': 'warn'}}; if there is no such call any more, remove {path}"
    )
    result = incomplete_result(case, text, outcome, str(target))
    return result.but(baseline_path=path, end=end)
