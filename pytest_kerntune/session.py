"""A run under ``--kerntune``: the engine's life, the tests' verdicts, what is written at the end."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Generator, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kerntune.base.case_result import CaseResult
from kerntune.base.formatting import visible
from kerntune.base.policy import Outcome, Update, Verdict
from kerntune.errors import KerntuneError, UsageError
from kerntune.gate.console import complain
from kerntune.gate.report import RunReport, write_run
from kerntune.gate.reporting.page import require_plotly
from pytest_kerntune import refusals, run_files
from pytest_kerntune.conclude import (
    FOUND_GPU,
    NO_GPU_LEFT,
    DeviceLoss,
    after_error,
    conclude,
    conclude_teardown,
    end_worker,
    is_device_error,
    settle_crash,
    skipped_setup,
    unfinished_setup,
    write_baselines,
)
from pytest_kerntune.concurrency import CROWDED, Spread, in_turn
from pytest_kerntune.fixture import GatedAutotune, Record
from pytest_kerntune.marker import Marker, concerns, nodeid_of, read_marker
from pytest_kerntune.options import Options
from pytest_kerntune.other_runs import Further, read_further, run_further, runs_tests
from pytest_kerntune.payload import Collected, attach, attach_unchecked, payload_from, payload_of
from pytest_kerntune.run_conditions import Aside, DecisionWatch, covered, kernels_that_know_pytest, narrowed, unseen_gpu
from pytest_kerntune.run_files import run_report
from pytest_kerntune.run_lifetime import collect_less, end_in_order, only_where, take
from pytest_kerntune.terminal import Progress, write_summary, write_text

if TYPE_CHECKING:
    from kerntune.gate.api import Session
    from kerntune.gate.stopped_tests import StoppedTest

RECORD = pytest.StashKey[Record]()
ERROR = pytest.StashKey["BaseException | None"]()
"""On a test: what its setup or its body raised."""

NARROWED = "kerntune_narrowed"
UNSEEN = "kerntune_unseen"
STALE_OUTCOMES = "kerntune_stale_outcomes"
YARDSTICK = "kerntune_yardstick"
DECISIONS = "kerntune_decisions"
"""The folder in which xdist's workers claim the numbers of their decisions."""

ANCHOR = "kerntune_anchor"
FURTHER = "kerntune_further"
KNOW_PYTEST = "kerntune_know_pytest"
OVERRULED = "kerntune_overruled"


