"""pytest's hooks that are always there, one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from doubles import Item, through

from pytest_kerntune import plugin
from pytest_kerntune.fixture import WITHOUT_GPU
from pytest_kerntune.interpret import Numerics
from pytest_kerntune.marker import HEADLINE, NODEID
from pytest_kerntune.plugin import GATE, NUMERICS, NUMERICS_NAME, USAGE, shorten

NODE = "t.py::test_a"


class Plugins:
    """Keeps what is registered, and under which names."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}

    def register(self, one: Any, name: str) -> None:
        self.known[name] = one

    def unregister(self, one: Any) -> None:
        self.known = {name: known for name, known in self.known.items() if known is not one}


def config(**option: Any) -> Any:
    lines: list[Any] = []
    return SimpleNamespace(
        option=SimpleNamespace(**{"kerntune": False, "kerntune_interpret": False} | option),
        stash={}, pluginmanager=Plugins(), getini=lambda name: False, getoption=lambda name: None,
        addinivalue_line=lambda *words: lines.append(words), lines=lines,
    )  # fmt: skip


def item(nodeid: str = NODE, config: Any = None, **marks: Any) -> Any:
    config = config or SimpleNamespace(option=SimpleNamespace(), stash={})
    return Item(marks or None, nodeid=nodeid, config=config, fixturenames=())


def test_a_run_that_interprets_has_a_plugin_for_it_until_its_end() -> None:
    made = config(kerntune_interpret=True)
    plugin.pytest_configure(made)
    assert isinstance(made.pluginmanager.known[NUMERICS_NAME], Numerics)
    assert made.stash[NUMERICS] is made.pluginmanager.known[NUMERICS_NAME]
    plugin.pytest_unconfigure(made)
    assert (made.pluginmanager.known, made.stash) == ({}, {})
    assert [words[0] for words in made.lines] == ["markers"]


def test_a_run_without_kerntune_has_no_plugin_of_its_own() -> None:
    made = config()
    plugin.pytest_configure(made)
    assert (made.pluginmanager.known, made.stash) == ({}, {})


def test_the_plugins_of_a_gate_end_with_the_run() -> None:
    made = config()
    gate: Any = SimpleNamespace(end="end", progress="progress")
    made.stash[GATE] = gate
    made.pluginmanager.known = {"gate": gate, "end": "end", "progress": "progress", "other": "other"}
    plugin.pytest_unconfigure(made)
    assert (made.pluginmanager.known, made.stash) == ({"other": "other"}, {})
    assert plugin.pytest_kerntune_backend() is None


def collected(made: Any, items: list[Any], left: list[Any] | None = None) -> None:
    """Through the hook; others leave ``left`` of the items."""
    hook = plugin.pytest_collection_modifyitems(made, items)
    next(hook)
    if left is not None:
        items[:] = left
    with pytest.raises(StopIteration) as end:
        hook.send("value")
    assert end.value.value == "value"


def test_a_wrong_marker_ends_a_run_that_would_run_its_test() -> None:
    right, wrong, same = item("t.py::a\udcff"), item("t.py::b", tolerance=3), item("t.py::b", tolerance=3)
    items = [right, wrong, same]
    hook = plugin.pytest_collection_modifyitems(config(), items)
    next(hook)
    assert right.stash[NODEID] == "t.py::a\\xff"
    with pytest.raises(pytest.UsageError) as caught:
        hook.send(None)
    assert str(caught.value).count("t.py::b: marker autotune, tolerance") == 1
    worker = config()
    worker.workeroutput = {}
    collected(worker, items)
    assert (worker.workeroutput[USAGE], items) == (str(caught.value), [])
    with pytest.raises(pytest.UsageError, match="tolerance"):
        plugin.pytest_testnodedown(SimpleNamespace(workeroutput=worker.workeroutput))
    for node in (SimpleNamespace(), SimpleNamespace(workeroutput=None), SimpleNamespace(workeroutput={})):
        plugin.pytest_testnodedown(node)


