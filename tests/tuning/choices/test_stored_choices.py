"""What is kept of first launches that failed, and what the nearest key's winner would cost."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from samples import ENVIRONMENT

from kerntune.base.policy import TuneMode
from kerntune.tuning.cache import TrialCache
from kerntune.tuning.choices.stored_choices import BareLaunch, LaunchFaults, Regret, _regret, arguments_of, regret_text
from tuning.cache.made import QUESTION, trial

LAUNCH = BareLaunch(QUESTION, "spec", (4, 2, 1))
replace = msgspec.structs.replace


def faults(folder: Path, mode: TuneMode = TuneMode.AUTO, **today: Any) -> LaunchFaults:
    winners: Any = SimpleNamespace(
        mode=mode, cache=SimpleNamespace(folder=folder), environment=lambda: replace(ENVIRONMENT, **today)
    )
    return LaunchFaults(winners)


@pytest.mark.parametrize(
    ("launch", "words", "found"),
    [
        (LAUNCH, {}, True),
        (LAUNCH, {"kerntune": "another"}, True),
        (LAUNCH, {"driver": "another"}, False),
        (LAUNCH, {"mode": TuneMode.FORCE}, False),
        (BareLaunch(QUESTION, "other", (4, 2, 1)), {}, False),
        (BareLaunch(replace(QUESTION, arguments="n=2048"), "spec", (4, 2, 1)), {}, False),
    ],
    ids=["same", "other versions", "other driver", "force", "other alignment", "other arguments"],
)
def test_a_fault_is_known_of_the_same_launch_by_the_same_driver(
    tmp_path: Path, launch: BareLaunch, words: dict[str, Any], found: bool
) -> None:
    faults(tmp_path).keep(LAUNCH, "out of bounds")
    fault = faults(tmp_path, **words).of(launch)
    assert [(str(f), f.remembered) for f in [fault] if f] == [("out of bounds", True)] * found


def test_a_launch_that_ran_is_no_fault(tmp_path: Path) -> None:
    TrialCache(tmp_path).add(trial())
    assert faults(tmp_path).of(LAUNCH) is None
    faults(tmp_path).keep(LAUNCH, "hung")
    (stored,) = [t for t in TrialCache(tmp_path).of(QUESTION) if t.failure]
    assert (stored.failure, stored.grid, stored.environment, stored.time_ns) == ("hung", (4, 2, 1), ENVIRONMENT, None)


def decided(winner: str, **times: float) -> Any:
    """A key with this winner and these times."""
    return SimpleNamespace(config=SimpleNamespace(kwargs={"implementation": winner})), times


def test_a_regret_is_of_the_nearest_key_s_winner() -> None:
    found = {
        "n=100": decided("a", a=2.0, b=3.0),
        "n=110": decided("b", a=5.0, b=4.0),
        "n=400": decided("a", a=8.0, b=10.0),
        "n=500": decided("a", a=9.0),
        "n=7; x=other": decided("a", a=1.0),
    }
    assert {name: _regret(name, found) for name in found} == {
        "n=100": Regret("n=100", "n=110", "b", 0.5),
        "n=110": Regret("n=110", "n=100", "a", 0.25),
        "n=400": Regret("n=400", "n=500", "a", 0.0),
        "n=500": Regret("n=500", "n=400", "a", 0.0),
        "n=7; x=other": None,
    }


def test_without_a_time_there_is_no_regret() -> None:
    for times in ({"a": 2.0}, {"b": 3.0}):
        assert _regret("n=1", {"n=1": decided("a", **times), "n=2": decided("b")}) is None


def test_regrets_are_told_in_one_line() -> None:
    assert regret_text([]) == ""
    several = [Regret("", "", "", share) for share in (0.0, 0.1, 0.5)]
    assert regret_text(several) == (
        "over 3 decided keys, each left out in turn, the nearest other one's winner was 10.0% slower than the best in "
        "the median, 50.0% at most"
    )


def test_arguments_are_values_or_places_in_storages() -> None:
    view = SimpleNamespace(storage=1, dtype="float32", offset_bytes=16)
    params = [SimpleNamespace(name="x", view="v", value=None), SimpleNamespace(name="n", view=None, value=5)]
    recording: Any = SimpleNamespace(
        launches=[SimpleNamespace(params=params)],
        views={"v": view},
        storages=[SimpleNamespace(nbytes=8), SimpleNamespace(nbytes=64)],
    )
    assert arguments_of(recording) == ["x=float32#1:64+16", "n=5"]
