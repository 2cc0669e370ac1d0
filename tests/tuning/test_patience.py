"""How long the tuner waits for stragglers: the argument, else the environment, else a share of the time spent."""

from __future__ import annotations

import time

import pytest

import kerntune
from kerntune.errors import UsageError
from kerntune.tuning.tune_options import PATIENCE, PATIENCE_SHARE, Patience, TuneOptions


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PATIENCE, raising=False)


def test_by_default_it_is_a_share_of_what_was_spent() -> None:
    assert Patience(begin=100.0).end(since=102.0) == pytest.approx(102.0 + PATIENCE_SHARE * 2.0)


@pytest.mark.parametrize("seconds", [0.0, 1.5])
def test_seconds_are_seconds(seconds: float) -> None:
    assert Patience(seconds, begin=100.0).end(since=102.0) == 102.0 + seconds


def test_the_argument_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(given: float | str | None = None) -> float | None:
        found = TuneOptions.now(patience=given).patience
        assert found is not None
        assert abs(found.begin - time.monotonic()) < 60
        return found.seconds

    assert seconds() is None
    monkeypatch.setenv(PATIENCE, "2.5")
    assert (seconds(), seconds(0), seconds("1")) == (2.5, 0.0, 1.0)
    monkeypatch.setenv(PATIENCE, "")
    assert seconds() is None


def test_all_are_waited_for_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    assert TuneOptions.now(patience="all").patience is None
    monkeypatch.setenv(PATIENCE, "all")
    assert TuneOptions.now().patience is None
    assert TuneOptions.now(patience=3).patience is not None


@pytest.mark.parametrize("wrong", ["long", "-1", -0.5, "nan"])
def test_anything_else_is_refused(wrong: float | str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"patience is .*; it can be a number of seconds from 0 on, or all"):
        kerntune.autotune([object()], key=[], patience=wrong)
    monkeypatch.setenv(PATIENCE, str(wrong))
    with pytest.raises(UsageError, match="patience is"):
        TuneOptions.now()
