"""A pytest plugin for mutation runs: which tests run and in which order, and what is known of each when it ends.

The file that ``MUTANT_ORDER`` names has ``{"first": [node ids], "only": [node ids]}``: the former run first, in this
order, and none but the latter run. Begins and ends of tests go to the file that ``MUTANT_PROGRESS`` names, a line of
JSON each, so that a run that hangs says where. With ``MUTANT_MODULES``, paths of modules separated by ``:``, the last
line of a test has the lines of these modules that it has run in this process. ``MUTANT_CORES``: the cores of this run.

The run gets a process group of its own: a mutant that ends its group ends no other run. It ends with its parent.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

PROGRESS = os.environ.get("MUTANT_PROGRESS", os.devnull)
TRACED = frozenset(filter(None, os.environ.get("MUTANT_MODULES", "").split(":")))

PARENT_DEATH_SIGNAL = 1
"""``PR_SET_PDEATHSIG`` of linux/prctl.h."""

lines: set[tuple[str, int]] = set()

if cores := os.environ.get("MUTANT_CORES"):
    os.sched_setaffinity(0, map(int, cores.split(",")))

if "MUTANT_PROGRESS" in os.environ and os.getpgrp() != os.getpid():
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not (path := os.environ.get("MUTANT_ORDER")):
        return
    order = json.loads(Path(path).read_text())
    place, only = {name: i for i, name in enumerate(order["first"])}, frozenset(order["only"])
    left_out = [item for item in items if item.nodeid not in only]
    items[:] = sorted((i for i in items if i.nodeid in only), key=lambda i: place.get(i.nodeid, len(place)))
    config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    begin, row = time.monotonic(), {"test": item.nodeid}
    _write(row)
    lines.clear()
    if TRACED:
        threading.settrace(_call)
        sys.settrace(_call)
    try:
        return (yield)
    finally:
        if TRACED:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
        _write({**row, "seconds": round(time.monotonic() - begin, 3), "lines": sorted(lines)})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or not report.passed:
        _write({"test": report.nodeid, "outcome": report.outcome})


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write({"test": report.nodeid, "outcome": "failed"})


def _write(row: dict[str, Any]) -> None:
    with open(PROGRESS, "a") as file:
        file.write(json.dumps(row) + "\n")


def _call(frame: FrameType, event: str, value: Any) -> Any:
    return _line if frame.f_code.co_filename in TRACED else None


def _line(frame: FrameType, event: str, value: Any) -> Any:
    if event == "line":
        lines.add((frame.f_code.co_filename, frame.f_lineno))
    return _line
