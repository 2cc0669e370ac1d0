"""The pytest plugin: options, marker and fixture always, the gate itself under ``--kerntune``."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kerntune.base.codec import encodable
from kerntune.errors import UsageError
from kerntune.gate.console import counted
from pytest_kerntune import hookspecs, marker, options, run_lifetime, values
from pytest_kerntune.fixture import WITHOUT_GPU, Autotune, PlainAutotune
from pytest_kerntune.interpret import Numerics
from pytest_kerntune.run_lifetime import collect_again

if TYPE_CHECKING:
    from kerntune.gpu.base import Backend
    from pytest_kerntune.session import Gate


GATE_NAME = "kerntune_gate"
END_NAME = "kerntune_end"
PROGRESS_NAME = "kerntune_progress"
GATE: pytest.StashKey[Gate] = pytest.StashKey()
"""On the config, under ``--kerntune`` only."""
NUMERICS_NAME = "kerntune_numerics"
NUMERICS = pytest.StashKey[Numerics]()
"""On the config, under ``--kerntune-interpret`` only."""
USAGE = "kerntune_usage"


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """Stand-ins are in place before users' conftests are imported."""
    values.amend(early_config, parser, args)
    given = early_config.known_args_namespace
    if given.kerntune_sealed and not (given.help or given.version) and options.enabled(early_config, given):
        from pytest_kerntune.sealed import become  # few runs

        become(early_config)
    run_lifetime.begin(early_config)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", marker.SIGNATURE)
    if not options.enabled(config):
        options.refuse_without_kerntune(config)
        if options.interprets(config):
            config.stash[NUMERICS] = Numerics(config)
            config.pluginmanager.register(config.stash[NUMERICS], NUMERICS_NAME)
        return
    config.add_cleanup(partial(collect_again, config))  # called after those of plugins that are configured later
    from pytest_kerntune.session import Gate  # heavier: numpy and the report

    config.stash[GATE] = gate = Gate(config, options.resolve(config))
    config.add_cleanup(gate.progress.end)  # after those of pytest's own plugins, which collect garbage for seconds
    config.pluginmanager.register(gate, GATE_NAME)
    config.pluginmanager.register(gate.end, END_NAME)
    config.pluginmanager.register(gate.progress, PROGRESS_NAME)


def pytest_unconfigure(config: pytest.Config) -> None:
    if NUMERICS in config.stash:
        config.pluginmanager.unregister(config.stash[NUMERICS])
        del config.stash[NUMERICS]
    if GATE in config.stash:
        config.pluginmanager.unregister(config.stash[GATE].progress)
        config.pluginmanager.unregister(config.stash[GATE].end)
        config.pluginmanager.unregister(config.stash[GATE])
        del config.stash[GATE]


@pytest.hookimpl(trylast=True)
def pytest_kerntune_backend() -> Backend | None:
    """None: kerntune probes for a GPU."""
    return None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, object, object]:
    """Read every marker of the tests that will run, with or without ``--kerntune``: a wrong one is found where it is
    written, not when its test runs. That of a deselected test is a note, and doesn't end the run."""
    for item in items:
        item.stash[marker.NODEID] = encodable(item.nodeid)  # the same case under every locale
    found = _wrong_markers(items)
    value = yield
    wrong = _wrong_markers(items)
    if GATE in config.stash:
        config.stash[GATE].end.notes += [f"of a deselected test: {text}" for text in found if text not in wrong]
        wrong += list(filter(None, map(marker.why_not_forked, items)))[:1]
    if wrong:
        message, output = "\n".join(dict.fromkeys(wrong)), getattr(config, "workeroutput", None)
        if output is None:
            raise pytest.UsageError(message)
        output[USAGE] = message  # xdist's workers run nothing, and let the controller raise it
        items.clear()
    return value


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """On xdist's controller: raise what a worker's collection found wrong."""
    message = (getattr(node, "workeroutput", None) or {}).get(USAGE)
    if message:
        raise pytest.UsageError(message)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    gate = item.config.stash.get(GATE, None)
    if gate is not None:
        gate.refuse_lost(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    marker.refuse_argument(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure's line in the summary begins with the test's id: what we say need not repeat it."""
    report = yield
    if call.excinfo is not None and call.excinfo.errisinstance(pytest.fail.Exception) and marker.concerns(item):
        shorten(report, marker.nodeid_of(item), getattr(call.excinfo.value, marker.HEADLINE, ""))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What to do about tests that were skipped for want of a GPU, said once: pytest shows reasons only if asked."""
    skipped = sum(WITHOUT_GPU in str(r.longrepr) for r in terminalreporter.stats.get("skipped", ()))
    if skipped:
        from pytest_kerntune.terminal import write_text  # loads what a report needs

        write_text(terminalreporter, f"{counted(skipped, 'test')} skipped, {WITHOUT_GPU}", yellow=True)


@pytest.fixture
def autotune(request: pytest.FixtureRequest) -> Autotune:
    """``autotune(fn, *args, reference=...)`` runs ``fn`` and checks it; under ``--kerntune`` it also tunes and times
    the Triton kernels that ``fn`` launches, and fails the test if they got slower. ``autotune.device`` is the device
    to make tensors on."""
    item: Any = request.node
    item.stash[marker.ASKED] = True
    numerics = request.config.stash.get(NUMERICS, None)
    if numerics is not None:
        return numerics.fixture(item)
    gate = request.config.stash.get(GATE, None)
    return PlainAutotune(item) if gate is None else gate.fixture(item)


def _wrong_markers(items: Iterable[pytest.Item]) -> list[str]:
    wrong = []
    for item in items:
        try:
            marker.read_marker(item)
        except UsageError as exc:
            wrong.append(str(exc))
    return wrong


def shorten(report: pytest.TestReport, nodeid: str, headline: str) -> None:
    """The failure's line for pytest's summary and JUnit: its ``headline``, else its text without the test's node id,
    beside which both have it."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message.removeprefix("Failed: ") if crash is not None else ""
    own = marker.without_id(text, nodeid)
    lines = own.splitlines()
    if own != text and len(lines) > 2 and lines[0].endswith(":"):
        # a compiler's error has the source in between; pytest shows one line
        own = f"{lines[0]} {lines[-1].strip()}"
    short = headline or own
    if crash is not None and short != text:
        crash.message = short
