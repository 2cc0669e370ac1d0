"""Sentences for people."""

from __future__ import annotations

import math
import re

import pytest

from kerntune.base.case_result import CaseId
from kerntune.base.policy import Verdict
from kerntune.base.stats import Estimate, TwoModes
from kerntune.gate.messages import interval, modes_text, timed_message

CASE = CaseId("t.py::test[4096]", "0")


@pytest.mark.parametrize(
    ("level", "low", "high", "text"),
    [
        (0.99, 0.116, 0.125, "99 % CI +11.6..+12.5"),
        (0.95, -0.01, 0.02, "95 % CI -1.0..+2.0"),
        (0.9, -1.0, math.inf, "90 % CI -100.0..+inf"),
    ],
)
def test_interval(level: float, low: float, high: float, text: str) -> None:
    assert interval(Estimate(0.1, low, high, level)) == text


def test_a_regression_says_everything() -> None:
    change = Estimate(0.121, 0.116, 0.125, 0.99)
    causes = ["code changed", "config unchanged"]
    assert timed_message(Verdict.REGRESSED, CASE, 12_400.0, 13_900.0, change, causes) == (
        "REGRESSED t.py::test[4096]: 12.4 µs -> 13.9 µs (+12.1 %, 99 % CI +11.6..+12.5), code changed, config unchanged"
    )


def test_without_a_replay_only_the_medians_speak() -> None:
    message = timed_message(Verdict.DRIFTED, CASE, 10_000.0, 11_000.0, None, [])
    assert message == "DRIFTED t.py::test[4096]: 10.0 µs -> 11.0 µs (+10.0 %)"


def test_a_new_case_has_one_time() -> None:
    message = timed_message(
        Verdict.NEW, CaseId("t.py::test", "add"), None, 5000.0, None, ["no baseline on this device"]
    )
    assert message == "NEW t.py::test::add: 5.00 µs, no baseline on this device"


def test_no_times_at_all() -> None:
    assert timed_message(Verdict.INCOMPLETE, CASE, None, None, None, []) == "INCOMPLETE t.py::test[4096]"


@pytest.mark.parametrize("verdict", Verdict)
def test_every_verdict_stands_first(verdict: Verdict) -> None:
    message = timed_message(verdict, CASE, 1e3, 2e3, None, ["why"])
    assert re.match(rf"{verdict.value} t\.py", message)
    assert message.endswith(", why")


def test_two_groups_of_times_are_told() -> None:
    assert modes_text(TwoModes(374_000.0, 430_000.0, 0.4)) == [
        "times fall into two groups, 374 µs and 430 µs (40.0 % of them), as under a power limit"
    ]
    assert modes_text(None) == []
