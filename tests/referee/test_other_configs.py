"""An autotuner's other configs: which are recorded, how long, and what is said of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from kerntune.referee import other_configs
from kerntune.referee.element_errors import ResultError
from kerntune.referee.hostile_recording import CheckedCall, checked
from kerntune.referee.other_configs import OtherConfigs, done_in_time, one_of_each
from kerntune.referee.reasons import Reason, Refusal
from tests.referee.recordings import CALL, CASE, TARGET, call

TEXTS = ("BLOCK=64", "BLOCK=64", "BLOCK=128", "BLOCK=128", "BLOCK=256")
RIGHT = checked(CALL, CASE, TARGET)


def test_one_config_of_each_kind_is_drawn() -> None:
    chance = random.Random(1)
    drawn = {tuple(one_of_each(TEXTS, chance)) for _ in range(100)}
    assert drawn == {(2, 4), (3, 4), (4, 2), (4, 3)}
    assert {tuple(one_of_each(["BLOCK=64"] * 3, chance)) for _ in range(40)} == {(1,), (2,)}
    assert one_of_each([], chance) == one_of_each(["BLOCK=64"], chance) == []


@pytest.mark.parametrize("threads", [1, 3])
def test_the_first_is_done_however_late_it_is(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert done_in_time(str, range(4), threads) == ["0", "1", "2", "3"]
    monkeypatch.setattr(other_configs, "CONFIG_SECONDS", -1.0)
    assert done_in_time(str, range(4), threads) == ["0"]
    assert done_in_time(str, (), threads) == []


def configs(record: Callable[..., Any] = lambda config: RIGHT) -> OtherConfigs:
    return OtherConfigs(checked(call(configs=TEXTS), CASE, TARGET), record)


def test_a_wrong_config_is_told_by_name() -> None:
    def compare(call: CheckedCall) -> tuple[ResultError, ...]:
        return (ResultError(0, "float32", size=1.0, wrong="off"),)

    found = configs().told(compare, 1)
    assert isinstance(found, ResultError)
    assert found.wrong.removeprefix("with 1 of 5 configs of an autotuner (BLOCK=") in (
        "128), after a trial: off",
        "256), after a trial: off",
    )
    refused = OtherConfigs(Refusal(Reason.ANSWER, "none"), lambda config: RIGHT)
    assert refused.told(compare, 1) == ()


def test_what_can_not_be_judged_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(call: CheckedCall) -> tuple[ResultError, ...]:
        raise Refusal(Reason.REPLAY_LATE, "it takes too long")

    refused = Refusal(Reason.COMPILE, "it doesn't compile")
    found = configs(lambda config: RIGHT if config == 4 else refused).told(late, 2)
    told = {"128": "it doesn't compile", "256": "it takes too long"}
    each = {f"not judged with 1 of 5 configs of an autotuner (BLOCK={n}): {text}" for n, text in told.items()}
    assert {*found} == each
    monkeypatch.setattr(other_configs, "CONFIG_SECONDS", -1.0)
    (late_one,) = configs().told(lambda call: (), 1)
    assert late_one.endswith("): the time did not suffice")


@pytest.mark.parametrize("reason", [Reason.FAULT, Reason.OUTSIDE, Reason.RESULT_LAYOUT])
def test_what_no_config_may_do_is_refused(reason: Reason) -> None:
    def fault(call: CheckedCall) -> tuple[ResultError, ...]:
        raise Refusal(reason, "a fault")

    with pytest.raises(Refusal, match=r"^with 1 of 5 configs of an autotuner \(BLOCK=\d+\), after a trial: a fault$"):
        configs().told(fault, 1)