class Gate:
    """The plugin that ``--kerntune`` registers. On xdist's controller it runs no test, but prints and writes."""

    def __init__(self, config: pytest.Config, options: Options) -> None:
        self.config = config
        self.options = options
        self.collected = Collected()
        self.stale: tuple[CaseResult, ...] = ()
        self.errors: list[str] = []
        self.notes: list[str] = []
        """What the end of the run has to say beside verdicts and errors."""

        self.header: tuple[str, ...] = ()
        self._engine: Session | None = None
        self._process = os.getpid()
        self._narrowed = False
        self._unseen: set[str] = set()
        self._stale_outcomes: dict[str, str] = {}
        self._aside = Aside(config)
        self._further = Further()
        self._loss = DeviceLoss()
        self._ended: dict[str, str] = {}
        """On xdist's controller: tests in which a worker's GPU was lost, and why."""

        self._failed: dict[str, str] = {}
        self._locations: dict[str, tuple[str, int | None, str]] = {}
        self._annotations: list[str] = []
        self._remarks: tuple[str, ...] = ()
        self._marker_changes: list[str] = []
        self._deciding: DecisionWatch | None = None
        self._overruled: dict[str, None] = {}
        self._progress = Progress(config)
        self._spread = Spread(options.spread)

    @property
    def engine(self) -> Session:
        """The open session; there is none before ``pytest_sessionstart``."""
        if self._engine is None:
            raise pytest.UsageError("kerntune's session is not open yet: autotune works in tests only")
        return self._engine

    @property
    def worker(self) -> bool:
        """Whether this process is one of xdist's workers."""
        return hasattr(self.config, "workerinput")

    @property
    def controller(self) -> bool:
        """Whether this process only distributes tests to xdist's workers."""
        return self.config.pluginmanager.hasplugin("dsession")

    # -- life --------------------------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self) -> Generator[None, object, object]:
        """Before the header is printed and before collection imports users' modules."""
        try:
            self._open()
        except KerntuneError as exc:
            raise pytest.UsageError(str(exc)) from None
        return (yield)

    def _open(self) -> None:
        from kerntune.gate.api import open_session
        from kerntune.kernels import compat

        if self.options.html is not None and not self.worker:
            require_plotly("--kerntune-html")
        backend = self.config.hook.pytest_kerntune_backend(config=self.config)
        started = take(self.config)
        if started is not None and backend is not None:
            started.close()  # a conftest chose otherwise
            started = None
        if started is None:
            started = open_session(self.options.settings(), backend)
            self.config.add_cleanup(started.close)
            if not self.controller:
                started.start()
        self._engine = started
        self._deciding = DecisionWatch()
        if self.worker and started.static and self.config.workerinput.get(FOUND_GPU, False):  # type: ignore[attr-defined]
            self._loss.note("", NO_GPU_LEFT)
        if not self.worker:
            end_in_order(self.config)
        several = self.controller or self.worker
        started.share(*self._aside.place, self._aside.folder(DECISIONS, lambda into: into) if several else None)
        others = () if backend is not None else started.narrow()
        if self.options.yardstick_name:
            folder = self._aside.folder(YARDSTICK, lambda into: self._made_yardstick(into, started.compiled_for))
            started.hold_against(folder, self.options.yardstick_name)
        if self.options.anchor:
            folder = self._aside.folder(ANCHOR, self._made_anchor)
            started.anchor_at(folder, self.options.anchor_name)
        if others and runs_tests(self.config):  # last: an error for each of these runs is reported once, by this one
            folder = self._aside.folder(FURTHER, lambda into: run_further(self.config, others, into))
            self._further = read_further(others, folder)
        self.notes += self.options.reference.differences(self.config) if self.options.reference is not None else ()
        aside = (f"in runs of their own: {', '.join(others)}",) if others else ()
        unseen = unseen_gpu() if started.static and not self.options.targets else ""
        self.notes += [unseen] if unseen else []
        newer = compat.newer_versions()
        self.notes += newer if self.config.get_verbosity() < 0 else []  # the header isn't shown then
        self.header = (*started.header(), *newer, *filter(None, [unseen]), *aside, *self._remarks)

    def _made_yardstick(self, into: Path, targets: Sequence[str]) -> Path:
        """What the revision gives."""
        from pytest_kerntune.other_runs import yardstick

        yard = yardstick(self.config, self.options, into, targets)
        self._remarks = (yard.remark,) if yard.remark else ()
        return yard.folder

    def _made_anchor(self, into: Path) -> Path:
        from pytest_kerntune.other_runs import anchor_folder

        return anchor_folder(self.options, into)

    @pytest.hookimpl(optionalhook=True, trylast=True)
    def pytest_xdist_setupnodes(self, specs: Sequence[Any]) -> None:
        """On xdist's controller, after other plugins and before the first worker starts, which imports torch."""
        self._spread.turn(specs, self.engine.gpus)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """On xdist's controller, before a worker starts."""
        found = {FOUND_GPU: not self.engine.static, **self._spread.input_of(node)}
        node.workerinput.update({**self._aside.made, **found})

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """The run's error is shared by all collected tests of it, on every worker alike; an anchor is a second decision
        about each."""
        cases = sum(map(concerns, session.items)) * (2 if self.options.anchor else 1)
        policy = msgspec.structs.replace(self.options.policy, cases=max(cases, 1))
        self.options = dataclasses.replace(self.options, policy=policy)
        with contextlib.suppress(UsageError):  # a wrong marker has ended the run, and pytest calls this all the same
            for item in filter(concerns, session.items):
                stale = read_marker(item).over(policy).outcome(Verdict.STALE)
                self._stale_outcomes[nodeid_of(item)] = stale.value
        if self.options.reference is not None:
            self._marker_changes = self.options.reference.marker_differences(filter(concerns, session.items))
        if self._engine is not None:
            items = {nodeid_of(item) for item in session.items}
            anchor = Path(self.options.anchor) if self.options.anchor and not self.options.yardstick_name else None
            own = anchor if anchor is not None and anchor.is_dir() else None
            self._engine.tests_gone(lambda nodeid: self._gone(nodeid, items), own)

    def _gone(self, nodeid: str, items: Set[str]) -> bool:
        """Whether a test is no more: its file isn't there, or was collected whole without it."""
        if not (self.config.rootpath / nodeid.partition("::")[0]).exists():
            return True
        whole = not self._narrowed and not narrowed(self.config)
        return whole and nodeid not in items and self._read(nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        collect_less(self.config)
        if not self.config.option.fulltrace:
            only_where(excinfo)

    def pytest_report_header(self) -> list[str]:
        return [visible(f"kerntune: {line}") for line in self.header]

    def pytest_deselected(self) -> None:
        self._narrowed = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that fails to import, or skips itself, hides its tests."""
        if not report.passed:
            self._unseen.add(report.nodeid)
        self._note_failure(report)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Setup and teardown use the GPU as well."""
        crowded = bool(self.worker and self.config.workerinput.get(CROWDED))  # type: ignore[attr-defined]
        if not (crowded or (self.worker and self.engine.gpus > 1)):
            return (yield)
        with in_turn(self.engine, item, self.options.turns, crowded):
            return (yield)

    # -- one test ----------------------------------------------------------------------------------------------------

    def fixture(self, item: pytest.Item) -> GatedAutotune:
        """What the fixture ``autotune`` is in this test."""
        return GatedAutotune(
            item,
            session=self.engine,
            policy=self.options.policy,
            scope=self.options.scope,
            record=_record(item),
            progress=self._progress.of(item.nodeid),
            process=self._process,
        )

    def refuse_lost(self, item: pytest.Item) -> None:
        """Don't set a test up that needs a GPU which is lost."""
        if self._loss and concerns(item):
            self._loss.refuse(item, _record(item), self._marker(item).over(self.options.policy))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        item.stash[ERROR] = None
        item.stash[RECORD] = Record(standing=_record(item).regressed())
        item.user_properties[:] = [p for p in item.user_properties if not p[0].startswith("kerntune_")]
        try:
            return (yield)
        except pytest.skip.Exception:
            skipped_setup(_record(item))
            raise
        except Exception as exc:
            item.stash[ERROR] = exc
            stopped = self._stopped(item, exc)
            if stopped is None:
                self._skip_after_loss(exc)
                raise
        record = _record(item) if concerns(item) else None
        nodeid, policy = nodeid_of(item), self._marker(item).over(self.options.policy)
        unfinished_setup(item, nodeid, record, policy, stopped, self._further.results(nodeid))
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        value = yield
        if fixturedef.argname == refusals.FIXTURE and self.engine.static and concerns(request.node):
            refusals.run_once(value)
        return value

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        record, value = _record(item), None
        try:
            value = yield
            _raise_kept(item)
        except BaseException as exc:
            item.stash[ERROR] = exc
            if not concerns(item):
                self._skip_other_test(exc)
                raise
            after_error(item, record, exc, lambda error: self._stopped(item, error))
        finally:
            self._progress.clear()
        if not concerns(item):
            return value
        marker, further = self._marker(item), self._further.results(nodeid_of(item))
        policy, accepts = marker.over(self.options.policy), self.options.update is Update.ALL
        conclude(item, nodeid_of(item), record, policy, marked=marker.marked, further=further, accepts=accepts)
        return value

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        value = yield
        record = item.stash.get(RECORD, None)
        self._look(item)
        item.stash[ERROR] = None  # its frames hold tensors
        if record is not None:
            conclude_teardown(item, record, accepts=self.options.update is Update.ALL)
        return value

    def _skip_other_test(self, error: BaseException) -> None:
        """A test without ``autotune``. Stand-ins are in place for the whole process, so without a GPU it may need
        values that they don't hold: that is no failure of the test, but a reason to skip it."""
        if not isinstance(error, Exception):
            return
        reason = self.engine.static_end(error)
        if reason is not None:
            pytest.skip(f"needs results that only a GPU gives: {reason}")
        self._skip_after_loss(error)

    def _skip_after_loss(self, error: Exception) -> None:
        """What fails because the GPU was lost before says so in a line, instead of a traceback each."""
        if self._loss and is_device_error(error):
            pytest.skip(self._loss.text)

    def _look(self, item: pytest.Item) -> None:
        """At a test's end: whether the GPU still answers. After one that was interrupted it is not asked, for it may be
        busy without end."""
        error = item.stash.get(ERROR, None)
        if self._loss or self.engine.static or not (concerns(item) or (error and is_device_error(error))):
            return
        nodeid = nodeid_of(item)
        self._loss.note(nodeid, self.engine.lost(ask=error is None or isinstance(error, Exception)))
        if self._loss:
            _record(item).lost_device = self._loss.why
            if error is None:
                pytest.fail(f"{nodeid}: the GPU runs nothing any more after this test: {self._loss.why}", pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        attach_unchecked(report, nodeid_of(item), self.engine.take_unchecked())
        if not concerns(item):
            return report
        record = _record(item)
        if call.when != "setup":
            record.failed = record.failed or report.nodeid in self._failed  # a subtest
            write_baselines(nodeid_of(item), record, report)
        if call.when == "teardown":
            attach(report, payload_from(item, record, carry=self.options.json is not None))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note_failure(report)
        self._locations[report.nodeid] = report.location
        self.collected.note_unchecked(report)
        payload = payload_of(report)
        if payload is not None:
            self.collected.add(payload)
        if payload is not None and payload.lost:
            self._ended[report.nodeid] = payload.lost
            self._loss.note(payload.nodeid, payload.lost)
        elif payload is None and report.when not in (
            "setup",
            "call",
            "teardown",
        ):  # xdist's report of a worker that crashed in this test
            self._unseen.add(report.nodeid)
            self.notes.append(f"not judged: {report.nodeid}: {report.longrepr}")

    def _note_failure(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            lines = str(crash.message if crash else report.longrepr).strip().splitlines()
            self._failed.setdefault(report.nodeid, (lines[0] if crash else lines[-1]) if lines else "")

    def _stopped(self, item: pytest.Item, error: BaseException) -> StoppedTest | None:
        if self.engine.static_end(error) is None:
            return None
        policy = self._marker(item).over(self.options.policy)
        return self.engine.stopped(nodeid_of(item), error, _record(item).checks, policy)

    def _marker(self, item: pytest.Item) -> Marker:
        """What the test's markers say in the end; one that was added while it ran may be wrong."""
        try:
            return read_marker(item)
        except UsageError as exc:
            pytest.fail(str(exc), pytrace=False)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A worker whose GPU is lost ends here, and xdist starts another one."""
        if self.worker and nodeid in self._ended:
            end_worker(self.engine.close)

    @pytest.hookimpl(optionalhook=True, wrapper=True, tryfirst=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> Generator[None, object, object]:
        """On xdist's controller: that end is no failure of its own."""
        if crashitem in self._ended:
            settle_crash(report)
        return (yield)

    # -- the end -----------------------------------------------------------------------------------------------------

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", None) or {}
        self._narrowed = self._narrowed or bool(output.get(NARROWED))
        self._unseen.update(output.get(UNSEEN, ()))
        self._stale_outcomes.update(output.get(STALE_OUTCOMES, {}))
        self.notes += [line for line in output.get(KNOW_PYTEST, ()) if line not in self.notes]
        self._overruled.update(dict.fromkeys(output.get(OVERRULED, ())))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, object, object]:
        """Before pytest-benchmark's, a wrapper that saves and compares."""
        self._finish(session, exitstatus)
        failed = session.exitstatus == pytest.ExitCode.TESTS_FAILED
        found = yield
        failing = any(r.outcome is Outcome.FAIL for r in self.collected.results)
        if failed and failing and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            complain("error: the exit code of a run with failing cases was set to 0; it stays 1")
        return found

    def _finish(self, session: pytest.Session, exitstatus: int) -> None:
        known = kernels_that_know_pytest({launch.kernel for r in self.collected.results for launch in r.launches})
        known += self._marker_changes
        if self.worker:
            told = {NARROWED: self._narrowed, UNSEEN: sorted(self._unseen), STALE_OUTCOMES: self._stale_outcomes}
            changed = self._deciding.changed() if self._deciding is not None else []
            self.config.workeroutput.update({**told, KNOW_PYTEST: known, OVERRULED: changed})  # type: ignore[attr-defined]
            return
        if self._engine is None or self.config.option.collectonly:
            return
        self.notes += [line for line in known if line not in self.notes]
        if self.options.export is None:
            run_files.hand_over(self.config, self.collected)
        self._guard(session, self._say_overruled)
        self._guard(session, self._say_lost)
        self._guard(session, self._join_further)
        self._guard(session, lambda: self._find_stale(session, exitstatus))
        self._guard(session, lambda: self._write_json(exitstatus))
        self._guard(session, lambda: self._add_to_history(exitstatus))
        self._guard(session, lambda: self._write_html(exitstatus))
        self._guard(session, lambda: self._write_summary(exitstatus))

    def _guard(self, session: pytest.Session, step: Callable[[], None]) -> None:
        """An error at the end is shown under the table and in the exit code; it loses no other output."""
        try:
            step()
        except KerntuneError as exc:
            self.errors.append(str(exc))
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED

    def _say_overruled(self) -> None:
        """A run in which code under test replaced what decides about it fails, whatever its verdicts."""
        names = dict.fromkeys([*self._overruled, *(self._deciding.changed() if self._deciding is not None else [])])
        changed = [*names, *(f"the results of {nodeid}" for nodeid in self.collected.altered())]
        if changed:
            raise KerntuneError(
                f"what decides about verdicts was changed while tests ran: {', '.join(changed)}; the verdicts of this "
                "run mean nothing. outcomes= in a marker or the ini file says what a verdict does"
            )

    def _say_lost(self) -> None:
        """A run that lost its GPU fails, whatever its tests were marked with."""
        if self._loss:
            raise KerntuneError(self._loss.text)

    def _join_further(self) -> None:
        """What runs for further targets say of tests that this one skipped, or hasn't: nothing of it may be lost."""
        told = {(r.case, r.target) for r in self.collected.results}
        untold = {
            n: [r for r in self._further.results(n) if (r.case, r.target) not in told] for n in self._further.tests
        }
        for nodeid, found in untold.items():
            self.collected.join(nodeid, tuple(found))
        self.collected.carry(self._further.static_only, self._further.baselines)
        failing = [r.message for n, found in untold.items() for r in found if r.outcome is Outcome.FAIL]
        if failing:
            raise KerntuneError("\n".join(failing))

    def _find_stale(self, session: pytest.Session, exitstatus: int) -> None:
        ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        stopped = bool(session.shouldstop or session.shouldfail)
        whole = ended and not stopped and not self._narrowed and not narrowed(self.config)
        found = self.engine.stale(self.collected.tests, whole)
        mine = (r for r in found if not self.collected.saw(r) and self._read(r.case.nodeid))
        told = "\n".join(self._failed.values())
        self.notes += [why for path, why in self.engine.unreadable().items() if str(path) not in told]
        self.stale = (*map(self._told, mine), *self._further.stale)
        failing = sum(r.outcome is Outcome.FAIL for r in self.stale)
        if failing:
            raise KerntuneError(f"STALE baselines fail this run ({failing}): move or remove them, or change outcomes=")

    def _told(self, stale: CaseResult) -> CaseResult:
        """With the outcome that the test's own marker gives, if the test is still there."""
        outcome = self._stale_outcomes.get(stale.case.nodeid)
        return stale if outcome is None else msgspec.structs.replace(stale, outcome=Outcome(outcome))

    def _read(self, nodeid: str) -> bool:
        """Whether this run would have met the test if it still existed."""
        if any(nodeid == x or nodeid.startswith(f"{x}::") for x in self._unseen):
            return False
        return nodeid in self.collected.tests or covered(self.config, nodeid)

    def _report(self, exitstatus: int) -> RunReport:
        from kerntune.gate.history.places import origin_of

        results, origin = (*self.collected.results, *self.stale), origin_of(self.options.root, os.environ)
        return run_report(self.collected, results, self.header, self._failed, exitstatus, origin)

    def _write_json(self, exitstatus: int) -> None:
        if self.options.json is not None:
            write_run(self.options.json, self._report(exitstatus))

    def _add_to_history(self, exitstatus: int) -> None:
        if not self.options.history:
            return
        from kerntune.gate.history.places import add_run, history_run, place_of

        try:
            place = place_of(self.options.history, self.options.root)
            name = add_run(place, history_run(self._report(exitstatus)))
        except KerntuneError as exc:  # the verdicts stand, whatever became of the network
            self.notes.append(f"this run is not in the history; add it with kerntune history add: {exc}")
            return
        if not name:
            self.notes.append("nothing was timed, so nothing was added to the history")

    def _write_html(self, exitstatus: int) -> None:
        if self.options.html is None:
            return
        from pytest_kerntune.run_files import write_html

        problem = write_html(self.options.html, self._report(exitstatus), self.options)
        self.notes += [problem] if problem else []

    def _write_summary(self, exitstatus: int) -> None:
        if self.options.summary is None:
            return
        from kerntune.gate.reporting.summaries import append_summary
        from pytest_kerntune.run_files import annotated

        report = self._report(exitstatus)
        self._annotations = annotated(report, self.config.rootpath, self._locations, os.environ)
        append_summary(self.options.summary, [report])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._engine is None or self.config.option.collectonly:
            return
        write_summary(terminalreporter, self.collected, self.stale, self.errors, self.options.json)
        for note in self.notes:
            write_text(terminalreporter, note, yellow=True)
        for line in self._annotations:
            terminalreporter.write_line(line)  # a command for the CI, with every text in it escaped


def _record(item: pytest.Item) -> Record:
    return item.stash.setdefault(RECORD, Record())  # there is none if another plugin's hook broke the setup off


def _raise_kept(item: pytest.Item) -> None:
    """A unittest case keeps what ended it for pytest's report, instead of raising it."""
    kept = getattr(item, "_excinfo", None)
    if kept and concerns(item):
        error = kept[0].value
        kept.clear()
        raise error
