"""Calls whose candidates are not raced: they launch nothing, or change what could not be put back."""

from __future__ import annotations

import contextlib

from kerntune.base.case_result import FailedTrial
from kerntune.base.recording import Recording
from kerntune.capture import Capture, Probe, Site
from kerntune.errors import CompileError, ConfigError, GridError, TrialError
from kerntune.tuning.candidates import CandidatePool, pool_of
from kerntune.tuning.resource_check import misfit
from kerntune.tuning.tuning_result import Tuned, nothing_left

LAUNCHES_NOTHING = "its grid is empty, so there is nothing to time"
NOT_MEASURED = "the device was busy"


def first_usable(capture: Capture, site: Site, first: int | None = None) -> int:
    """The first candidate, ``first`` before the others in config order, that compiles, and that the device can launch
    as far as its binary tells. Nothing is loaded, and the device isn't waited for. :class:`TuningError` if there is
    none."""
    with capture.active(), contextlib.closing(pool_of(capture, site)) as pool:
        return unraced(capture, pool, first, NOT_MEASURED).winner


def launches_nothing(capture: Capture, site: Site) -> bool:
    """Whether a call of a site has an empty grid, by its first candidate. Only inside ``capture.active()``."""
    try:
        return _empty(capture.probe(site, 0))
    except (TrialError, ConfigError, GridError):
        return False


def all_empty(pool: CandidatePool) -> bool:
    """Whether no candidate would launch anything."""
    return bool(pool.probes) and all(map(_empty, pool.probes.values()))


def _empty(probe: Probe) -> bool:
    return 0 in probe.grid


def unraced(capture: Capture, pool: CandidatePool, incumbent: int | None, why: str) -> Tuned:
    """The outcome without a race: the incumbent, else the first candidate in config order that can be used.

    :class:`TuningError` if none can.
    """
    pool.close()
    recording = Recording(capture.backend.targets[0], (), (), (), ())
    failures: list[FailedTrial] = []
    for index in sorted(pool.probes, key=lambda i: (i != incumbent, i)):
        broken = "" if _empty(pool.probes[index]) else _broken(capture, pool.probes[index])
        if not broken:
            return Tuned(index, recording, {}, tuple(failures), unraced=why)
        failures.append(FailedTrial(pool.site.kernel, pool.site.candidates[index].config, broken))
    raise nothing_left(pool.site, failures)


def _broken(capture: Capture, probe: Probe) -> str:
    """Why a candidate can't be launched; empty if it can, as far as its binary tells."""
    try:
        compiled = capture.compiler.compile(probe.specialized)
    except CompileError as exc:
        return str(exc)
    return misfit(compiled.binary, compiled.data, capture.backend.spec)
