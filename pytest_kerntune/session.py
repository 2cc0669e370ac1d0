"""A run under ``--kerntune``: the engine's life and the tests' verdicts."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kerntune.base.codec import encodable
from kerntune.base.policy import Policy, Update, Verdict
from kerntune.errors import UsageError
from kerntune.gate.reporting.page import require_plotly
from pytest_kerntune import marker
from pytest_kerntune.conclude import (
    FOUND_GPU,
    NO_GPU_LEFT,
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
from pytest_kerntune.options import Options, usage_errors
from pytest_kerntune.other_runs import (
    ExtraTargets,
    anchor_folder,
    read_extra_targets,
    reference_folder,
    run_extra_targets,
    runs_tests,
)
from pytest_kerntune.payload import attach, attach_unchecked, payload_from
from pytest_kerntune.progress import Progress
from pytest_kerntune.run_conditions import AFTER_COLLECTION, RunFolders, narrowed, unseen_gpu
from pytest_kerntune.run_end import RunEnd
from pytest_kerntune.run_lifetime import collect_less, end_in_order, only_where, take

if TYPE_CHECKING:
    from kerntune.gate.api import Session
    from kerntune.gate.stopped_tests import StoppedTest

RECORD = pytest.StashKey[Record]()
ERROR = pytest.StashKey["BaseException | None"]()
"""On a test: what its setup or its body raised."""

REFERENCE = "kerntune_reference"
DECISIONS = "kerntune_decisions"
"""The folder in which xdist's workers claim the numbers of their decisions."""

ANCHOR = "kerntune_anchor"
EXTRA_TARGETS = "kerntune_extra_targets"


