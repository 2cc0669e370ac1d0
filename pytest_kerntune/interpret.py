"""A run under ``--kerntune-interpret``: numerics without a GPU, nothing timed or written."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from kerntune.errors import BackendError, ReferenceMismatch, UsageError
from kerntune.gate.console import counted
from pytest_kerntune import marker, options
from pytest_kerntune.fixture import Autotune, PlainAutotune, Request
from pytest_kerntune.marker import concerns, never_called, read_marker

if TYPE_CHECKING:
    from kerntune.gpu.interpreter import Interpreter

WITHOUT_TARGET = "cuda:90"
"""What device queries answer for if ``--kerntune-target`` names nothing."""

CALLED = pytest.StashKey[bool]()
"""On a test: whether it called ``autotune``, whatever came of it."""

CHECKED = pytest.StashKey[int]()
"""On a test: its ``autotune`` calls that were interpreted to the end."""

CHECKED_PROPERTY = "kerntune_interpreted"
LIMIT_PROPERTY = "kerntune_interpreter_limit"
"""What a report carries to xdist's controller."""

INTERPRETER: pytest.StashKey[Interpreter] = pytest.StashKey()
"""On the config, from initial conftests on."""


def begin(config: pytest.Config) -> None:
    """Start interpreting before users' conftests are imported: they ask whether there is a GPU.
    :class:`pytest.UsageError` for a torch that can't be had for it."""
    from kerntune.base.device import Target, typical_device
    from kerntune.kernels.compat import triton_compiler

    given = options.resolve(config, config.known_args_namespace)
    target = Target.parse(given.targets[0] if given.targets else WITHOUT_TARGET)
    stack = ExitStack()
    try:
        from kerntune.gpu.interpreter import Interpreter

        interpreter = Interpreter(typical_device(target), given.interpret_limit)
        triton_compiler.take_announcements()
        stack.enter_context(interpreter.activate())
    except BackendError as exc:
        raise pytest.UsageError(str(exc)) from None
    config.add_cleanup(stack.close)
    config.stash[INTERPRETER] = interpreter


class Numerics:
    """The plugin that ``--kerntune-interpret`` registers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._calls = 0
        self._tests = 0
        self._limits: dict[str, str] = {}

    def fixture(self, item: pytest.Item) -> Autotune:
        """What the fixture ``autotune`` is in this test."""
        item.stash[CHECKED] = 0
        return InterpretedAutotune(item, self._config.stash[INTERPRETER])

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        value = yield
        if fixturedef.argname == marker.BENCHMARK and concerns(request.node):
            marker.run_once(value)
        return value

    def pytest_report_header(self) -> list[str]:
        from kerntune.kernels.compat import versions

        triton = f"Triton {versions.triton_version()}"
        here = f"numerics only: {triton}'s intermediate code runs on the CPU; nothing is timed"
        return [f"kerntune: {line}" for line in (here, *versions.newer_versions())]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        """Parameters become the small ones that markers give, in the end; tests that are equal then run once."""
        value = yield
        seen: set[str] = set()
        gone: list[pytest.Item] = []
        for item in items:
            small = read_marker(item).interpret
            if small and _take(item, small) in seen:
                gone.append(item)
            elif small:
                seen.add(_take(item, small))
        if gone:
            items[:] = [i for i in items if i not in gone]
            config.hook.pytest_deselected(items=gone)
        return value

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        return (yield from _skipping(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        value = yield from _skipping(item)
        if read_marker(item).marked and not item.stash.get(CALLED, False):
            pytest.fail(f"{item.nodeid}: {never_called(item)}", pytrace=False)
        if item.stash.get(CHECKED, 0):
            item.user_properties.append((CHECKED_PROPERTY, item.stash[CHECKED]))
        return value

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found: dict[str, Any] = dict(report.user_properties)
        if report.when == "call" and report.passed and CHECKED_PROPERTY in found:
            self._calls += found[CHECKED_PROPERTY]
            self._tests += 1
        if report.skipped and LIMIT_PROPERTY in found:
            self._limits[report.nodeid] = found[LIMIT_PROPERTY]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._config.option.collectonly:
            return
        from pytest_kerntune.terminal import write_text  # loads what a report needs

        terminalreporter.write_sep("=", "kerntune: numerics only")
        for nodeid, why in self._limits.items():
            write_text(terminalreporter, f"not checked: {nodeid}: {why}", yellow=True)
        write_text(
            terminalreporter,
            f"{counted(self._calls, 'call')} of {counted(self._tests, 'test')} computed on the CPU, "
            f"{counted(len(self._limits), 'test')} not checked; nothing was timed",
            green=bool(self._tests) and not self._limits,
        )


class InterpretedAutotune(PlainAutotune):
    """Under ``--kerntune-interpret``: runs the call, counts its launches, checks the reference."""

    interpreted = True

    def __init__(self, item: pytest.Item, interpreter: Interpreter) -> None:
        super().__init__(item)
        self._interpreter = interpreter

    @property
    def device(self) -> str:
        return "cuda"

    def _run(self, request: Request) -> Any:
        __tracebackhide__ = True
        before = self._interpreter.launched
        self._item.stash[CALLED] = True
        try:
            with self._interpreter.given(self.marker.candidates):
                value = super()._run(request)
        except ReferenceMismatch:
            self._item.stash[CHECKED] += self._interpreter.launched > before
            raise
        except Exception as exc:
            _skip_at_limit(self._item, exc)
            raise
        if self._interpreter.launched == before:
            raise UsageError("no Triton kernel was launched in this call, so nothing was checked")
        self._item.stash[CHECKED] += 1
        return value


def _take(item: pytest.Item, small: Mapping[str, Any]) -> str:
    """Put the small parameters in a test; what it is then."""
    params: dict[str, Any] = item.callspec.params  # type: ignore[attr-defined]  # it has parameters: the marker is read
    params.update(small)
    return f"{item.nodeid.partition('[')[0]}[{sorted((k, repr(v)) for k, v in params.items())}]"


def _skipping(item: pytest.Item) -> Generator[None, object, object]:
    """What the interpreter can't do is no failure of the test."""
    try:
        return (yield)
    except Exception as exc:
        _skip_at_limit(item, exc)
        raise


def _skip_at_limit(item: pytest.Item, error: Exception) -> None:
    from kerntune.gpu.interpreter import limit_of

    limit = None if isinstance(error, AssertionError) else limit_of(error)
    if limit is not None:
        item.user_properties.append((LIMIT_PROPERTY, str(limit)))
        pytest.skip(f"numerics not checked: {limit}")