def test_a_wrong_marker_of_a_test_that_is_left_out_is_a_note() -> None:
    right, wrong = item("t.py::a", tolerance=0.1), item("t.py::b", tolerance=3)
    collected(config(), [right, wrong], [right])
    gated, notes = config(), list[str]()
    gated.stash[GATE] = SimpleNamespace(end=SimpleNamespace(notes=notes))
    collected(gated, [right, wrong], [right])
    assert [note.partition(",")[0] for note in notes] == ["of a deselected test: t.py::b: marker autotune"]
    forked = [item(name, SimpleNamespace(option=SimpleNamespace(forked=True)), tolerance=0.1) for name in ("x", "y")]
    with pytest.raises(pytest.UsageError, match=r"^x: --forked: CUDA, .*\Z"):
        collected(gated, forked)
    collected(config(), forked)


def test_a_lost_gpu_is_asked_for_before_a_setup() -> None:
    asked: list[Any] = []
    made = item()
    plugin.pytest_runtest_setup(made)
    made.config.stash[GATE] = SimpleNamespace(refuse_lost=asked.append)
    plugin.pytest_runtest_setup(made)
    assert asked == [made]


@pytest.mark.parametrize(
    ("message", "headline", "shown"),
    [
        (f"Failed: REGRESSED {NODE}: slower", "", "REGRESSED: slower"), (f"Failed: {NODE}: x", "spills", "spills"),
        ("Failed: no id", "", "Failed: no id"), ("mine", "mine", "mine"),
        (f"Failed: {NODE}: kernel k: at 2:9:\ndef k(x):\n    x.y\n    ^\n  no y", "", "kernel k: at 2:9: no y"),
        ("Failed: the user's own:\n1\n2", "", "Failed: the user's own:\n1\n2"),
        (f"Failed: NEW {NODE}: no\nNEW {NODE}: no", "", "NEW: no\nNEW: no"),
    ],
)  # fmt: skip
def test_the_line_of_a_failure(message: str, headline: str, shown: str) -> None:
    report: Any = SimpleNamespace(longrepr=SimpleNamespace(reprcrash=SimpleNamespace(message=message)))
    shorten(report, NODE, headline)
    assert report.longrepr.reprcrash.message == shown
    shorten(SimpleNamespace(longrepr="a text"), NODE, headline)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "marked", "shown"),
    [
        (pytest.fail.Exception, True, "spills"), (pytest.fail.Exception, False, f"Failed: {NODE}: x"),
        (ValueError, True, f"Failed: {NODE}: x"), (None, True, f"Failed: {NODE}: x"),
    ],
)  # fmt: skip
def test_only_what_fails_a_test_of_kerntune_s_is_told_in_its_words(error: Any, marked: bool, shown: str) -> None:
    crash = SimpleNamespace(message=f"Failed: {NODE}: x")
    report: Any = SimpleNamespace(longrepr=SimpleNamespace(reprcrash=crash))
    raised = SimpleNamespace(
        value=SimpleNamespace(**{HEADLINE: "spills"}), errisinstance=lambda kind: error is not None and error is kind
    )
    call: Any = SimpleNamespace(excinfo=None if error is None else raised)
    hook = plugin.pytest_runtest_makereport(item(**({"tolerance": 0.1} if marked else {})), call)
    assert (through(hook, report), crash.message) == (report, shown)


@pytest.mark.parametrize(("reasons", "lines"), [(["x", WITHOUT_GPU, WITHOUT_GPU], ["2 tests"]), (["x"], [])])
def test_what_runs_without_a_gpu_is_said_once(reasons: list[str], lines: list[str]) -> None:
    told: list[Any] = []
    stats = {"skipped": [SimpleNamespace(longrepr=("t.py", 3, f"Skipped: {reason}")) for reason in reasons]}
    reporter: Any = SimpleNamespace(stats=stats, write_line=lambda text, **markup: told.append((text, markup)))
    plugin.pytest_terminal_summary(reporter)
    assert told == [(f"{line} skipped, {WITHOUT_GPU}", {"yellow": True}) for line in lines]
    reporter.stats = {}
    plugin.pytest_terminal_summary(reporter)
    assert len(told) == len(lines)
