"""Stores what is known of decided keys, and of first launches that failed.

A decided key has a winner as a tuned kernel has, and a time or a reason for each implementation. A first launch of a
kernel that nothing tunes isn't made again if it failed in an earlier run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from kerntune.base.config import Config
from kerntune.base.policy import TuneMode
from kerntune.base.recording import Recording
from kerntune.base.stats import median
from kerntune.capture import Probe
from kerntune.errors import CacheError, LaunchFault
from kerntune.gpu.base import Backend, Gpu
from kerntune.kernels.compat import versions
from kerntune.kernels.source import source_hash
from kerntune.tuning.cache import StoredTrial, TrialCache, TrialKey, WinnerKey
from kerntune.tuning.cache.winners import TRIAL_SCHEMA
from kerntune.tuning.choices.declaration import NAME, ChoiceCandidate
from kerntune.tuning.stored_trials import FAILURE_FIELDS, alike_environments, specialization_of
from kerntune.tuning.stored_winners import Winners, distance

PROTOCOL = "choice/2"
"""How calls are timed (:mod:`kerntune.tuning.choices.deciding`); raised when times become incomparable."""


@dataclass(frozen=True)
class ChoiceSite:
    """A call of a choice where the store expects a tuning site: its candidates are implementations. ``text`` describes
    the call's key."""

    kernel: str
    candidates: Sequence[ChoiceCandidate]
    text: str
    search: None = None
    tuner: None = None

    @property
    def listed(self) -> Sequence[ChoiceCandidate]:
        """The candidates."""
        return self.candidates

    def ambiguous(self) -> frozenset[int]:
        """No two have one name."""
        return frozenset()


class ChoiceWinners(Winners):
    """Winners of choices, in the same store, by the same modes."""

    @property
    def gpu_kind(self) -> tuple[str, str]:
        """The target and the model of the GPU that they are of."""
        return str(self._gpu.spec.target), self._gpu.spec.name

    def asked(self, site: Any) -> tuple[str, str]:
        """Of a choice the text of its key; each config has its implementation's source."""
        return "", site.text

    def keep_times(self, site: Any, times_ns: Mapping[int, float], left_out: Mapping[int, str]) -> None:
        """Store a time, or the reason why there is none, of each implementation. A folder that can't be written is
        said where the winner is stored."""
        key, cache, environment = trial_key(self.key(site)), TrialCache(self.cache.folder), self.environment()
        with contextlib.suppress(CacheError):
            for i, one in enumerate(site.candidates):
                found = StoredTrial(TRIAL_SCHEMA, key, one.config, "", environment, time_ns=times_ns.get(i))
                cache.add(msgspec.structs.replace(found, failure=left_out.get(i, "")))

    def times_of(self, key: WinnerKey) -> tuple[dict[str, float], dict[str, str]]:
        """Nanoseconds a call by implementation, and why others were left out, as stored for a key."""
        trials = TrialCache(self.cache.folder).of(trial_key(key))
        times = {str(t.config.kwargs.get(NAME)): t.time_ns for t in trials if t.time_ns is not None}
        return times, {str(t.config.kwargs.get(NAME)): t.failure for t in trials if t.failure}

    def regrets(self, site: Any) -> list[Regret]:
        """Of each decided key of this choice, had it been asked for in the mode ``nearest`` without its own winner."""
        mine = self.key(site)
        asked = mine.subject, mine.configs
        alike = [w for w in self.cache.entries() if (w.key.subject, w.key.configs) == asked]
        found = {w.key.arguments: (w, self.times_of(w.key)[0]) for w in alike}
        return [r for name in sorted(found) if (r := _regret(name, found)) is not None]


class OpenKey(NamedTuple):
    """A key of which nothing is decided in this process: the call's values, the GPU, and what is stored of it."""

    text: str
    values: Mapping[str, Any]
    backend: Backend
    gpu: Gpu
    winners: ChoiceWinners
    site: Any


def trial_key(key: WinnerKey) -> TrialKey:
    """Under which the times of a key's implementations are filed."""
    return TrialKey(*key.subject, key.arguments, PROTOCOL)


@dataclass(frozen=True)
class Regret:
    """How much slower than its own winner a key would run with the ``winner`` of the ``nearest`` other one, as a share:
    0 is the same speed."""

    arguments: str
    nearest: str
    winner: str
    share: float


def _regret(arguments: str, found: Mapping[str, tuple[Any, Mapping[str, float]]]) -> Regret | None:
    others = [name for name in found if name != arguments]
    away = [(far, name) for name in others if (far := distance(name, arguments)) is not None]
    if not away:
        return None
    _, near = min(away)
    winner, times = found[arguments]
    theirs = str(found[near][0].config.kwargs[NAME])
    mine = str(winner.config.kwargs[NAME])
    if theirs == mine:
        return Regret(arguments, near, theirs, 0.0)
    if theirs not in times or mine not in times:
        return None
    return Regret(arguments, near, theirs, times[theirs] / times[mine] - 1)


def regret_text(regrets: Sequence[Regret]) -> str:
    """What is said of them in one line; empty where nothing is known."""
    if not regrets:
        return ""
    shares = [r.share for r in regrets]
    return (
        f"over {len(shares)} decided keys, each left out in turn, the nearest other one's winner was "
        f"{median(shares):.1%} slower than the best in the median, {max(shares):.1%} at most"
    )


FAULTS_PROTOCOL = "first launch/1"
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
        names = launch.name, source_hash(launch.jit), str(launch.target), device, versions.triton_version()
        return cls(TrialKey(*names, arguments, FAULTS_PROTOCOL), specialization_of(probe), probe.grid)


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
        failed = [t for t in self._cache.of(launch.key) if t.failure]
        stored = [t for t in failed if t.specialization == launch.specialization]
        for trial in stored:
            if alike_environments(trial.environment, self._winners.environment(), FAILURE_FIELDS):
                fault = LaunchFault(trial.failure)
                fault.remembered = True
                return fault
        return None

    def keep(self, launch: BareLaunch, reason: str) -> None:
        """Store why a launch failed; nothing where the folder can't be written, which is said where the winner is
        stored."""
        today = self._winners.environment()
        given = TRIAL_SCHEMA, launch.key, Config(), launch.specialization, today
        with contextlib.suppress(CacheError):
            self._cache.add(StoredTrial(*given, failure=reason, grid=launch.grid))
