"""Sentences for people."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.check.words import duration, interval, percent, timed_message
from kerntune.policy import Verdict
from kerntune.result import CaseId
from kerntune.stats import Estimate

UNITS = {"ns": 1.0, "µs": 1e3, "ms": 1e6, "s": 1e9}
CASE = CaseId("t.py::test[4096]", "0")


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0.0, "0.00 ns"),
        (1.0, "1.00 ns"),
        (12.34, "12.3 ns"),
        (999.0, "999 ns"),
        (1000.0, "1.00 µs"),
        (12_400.0, "12.4 µs"),
        (124_000.0, "124 µs"),
        (1_234_567.0, "1.23 ms"),
        (2.5e9, "2.50 s"),
        (1.234e12, "1234 s"),
    ],
)
def test_duration(ns: float, text: str) -> None:
    assert duration(ns) == text


@given(st.floats(1.0, 1e12))
def test_duration_reads_back_to_three_digits(ns: float) -> None:
    number, unit = duration(ns).split(" ")
    assert float(number) * UNITS[unit] == pytest.approx(ns, rel=0.006)


@pytest.mark.parametrize(("ns", "text"), [(999_999.0, "1.00 ms"), (9.999, "10.0 ns"), (99.99e6, "100 ms")])
def test_duration_has_three_digits_at_the_borders(ns: float, text: str) -> None:
    assert duration(ns) == text


@pytest.mark.parametrize(
    ("change", "text"), [(0.121, "+12.1 %"), (-0.0534, "-5.3 %"), (0.0, "+0.0 %"), (1.5, "+150.0 %")]
)
def test_percent(change: float, text: str) -> None:
    assert percent(change) == text


@given(st.floats(-0.9, 10))
def test_percent_reads_back(change: float) -> None:
    assert float(percent(change).removesuffix(" %")) / 100 == pytest.approx(change, abs=0.00051)


@pytest.mark.parametrize(
    ("level", "low", "high", "text"),
    [
        (0.999, 0.116, 0.125, "99.9 % CI +11.6..+12.5"),
        (0.95, -0.01, 0.02, "95 % CI -1.0..+2.0"),
        (0.9, -1.0, math.inf, "90 % CI -100.0..+inf"),
    ],
)
def test_interval(level: float, low: float, high: float, text: str) -> None:
    assert interval(Estimate(0.1, low, high, level)) == text


def test_a_regression_says_everything() -> None:
    change = Estimate(0.121, 0.116, 0.125, 0.999)
    causes = ["code changed", "config unchanged"]
    assert timed_message(Verdict.REGRESSED, CASE, 12_400.0, 13_900.0, change, causes) == (
        "REGRESSED t.py::test[4096]: 12.4 µs -> 13.9 µs "
        "(+12.1 %, 99.9 % CI +11.6..+12.5), code changed, config unchanged"
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
