"""First launches of kernels that nothing tunes which failed in an earlier run: they aren't made again."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from kerntune.base.config import Config
from kerntune.base.policy import TuneMode
from kerntune.base.recording import Recording
from kerntune.capture import Probe
from kerntune.errors import CacheError, LaunchFault
from kerntune.kernels import compat
from kerntune.kernels.source import source_hash
from kerntune.tuning.cache import StoredTrial, TrialCache, TrialKey
from kerntune.tuning.cache.trials import SCHEMA
from kerntune.tuning.choices.stored_choices import ChoiceWinners
from kerntune.tuning.stored_trials import FAILURE_FIELDS, specialization_of

PROTOCOL = "first launch/1"
"""Under which they are stored beside the trials of tuned kernels."""


@dataclass(frozen=True)
class BareLaunch:
    """A launch of a kernel that nothing tunes: what is stored of it is found by ``key`` and ``specialization``."""

    key: TrialKey
    specialization: str
    grid: tuple[int, int, int]

    @classmethod
    def of(cls, probe: Probe, recording: Recording, device: str) -> BareLaunch:
        """A launch on a device of that name."""
        launch = probe.specialized
        arguments = "; ".join(arguments_of(recording))
        names = launch.name, source_hash(launch.jit), str(launch.target), device, compat.triton_version()
        return cls(TrialKey(*names, arguments, PROTOCOL), specialization_of(probe), probe.grid)


def arguments_of(recording: Recording) -> list[str]:
    """Of each argument of the one launch its value, or which storage it points into, of how many bytes, and where."""
    (launch,), found = recording.launches, list[str]()
    for param in launch.params:
        if param.view is None:
            found.append(f"{param.name}={param.value!r}")
            continue
        view = recording.views[param.view]
        nbytes = recording.storages[view.storage].nbytes
        found.append(f"{param.name}={view.dtype}#{view.storage}:{nbytes}+{view.offset_bytes}")
    return found


class LaunchFaults:
    """Those of one device, in the folder of its winners. In the mode ``force`` none is read."""

    def __init__(self, winners: ChoiceWinners) -> None:
        self._winners, self._cache = winners, TrialCache(winners.cache.folder)

    def of(self, launch: BareLaunch) -> LaunchFault | None:
        """What was stored of a launch, by the same driver and assembler."""
        if self._winners.mode is TuneMode.FORCE:
            return None
        stored = [t for t in self._cache.of(launch.key) if t.specialization == launch.specialization and t.failure]
        if not stored:
            return None
        today = self._winners.environment()
        for trial in stored:
            if all(getattr(trial.environment, f) == getattr(today, f) for f in FAILURE_FIELDS):
                fault = LaunchFault(trial.failure)
                fault.remembered = True
                return fault
        return None

    def keep(self, launch: BareLaunch, reason: str) -> None:
        """Store why a launch failed; nothing where the folder can't be written, which is said where the winner is
        stored."""
        today = self._winners.environment()
        found = StoredTrial(
            SCHEMA, launch.key, Config(), launch.specialization, today, failure=reason, grid=launch.grid
        )
        with contextlib.suppress(CacheError):
            self._cache.add(found)
