"""The contract of a child process: its start, its replies, its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from doubles import raising

from kerntune.base import child_process
from kerntune.base.child_process import ChildEnded, ChildProcess, how_it_ended
from kerntune.errors import FrameError, PeerTimeout

FIRST_WORDS = 8192
LAST_WORDS = 65536


ROOT = Path(__file__).resolve().parents[2]
BEGIN = f"""
import os, sys, signal, subprocess, time
sys.path.insert(0, {str(ROOT)!r})
from kerntune.base.frames import Reader, send
send(1, "ready")
"""
ECHO = BEGIN + "for text in Reader(0, str): send(1, text)"
HANGS = BEGIN + "time.sleep(600)"


@pytest.fixture
def children() -> Iterator[list[ChildProcess[str]]]:
    made: list[ChildProcess[str]] = []
    yield made
    for child in made:
        child.end()
        child_process.kill_group(child.pid)  # a test may have kept it from being killed, and from waiting
        child.process.wait(10)


def start(children: list[ChildProcess[str]], program: str) -> ChildProcess[str]:
    children.append(ChildProcess([sys.executable, "-c", program], str))
    return children[-1]


def gone(pid: int) -> bool:
    """Whether a process is no more, or a zombie that nobody has waited for, within some seconds."""
    for _ in range(200):
        try:
            if "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text():
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


def test_it_is_ready_once_and_answers(children: list[ChildProcess[str]]) -> None:
    child = start(children, ECHO)
    assert [child.ready(60.0), child.ready(0.0)] == ["ready", "ready"]
    assert [child.ask(text, 60.0) for text in "ab"] == ["a", "b"]
    assert child.alive
    assert os.getpgid(child.pid) == os.getsid(child.pid) == child.pid != os.getpgid(0)


def test_who_is_late_is_ended(children: list[ChildProcess[str]]) -> None:
    child = start(children, HANGS)
    child.ready(60.0)
    with pytest.raises(PeerTimeout, match=r"within 0\.1 s"):
        child.ask("a", 0.1)
    assert not child.alive
    assert gone(child.pid)
    with pytest.raises(ChildEnded, match="ended before"):
        child.ask("b", 60.0)


def test_who_stops_within_a_reply_is_late(children: list[ChildProcess[str]]) -> None:
    """The limit is the whole reply's, not that of its first byte."""
    child = start(children, BEGIN + "os.read(0, 1); os.write(1, bytes(3)); time.sleep(600)")
    child.ready(60.0)
    with pytest.raises(PeerTimeout):
        child.ask("a", 0.1)
    assert not child.alive


def test_who_is_late_may_go_on_where_that_is_asked_for(children: list[ChildProcess[str]]) -> None:
    child = start(children, BEGIN + "time.sleep(0.5); send(1, 'late'); time.sleep(600)")
    child.ready(60.0)
    with pytest.raises(PeerTimeout):
        child.ask("a", 0.01, end_if_late=False)
    assert child.alive
    assert child.messages.receive() == "late"


def test_what_is_no_message_ends_it(children: list[ChildProcess[str]]) -> None:
    child = start(children, BEGIN + "send(1, 7); time.sleep(600)")
    child.ready(60.0)
    with pytest.raises(FrameError, match="can't be read"):
        child.ask("a", 60.0)
    assert not child.alive


class Interrupted(BaseException):
    """What a signal handler raises."""


