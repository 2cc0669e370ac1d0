"""Signs of life on the terminal: what a run does, how many of its tests are done, an estimate of the others.

With pytest-xdist the controller alone shows them. Nothing is shown under ``-q``, and nothing goes into reports.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

import pytest

from kerntune.base.live_line import HidingStream, LiveLine, count_text
from pytest_kerntune.marker import nodeid_of


class Progress:
    """A plugin that follows a run by pytest's own hooks. Tests tell what is done for them through :meth:`of`."""

    def __init__(self, config: pytest.Config, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self.line: LiveLine | None = None
        self._end: Callable[[], object] = lambda: None
        self._done, self._total, self._began = 0, 0, clock()
        self._running: dict[str, str] = {}
        """What is done for each test that runs."""

    def begin(self) -> None:
        """Follow the run from now on, if there is a terminal or a log that may be shown something."""
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        if reporter is None or self._config.get_verbosity() < 0 or hasattr(self._config, "workerinput"):
            return
        try:
            screen = os.dup(reporter._tw._file.fileno())  # tests' output is captured, and this isn't theirs
        except (AttributeError, OSError, ValueError):  # no file, as where pytest is called in a process
            return
        terminal: Any = reporter._tw
        logging: Any = self._config.pluginmanager.getplugin("logging-plugin")
        logged = logging is not None and logging._log_cli_enabled()
        alone = self._config.getoption("capture") in ("fd", "sys") and not logged  # nothing but pytest writes there

        def after_line() -> None:
            reporter.currentfspath = None  # as after pytest's own lines
            terminal._current_line = ""

        def leave() -> None:
            terminal._file = terminal._file.stream
            os.close(screen)

        self.line = LiveLine(
            lambda text: os.write(screen, text.encode(errors="replace")),
            in_place=bool(reporter.isatty) and alone,
            column=lambda: terminal.width_of_current_line,
            after_line=after_line,
            width=lambda: terminal.fullwidth,
            clock=self._clock,
        )
        terminal._file = HidingStream(terminal._file, self.line)
        self._end = leave
        self.line.start().tell("starting")

    def end(self) -> None:
        """Show nothing any more, and leave the terminal as it was."""
        if self.line is not None:
            self.line.close()
            self.line = None
            self._end()

    def of(self, nodeid: str) -> Callable[[str], None]:
        """Tells what is done for one test."""
        return lambda text: self._note(nodeid, text.removeprefix(f"{nodeid}: "))

    def _note(self, nodeid: str, text: str) -> None:
        self._running[nodeid] = text
        self._tell()

    def _tell(self) -> None:
        seconds = self._clock() - self._began
        count = count_text(self._done, self._total, "tests", seconds) if self._total else f"{self._done} tests"
        if not self._running:
            return self._show(count)
        *others, (nodeid, said) = self._running.items()
        more = f" and {len(others)} more" if others else ""
        self._show(f"{count}: {nodeid.rpartition('/')[2]}{more}{f': {said}' if said else ''}")

    def _show(self, text: str) -> None:
        if self.line is not None:
            self.line.tell(text)

    # -- what a run does ---------------------------------------------------------------------------------------------

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        self._show(f"collecting {collector.nodeid}".rstrip())

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._total, self._began = len(session.items), self._clock()
        self._tell()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, specs: Sequence[Any]) -> None:
        self._show(f"starting {len(specs)} workers, which import torch")

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        self._total, self._began = len(ids), self._clock()
        self._tell()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._note(nodeid, "")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)
        self._done += 1
        self._tell()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        if nodeid_of(item) in self._running:
            self._note(nodeid_of(item), "")
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self._show("ending the run")

    def pytest_enter_pdb(self) -> None:
        if self.line is not None:
            self.line.pause(True)

    def pytest_leave_pdb(self) -> None:
        if self.line is not None:
            self.line.pause(False)
