"""The end of a test: its verdicts become its outcome, in its own call phase.

Where a run's GPU stops answering, one test fails, the others are INCONCLUSIVE, and a worker of xdist is replaced.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from kerntune.base.case_result import CaseId, CaseResult, incomplete_result
from kerntune.base.formatting import visible
from kerntune.base.policy import Outcome, Policy, Verdict
from kerntune.errors import KerntuneError
from kerntune.gate.report import badness, properties
from kerntune.gate.reporting.failure import SEPARATOR, accept_command, cause_text, failure_text, headline
from pytest_kerntune.fixture import Record, naming
from pytest_kerntune.marker import HEADLINE, never_called, nodeid_of, without_id
from pytest_kerntune.warning import KerntuneWarning

if TYPE_CHECKING:
    from kerntune.gate.stopped_tests import StoppedTest


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
        if failing := _failing(record.results):
            pytest.fail("\n".join(r.message for r in failing), pytrace=False)
        pytest.skip(message)


def is_device_error(error: BaseException) -> bool:
    """Whether an error is torch's, the driver's or Triton's about the GPU."""
    return type(error).__name__ == "AcceleratorError" or any(sign in str(error) for sign in SIGNS)


def end_worker(close: Any) -> None:
    """End this worker of pytest-xdist while its controller still takes the test for running: it then blames no other
    one, and starts a new worker. ``close`` ends what belongs to this process."""
    with suppress(Exception):
        close()
    os._exit(EXIT_CODE)


def settle_crash(report: Any) -> None:
    """Take xdist's report of a worker that ended on purpose for the end of its test, which has its own report."""
    report.when, report.outcome, report.longrepr = "teardown", "passed", None


SECTION = "kerntune"


def fail_with(
    item: pytest.Item, results: Sequence[CaseResult], before: Sequence[str] = (), after: Sequence[str] = ()
) -> NoReturn:
    """Fail the test with what its failing results say, each in full, and with the texts ``before`` and ``after`` that.

    Its line in the summary begins with the finding of the worst.
    """
    width = shutil.get_terminal_size().columns
    told = [*before, *(failure_text(r, _command(item.config, r), width) for r in results), *after]
    error = pytest.fail.Exception(visible("\n".join(told)), pytrace=False)
    lines = list(filter(None, map(_line_of, sorted(results, key=badness))))
    if lines and not before:
        more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        setattr(error, HEADLINE, visible(lines[0] + more))
    raise error from None


def _command(config: pytest.Config, result: CaseResult) -> str:
    """What accepts the case, from where pytest was called; empty for a run that is held against a revision."""
    if config.getoption("kerntune_against") or config.getoption("kerntune_baselines_ref"):
        return ""
    file, colons, rest = result.case.nodeid.partition("::")
    place = os.path.relpath(config.rootpath / file, config.invocation_params.dir)
    target, baselines = (config.getoption(name) or "" for name in ("kerntune_target", "kerntune_baselines"))
    return accept_command(result, f"{place}{colons}{rest}", target, baselines)


def _line_of(result: CaseResult) -> str:
    """``spills 0 -> 56 B · launch options (num_warps 4 -> 1), first in TTGIR``, or ``NEW · no baseline here``."""
    found, cause = headline(result), cause_text(result)
    return SEPARATOR.join(filter(None, [found or result.word, cause])) if found or cause else ""


def conclude(
    item: pytest.Item,
    record: Record,
    policy: Policy,
    *,
    marked: bool,
    extra: Sequence[CaseResult] = (),
    accepts: bool = False,
) -> None:
    """Fail the test with the messages of its failing results, warn of the others that need it.

    ``extra`` are what other runs found of it, for other targets. ``accepts``: the run writes all baselines anew, so
    what it found to differ from them is accepted.
    """
    record.finished = not record.static_only
    case = CaseId(nodeid_of(item), "0")
    if not record.results and record.static_only:
        where = "in its first autotune call, before a launch" if record.begun else "before its first autotune call"
        text = f": ended {where}, for want of a GPU: {record.static_only}"
        record.results.append(incomplete_result(case, text, policy.outcome(Verdict.INCOMPLETE)))
    elif not record.results and marked and not record.checked:
        record.results.append(incomplete_result(case, f": {never_called(item)}", Outcome.FAIL))
    record.results.extend(extra)
    record.uphold()
    _settle(item, record, accepts)


def conclude_teardown(item: pytest.Item, record: Record, *, accepts: bool) -> None:
    """The same for calls that fixtures made after the body, if that has ended well."""
    if record.finished and not record.failed and len(record.results) > record.concluded:
        _settle(item, record, accepts)