@pytest.mark.parametrize("error", [Interrupted, KeyboardInterrupt])
def test_an_interrupted_question_ends_it(
    children: list[ChildProcess[str]], monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    child = start(children, HANGS)
    child.ready(60.0)

    monkeypatch.setattr(child.messages, "receive", raising(error))
    with pytest.raises(error):
        child.ask("a", 60.0)
    assert not child.alive
    assert gone(child.pid)


def test_ctrl_c_does_not_wait_for_the_end(children: list[ChildProcess[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    child, waited = start(children, HANGS), list[threading.Thread]()
    child.ready(60.0)

    def noted() -> None:
        waited.append(threading.current_thread())

    monkeypatch.setattr(child, "_wait_until_gone", noted)
    monkeypatch.setattr(child.messages, "receive", raising(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        child.ask("a", 60.0)
    child.process.wait(30.0)
    assert threading.current_thread() not in waited


@pytest.mark.parametrize(
    ("program", "code", "message"),
    [
        ("sys.exit('the reason')", 1, "its process ended with exit status 1: the reason"),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9, r"its process died \(SIGKILL\)$"),
    ],
)
def test_how_it_ended(children: list[ChildProcess[str]], program: str, code: int, message: str) -> None:
    child = start(children, BEGIN + program)
    child.ready(60.0)
    with pytest.raises(ChildEnded, match=message) as caught:
        child.ask(None, 60.0)
    assert caught.value.code == code


def test_an_exit_code_in_words() -> None:
    assert [how_it_ended(code) for code in (-6, -1, -200)] == ["died (SIGABRT)", "died (SIGHUP)", "died (signal 200)"]
    assert [how_it_ended(code) for code in (0, 1)] == [f"ended with exit status {code}" for code in (0, 1)]


def test_its_first_and_last_words_are_read_and_its_last_kept(children: list[ChildProcess[str]]) -> None:
    child = start(children, f"import sys; sys.stderr.write('a' * {LAST_WORDS} + 'b' * {LAST_WORDS - 1} + 'c')")
    child.process.wait(60.0)
    last = "b" * (LAST_WORDS - 1) + "c"
    assert (child.printed, child.said()) == (2 * LAST_WORDS, "a" * FIRST_WORDS + "\n" + last)
    assert child.said(LAST_WORDS - FIRST_WORDS) == "a" * FIRST_WORDS + last
    assert child.said(LAST_WORDS - FIRST_WORDS - 1) == "a" * FIRST_WORDS + "\n" + last
    assert child.said(2 * LAST_WORDS - 2) == "bc"
    child.end()
    assert (child.printed, child.said()) == (2 * LAST_WORDS, last)
    assert [child.said(2 * LAST_WORDS - 2), child.said(2 * LAST_WORDS)] == ["bc", ""]


def test_its_end_takes_along_what_it_started(children: list[ChildProcess[str]]) -> None:
    child = start(children, BEGIN + "send(1, str(subprocess.Popen(['sleep', '600']).pid)); time.sleep(600)")
    child.ready(60.0)
    grandchild = int(child.ask(None, 60.0))
    child.end()
    child.end()
    assert gone(grandchild)


def test_its_end_takes_along_what_outlived_it(children: list[ChildProcess[str]]) -> None:
    """A compiler that a worker has started goes on when the system kills the worker."""
    quiet = "stdin=-3, stdout=-3, stderr=-3"
    child = start(children, BEGIN + f"send(1, str(subprocess.Popen(['sleep', '600'], {quiet}).pid)); sys.exit(1)")
    child.ready(60.0)
    grandchild = int(child.ask(None, 60.0))
    with pytest.raises(ChildEnded, match="exit status 1"):
        child.ask(None, 60.0)
    assert gone(grandchild)


def test_what_can_not_be_sent_ends_nothing(children: list[ChildProcess[str]]) -> None:
    child = start(children, ECHO)
    child.ready(60.0)
    for asks in (child.ask, child.tell):
        with pytest.raises(TypeError, match="unsupported"):
            asks(object(), 60.0)
    child.tell("a", 60.0)
    assert child.ask("b", 60.0) == "a"


def test_who_is_told_something_and_is_gone(children: list[ChildProcess[str]]) -> None:
    child = start(children, "import sys; sys.exit(3)")
    child.process.wait(60.0)
    with pytest.raises(ChildEnded, match="exit status 3"):
        child.tell("a", 60.0)
    assert not child.alive


def test_a_fork_takes_the_command_s_place(children: list[ChildProcess[str]]) -> None:
    def forked(errors: IO[bytes]) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        program = BEGIN + "sys.exit('as a fork')"
        return subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, stderr=errors)

    children.append(ChildProcess(["/nowhere"], str, fork=forked))
    assert children[-1].ready(60.0) == "ready"
    with pytest.raises(ChildEnded, match="exit status 1: as a fork"):
        children[-1].ask(None, 60.0)


def test_one_that_can_not_be_killed_is_left(children: list[ChildProcess[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    child = start(children, HANGS)
    child.ready(60.0)
    with monkeypatch.context() as patch:
        patch.setattr(child_process, "END_LIMIT_S", 0.05)
        patch.setattr(os, "killpg", lambda *given: None)
        child.end()
    assert not child.alive
    os.killpg(child.pid, signal.SIGKILL)
    assert child.process.wait(30.0) == -signal.SIGKILL


def test_one_that_is_let_end_does_what_is_left(children: list[ChildProcess[str]], tmp_path: Path) -> None:
    done = tmp_path / "done"
    child = start(children, BEGIN + f"list(Reader(0, str)); open({str(done)!r}, 'w')")
    child.ready(60.0)
    child.let_end(60.0)
    assert done.exists()
    assert (child.process.returncode, child.alive) == (0, False)


def no_process(*given: object, **options: object) -> None:
    raise OSError(24, "Too many open files")


@pytest.mark.parametrize("names", [(subprocess, "Popen"), (tempfile, "TemporaryFile")])
def test_what_keeps_it_from_starting(monkeypatch: pytest.MonkeyPatch, names: tuple[Any, str]) -> None:
    monkeypatch.setattr(*names, no_process)
    with pytest.raises(OSError, match="Too many open files"):
        ChildProcess(["true"], str)


def test_without_threads_the_caller_waits_for_its_end(
    children: list[ChildProcess[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start(children, HANGS)
    monkeypatch.setattr(threading.Thread, "start", raising(RuntimeError("can't start new thread")))
    child.end(wait=False)
    assert child.process.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_one_that_was_killed_is_not_asked_while_it_is_not_gone_yet(
    children: list[ChildProcess[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start(children, HANGS)
    child.ready(60.0)
    with monkeypatch.context() as patch:
        patch.setattr(child_process, "_in_background", lambda work: True)
        patch.setattr(os, "killpg", lambda *given: None)
        child.end(wait=False)
        assert not child.alive
        with pytest.raises(ChildEnded, match="ended before"):
            child.ask("a", 60.0)
