"""Trials of earlier runs for the tuning sites of one device: what needn't be tried again."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kerntune.base.device import Environment
from kerntune.base.failed_candidates import is_wrong
from kerntune.base.policy import TuneMode
from kerntune.capture import Probe, Site
from kerntune.compiling.compiler import NOT_CODE
from kerntune.errors import CacheError
from kerntune.kernels.source import text_of
from kerntune.timing.timers import PROTOCOL_VERSION
from kerntune.tuning.cache import StoredTrial, TrialCache, TrialKey
from kerntune.tuning.cache.entries import report_damage
from kerntune.tuning.cache.winners import TRIAL_SCHEMA
from kerntune.tuning.stored_winners import Winners, exact_arguments

RACE_VERSION = 2
"""Raised whenever a change of the race makes its times incomparable with stored ones."""

PROTOCOL = f"race/{RACE_VERSION}, timing/{PROTOCOL_VERSION}"

FAILURE_FIELDS = ("triton", "assembler", "driver", "device")
"""Parts of the environment that decide whether a binary can be made and launched."""

TIME_FIELDS = (*FAILURE_FIELDS, "throttle")
"""Parts that a time depends on. Python, torch and kerntune don't run on the GPU; clocks move by themselves."""


@dataclass(frozen=True)
class KnownTrials:
    """What earlier runs say of a site's candidates, by index: those that ran, and those that failed.

    ``bad`` has the failures by code with arguments (:func:`kerntune.tuning.consensus.stored_code`) and grid: another
    config that comes to the same fails the same.
    """

    ran: Mapping[int, StoredTrial] = field(default_factory=dict)
    failed: Mapping[int, StoredTrial] = field(default_factory=dict)
    bad: Mapping[tuple[str, tuple[int, int, int]], str] = field(default_factory=dict)

    def without_wrong(self) -> KnownTrials:
        """Without failures that were wrong results: they may be right under other rules."""
        failed = {i: t for i, t in self.failed.items() if not is_wrong(t.failure)}
        return KnownTrials(self.ran, failed, {work: why for work, why in self.bad.items() if not is_wrong(why)})


NOTHING = KnownTrials()


class Trials:
    """Where trials of earlier runs come from and go to: beside the winners, in the same mode.

    ``force`` reads none, and stores what it finds.
    """

    def __init__(self, winners: Winners) -> None:
        self._cache, self._winners = TrialCache(winners.cache.folder), winners
        self._store = None if winners.shared_cache is None else winners.shared_cache.store
        self._fetched: set[str] = set()

    def at(self, site: Site) -> SiteTrials:
        """The trials of one site, under today's environment."""
        force, key = self._winners.mode is TuneMode.FORCE, self.key(site)
        if not force:
            self._fetch(key)
        # asked beside the rest: NVML takes 15 to 40 ms to answer
        today = ThreadPoolExecutor(1, "kerntune-environment").submit(self._winners.environment).result
        return SiteTrials(self._cache, site, key, today, blind=force)

    def any(self, site: Site) -> bool:
        """Whether earlier runs have left anything for a site, under whatever environment."""
        if self._winners.mode is TuneMode.FORCE:
            return False
        key = self.key(site)
        self._fetch(key)
        return bool(self._cache.of(key))

    def share(self, site: Site) -> None:
        """Store what is known of a site for other machines, if there is a store, some time later."""
        if self._store is not None:
            self._store.add_trials(self._cache.of(self.key(site)))

    def _fetch(self, key: TrialKey) -> None:
        """Take what other machines have stored, once; what is here stays."""
        if self._store is None or key.digest() in self._fetched:
            return
        self._fetched.add(key.digest())
        for trial in self._store.trials_of(key) or ():
            if not self._cache.holds(trial):
                with contextlib.suppress(CacheError):
                    self._cache.add(trial)

    def key(self, site: Site) -> TrialKey:
        """Beside config, specialization and environment: exact sizes, where a winner may hold for rounded ones."""
        arguments = exact_arguments(site) + self._winners.lax
        return TrialKey(*self._winners.key(site).subject, arguments, PROTOCOL)


@dataclass(frozen=True)
class SiteTrials:
    """The trials of one site. ``blind`` ones are only written. ``today`` gives the present environment."""

    cache: TrialCache
    site: Site
    key: TrialKey
    today: Callable[[], Environment]
    blind: bool

    def known(self, probes: Mapping[int, Probe]) -> KnownTrials:
        """What is known of the probed candidates, under an environment like today's."""
        if self.blind:
            return NOTHING
        stored, unlike = self._earlier, self.site.ambiguous()
        if not stored:
            return NOTHING
        probes = {i: probe for i, probe in probes.items() if i not in unlike}
        today = self.today()
        failures = [t for t in stored if t.failure and alike_environments(t.environment, today, FAILURE_FIELDS)]
        ran = [t for t in stored if not t.failure and alike_environments(t.environment, today, TIME_FIELDS)]
        return KnownTrials(
            ran=_by_index(self.site, probes, ran),
            failed=_by_index(self.site, probes, failures),
            bad={(t.code, t.grid): t.failure for t in failures if t.code},
        )

    @cached_property
    def _earlier(self) -> list[StoredTrial]:
        """Those of earlier runs, read once: what this one stores it knows already."""
        found = self.cache.of(self.key)
        report_damage(self.cache.damaged)
        return found

    def keep(self, index: int, probe: Probe, **found: Any) -> None:
        """Store what a candidate gave: the fields of a :class:`StoredTrial` from ``estimate_ns`` on. The cache's
        ``damaged`` notes a folder that can't be written."""
        if index in self.site.ambiguous():
            return
        config, code_for = self.site.candidates[index].config, specialization_of(probe)
        given = TRIAL_SCHEMA, self.key, config, code_for, self.today()
        try:
            self.cache.add(StoredTrial(*given, grid=probe.grid, **found))
        except CacheError as exc:
            self.cache.tell(str(exc))

    def forget(self, index: int, probe: Probe) -> None:
        """Remove what was stored of a candidate: there is nothing to remember of it after all."""
        if index not in self.site.ambiguous():
            self.cache.remove(self.key, self.site.candidates[index].config, specialization_of(probe))


def _by_index(site: Site, probes: Mapping[int, Probe], trials: list[StoredTrial]) -> dict[int, StoredTrial]:
    by_name = {(t.config.key(), t.specialization): t for t in trials}
    names = {i: (site.candidates[i].config.key(), specialization_of(p)) for i, p in probes.items()}
    return {i: by_name[name] for i, name in names.items() if name in by_name}


def alike_environments(before: Environment, today: Environment, fields: tuple[str, ...]) -> bool:
    """Whether what was found in one environment holds in the other, as far as it depends on these fields."""
    return all(getattr(before, f) == getattr(today, f) for f in fields)


def specialization_of(probe: Probe) -> str:
    """SHA-256 of what a candidate is compiled for, and its grid: equal in every process for equal launches."""
    launch = probe.specialized
    options = {k: repr(v) for k, v in sorted(vars(launch.options).items()) if k not in NOT_CODE}
    constants = sorted((path, text_of(getattr(v, "value", v))) for path, v in launch.constexprs.items())
    parts = (str(launch.target), repr(launch.signature), constants, repr(launch.attrs), options, probe.grid)
    return hashlib.sha256(repr(parts).encode()).hexdigest()
