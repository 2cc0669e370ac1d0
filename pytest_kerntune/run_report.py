"""A run's JSON, of what its tests came to."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Mapping

import msgspec
import pytest

import kerntune
from kerntune.base.case_result import CaseResult
from kerntune.gate.report import Origin, RunReport, counts
from pytest_kerntune.payload import Collected


def run_report(
    collected: Collected,
    results: tuple[CaseResult, ...],
    header: tuple[str, ...],
    failed: Mapping[str, str],
    exitstatus: int,
    origin: Origin,
) -> RunReport:
    """Everything about a run. ``results`` are those of its tests and the stale ones."""
    return RunReport(
        results=results,
        header=header,
        counts={v.value: n for v, n in counts(results).items()},
        static_only=collected.static_only,
        failed=dict(failed),
        exit_status=int(exitstatus),
        created=now(),
        versions=versions(),
        baselines=collected.baselines,
        origin=origin,
        unchecked=collected.unchecked or msgspec.UNSET,
    )


def now() -> str:
    """The time in UTC (ISO 8601)."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """What ran: kerntune, pytest, Python and the platform."""
    return {
        "kerntune": kerntune.__version__,
        "pytest": pytest.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
