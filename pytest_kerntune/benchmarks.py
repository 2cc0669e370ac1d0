"""Kernels' times among pytest-benchmark's own: in its storage, its comparisons, its plots and its files.

pytest-benchmark is used as it is, where it is installed (``pip install "kerntune[benchmark]"``), and only when a run
asks it to keep or to compare something: results become its ``Metadata``, and its session does with them what it does
with a user's benchmarks. Times are of the device, in seconds; the rounds are the samples that kerntune took. A
comparison there is of stored numbers: it says nothing about significance, the verdicts of ``--kerntune`` do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kerntune.base.case_result import CaseResult
    from pytest_kerntune.payload import Collected

SESSION = "pytest-benchmark"
"""The name under which its session is a plugin."""

ASKING = ("save", "autosave", "json", "compare", "histogram")
"""Its options, without ``--benchmark-``, that keep or compare what was timed."""

NS = 1e-9


@dataclass(frozen=True)
class Series:
    """What pytest-benchmark's ``Metadata`` reads of its fixture, of a case instead."""

    name: str
    fullname: str
    group: str | None
    param: str | None
    params: dict[str, str] | None
    extra_info: dict[str, Any]
    cprofile_stats: None = None
    has_error: bool = False


def hand_over(config: pytest.Config, collected: Collected) -> None:
    """Give the run's timed cases to pytest-benchmark's session, before that saves and compares, if it was asked to."""
    session: Any = config.pluginmanager.get_plugin(SESSION)
    if session is None or config.getoption("benchmark_skip") or _disabled(config):
        return
    if any(config.getoption(f"benchmark_{name}") for name in ASKING):
        session.benchmarks.extend(benchmarks(collected))


def benchmarks(collected: Collected) -> list[Any]:
    """A ``Metadata`` of pytest-benchmark for each case that has a time; without a GPU none has."""
    return [_benchmark(r, collected) for r in collected.results if times_of(r)]


def times_of(result: CaseResult) -> tuple[float, ...]:
    """The samples in nanoseconds, or the one time there is."""
    if result.times_ns:
        return result.times_ns
    return () if result.current_ns is None else (result.current_ns,)


def _disabled(config: pytest.Config) -> bool:
    """Under xdist it disables itself for its own loops' sake; kerntune takes its times alone on the GPU anyway."""
    return bool(config.getoption("benchmark_disable") and not config.getoption("benchmark_enable"))


def _benchmark(result: CaseResult, collected: Collected) -> Any:
    from pytest_benchmark.stats import Metadata

    found = Metadata(_series(result, collected), iterations=1, options={"timer": result.timer or "kerntune"})
    for time in times_of(result):
        found.update(time * NS)
    return found


def _series(result: CaseResult, collected: Collected) -> Series:
    """A test that has a benchmark of its own, by the test's name, shows its kernels by their call's."""
    said = collected.payload(result.case.nodeid)
    full = str(result.case)
    if said.benchmarked and full == result.case.nodeid:
        full = f"{full}::{result.case.call or '0'}"
    name = full.rpartition("/")[2].partition("::")[2] or full
    param = full.partition("[")[2].rpartition("]")[0] or None
    return Series(name, full, said.group, param, dict(said.params) or None, _extra(result))


def _extra(result: CaseResult) -> dict[str, Any]:
    configs = [f"{x.kernel}: {x.config}" for x in result.launches if x.config is not None]
    extra: dict[str, Any] = {"verdict": result.verdict.value, "device": result.device, "configs": configs}
    rates: Mapping[str, tuple[float | None, float]] = {
        "tflops": (result.flops_per_second, 1e12),
        "gigabytes_per_second": (result.bytes_per_second, 1e9),
    }
    extra |= {name: rate / unit for name, (rate, unit) in rates.items() if rate is not None}
    if result.of_bandwidth is not None:
        extra["of_bandwidth"] = result.of_bandwidth
    if result.shares:
        extra["shares"] = [[x.kernel, x.share] for x in result.shares]
    return extra
