"""Signs of life on a terminal and in a log, as a program behind a pseudo-terminal or a pipe sees them."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.base import live_line
from kerntune.base.live_line import ERASE
from pytest_kerntune.progress import Progress

pytest_plugins = ["pytester"]

SLOW = """
import time

def test_quick(autotune):
    autotune(kernel())

def test_slow(autotune):
    autotune(kernel())
    time.sleep(0.5)

def test_last(autotune):
    print("printed by a test")
    autotune(kernel())
"""

HASTY = """
from kerntune.base import live_line
live_line.PATIENCE_S = live_line.TICK_S = 0.05
live_line.EVERY_S = 0.2
"""


@pytest.fixture
def hasty(project: Any) -> Any:
    """A project of three tests, one of them slow by the measure of a line that waits for next to nothing."""
    project.file(SLOW)
    conftest = project.pytester.path / "conftest.py"
    conftest.write_text(conftest.read_text() + HASTY)
    return project


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:rerunfailures", "--kerntune", *options]


def environment() -> dict[str, str]:
    mine = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST") and k != "CI"}
    return {**mine, "TERM": "xterm", "COLUMNS": "100", "PYTHONPATH": os.pathsep.join(sys.path)}


def on_a_terminal(folder: Path, *options: str) -> str:
    """What a run writes to a terminal."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        command(*options), cwd=folder, env=environment(), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    found = b""
    while True:
        try:
            data = os.read(ours, 65_536)
        except OSError:  # the child has closed its side
            break
        if not data:
            break
        found += data
    os.close(ours)
    assert child.wait() == 0, found.decode()
    return found.decode()


