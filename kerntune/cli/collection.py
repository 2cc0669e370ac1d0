"""What pytest collects of given files: which tests exist.

Late: only a prune that looks at the tests themselves loads pytest.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kerntune.errors import KerntuneError
from kerntune.gate.project import Project, plugin_args

TAIL_LINES = 20
"""Lines of pytest's output that are shown when it could not collect."""


@dataclass(eq=False)  # pytest keeps its plugins in sets where a project has a conftest.py
class Collection:
    """A pytest plugin that notes what is collected. Nothing is run.

    ``files`` are those that were read whole; ``unread`` node ids of what failed to import or skipped itself.
    """

    items: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    unread: set[str] = field(default_factory=set)

    def knows(self, nodeid: str) -> bool:
        """Whether it can be said if a test exists: its file was read, and all of it."""
        file = nodeid.partition("::")[0]
        return file in self.files and not any(nodeid == x or nodeid.startswith(f"{x}::") for x in self.unread)

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> None:
        """Whatever the ini file's ``addopts`` say, look at every test: ``--lf`` would leave some out unseen."""
        config.option.lf = False

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Called before any test is deselected."""
        self.items.add(item.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file or class was read, or was not."""
        if not report.passed:
            self.unread.add(report.nodeid)
        elif report.nodeid and "::" not in report.nodeid:
            self.files.add(report.nodeid)


def collect(project: Project, files: Iterable[Path], options: Iterable[str]) -> Collection:
    """Collect ``files`` as ``pytest --kerntune`` would, so that tests for a GPU exist here too.

    :class:`KerntuneError` with the end of pytest's output if it stops before it has looked at all of them.
    """
    found, output = Collection(), io.StringIO()
    words = [*plugin_args(), *(["-c", str(project.ini)] if project.ini else []), f"--rootdir={project.root}"]
    words += ["--kerntune", "--collect-only", "--continue-on-collection-errors"]
    words += ["--maxfail=0", "-q"]  # the former undoes an -x of the ini file: one broken file must not hide others
    with redirect_stdout(output), redirect_stderr(output):
        code = pytest.main([*words, *options, *map(str, files)], plugins=[found])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        tail = "\n".join(output.getvalue().strip().splitlines()[-TAIL_LINES:])
        raise KerntuneError(
            f"pytest could not collect the tests (exit code {int(code)}), so none is known to be gone:\n{tail}"
        )
    return found
