"""The log of a tuning: what became of each config, a line of JSON each, appended to the file of ``KERNTUNE_LOG``."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import msgspec

from kerntune.capture import Site
from kerntune.compiling.compiler import Compiled
from kerntune.tuning.race import DROP_FIRST, Trial
from kerntune.tuning.stored_winners import exact_arguments

LOG = "KERNTUNE_LOG"

SCHEMA = "kerntune.log/1"

SHORT_HASH = 12
"""Characters of the hash that tells a kernel's calls apart."""

_warned: set[str] = set()


def log_path() -> str:
    """The file of ``KERNTUNE_LOG``; empty where nothing is logged."""
    return os.environ.get(LOG, "")


def log_config(site: Site, event: str, index: int | None = None, why: str = "", **figures: object) -> None:
    """Append a line: what happened to candidate ``index`` of a site (to the site itself if None), and why.

    ``figures`` are times in nanoseconds, seconds, or ratios (1.25 is 25 % slower than the best). One write to a file
    that is open for appending: lines of several processes don't mix. A file that can't be written costs a warning.
    """
    path = log_path()
    if not path:
        return
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "time": datetime.now(timezone.utc).isoformat(timespec="microseconds"),
        "pid": os.getpid(),
        "event": event,
        "kernel": site.kernel,
        "call": call_hash(site),
    }
    if index is not None:
        found["config"] = site.candidates[index].config
    found |= {"why": why} if why else {}
    found |= {name: _rounded(value) for name, value in figures.items() if value is not None}
    _append(path, msgspec.json.encode(found) + b"\n")


def call_hash(site: Site) -> str:
    """Equal for calls of a kernel with equal arguments, in every process."""
    return hashlib.sha256(exact_arguments(site).encode()).hexdigest()[:SHORT_HASH]


def log_begin(site: Site, device: str) -> None:
    """A tuning begins: with which arguments, and how many configs."""
    if log_path():
        log_config(site, "begin", arguments=exact_arguments(site), configs=len(site.candidates), device=device)


def log_compiled(site: Site, index: int, compiled: object) -> None:
    """A config is compiled, by now or in an earlier run (then without seconds)."""
    if log_path() and isinstance(compiled, Compiled):
        log_config(site, "compiled", index, seconds=compiled.seconds, shared_bytes=compiled.binary.shared)


def log_estimate(site: Site, trial: Trial, best: float) -> None:
    """A config has run for the first time: its estimate, and how it compares with the best so far."""
    if log_path():
        log_config(site, "first launch", trial.index, estimate_ns=trial.estimate, ratio=_ratio(trial.estimate, best))


def log_race(site: Site, alive: Sequence[Trial], finalists: Sequence[Trial], best: Trial) -> None:
    """What the race says of each: raced to the end, or dropped before and by how much."""
    if not log_path():
        return
    final = {id(t) for t in finalists}
    least = min((t.estimate for t in alive), default=0.0)
    for trial in alive:
        figures = {
            "time_ns": trial.time_ns,
            "estimate_ns": trial.estimate,
            "ratio": _ratio(trial.time_ns, best.time_ns),
        }
        event, why = "raced", "" if trial is best else "slower in turn with the best, or tied with it"
        if id(trial) not in final:
            far = trial.estimate > least * DROP_FIRST
            event, why = (
                "dropped",
                f"its estimate is above {DROP_FIRST} of the best" if far else "slower in first rounds",
            )
        for index in trial.same:
            log_config(site, event, index, why, rounds=len(trial.times), **figures)


def log_end(
    site: Site, winner: int, times_ns: Mapping[int, float], left_out: Mapping[int, str], seconds: float
) -> None:
    """A tuning ends: the winner, and what was left out unrun."""
    if not log_path():
        return
    for index, why in left_out.items():
        log_config(site, "left out", index, why)
    log_config(site, "won", winner, time_ns=times_ns.get(winner), seconds=seconds, configs=len(site.candidates))


def _ratio(value: float, best: float) -> float | None:
    return value / best if 0 < best < float("inf") else None


def _rounded(value: object) -> object:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _append(path: str, line: bytes) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.write(handle, line)
        finally:
            os.close(handle)
    except OSError as exc:
        if path not in _warned:
            _warned.add(path)
            warnings.warn(f"{LOG}: {path} can't be written: {exc.strerror}", RuntimeWarning, stacklevel=2)
