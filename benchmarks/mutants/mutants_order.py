"""A pytest plugin for mutation runs: which tests run and in which order, and what is known of each when it ends.

The file that ``MUTANT_ORDER`` names has ``{"tests": [node ids], "files": [paths], "done": [node ids], "seconds":
number}``: those tests run in this order, then those of the files that aren't done; after so many seconds of processor
time none begins. Begins and ends of tests go to the file that ``MUTANT_PROGRESS`` names, a line of JSON each, so that a
run that hangs says where. ``MUTANT_CORES``: the cores of this run.

The run gets a process group of its own: a mutant that ends its group ends no other run. It ends with its parent.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRESS = os.environ.get("MUTANT_PROGRESS", os.devnull)
ORDER = json.loads(Path(path).read_text()) if (path := os.environ.get("MUTANT_ORDER")) else {}

PARENT_DEATH_SIGNAL = 1
"""``PR_SET_PDEATHSIG`` of linux/prctl.h."""

if cores := os.environ.get("MUTANT_CORES"):
    os.sched_setaffinity(0, map(int, cores.split(",")))

if "MUTANT_PROGRESS" in os.environ and os.getpgrp() != os.getpid():
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not ORDER:
        return
    place, files, done = {name: i for i, name in enumerate(ORDER["tests"])}, {*ORDER["files"]}, {*ORDER["done"]}
    wanted = [i for i in items if i.nodeid in place or (i.nodeid.partition("::")[0] in files and i.nodeid not in done)]
    config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
    items[:] = sorted(wanted, key=lambda i: place.get(i.nodeid, len(place)))


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[END] = _processor_seconds() + ORDER.get("seconds", 1e6)


END = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    begin, row = time.monotonic(), {"test": item.nodeid}
    _write(row)
    try:
        return (yield)
    finally:
        _write({**row, "seconds": round(time.monotonic() - begin, 3)})
        if nextitem is not None and _processor_seconds() > item.config.stash.get(END, math.inf):
            _write({"left": len(item.session.items) - 1 - item.session.items.index(item)})
            item.session.shouldstop = "no time left"


def _processor_seconds() -> float:
    """Of this process and of those that it waited for."""
    return sum(os.times()[:4])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or not report.passed:
        _write({"test": report.nodeid, "outcome": report.outcome})


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write({"test": report.nodeid, "outcome": "failed"})


def _write(row: dict[str, Any]) -> None:
    with open(PROGRESS, "a") as file:
        file.write(json.dumps(row) + "\n")
