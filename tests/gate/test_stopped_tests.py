"""Which calls a stopped test hasn't reached, and what its last call keeps of that, by values alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from samples import CASE, H100, static_baseline

from kerntune.base.case_result import CaseId, CaseResult, End
from kerntune.base.policy import Outcome, Policy, Update, Verdict
from kerntune.gate.call import Checked, PendingBaseline
from kerntune.gate.stopped_tests import StoppedTest, stopped_test

END = End("t.py", "test_a", "x.item()", "reads values")
TARGET = H100.target
FIRST, SECOND, THIRD = (CaseId(CASE.nodeid, call) for call in ("0", "1", "2"))


def check(case: CaseId = FIRST, *, write: bool = True, end: Any = msgspec.UNSET, bare: bool = False) -> Checked:
    """A call with the baseline that it may write; without one if it is ``bare``."""
    result = CaseResult(case, "f", Verdict.PASS, Outcome.PASS, "PASS", str(TARGET))
    made = msgspec.structs.replace(static_baseline(case), end=end)
    return Checked("value", result, None if bare else PendingBaseline(made, {}, write))


def stopped(
    checks: list[Checked], *known: CaseId, kept: End | None = None, update: Update = Update.NONE
) -> StoppedTest:
    """A stop of a test with stored baselines of these cases; that of its last call keeps an end."""
    found = [(f"{case.call}.json", static_baseline(case)) for case in known]
    own = SimpleNamespace(
        of_test=lambda target, nodeid: found if nodeid == CASE.nodeid else [], shown=lambda path: path
    )
    stores: Any = SimpleNamespace(own=own, accepted_end=lambda target, case, fingerprint, update: kept)
    return stopped_test(CASE.nodeid, END, checks, stores, TARGET, update, Policy(ci=True))


def ends(found: StoppedTest) -> list[Any]:
    return [c.pending.baseline.end for c in found.checks if c.pending is not None]  # type: ignore[union-attr]


def test_a_test_that_got_nowhere_reached_nothing() -> None:
    assert stopped([], FIRST, SECOND) == StoppedTest(str(END), (), ())


def test_calls_that_are_not_reached_are_incomplete_in_their_order() -> None:
    checks = [check()]
    found = stopped(checks, THIRD, FIRST, SECOND)
    assert [(r.case, r.verdict, r.outcome, r.target) for r in found.results] == [
        (case, Verdict.INCOMPLETE, Outcome.FAIL, "cuda:90") for case in (SECOND, THIRD)
    ]
    result = found.results[0]
    assert (result.baseline_path, result.end) == ("1.json", END)
    assert f"the test stopped before this call, at {END}. Call autotune before" in result.message
    assert result.message.endswith("remove 1.json")
    assert (found.end, found.checks) == (str(END), tuple(checks))


@pytest.mark.parametrize(
    ("kept", "accepted"),
    [
        (END, True), (msgspec.structs.replace(END, between=True), True), (None, False),
        (msgspec.structs.replace(END, line="y.item()", between=True), False),
    ],
)  # fmt: skip
def test_an_end_that_the_last_call_s_baseline_keeps_is_accepted(kept: End | None, accepted: bool) -> None:
    found = stopped([check()], THIRD, SECOND, kept=kept)
    assert len(found.results) == (0 if accepted else 2)
    assert found.end == (f"{END}; not reached, which is accepted: 1, 2" if accepted else str(END))
    assert ends(found) == [msgspec.UNSET], "only a refresh writes it"


@pytest.mark.parametrize(("write", "outcome"), [(True, Outcome.PASS), (False, Outcome.FAIL)])
def test_a_refresh_accepts_the_end_with_the_last_call_s_baseline(write: bool, outcome: Outcome) -> None:
    checks = [check(), check(SECOND, write=write), check(CaseId("other", "0"), bare=True)]
    found = stopped(checks, THIRD, update=Update.ALL)
    assert [(r.case, r.outcome) for r in found.results] == [(THIRD, outcome)]
    assert ends(found) == [msgspec.UNSET, msgspec.structs.replace(END, between=True)]
    assert (found.checks[0], found.checks[2], len(found.checks)) == (checks[0], checks[2], 3)


def test_what_a_call_keeps_of_its_own_end_stays() -> None:
    ended = check(end=msgspec.structs.replace(END, line="y.item()"))
    assert stopped([ended], SECOND, update=Update.ALL).checks == (ended,)


def test_where_all_calls_were_reached_nothing_changes() -> None:
    checks = [check()]
    assert stopped(checks, FIRST, kept=END, update=Update.ALL) == StoppedTest(str(END), (), tuple(checks))
    bare = [check(bare=True)]
    found = stopped(bare, FIRST, SECOND, kept=END, update=Update.ALL)
    assert ([r.outcome for r in found.results], found.checks) == ([Outcome.FAIL], tuple(bare))
