"""What is kept of first launches that failed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from samples import ENVIRONMENT

from kerntune.base.policy import TuneMode
from kerntune.tuning.cache import TrialCache
from kerntune.tuning.choices.stored_choices import BareLaunch, LaunchFaults
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
