"""A run whose GPU stops answering: one test fails, the others are INCONCLUSIVE, a worker of xdist is replaced."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import pytest

from kerntune.base.case_result import CaseId, CaseResult
from kerntune.base.policy import Outcome, Policy, Verdict
from pytest_kerntune.fixture import Record
from pytest_kerntune.stash import nodeid_of

FOUND_GPU = "kerntune_found_gpu"
"""In the ``workerinput`` of xdist's workers: whether the controller found a GPU."""

NO_GPU_LEFT = "this process of pytest-xdist finds no GPU any more, where the run began with one"

SIGNS = ("CUDA error", "CUDA_ERROR", "Triton Error [CUDA]")
"""What texts of errors from torch, the driver and Triton have in common."""

EXIT_CODE = 70
"""``EX_SOFTWARE`` of sysexits.h: of a worker that can't go on."""


class DeviceLoss:
    """Since when and why this process's GPU answers no more."""

    def __init__(self) -> None:
        self.culprit = ""
        """The node id of the test that was running; empty if it is another process's."""

        self.why = ""

    def __bool__(self) -> bool:
        return bool(self.why)

    def note(self, nodeid: str, why: str) -> None:
        """Keep the first reason."""
        if why and not self.why:
            self.culprit, self.why = nodeid, why

    @property
    def text(self) -> str:
        """For every test after it."""
        since = f"since {self.culprit} " if self.culprit else ""
        return f"{since}the GPU runs nothing any more in its process: {self.why}" if since else self.why

    def refuse(self, item: pytest.Item, record: Record, policy: Policy) -> None:
        """Don't run a test that needs the GPU: INCONCLUSIVE, by its policy a failure or a test that is skipped."""
        nodeid, outcome = nodeid_of(item), policy.outcome(Verdict.INCONCLUSIVE)
        message = f"INCONCLUSIVE {nodeid}: not run: {self.text}"
        record.results.append(CaseResult(CaseId(nodeid, "0"), "", Verdict.INCONCLUSIVE, outcome, message, ""))
        record.uphold()
        failing = [r.message for r in record.results if r.outcome is Outcome.FAIL]
        if failing:
            pytest.fail("\n".join(failing), pytrace=False)
        pytest.skip(message)


def is_device_error(error: BaseException) -> bool:
    """Whether an error is torch's, the driver's or Triton's about the GPU."""
    return type(error).__name__ == "AcceleratorError" or any(sign in str(error) for sign in SIGNS)


def end_worker(close: Any) -> None:
    """End this worker of pytest-xdist while its controller still takes the test for running: it then blames no other
    one, and starts a new worker. ``close`` ends what belongs to this process."""
    with contextlib.suppress(Exception):
        close()
    os._exit(EXIT_CODE)


def settle_crash(report: Any) -> None:
    """Take xdist's report of a worker that ended on purpose for the end of its test, which has its own report."""
    report.when, report.outcome, report.longrepr = "teardown", "passed", None
