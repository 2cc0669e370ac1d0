"""Launches of a captured function's other threads while one of them decides."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import pytest
from fake_runs import scale_kernel
from triton.runtime.jit import JITFunction

from kerntune.capture import capture
from kerntune.capture.suspension import Suspension


def in_thread_of_before(work: Any) -> tuple[threading.Thread, threading.Event]:
    """A thread that does some work at the event: it isn't one that a suspension begun later has started."""
    go = threading.Event()

    def wait_and_work() -> None:
        assert go.wait(60.0)
        work()

    thread = threading.Thread(target=wait_and_work, daemon=True)
    thread.start()
    return thread, go


def test_one_that_ends_while_another_thread_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Just after that thread has found it."""
    suspension = Suspension([])
    suspension.release()
    monkeypatch.setattr(capture, "_suspension", suspension)
    lines = list[int]()

    def end_after_first_line(frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code is capture.wait_while_suspended.__code__ and event == "line":
            lines.append(frame.f_lineno)
            if len(lines) == 2:
                monkeypatch.setattr(capture, "_suspension", None)
        return end_after_first_line

    def look() -> None:
        before = sys.gettrace()
        sys.settrace(end_after_first_line)
        try:
            capture.wait_while_suspended("a_kernel")
        finally:
            sys.settrace(before)

    look()
    assert len(lines) >= 2


def test_what_only_compiles_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """``kernel.warmup(...)`` launches nothing, so nothing of the call's is lost."""
    monkeypatch.setattr("kerntune.capture.suspension.PATIENCE_S", 0.01)
    ran = list[Any]()
    monkeypatch.setattr(JITFunction, "run", lambda kernel, *args, **words: ran.append(words["warmup"]))

    def launch(warmup: bool) -> None:
        scale_kernel.run(grid=(1,), warmup=warmup)

    missed = list[str]()
    threads = [in_thread_of_before(lambda w=w: launch(w)) for w in (True, False)]
    suspension = Suspension(missed)
    suspension.begin()
    try:
        for (thread, go), expected in zip(threads, ([], ["scale_kernel"]), strict=True):
            go.set()
            thread.join(60.0)
            assert missed == expected
    finally:
        suspension.end()
    assert ran == [True, False]
