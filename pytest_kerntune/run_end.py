"""The end of a run: what its tests came to, stale baselines, the files and lines that it leaves.

It leaves its JSON, kernels' times among pytest-benchmark's own, the HTML report, and annotations. Under xdist each
worker hands the controller what only it knows.
"""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Callable, Generator, Mapping
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import kerntune
from kerntune.base.case_result import CaseResult
from kerntune.base.formatting import visible
from kerntune.base.policy import Outcome
from kerntune.errors import HistoryError, KerntuneError
from kerntune.gate.console import complain
from kerntune.gate.report import RunReport, counts, write_run
from pytest_kerntune.conclude import DeviceLoss
from pytest_kerntune.options import Options
from pytest_kerntune.other_runs import ExtraTargets, runs_tests
from pytest_kerntune.payload import Collected, payload_of
from pytest_kerntune.run_conditions import DecisionWatch, covered, kernels_that_know_pytest, narrowed
from pytest_kerntune.run_lifetime import ENDED
from pytest_kerntune.terminal import write_summary, write_text

if TYPE_CHECKING:
    from kerntune.gate.api import Session

WORKER_FOUND = "kerntune_found"
"""In the ``workeroutput`` of xdist's workers: what the controller can't know of their tests."""


class RunEnd:
    """The plugin that collects the reports of all tests, and writes at the end what they came to."""

    def __init__(self, config: pytest.Config, options: Options) -> None:
        self._config = config
        self._options = options
        self._engine: Session | None = None
        self._header: tuple[str, ...] = ()
        self._extra = ExtraTargets()
        self._watch: DecisionWatch | None = None
        self.collected = Collected()
        self.loss = DeviceLoss()
        self.ended: dict[str, str] = {}
        """Tests in which a process's GPU was lost, and why."""

        self.failed: dict[str, str] = {}
        """Tests and files that failed, and the line that says why."""

        self.narrowed = False
        """Whether tests were deselected."""

        self.stale_outcomes: dict[str, str] = {}
        """By test, what a stale baseline of it does to the run."""

        self.marker_changes: list[str] = []
        self.notes: list[str] = []
        """What is said beside verdicts and errors."""

        self._errors: list[str] = []
        self._stale: tuple[CaseResult, ...] = ()
        self._unseen: set[str] = set()
        self._not_passed: set[str] = set()
        """Tests of which no baseline is written: they failed, were skipped, or were expected to fail."""

        self._overruled: dict[str, None] = {}
        self._locations: dict[str, tuple[str, int | None, str]] = {}
        self._annotations: list[str] = []

    def begin(self, engine: Session, header: tuple[str, ...], extra: ExtraTargets) -> None:
        """Before collection: the open session, the run's header, and what runs for other targets came to."""
        self._engine, self._header, self._extra = engine, header, extra
        self._watch = DecisionWatch()

    def would_meet(self, nodeid: str) -> bool:
        """Whether this run would have met the test if it still existed."""
        if any(nodeid == x or nodeid.startswith(f"{x}::") for x in self._unseen):
            return False
        return nodeid in self.collected.tests or covered(self._config, nodeid)

    def pytest_report_header(self) -> list[str]:
        return [visible(f"kerntune: {line}") for line in self._header]

    # -- while tests run ---------------------------------------------------------------------------------------------

    def pytest_deselected(self) -> None:
        self.narrowed = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that fails to import, or skips itself, hides its tests."""
        if not report.passed:
            self._unseen.add(report.nodeid)
        self._note_failure(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note_failure(report)
        if not report.passed:
            self._not_passed.add(report.nodeid)
        self._locations[report.nodeid] = report.location
        self.collected.note_unchecked(report)
        payload = payload_of(report)
        if payload is not None:
            self.collected.add(payload)
            if payload.lost:
                self.ended[report.nodeid] = payload.lost
                self.loss.note(payload.nodeid, payload.lost)
        elif report.when not in ("setup", "call", "teardown"):  # xdist's, of a worker that crashed in this test
            self._unseen.add(report.nodeid)
            self.notes.append(f"not judged: {report.nodeid}: {report.longrepr}")

    def _note_failure(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            lines = str(crash.message if crash else report.longrepr).strip().splitlines()
            self.failed.setdefault(report.nodeid, (lines[0] if crash else lines[-1]) if lines else "")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        found = (getattr(node, "workeroutput", None) or {}).get(WORKER_FOUND, {})
        self.narrowed = self.narrowed or bool(found.get("narrowed"))
        self._unseen.update(found.get("unseen", ()))
        self.stale_outcomes.update(found.get("stale_outcomes", {}))
        self._note_once(found.get("notes", ()))
        self._overruled.update(dict.fromkeys(found.get("overruled", ())))

    def _note_once(self, lines: Any) -> None:
        self.notes += [line for line in lines if line not in self.notes]

    # -- the end -----------------------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, object, object]:
        """Before pytest-benchmark's, a wrapper that saves and compares."""
        self._finish(session, exitstatus)
        if exitstatus == ENDED:  # no code of pytest's, so it would write no summary
            reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
            if reporter is not None and not reporter.no_summary:
                self._config.hook.pytest_terminal_summary(
                    terminalreporter=reporter, exitstatus=exitstatus, config=self._config
                )
        failed = session.exitstatus == pytest.ExitCode.TESTS_FAILED
        found = yield
        failing = any(r.outcome is Outcome.FAIL for r in self.collected.results)
        if failed and failing and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            complain("error: the exit code of a run with failing cases was set to 0; it stays 1")
        return found

    def _finish(self, session: pytest.Session, exitstatus: int) -> None:
        known = kernels_that_know_pytest({launch.kernel for r in self.collected.results for launch in r.launches})
        known += self.marker_changes
        changed = self._watch.changed() if self._watch is not None else []
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[WORKER_FOUND] = {
                "narrowed": self.narrowed,
                "unseen": sorted(self._unseen),
                "stale_outcomes": self.stale_outcomes,
                "notes": known,
                "overruled": changed,
            }
            return
        if self._engine is None or not runs_tests(self._config):
            return
        self._note_once(known)
        self._overruled.update(dict.fromkeys(changed))
        if self._options.export is None:
            hand_over(self._config, self.collected)
        report = cache(partial(self._report, exitstatus))
        for step in (
            self._say_overruled,
            self._say_lost,
            self._join_extra_targets,
            partial(self._find_stale, self._engine, session, exitstatus),
            partial(self._write_json, report),
            partial(self._add_to_history, report),
            partial(self._write_html, report),
            partial(self._write_summary, report),
        ):
            try:
                step()
            except KerntuneError as exc:  # shown under the table and in the exit code; it loses no other output
                self._errors.append(str(exc))
                session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED

    def _say_overruled(self) -> None:
        """A run in which code under test replaced what decides about it fails, whatever its verdicts."""
        changed = [*self._overruled, *(f"the results of {n}" for n in self.collected.altered())]
        if changed:
            raise KerntuneError(
                f"what decides about verdicts was changed while tests ran: {', '.join(changed)}; the verdicts of this "
                "run mean nothing. outcomes= in a marker or the ini file says what a verdict does"
            )

    def _say_lost(self) -> None:
        """A run that lost its GPU fails, whatever its tests were marked with."""
        if self.loss:
            raise KerntuneError(self.loss.text)

    def _join_extra_targets(self) -> None:
        """What runs for other targets say of tests that this one skipped, or hasn't: nothing of it may be lost."""
        known = {(r.case, r.target) for r in self.collected.results}
        failing = []
        for nodeid in self._extra.tests:
            found = tuple(r for r in self._extra.results(nodeid) if (r.case, r.target) not in known)
            self.collected.join(nodeid, found)
            failing += [r.message for r in found if r.outcome is Outcome.FAIL]
        self.collected.carry(self._extra.static_only, self._extra.baselines)
        if failing:
            raise KerntuneError("\n".join(failing))

    def _find_stale(self, engine: Session, session: pytest.Session, exitstatus: int) -> None:
        ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        stopped = bool(session.shouldstop or session.shouldfail)
        whole = ended and not stopped and not self.narrowed and not narrowed(self._config)
        found = engine.stale(self.collected.tests, whole)
        mine = [r for r in found if not self.collected.saw(r) and self.would_meet(r.case.nodeid)]
        marked = self.stale_outcomes  # by the test's own marker, if the test is still there
        said = "\n".join(self.failed.values())
        self.notes += [why for path, why in engine.unreadable().items() if str(path) not in said]
        mine = [r.but(outcome=Outcome(marked.get(r.case.nodeid, r.outcome))) for r in mine]
        self._stale = (*mine, *self._extra.stale)
        failing = sum(r.outcome is Outcome.FAIL for r in self._stale)
        if failing:
            raise KerntuneError(f"STALE baselines fail this run ({failing}): move or remove them, or change outcomes=")

    def _report(self, exitstatus: int) -> RunReport:
        from kerntune.gate.history.places import origin_of

        results = (*self.collected.results, *self._stale)
        return RunReport(
            results=results,
            header=self._header,
            counts={v.value: n for v, n in counts(results).items()},
            static_only=self.collected.static_only,
            failed=dict(self.failed),
            exit_status=int(exitstatus),
            created=now(),
            versions=versions(),
            baselines=self.collected.baselines,
            origin=origin_of(self._options.root, os.environ),
            unchecked=self.collected.unchecked or msgspec.UNSET,
        )

    def _write_json(self, report: Callable[[], RunReport]) -> None:
        if self._options.json is not None:
            write_run(self._options.json, report())

    def _add_to_history(self, report: Callable[[], RunReport]) -> None:
        if not self._options.history:
            return
        from kerntune.gate.history.places import add_run, history_run, place_of

        try:
            place = place_of(self._options.history, self._options.root)
            name = add_run(place, history_run(report()))
        except KerntuneError as exc:  # the verdicts stand, whatever became of the network
            self.notes.append(f"this run is not in the history; add it with kerntune history add: {exc}")
            return
        if not name:
            self.notes.append("nothing was timed, so nothing was added to the history")

    def _write_html(self, report: Callable[[], RunReport]) -> None:
        if self._options.html is not None:
            self.notes += filter(None, [write_html(self._options.html, report(), self._options)])

    def _write_summary(self, report: Callable[[], RunReport]) -> None:
        if self._options.summary is None:
            return
        from kerntune.gate.reporting.summaries import append_summary

        self._annotations = annotated(report(), self._config.rootpath, self._locations, os.environ)
        append_summary(self._options.summary, [report()])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._engine is None or not runs_tests(self._config):
            return
        write_summary(terminalreporter, self.collected, self._stale, self._errors, self._options.json, self._not_passed)
        for note in self.notes:
            write_text(terminalreporter, note, yellow=True)
        for line in self._annotations:
            terminalreporter.write_line(line)  # a command for the CI, with every text in it escaped


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


