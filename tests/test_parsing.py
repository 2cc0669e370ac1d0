"""Kernels that several threads parse at once."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import triton
from triton.runtime.jit import JITFunction

from kerntune.compiling.compiler import Compiler
from kerntune.kernels.compat.triton_compiler import IN_TURN, parse_in_turn, parsed

TEXT = "def kernel(x):\n" + "    x = [x + (1, 2), {3: -x}]\n" * 400
TIMES = 10


class Node:
    """Goes in a collection only."""


@triton.jit
def kernel(x):
    pass


@pytest.fixture
def busy() -> Iterator[None]:
    """Collections run Python code, which is when threads take over from each other in the midst of a parser."""
    threshold = gc.get_threshold()
    gc.set_threshold(50)
    yield
    gc.set_threshold(*threshold)


def at_once(*jobs: Callable[[], object]) -> list[Exception]:
    """What goes wrong while several threads do their jobs over and over."""
    wrong: list[Exception] = []
    begin = threading.Barrier(len(jobs))

    def work(job: Callable[[], object]) -> None:
        begin.wait(60)
        for _ in range(TIMES):
            for _ in range(20):
                node: Any = Node()
                node.itself = node
                weakref.finalize(node, len, ()).atexit = False
            try:
                job()
            except Exception as exc:
                wrong.append(exc)

    threads = [threading.Thread(target=work, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


@pytest.mark.slow
def test_a_kernel_is_parsed_while_others_are(busy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    Compiler()
    monkeypatch.setattr(kernel, "_src", TEXT)
    assert at_once(kernel.parse, kernel.parse, lambda: parsed(TEXT)) == []


@pytest.mark.skipif(not IN_TURN, reason="this Python can parse in several threads")
def test_it_is_done_once() -> None:
    parse_in_turn()
    before = JITFunction.parse
    parse_in_turn()
    assert JITFunction.parse is before


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # from Python 3.12 on
@pytest.mark.skipif(not IN_TURN, reason="this Python can parse in several threads")
def test_a_copy_is_made_when_nobody_parses() -> None:
    """Else it would wait for a thread that it hasn't."""
    stop = threading.Event()

    def keep_on() -> None:
        while not stop.is_set():
            parsed(TEXT)

    thread = threading.Thread(target=keep_on)
    thread.start()
    try:
        for _ in range(5):
            pid = os.fork()
            if not pid:
                signal.alarm(60)
                os._exit(len(parsed("1").body) - 1)
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        stop.set()
        thread.join()
