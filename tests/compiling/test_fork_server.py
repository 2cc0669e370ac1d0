"""What a fork server tells of its workers' ends."""

from __future__ import annotations

import os
import signal
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from doubles import raising

from kerntune.base.frames import receive_with
from kerntune.compiling import compile_worker, fork_server
from kerntune.compiling.protocol import ForkRequest
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
    with monkeypatch.context() as only:
        only.setattr(fork_server.os, "waitpid", raising(ChildProcessError))
        fork_server._report_ends({7: 70})


def test_a_worker_that_nobody_asks_about_is_told_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "send", raising(PeerClosed("its other end is closed")))
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


# the loop


class Exit(BaseException):
    """The end of the server."""


class Server:
    """A server whose descriptors become readable in this order: 5 has requests, 6 wakes it, 7 is its parent's end."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, ready: list[list[int]], requests: list[Any], **more: Any
    ) -> None:
        self.done: list[Any] = []
        self._ready, self._requests = iter(ready), iter(requests)
        pids = iter([(77, 60), (78, 61), (79, 62)])
        registered: list[int] = []
        poll = SimpleNamespace(
            register=lambda fd, event: registered.append(fd), poll=lambda: [(fd, 1) for fd in next(self._ready)]
        )
        values = {
            "select": SimpleNamespace(poll=lambda: poll, POLLIN=1),
            "_wake_on_ends": lambda: 6,
            "process_end": lambda parent: more.get("end", 7),
            "_report_ends": lambda children: self.done.append(("ends", dict(children))),
            "receive_with": self._receive,
            "_fork_worker": lambda shared, request, descriptors: next(pids),
            "_report": lambda pipe, number: self.done.append(("told", pipe, number)),
            "_is_helper": lambda: self.done.append("helper") or more.get("helper", False),
            "_close": lambda numbers: self.done.append(("closed", list(numbers))),
        }
        for name, value in values.items():
            monkeypatch.setattr(fork_server, name, value)
        system = SimpleNamespace(read=lambda fd, count: self.done.append(("read", fd)), _exit=self._exit)
        monkeypatch.setattr(fork_server, "os", system)
        self.registered = registered

    def _receive(self, sock: Any, kind: Any, descriptors: int) -> Any:
        assert (kind, descriptors) == (ForkRequest, 4)
        found = next(self._requests)
        if isinstance(found, Exception):
            raise found
        return found, [1, 2, 3, 4]

    def _exit(self, code: int) -> None:
        raise Exit(code)

    def serve(self, helpers: int = 0) -> None:
        shared: Any = SimpleNamespace(requests=SimpleNamespace(fileno=lambda: 5), parent=99, inherited=0)
        with pytest.raises(Exit) as ended:
            fork_server._serve(shared, helpers)
        assert ended.value.args == (0,)


def test_a_worker_is_forked_for_each_request_until_the_socket_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, [[5], [5], [6], [6, 5]], ["one", "two", PeerClosed("x")])
    server.serve()
    both = {77: 60, 78: 61}
    assert server.registered == [5, 6, 7]
    assert server.done == [
        ("told", 60, 77), ("told", 61, 78), ("read", 6), ("ends", both), ("read", 6), ("ends", both),
    ]  # fmt: skip


def test_a_server_ends_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, [[5, 7], [7]], ["one"])
    server.serve()
    assert server.done == [("told", 60, 77)], "a request that is there is served before"
    without = Server(monkeypatch, [[5]], [PeerClosed("x")], end=None)
    without.serve()
    assert without.registered == [5, 6]


def test_a_request_that_a_helper_took_is_waited_for_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, [[5], [5], [7]], [BlockingIOError(), "one"])
    server.serve()
    assert server.done == [("told", 60, 77)]


def test_a_helper_is_forked_after_the_first_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, [[5], [5], [7]], ["one", "two"])
    server.serve(helpers=2)
    assert server.done == [("told", 60, 77), "helper", ("told", 61, 78)]


def test_a_helper_serves_with_one_helper_less_and_has_no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, [[5], [5], [6], [7]], ["one", "two"], helper=True)
    server.serve(helpers=1)
    assert server.done == [
        ("told", 60, 77), "helper", ("closed", [6, 60]), ("told", 61, 78), ("read", 6), ("ends", {78: 61}),
    ]  # fmt: skip


@pytest.mark.parametrize("words", [{}, {"inherited": 7, "helpers": 2, "seconds": 1.5}])
def test_a_server_that_is_not_ready_in_time_ends(monkeypatch: pytest.MonkeyPatch, words: dict[str, Any]) -> None:
    timers: list[tuple[Any, float]] = []
    served: list[Any] = []
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    clock = SimpleNamespace(setitimer=lambda which, seconds: timers.append((which, seconds)), ITIMER_REAL="real")
    monkeypatch.setattr(fork_server, "signal", clock)
    monkeypatch.setattr(fork_server, "gc", SimpleNamespace(freeze=lambda: served.append("frozen")))
    monkeypatch.setattr(fork_server, "_serve", lambda shared, helpers: served.append((shared, helpers)))
    fork_server.main(theirs.detach(), **words)
    assert timers == [("real", words.get("seconds", 60.0)), ("real", 0)]
    frozen, (shared, helpers) = served
    assert frozen == "frozen"
    assert (shared.parent, shared.inherited, helpers) == (
        os.getppid(),
        words.get("inherited", 0),
        words.get("helpers", 0),
    )
    assert receive_with(ours, str) == ("ready", [])
    with pytest.raises(BlockingIOError):
        shared.requests.recv(1)
    ours.close()
    shared.requests.close()


def test_a_worker_collects_garbage_and_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    monkeypatch.setattr(fork_server, "gc", SimpleNamespace(enable=lambda: done.append("collects")))
    monkeypatch.setattr(compile_worker, "main", lambda *given: done.append(given))
    shared: Any = SimpleNamespace(parent=99, inherited=7)
    fork_server._be_worker(shared, ForkRequest(1, "[]", "/folder"))
    assert done == ["collects", (1, "[]", "/folder", 99, 7)]