def hand_over(config: pytest.Config, collected: Collected) -> None:
    """Give the run's timed cases to pytest-benchmark's session, before that saves and compares, if it was asked to."""
    session: Any = config.pluginmanager.get_plugin(SESSION)
    if session is None or config.getoption("benchmark_skip"):
        return
    if config.getoption("benchmark_disable") and not config.getoption("benchmark_enable"):
        return  # as it does under xdist for its own loops' sake alone, and no option says so here
    if any(config.getoption(f"benchmark_{name}") for name in ASKING):
        session.benchmarks.extend(benchmarks(collected))


def benchmarks(collected: Collected) -> list[Any]:
    """A ``Metadata`` of pytest-benchmark for each case that has a time; without a GPU none has."""
    from pytest_benchmark.stats import Metadata

    out = []
    for result in filter(times_of, collected.results):
        found = Metadata(_series(result, collected), iterations=1, options={"timer": result.timer or "kerntune"})
        for time in times_of(result):
            found.update(time * NS)
        out.append(found)
    return out


def times_of(result: CaseResult) -> tuple[float, ...]:
    """The samples in nanoseconds, or the one time there is."""
    if result.times_ns:
        return result.times_ns
    return () if result.current_ns is None else (result.current_ns,)


def _series(result: CaseResult, collected: Collected) -> SimpleNamespace:
    """What ``Metadata`` reads of pytest-benchmark's fixture, of a case instead. A test that has a benchmark of its own,
    by the test's name, shows its kernels by their call's."""
    said = collected.payload(result.case.nodeid)
    full = str(result.case)
    if said.benchmarked and full == result.case.nodeid:
        full = f"{full}::{result.case.call or '0'}"
    name = full.rpartition("/")[2].partition("::")[2] or full
    param = full.partition("[")[2].rpartition("]")[0] or None
    return SimpleNamespace(
        name=name, fullname=full, group=said.group, param=param, params=dict(said.params) or None,
        extra_info=_extra(result), cprofile_stats=None, has_error=False,
    )  # fmt: skip


def _extra(result: CaseResult) -> dict[str, Any]:
    configs = [f"{x.kernel}: {x.config}" for x in result.launches if x.config is not None]
    extra: dict[str, Any] = {"verdict": result.verdict.value, "device": result.device, "configs": configs}
    rates: Mapping[str, tuple[float | None, float]] = {
        "tflops": (result.roofline.flops_per_second, 1e12),
        "gigabytes_per_second": (result.roofline.bytes_per_second, 1e9),
    }
    extra |= {name: rate / unit for name, (rate, unit) in rates.items() if rate is not None}
    if result.roofline.of_bandwidth is not None:
        extra["of_bandwidth"] = result.roofline.of_bandwidth
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
