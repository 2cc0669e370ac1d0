"""A fork that stands for a process of ``subprocess``: its status, its end."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from doubles import raising

from kerntune.compiling import fork_client
from kerntune.compiling.fork_client import OwnFork, fork_own_server


class System:
    """Stands for ``os``: one process, 77, that ends when it is told to."""

    WNOHANG = os.WNOHANG
    waitstatus_to_exitcode = staticmethod(os.waitstatus_to_exitcode)

    def __init__(self, *found: Any, group: bool = True) -> None:
        self._found, self._group = iter(found), group
        self.asked: list[tuple[int, int]] = []
        self.ended: list[tuple[str, int, int]] = []

    def waitpid(self, pid: int, options: int) -> tuple[int, int]:
        self.asked.append((pid, options))
        found = next(self._found)
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    def killpg(self, pid: int, number: int) -> None:
        if not self._group:
            raise ProcessLookupError
        self.ended.append(("group", pid, number))

    def kill(self, pid: int, number: int) -> None:
        self.ended.append(("process", pid, number))


def test_its_status_is_asked_for_until_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    system = System((0, 0), (77, 3 << 8))
    monkeypatch.setattr(fork_client, "os", system)
    one = OwnFork(77)
    assert [one.poll(), one.poll(), one.poll(), one.wait()] == [None, 3, 3, 3]
    assert system.asked == [(77, os.WNOHANG)] * 2


def test_waiting_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    system = System((77, int(signal.SIGKILL)))
    monkeypatch.setattr(fork_client, "os", system)
    one = OwnFork(77)
    assert one.wait() == one.returncode == -signal.SIGKILL
    assert system.asked == [(77, 0)]


def test_one_that_the_program_has_reaped_itself_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_client, "os", System(ChildProcessError()))
    assert OwnFork(77).poll() == 0


@pytest.mark.parametrize("group", [True, False])
def test_its_group_ends_with_it_if_it_has_one_by_now(monkeypatch: pytest.MonkeyPatch, group: bool) -> None:
    system = System(group=group)
    monkeypatch.setattr(fork_client, "os", system)
    one = OwnFork(77)
    one.kill()
    assert system.ended == [("group", 77, 9)] * group + [("process", 77, 9)]
    one.returncode = 0
    one.kill()
    assert len(system.ended) == 1 + group, "its number may be another's by now"


@pytest.mark.parametrize(("seconds", "serves"), [(0.05, True), (0.2, False)])
def test_a_fork_that_takes_a_tenth_of_a_second_is_the_last(
    monkeypatch: pytest.MonkeyPatch, seconds: float, serves: bool
) -> None:
    system, now = System((77, 9)), iter([4.0, 4.0 + seconds])
    forked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(fork_client, "os", system)
    monkeypatch.setattr(fork_client.time, "perf_counter", lambda: next(now))
    monkeypatch.setattr(fork_client, "fork", lambda *given: forked.append(given) or 77)
    found = fork_own_server(5)
    assert (found is not None) is serves
    assert bool(system.ended) is bool(system.asked) is not serves
    (work, kept), served = forked[0], []
    assert kept == 5
    monkeypatch.setattr(fork_client.fork_server, "main", lambda *given: served.append(given))
    monkeypatch.setattr(fork_client.compile_worker, "address_space", lambda: 1234)
    work()
    assert served == [(5, 1234, 2, 2.0)]


def test_where_no_process_can_be_forked_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_client, "fork", raising(OSError))
    assert fork_own_server(5) is None
