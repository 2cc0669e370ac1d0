"""The switch interval of Python's threads while calls are tuned, and afterwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from kerntune.tuning.tune_options import SWITCH_INTERVAL, SWITCH_SECONDS, QuickSwitches

USUAL, OTHER = 0.005, 0.02


@pytest.fixture(autouse=True)
def _usual(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = sys.getswitchinterval()
    monkeypatch.delenv(SWITCH_INTERVAL, raising=False)
    sys.setswitchinterval(USUAL)
    yield
    sys.setswitchinterval(before)


def interval() -> float:
    return round(sys.getswitchinterval(), 6)


def test_the_last_of_several_tunings_puts_it_back() -> None:
    switches = QuickSwitches()
    with switches:
        with switches:
            pass
        assert interval() == SWITCH_SECONDS
    assert interval() == USUAL


def test_a_shorter_one_stays() -> None:
    sys.setswitchinterval(1e-5)
    with QuickSwitches():
        assert interval() == 1e-5
    assert interval() == 1e-5


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH_INTERVAL, "0")
    with QuickSwitches():
        assert interval() == USUAL
    assert interval() == USUAL


def test_one_that_the_program_sets_meanwhile_stays() -> None:
    with QuickSwitches():
        sys.setswitchinterval(OTHER)
    assert interval() == OTHER
