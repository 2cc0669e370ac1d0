"""What a fork server tells of its workers' ends."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from kerntune.compiling import fork_server
from kerntune.errors import PeerClosed


def test_the_ends_of_workers_are_told_and_those_of_helpers_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([(7, 3 << 8), (8, int(signal.SIGKILL)), (99, 0), (0, 0)])
    told: list[tuple[int, Any]] = []
    closed: list[int] = []
    with monkeypatch.context() as only:
        only.setattr(fork_server, "send", lambda pipe, number: told.append((pipe, number)))
        only.setattr(fork_server.os, "waitpid", lambda pid, options: next(found))
        only.setattr(fork_server.os, "close", closed.append)
        children = {7: 70, 8: 80, 9: 90}
        fork_server._report_ends(children)
    assert told == [(70, 3), (80, -9)]
    assert closed == [70, 80]
    assert children == {9: 90}


def test_where_there_are_no_children_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(pid: int, options: int) -> tuple[int, int]:
        raise ChildProcessError

    with monkeypatch.context() as only:
        only.setattr(fork_server.os, "waitpid", none)
        fork_server._report_ends({7: 70})


def test_a_worker_that_nobody_asks_about_is_told_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(pipe: int, number: int) -> None:
        raise PeerClosed("its other end is closed")

    monkeypatch.setattr(fork_server, "send", closed)
    fork_server._report(5, 0)


@pytest.mark.parametrize(("forked", "helper"), [(0, True), (7, False), (OSError(), False)])
def test_a_helper_is_a_fork_if_there_can_be_one(monkeypatch: pytest.MonkeyPatch, forked: Any, helper: bool) -> None:
    def fork() -> int:
        if isinstance(forked, OSError):
            raise forked
        return int(forked)

    with monkeypatch.context() as only:
        only.setattr(fork_server.os, "fork", fork)
        assert fork_server._is_helper() is helper


def test_a_worker_gets_the_first_three_descriptors_and_its_status_pipe_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    forked: list[Any] = []
    closed: list[int] = []
    with monkeypatch.context() as only:
        only.setattr(fork_server, "fork", lambda work, standard: forked.append(standard) or 77)
        only.setattr(fork_server.os, "close", closed.append)
        shared: Any = None
        assert fork_server._fork_worker(shared, shared, [3, 4, 5, 6]) == (77, 6)
    assert forked == [[3, 4, 5]]
    assert closed == [3, 4, 5]


def test_an_end_of_a_child_wakes_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: list[Any] = []
    wakes: list[int] = []
    with monkeypatch.context() as only:
        only.setattr(fork_server.signal, "set_wakeup_fd", lambda fd, warn_on_full_buffer: wakes.append(fd))
        only.setattr(fork_server.signal, "signal", lambda number, handler: handlers.append(number))
        read = fork_server._wake_on_ends()
    os.write(wakes[0], b"x")
    assert os.read(read, 10) == b"x"
    with pytest.raises(BlockingIOError):
        os.read(read, 1)
    assert handlers == [signal.SIGCHLD]
    for one in (read, wakes[0]):
        assert not os.get_inheritable(one)
        os.close(one)
