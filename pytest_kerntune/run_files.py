"""What a run leaves: its JSON, kernels' times among pytest-benchmark's own, the HTML report, and annotations."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

import kerntune
from kerntune.base.case_result import CaseResult
from kerntune.errors import HistoryError
from kerntune.gate.report import Origin, RunReport, counts
from pytest_kerntune.options import Options
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


Locations = Mapping[str, "tuple[str, int | None, str]"]
"""pytest's location of each test: file relative to its root folder, line from 0, name."""


def write_html(path: Path, report: RunReport, options: Options) -> str:
    """Write the report; a line on what is missing in it, or nothing. :class:`~kerntune.errors.StoreError` if the file
    can't be written."""
    from kerntune.gate.history.index import Index
    from kerntune.gate.history.places import place_of
    from kerntune.gate.history.summary import CaseCurve, curves_of
    from kerntune.gate.reporting.page import plotly_script, write_page
    from kerntune.tuning.cache.entries import default_folder

    curves: list[CaseCurve] = []
    problem = ""
    if options.history:
        folder = options.cache_dir or default_folder()
        try:
            curves = curves_of(Index(place_of(options.history, options.root), folder / "history"))
        except HistoryError as exc:  # the report stands without it
            problem = f"{path}: holds no history: {exc}"
    write_page(path, [report], curves, plotly_script())
    return problem


def annotated(report: RunReport, root: Path, locations: Locations, environ: Mapping[str, str]) -> list[str]:
    """Annotations for GitHub Actions, which names files as the checkout does; nothing elsewhere."""
    from kerntune.gate.report import worst_first
    from kerntune.gate.reporting.summaries import annotation_lines, file_of

    if environ.get("GITHUB_ACTIONS") != "true":
        return []
    workspace = environ.get("GITHUB_WORKSPACE") or str(root)

    def place_of(nodeid: str) -> tuple[str, int]:
        file, line, _ = locations.get(nodeid, (file_of(nodeid), None, ""))
        return Path(os.path.relpath(root / file, workspace)).as_posix(), 0 if line is None else line + 1

    return annotation_lines(worst_first([report]), place_of)