class Gate:
    """The plugin that ``--kerntune`` registers, with its :attr:`end`. On xdist's controller it runs no test."""

    def __init__(self, config: pytest.Config, options: Options) -> None:
        self.config = config
        self.options = options
        self.end = RunEnd(config, options)
        self._read: set[str] = set()
        """Files and classes of which all that they define was found, whatever of it runs."""

        self._found: set[str] = set()
        self._engine: Session | None = None
        self._process = os.getpid()
        self._folders = RunFolders(config)
        self._extra = ExtraTargets()
        self._loss = self.end.loss
        self._remarks: tuple[str, ...] = ()
        self.progress = Progress(config)
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
        self.progress.begin()
        with usage_errors():
            self._open()
        return (yield)

    def _open(self) -> None:
        from kerntune.gate.api import open_session
        from kerntune.kernels.compat import versions

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
        if self.worker and started.static and self.config.workerinput.get(FOUND_GPU, False):  # type: ignore[attr-defined]
            self._loss.note("", NO_GPU_LEFT)
        if not self.worker:
            end_in_order(self.config)
        several = self.controller or self.worker
        started.share(*self._folders.place, self._folders.folder(DECISIONS, lambda into: into) if several else None)
        others = started.others
        if self.options.reference_name:
            folder = self._folders.folder(REFERENCE, lambda into: self._made_reference(into, started.compiled_for))
            started.hold_against(folder, self.options.reference_name)
        if self.options.anchor:
            folder = self._folders.folder(ANCHOR, lambda into: anchor_folder(self.options, into))
            started.anchor_at(folder, self.options.anchor_name)
        if others and runs_tests(self.config):  # last: this one reports each run's error
            folder = self._folders.folder(EXTRA_TARGETS, lambda into: run_extra_targets(self.config, others, into))
            self._extra = read_extra_targets(others, folder)
        self.end.notes += self.options.reference.differences(self.config) if self.options.reference is not None else ()
        aside = (f"in runs of their own: {', '.join(others)}",) if others else ()
        unseen = unseen_gpu() if started.static and not self.options.targets else ""
        self.end.notes += [unseen] if unseen else []
        newer = versions.newer_versions()
        self.end.notes += newer if self.config.get_verbosity() < 0 else []  # the header isn't shown then
        header = (*started.header(), *newer, *filter(None, [unseen]), *aside, *self._remarks)
        self.end.begin(started, header, self._extra)

    def _made_reference(self, into: Path, targets: Sequence[str]) -> Path:
        """What the revision gives."""
        found = reference_folder(self.config, self.options, into, targets)
        self._remarks = (found.remark,) if found.remark else ()
        return found.folder

    @pytest.hookimpl(optionalhook=True, trylast=True)
    def pytest_xdist_setupnodes(self, specs: Sequence[Any]) -> None:
        """On xdist's controller, after other plugins and before the first worker starts, which imports torch."""
        self._spread.turn(specs, self.engine.gpus)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """On xdist's controller, before a worker starts."""
        found = {FOUND_GPU: not self.engine.static, **self._spread.input_of(node)}
        node.workerinput.update({**self._folders.made, **found})

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """The run's error is shared by all collected tests of it, on every worker alike; an anchor is a second decision
        about each."""
        cases = sum(map(concerns, session.items)) * (2 if self.options.anchor else 1)
        policy = self.options.policy.but(cases=max(cases, 1))
        self.options = replace(self.options, policy=policy)
        with suppress(UsageError):  # a wrong marker has ended the run, and pytest calls this all the same
            for item in filter(concerns, session.items):
                stale = read_marker(item).over(policy).outcome(Verdict.STALE)
                self.end.stale_outcomes[nodeid_of(item)] = stale.value
        if self.options.reference is not None:
            self.end.marker_changes = self.options.reference.marker_differences(filter(concerns, session.items))
        if self._engine is not None:
            anchor = Path(self.options.anchor) if self.options.anchor and not self.options.reference_name else None
            own = anchor if anchor is not None and anchor.is_dir() else None
            self._engine.tests_gone(self._gone, own)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Of a file's tests all are found, also where the command line names one of them."""
        report = yield
        if report.passed:
            self._read.add(encodable(report.nodeid))
            self._found |= {encodable(node.nodeid) for node in report.result or ()}
        return report

    def _gone(self, nodeid: str) -> bool:
        """Whether a test is no more: its file isn't there, or was read without it."""
        file = nodeid.partition("::")[0]
        if not (self.config.rootpath / file).exists():
            return True
        if narrowed(self.config, but_for=AFTER_COLLECTION) or nodeid in self._found:
            return False
        inside = [nodeid[: match.start()] for match in re.finditer("::", nodeid)]
        for parent, child in reversed([*pairwise([*inside, nodeid])]):
            if parent in self._read:
                return child not in self._found
        return self.end.would_meet(nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        collect_less(self.config)
        if not self.config.option.fulltrace:
            only_where(excinfo)

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
            progress=self.progress.of(nodeid_of(item)),
            process=self._process,
        )

    def refuse_lost(self, item: pytest.Item) -> None:
        """Don't set a test up that needs a GPU which is lost."""
        if self._loss and concerns(item):
            self._loss.refuse(item, _record(item), self._policy(item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        item.stash[ERROR] = None
        item.stash[RECORD] = Record(standing=_record(item).regressed())
        item.user_properties[:] = [p for p in item.user_properties if not p[0].startswith("kerntune_")]
        try:
            return (yield)
        except pytest.skip.Exception:
            skipped_setup(item, _record(item))
            raise
        except Exception as exc:
            item.stash[ERROR] = exc
            stopped = self._stopped(item, exc)
            if stopped is None:
                self._skip_after_loss(exc)
                raise
        record = _record(item) if concerns(item) else None
        unfinished_setup(item, record, self._policy(item), stopped, self._extra.results(nodeid_of(item)))
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        value = yield
        if fixturedef.argname == marker.BENCHMARK and self.engine.static and concerns(request.node):
            marker.run_once(value)
        return value

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        record, value = _record(item), None
        try:
            value = yield
            kept = getattr(item, "_excinfo", None)  # a unittest case keeps what ended it for pytest's report
            if kept and concerns(item):
                error = kept[0].value
                kept.clear()
                raise error
        except BaseException as exc:
            item.stash[ERROR] = exc
            if not concerns(item):
                self._skip_other_test(exc)
                raise
            after_error(item, record, exc, lambda error: self._stopped(item, error))
        if not concerns(item):
            return value
        extra, accepts = self._extra.results(nodeid_of(item)), self.options.update is Update.ALL
        marked = self._marker(item).marked
        conclude(item, record, self._policy(item), marked=marked, extra=extra, accepts=accepts)
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
            record.failed = record.failed or report.nodeid in self.end.failed  # a subtest
            write_baselines(nodeid_of(item), record, report)
        if call.when == "teardown":
            attach(report, payload_from(item, record, carry=self.options.json is not None))
        return report

    def _stopped(self, item: pytest.Item, error: BaseException) -> StoppedTest | None:
        if self.engine.static_end(error) is None:
            return None
        return self.engine.stopped(nodeid_of(item), error, _record(item).checks, self._policy(item))

    def _policy(self, item: pytest.Item) -> Policy:
        return self._marker(item).over(self.options.policy)

    def _marker(self, item: pytest.Item) -> Marker:
        """What the test's markers say in the end; one that was added while it ran may be wrong."""
        try:
            return read_marker(item)
        except UsageError as exc:
            pytest.fail(str(exc), pytrace=False)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A worker whose GPU is lost ends here, and xdist starts another one."""
        if self.worker and nodeid in self.end.ended:
            end_worker(self.engine.close)

    @pytest.hookimpl(optionalhook=True, wrapper=True, tryfirst=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> Generator[None, object, object]:
        """On xdist's controller: that end is no failure of its own."""
        if crashitem in self.end.ended:
            settle_crash(report)
        return (yield)


def _record(item: pytest.Item) -> Record:
    return item.stash.setdefault(RECORD, Record())  # there is none if another plugin's hook broke the setup off