def in_a_pipe(folder: Path, *options: str) -> str:
    done = subprocess.run(command(*options), cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def screen(text: str) -> list[str]:
    """The lines that a terminal shows in the end: of the codes only those that the line uses are followed."""
    rows, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[(?:K|A|\d+G)|\x1b\[[\d;]*m|\r|\n|.", text):
        if part == "\r":
            column = 0
        elif part == "\n":
            row += 1
            rows += [""] * (row == len(rows))
        elif part == "\x1b[K":
            rows[row] = rows[row][:column]
        elif part == "\x1b[A":
            row -= 1
        elif part.endswith("G"):
            column = int(part[2:-1]) - 1
        elif not part.endswith("m") or len(part) == 1:
            rows[row] = rows[row][:column].ljust(column) + part + rows[row][column + 1 :]
            column += 1
    return [line.rstrip() for line in rows]


@pytest.mark.slow
def test_a_terminal_shows_what_runs_and_keeps_nothing_of_it(hasty: Any) -> None:
    text = on_a_terminal(hasty.pytester.path)
    assert f"{ERASE}1 of 3 tests: test_it.py::test_slow (0 s)" in text
    lines = screen(text)
    assert any(re.match(r"test_it\.py \.\.\. +\[100%\]", line) for line in lines), "dots stay in their line"
    assert not any("of 3 tests" in line or line.startswith("collecting test") for line in lines)
    assert "printed by a test" not in text


@pytest.mark.slow
@pytest.mark.parametrize("options", [["-q"], ["-s"], ["-p", "no:terminal"]], ids=" ".join)
def test_nothing_is_rewritten_where_it_would_disturb(hasty: Any, options: list[str]) -> None:
    text = on_a_terminal(hasty.pytester.path, *options)
    assert ERASE not in text
    assert ("of 3 tests" in text) is (options == ["-s"]), "beside what tests print it is lines"


@pytest.mark.slow
def test_a_log_has_a_line_now_and_then(hasty: Any) -> None:
    text = in_a_pipe(hasty.pytester.path, "--junitxml=junit.xml")
    assert re.search(r"^1 of 3 tests: test_it.py::test_slow \(0 s\)$", text, re.M)
    assert "\x1b" not in text
    assert "of 3 tests" not in (hasty.pytester.path / "junit.xml").read_text()
    assert "of 3 tests" not in in_a_pipe(hasty.pytester.path, "-q")


@pytest.mark.slow
def test_the_controller_says_what_its_workers_run(hasty: Any) -> None:
    text = in_a_pipe(hasty.pytester.path, "-n", "1")
    assert re.search(r"^\d of 3 tests: test_it.py::test_slow", text, re.M)
    assert text.count("of 3 tests") < 20, "the workers say nothing"


class Line:
    """Keeps what is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.paused: list[bool] = []

    def tell(self, text: str) -> None:
        self.told.append(text)

    def pause(self, paused: bool) -> None:
        self.paused.append(paused)


@pytest.fixture
def progress() -> Progress:
    clock = iter(range(0, 1000, 10))
    config: Any = SimpleNamespace()
    made = Progress(config, lambda: next(clock))
    made.line = Line()  # type: ignore[assignment]
    return made


def test_tests_are_counted_with_an_estimate_from_the_third_on(progress: Progress) -> None:
    progress.pytest_collection_finish(SimpleNamespace(items=[1] * 5))  # type: ignore[arg-type]
    for name in "abc":
        progress.pytest_runtest_logstart(f"tests/t.py::{name}")
        progress.pytest_runtest_logfinish(f"tests/t.py::{name}")
    told = progress.line.told  # type: ignore[union-attr]
    assert told[:2] == ["0 of 5 tests", "0 of 5 tests: t.py::a"]
    assert [text.partition(",")[1] for text in told] == [""] * 6 + [","]
    assert told[-1] == "3 of 5 tests, 47 s left"


def test_what_is_done_for_a_test_is_said(progress: Progress) -> None:
    progress.pytest_runtest_logstart("t.py::a")
    progress.of("t.py::a")("t.py::a: timing 3 of 9 configs")
    progress.pytest_runtest_logstart("t.py::b")
    progress.of("t.py::b")("compiling add, 1 of 4")
    told = progress.line.told  # type: ignore[union-attr]
    assert told[1] == "0 tests: t.py::a: timing 3 of 9 configs"
    assert told[-1] == "0 tests: t.py::b and 1 more: compiling add, 1 of 4"


def test_it_is_silent_in_a_debugger(progress: Progress) -> None:
    progress.pytest_enter_pdb()
    progress.pytest_leave_pdb()
    assert progress.line.paused == [True, False]  # type: ignore[union-attr]


def test_the_stage_of_a_run_is_said(progress: Progress) -> None:
    progress.pytest_collectstart(SimpleNamespace(nodeid="t.py"))  # type: ignore[arg-type]
    progress.pytest_xdist_setupnodes([1, 2])
    progress.pytest_xdist_node_collection_finished(None, ["a", "b"])
    progress.pytest_sessionfinish()
    assert progress.line.told == [  # type: ignore[union-attr]
        "collecting t.py",
        "starting 2 workers, which import torch",
        "0 of 2 tests",
        "ending the run",
    ]


@pytest.mark.parametrize(
    "config",
    [
        SimpleNamespace(pluginmanager=SimpleNamespace(getplugin=lambda name: None)),
        SimpleNamespace(
            pluginmanager=SimpleNamespace(getplugin=lambda name: object()), get_verbosity=lambda: 0, workerinput={}
        ),
    ],
    ids=["no terminal", "worker"],
)
def test_there_is_no_line_without_a_terminal_of_its_own(config: Any) -> None:
    made = Progress(config)
    made.begin()
    assert made.line is None
    made.of("t.py::a")("compiling")
    made.pytest_sessionfinish()
    assert live_line._STACK == []


class Screen:
    """A file of a terminal: its descriptor leads to a file on disk."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w+")

    def fileno(self) -> int:
        return self.file.fileno()

    def write(self, text: str) -> int:
        return self.file.write(text)


@pytest.mark.parametrize(
    ("isatty", "capture", "logging", "in_place"),
    [
        (True, "fd", None, True), (True, "sys", False, True), (True, "no", None, False), (True, "tee-sys", None, False),
        (True, "fd", True, False), (False, "fd", None, False),
    ],
)  # fmt: skip
def test_a_run_is_followed_on_its_own_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isatty: bool, capture: str, logging: bool | None, in_place: bool
) -> None:
    """In place where nothing but pytest writes there; the terminal is afterwards as it was."""
    made: list[Any] = []

    class Line:
        def __init__(self, write: Any, **words: Any) -> None:
            made.append((write, words))

        def start(self) -> Line:
            return self

        def tell(self, text: str) -> None:
            made.append(text)

        def hide(self) -> None:
            made.append("hidden")

        def close(self) -> None:
            made.append("closed")

    monkeypatch.setattr("pytest_kerntune.progress.LiveLine", Line)
    screen = Screen(tmp_path / "screen")
    terminal = SimpleNamespace(_file=screen, width_of_current_line=7, fullwidth=100, _current_line="x")
    reporter = SimpleNamespace(_tw=terminal, isatty=isatty, currentfspath="x")
    log = None if logging is None else SimpleNamespace(_log_cli_enabled=lambda: logging)
    config: Any = SimpleNamespace(
        pluginmanager=SimpleNamespace(getplugin={"terminalreporter": reporter, "logging-plugin": log}.get),
        get_verbosity=lambda: 0, getoption={"capture": capture}.get,
    )  # fmt: skip
    found = Progress(config, lambda: 5.0)
    found.begin()
    (write, words), told = made
    assert (words["in_place"], words["column"](), words["width"](), words["clock"](), told) == (
        in_place, 7, 100, 5.0, "starting",
    )  # fmt: skip
    write("a\udcff")
    assert (tmp_path / "screen").read_text() == "a?"
    words["after_line"]()
    assert (reporter.currentfspath, terminal._current_line) == (None, "")
    terminal._file.write("b")
    assert made[2:] == ["hidden"]
    files = len(os.listdir("/proc/self/fd"))
    found.end()
    assert (made[3:], found.line, terminal._file) == (["closed"], None, screen)
    assert len(os.listdir("/proc/self/fd")) == files - 1
    found.end()
    assert made[3:] == ["closed"]
    screen.file.close()
