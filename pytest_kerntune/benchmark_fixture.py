"""pytest-benchmark's fixture in a test that has ours, too; nothing of it is imported."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from kerntune.errors import UsageError

FIXTURE = "benchmark"

EXTRA = 'pip install "kerntune[benchmark]"'
"""What brings pytest-benchmark. It is no dependency: installed, it prints a header line and makes a folder in every
run, and a run without ``--kerntune`` is to be as if there were no kerntune."""


def require() -> None:
    """:class:`UsageError` unless pytest-benchmark is installed; ``-p no:benchmark`` doesn't matter."""
    if importlib.util.find_spec("pytest_benchmark") is None:
        raise UsageError(f"--kerntune-benchmark-json: pytest-benchmark writes that, and is not installed: {EXTRA}")


def run_once(fixture: object) -> None:
    """Have ``benchmark`` call its function once and keep no time: where nothing launches, it would time stand-ins."""
    if hasattr(fixture, "disabled"):
        fixture.disabled = True


def refuse_inside() -> None:
    """:class:`UsageError` if pytest-benchmark's loop is what calls: each round would be a case of its own."""
    frame: Any = sys._getframe()
    while frame is not None:
        runner = frame.f_globals.get("__name__") == "pytest_benchmark.fixture" and frame.f_locals.get("self")
        if getattr(runner, "disabled", True) is False:
            raise UsageError(
                "autotune is called by benchmark(), again and again: write autotune(fn, ...) and benchmark(fn, ...)"
            )
        frame = frame.f_back
