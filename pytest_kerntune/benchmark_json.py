"""A run's times as a file of pytest-benchmark, without its session: ``-p no:benchmark`` and xdist make no difference.

``pytest-benchmark compare OLD.json NEW.json`` shows them, and so do services that take these files. The form is that
of ``--benchmark-json``, the figures are pytest-benchmark's own (:mod:`pytest_kerntune.benchmarks`).
"""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kerntune.base.case_result import CaseResult
from kerntune.base.codec import to_json, write_atomic
from pytest_kerntune.benchmarks import benchmarks, times_of
from pytest_kerntune.payload import Collected


def write_benchmark_json(path: Path, collected: Collected) -> None:
    """Write the timed results of a run; :class:`~kerntune.errors.StoreError` if the file can't be written."""
    write_atomic(path, to_json(benchmark_json(collected)))


def has_times(collected: Collected) -> bool:
    """Whether there is anything for the document: an empty list would look like a run without tests."""
    return any(times_of(r) for r in collected.results)


def benchmark_json(collected: Collected) -> dict[str, Any]:
    """The document: one benchmark per result that has a time."""
    return {
        "machine_info": _machine(collected.results),
        "commit_info": {},
        "benchmarks": [b.as_dict(include_data=True) for b in benchmarks(collected)],
        "datetime": datetime.datetime.now(datetime.timezone.utc).isoformat(),
        "version": importlib.metadata.version("pytest-benchmark"),
    }


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