def _settle(item: pytest.Item, record: Record, accepts: bool) -> None:
    results, record.concluded = record.results[record.concluded :], len(record.results)
    item.user_properties.extend(properties(results))
    failing = _failing(results)
    others = [r for r in results if r.outcome is not Outcome.FAIL]  # a failing one tells its further findings itself
    refused = [text for r in others if (text := warning_of(r, accepts)) and not _warned(item, text)]
    record.settled, record.failed = True, bool(record.lost or failing or refused)
    if record.failed:
        fail_with(item, failing, record.lost, refused)


def warning_of(result: CaseResult, accepts: bool = False) -> str:
    """What to warn of: its message if its verdict warns, and all findings that its message doesn't hold, unless they
    are accepted."""
    findings = [f for f in result.findings if f not in result.message and not accepts]
    if result.outcome is Outcome.WARN:
        return "; ".join([result.message, *findings])
    return f"{result.word} {result.case} ({result.target}): {'; '.join(findings)}" if findings else ""


Stop = Callable[[BaseException], "StoppedTest | None"]
"""What follows if a body raised an error because it can't go on without a GPU; None for any other error."""


def after_error(item: pytest.Item, record: Record, error: BaseException, stop: Stop) -> None:
    """Decide about a body that raised: return if it only could not go on without a GPU, else raise.

    A skipped test with a regression fails all the same; any other error stays what it is, with the verdicts so far
    as a section of its report.
    """
    record.uphold()
    failing = _failing(record.results)
    if isinstance(error, pytest.skip.Exception) and failing:
        fail_with(item, failing)
    outcomes = (pytest.skip.Exception, pytest.fail.Exception, pytest.exit.Exception)  # never come from missing values
    stopped = stop(error) if isinstance(error, Exception) and not isinstance(error, outcomes) else None
    if stopped is not None:
        record.stop(stopped)
        return
    item.user_properties.extend(properties(record.results))
    if failing:
        item.add_report_section("call", SECTION, visible("\n".join(r.message for r in failing)))
    raise error


def skipped_setup(item: pytest.Item, record: Record) -> None:
    """A fixture that skips its test hides no regression: neither of calls that fixtures made, nor of an earlier attempt
    of the test."""
    record.uphold()
    if failing := _failing(record.results):
        fail_with(item, failing)


def write_baselines(nodeid: str, record: Record, report: pytest.TestReport) -> None:
    """Write those of a test that has passed by what pytest says of it: a test whose ``xfail(strict=True)`` is no longer
    true has not, nor one with a failed subtest. The report is the call's or the teardown's; it fails if this can't be
    done."""
    if not report.passed:
        record.failed = True
    failing = [] if record.failed or not record.settled else _commit(nodeid, record)
    if failing:
        told = "\n".join(without_id(t, nodeid) for t in failing)  # the report begins with the id
        record.failed, report.outcome, report.longrepr = True, "failed", visible(told)


def unfinished_setup(
    item: pytest.Item, record: Record | None, policy: Policy, stopped: StoppedTest, extra: Sequence[CaseResult] = ()
) -> None:
    """A fixture needs a GPU's results, so the test can't run on stand-ins: skip it, in CI fail an ``autotune`` test.
    Calls that fixtures have made are judged."""
    nodeid = nodeid_of(item)
    text = f" needs results that only a GPU gives, in its setup: {stopped.end}"
    if record is not None and record.results:
        record.stop(stopped)
        conclude(item, record, policy, marked=False, extra=extra)
        if failing := _commit(nodeid, record):
            pytest.fail(visible("\n".join(failing)), pytrace=False)
    elif record is not None:
        result = incomplete_result(CaseId(nodeid, "0"), text, policy.outcome(Verdict.INCOMPLETE))
        record.results.append(result)
        if result.outcome is Outcome.FAIL:
            pytest.fail(result.message, pytrace=False)
    pytest.skip(f"{nodeid}{text}")


def _commit(nodeid: str, record: Record) -> list[str]:
    try:
        record.commit()
    except KerntuneError as exc:
        return [naming(nodeid, exc)]
    return []


def _warned(item: pytest.Item, message: str) -> bool:
    """Warn at the test's place; False if warnings are errors (``-W error``), which fail the test like a verdict."""
    try:
        item.warn(KerntuneWarning(visible(message)))
    except KerntuneWarning:
        return False
    return True


def _failing(results: Sequence[CaseResult]) -> list[CaseResult]:
    return [r for r in results if r.outcome is Outcome.FAIL]
