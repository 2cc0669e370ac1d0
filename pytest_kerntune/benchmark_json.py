"""A run's times in the form of pytest-benchmark's files, so that its tools read them.

``pytest-benchmark compare OLD.json NEW.json`` shows them, and so do services that take these files. The form is that
of ``--benchmark-json`` of pytest-benchmark 4 and 5 (its ``Stats.fields`` and ``Metadata.as_dict``). Nothing of
pytest-benchmark is imported, so that ``-p no:benchmark`` breaks nothing. Times are of the device, in seconds; the
rounds are the samples that kerntune took. Cases without a time (compiled without a GPU) are left out. A comparison
there is of stored numbers: it says nothing about significance, the verdicts of ``--kerntune`` do.
"""

from __future__ import annotations

import datetime
import platform
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kerntune.codec import to_json, write_atomic
from kerntune.result import CaseResult
from pytest_kerntune.payload import Collected

FORM = "5.0.0"
"""The version that a file states: its readers look at the fields only."""

NS = 1e-9
FENCE = 1.5
"""Tukey's fence, in interquartile ranges, as pytest-benchmark's ``ld15iqr`` and ``hd15iqr``."""


def write_benchmark_json(path: Path, collected: Collected) -> None:
    """Write the timed results of a run; :class:`~kerntune.errors.StoreError` if the file can't be written."""
    write_atomic(path, to_json(benchmark_json(collected)))


def has_times(collected: Collected) -> bool:
    """Whether there is anything for the document: an empty list would look like a run without tests."""
    return any(_times(r) for r in collected.results)


def benchmark_json(collected: Collected) -> dict[str, Any]:
    """The document: one benchmark per result that has a time."""
    benchmarks = [_benchmark(r, collected.params(r.case.nodeid)) for r in collected.results if _times(r)]
    return {
        "machine_info": _machine(collected.results),
        "commit_info": {},
        "benchmarks": benchmarks,
        "datetime": datetime.datetime.now(datetime.timezone.utc).isoformat(),
        "version": FORM,
    }


def stats(seconds: Sequence[float]) -> dict[str, Any]:
    """Location, spread and outliers of at least one time, as pytest-benchmark names them.

    Quartiles are linear interpolations (R type 7), where pytest-benchmark interpolates otherwise: with few rounds
    ``q1``, ``q3`` and what follows from them differ a little from what it would write itself.
    """
    data = sorted(seconds)
    mean, deviation = statistics.fmean(data), statistics.stdev(data) if len(data) > 1 else 0.0
    q1, median, q3 = statistics.quantiles(data, n=4, method="inclusive") if len(data) > 1 else [data[0]] * 3
    low, high = q1 - FENCE * (q3 - q1), q3 + FENCE * (q3 - q1)
    beyond = sum(abs(x - mean) > deviation for x in data)
    outside = sum(x < low or x > high for x in data)
    return {
        "min": data[0],
        "max": data[-1],
        "mean": mean,
        "stddev": deviation,
        "rounds": len(data),
        "median": median,
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": outside,
        "stddev_outliers": beyond,
        "outliers": f"{beyond};{outside}",
        "ld15iqr": data[bisect_left(data, low)],
        "hd15iqr": data[bisect_right(data, high) - 1],
        "ops": 1 / mean if mean else 0.0,
        "total": sum(data),
        "data": list(seconds),
        "iterations": 1,
    }


def _benchmark(result: CaseResult, params: Mapping[str, str]) -> dict[str, Any]:
    full = str(result.case)
    function = full.rpartition("/")[2].partition("::")[2] or full
    return {
        "group": None,
        "name": function,
        "fullname": full,
        "params": dict(params) or None,
        "param": full.partition("[")[2].rpartition("]")[0] or None,
        "extra_info": _extra(result),
        "options": {"timer": result.timer or "kerntune"},
        "stats": stats([t * NS for t in _times(result)]),
    }


def _extra(result: CaseResult) -> dict[str, Any]:
    configs = [f"{x.kernel}: {x.config}" for x in result.launches if x.config is not None]
    extra: dict[str, Any] = {"verdict": result.verdict.value, "device": result.device, "configs": configs}
    rates = {"tflops": (result.flops_per_second, 1e12), "gigabytes_per_second": (result.bytes_per_second, 1e9)}
    extra |= {name: rate / unit for name, (rate, unit) in rates.items() if rate is not None}
    if result.of_bandwidth is not None:
        extra["of_bandwidth"] = result.of_bandwidth
    if result.shares:
        extra["shares"] = [[x.kernel, x.share] for x in result.shares]
    return extra


def _times(result: CaseResult) -> tuple[float, ...]:
    if result.times_ns:
        return result.times_ns
    return () if result.current_ns is None else (result.current_ns,)


def _machine(results: Sequence[CaseResult]) -> dict[str, Any]:
    """What pytest-benchmark compares machines by, with the GPU as the processor that was timed."""
    devices = sorted({r.device for r in results if r.device})
    return {
        "node": platform.node(),
        "machine": platform.machine(),
        "system": platform.system(),
        "release": platform.release(),
        "python_implementation": platform.python_implementation(),
        "python_version": platform.python_version(),
        "cpu": {"brand_raw": ", ".join(devices) or platform.processor()},
    }
