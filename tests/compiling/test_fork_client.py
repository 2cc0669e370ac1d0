"""Worker processes as forks of one that has imported Triton: they answer, end and are reported like others."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import SimpleNamespace

import pytest
from forked import until

from kerntune.base.frames import receive_with, send, send_with
from kerntune.compiling import fork_server as nest
from kerntune.compiling import forking
from kerntune.compiling.farm import Farm
from kerntune.compiling.fork_client import Child, ForkClient, OwnFork
from kerntune.compiling.frontend import lower, request_of
from kerntune.compiling.protocol import READY, Done, ForkRequest, current_environment
from kerntune.compiling.worker_process import Died, Process

from . import kernels
from .kernels import CUDA90, FLOATS

HELPERS = 2
DESCRIPTORS = 4


HERE = current_environment


@pytest.fixture(params=[False, True], ids=["new process", "own fork"])
def fork_client(request):
    one = ForkClient(HERE(), own_fork=request.param)
    yield one
    one.close()
    assert one._popen.returncode is not None


@pytest.fixture
def process(fork_client):
    one = Process(HERE(), 0, fork_client)
    assert one.start() == ""
    assert isinstance(one._child.process, Child)
    yield one
    one.kill()


def job(launch=None):
    return lower(request_of(launch or kernels.add_launch())).job


@pytest.mark.slow
def test_a_fork_compiles_what_a_plain_process_does(process):
    plain = Process(HERE(), 0)
    assert plain.start() == ""
    mine, theirs = (one.ask(job(), 60, "").answer for one in (process, plain))
    plain.kill()
    assert isinstance(mine, Done)
    assert mine.stages == theirs.stages


def test_it_is_a_process_group_of_its_own(process):
    assert os.getpgid(process.pid) == process.pid
    assert process.alive


def test_several_are_told_apart(fork_client):
    several = [Process(HERE(), 0, fork_client) for _ in range(3)]
    assert [one.start() for one in several] == ["", "", ""]
    assert len({one.pid for one in several}) == 3
    several[1].kill()
    assert [one.alive for one in several] == [True, False, True]
    for one in several:
        one.kill()


def test_a_crash_is_told_with_its_signal(process):
    answer = process.ask(job(kernels.launch(kernels.abort, FLOATS, CUDA90, B=128)), 60, "").answer
    assert answer == Died("the compiler process died (SIGABRT)")
    assert not process.alive


def test_a_killed_one_is_noticed(process):
    os.kill(process.pid, signal.SIGKILL)
    assert until(lambda: not process.alive)


def test_it_ends_when_nobody_is_there_to_ask(fork_client, tmp_path):
    with tempfile.TemporaryFile() as output:
        child = fork_client.fork(HERE(), 0, str(tmp_path), output)
        assert child is not None
        assert child.stdout.read(4), "it has said hello"
        child.stdin.close()
        child.stdout.close()
        assert child.wait(20) in (0, -signal.SIGKILL), "at the end of its input, or by itself with its group"


def test_waiting_has_an_end(fork_client, tmp_path):
    with tempfile.TemporaryFile() as output:
        child = fork_client.fork(HERE(), 0, str(tmp_path), output)
        assert child is not None
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.01)
        os.kill(child.pid, signal.SIGTERM)
        assert child.wait(20) == -signal.SIGTERM
        child.stdin.close()
        child.stdout.close()


def test_children_outlive_their_nest_and_nobody_knows_how_they_end(fork_client):
    one = Process(HERE(), 0, fork_client)
    assert one.start() == ""
    fork_client.close()
    assert isinstance(one.ask(job(), 60, "").answer, Done)
    one.kill()
    assert not one.alive


def test_other_surroundings_need_another_process(fork_client, tmp_path):
    other = dataclasses.replace(HERE(), env=(("TRITON_X", "1"),))
    with tempfile.TemporaryFile() as output:
        assert fork_client.fork(other, 0, str(tmp_path), output) is None


@pytest.fixture
def forks_are_quick(monkeypatch):
    """A fork takes long on a busy machine, and isn't kept then."""
    monkeypatch.setattr("kerntune.compiling.fork_client.SLOW_SECONDS", 60.0)
    monkeypatch.setattr("kerntune.compiling.fork_client.BEGIN_SECONDS", 60.0)


@pytest.fixture
def own(forks_are_quick):
    one = ForkClient(HERE(), own_fork=True)
    yield one
    one.close()


def test_an_own_fork_starts_no_interpreter(own):
    one = Process(HERE(), 0, own)
    assert one.start() == ""
    assert isinstance(own._popen, OwnFork)
    nest = Path(f"/proc/{own._popen.pid}/cmdline").read_bytes()
    assert nest == Path("/proc/self/cmdline").read_bytes()
    assert own._popen.pid != os.getpid()
    one.kill()


def test_what_a_process_has_reserved_counts_in_no_limit(tmp_path):
    """A CUDA context reserves more addresses than a worker may have."""
    with (tmp_path / "sparse").open("w+b") as file:
        file.truncate(32 << 30)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
            fork_client = ForkClient(HERE(), own_fork=True)
    one = Process(HERE(), 4 << 30, fork_client)
    assert one.start() == ""
    answer = one.ask(job(), 60, "").answer
    assert isinstance(answer, Done)
    assert answer.address_space < 2 << 30
    one.kill()
    fork_client.close()


@pytest.mark.slow
def test_helpers_fork_as_well_and_end_with_their_nest(own):
    several = [Process(HERE(), 0, own) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(Process.start, several)) == [""] * 8
    parents = {int(Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()[1]) for one in several}
    assert own._popen.pid in parents
    assert 1 < len(parents) <= 1 + HELPERS
    assert isinstance(several[-1].ask(job(), 60, "").answer, Done)
    os.kill(several[0].pid, signal.SIGKILL)
    assert until(lambda: not several[0].alive), "whoever has forked it tells its end"
    os.kill(max(parents - {own._popen.pid}), signal.SIGKILL)
    several += [Process(HERE(), 0, own) for _ in range(3)]
    assert [one.start() for one in several[-3:]] == [""] * 3, "the others go on"
    assert own._popen.poll() is None
    for one in several:
        one.kill()
    own.close()
    assert until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in parents))


@pytest.mark.slow
@pytest.mark.usefixtures("forks_are_quick")
def test_a_fork_that_hangs_is_replaced_by_a_new_process(monkeypatch):
    monkeypatch.setattr("kerntune.compiling.fork_server.main", lambda *given: time.sleep(60))
    monkeypatch.setattr("kerntune.compiling.fork_client.BEGIN_SECONDS", 0.2)
    fork_client = ForkClient(HERE(), own_fork=True)
    hanging = fork_client._popen
    one = Process(HERE(), 0, fork_client)
    assert one.start() == ""
    assert isinstance(fork_client._popen, subprocess.Popen)
    assert hanging.returncode is not None
    one.kill()
    fork_client.close()


def test_a_fork_that_takes_long_is_none(monkeypatch):
    monkeypatch.setattr("kerntune.compiling.fork_client.SLOW_SECONDS", 0.0)
    made, fork = [], forking.fork_process
    monkeypatch.setattr(forking, "fork_process", lambda: made.append(pid) or pid if (pid := fork()) else 0)
    fork_client = ForkClient(HERE(), own_fork=True)
    assert isinstance(fork_client._popen, subprocess.Popen)
    (own,) = made
    with pytest.raises(ChildProcessError):
        os.waitpid(own, os.WNOHANG)  # ended, and reaped
    fork_client.close()


@pytest.mark.usefixtures("forks_are_quick")
def test_a_farm_forks_its_own_process_where_that_may_be(farm, monkeypatch):
    monkeypatch.setattr("kerntune.compiling.farm.may_fork", lambda: True)
    monkeypatch.setattr("kerntune.compiling.fork_client.may_fork", lambda: True)
    one = farm(workers=1)
    one.warm(1)
    assert until(lambda: len(one.pids) == 1)
    assert isinstance(one._fork_client._popen, OwnFork)


def test_without_a_nest_plain_processes_are_started(monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [str(tmp_path)])
        barren = ForkClient(HERE(), own_fork=False)
    one = Process(HERE(), 0, barren)
    assert one.start() == ""
    assert isinstance(one._child.process, subprocess.Popen)
    one.kill()
    barren.close()


@pytest.fixture
def no_own_forks(monkeypatch):
    monkeypatch.setenv("KERNTUNE_FORKS", "0")


def test_a_farm_that_is_warmed_forks(farm, no_own_forks):
    one = farm(workers=4)
    one.warm(8)
    assert until(lambda: len(one.pids) == 4)
    nest = one._fork_client._popen.pid
    stats = [Path(f"/proc/{pid}/stat").read_text() for pid in one.pids]
    assert {int(stat.rpartition(")")[2].split()[1]) for stat in stats} == {nest}
    one.close()
    assert one._fork_client is None
    assert not os.path.exists(f"/proc/{nest}")


def test_a_farm_that_has_little_to_do_does_not(farm, no_own_forks):
    one = farm(workers=4)
    one.warm(2)
    assert until(lambda: len(one.pids) == 2)
    assert one._fork_client is None


def test_an_idle_farm_gives_its_nest_back():
    one = Farm(workers=3, idle_seconds=0.2)
    one.warm(3)
    assert until(lambda: len(one.pids) == 3)
    assert until(lambda: one._fork_client is None)
    assert until(lambda: one.pids == [])
    one.close()


def test_a_helper_that_finds_no_request_does_not_wait_for_the_next(monkeypatch):
    """Several processes wait for one socket: one that finds it empty must still report how its children ended."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    served: list[socket.socket] = []
    monkeypatch.setattr(nest, "_serve", lambda shared, *more: served.append(shared.requests))
    with ours:
        nest.main(theirs.detach())
        (asked,) = served
        with asked, ThreadPoolExecutor(1) as pool:
            found = pool.submit(receive_with, asked, ForkRequest, DESCRIPTORS)
            wait([found], 10)
            answered = found.done()
            ours.send(b"late")
            assert (answered, type(found.exception())) == (True, BlockingIOError)


@pytest.mark.slow
def test_who_waits_for_a_server_to_start_goes_on_without_one(monkeypatch):
    """At Ctrl-C: its imports take a second, and longer on a busy machine."""
    monkeypatch.setattr(ForkClient, "_new_process", lambda self, theirs: subprocess.Popen(["sleep", "600"]))
    one = ForkClient(HERE(), own_fork=False)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(one.serves, HERE())
        one.end_start()
        assert waits.result(60) is False
    one.close()
    assert one._popen.returncode == -signal.SIGKILL


def test_a_fork_that_is_ended_while_it_starts_is_replaced_by_no_process():
    """At Ctrl-C: the new one would be waited for."""
    ended = []

    class Own(OwnFork):
        def kill(self):
            ended.append(self.pid)

    one = client_of(Own(77))
    one._says_ready = lambda: one.end_start()
    one._begin = lambda own_fork: pytest.fail("a new server is started")
    assert not one.serves(HERE())
    assert ended == [77]
    one._ours.close()
    one._theirs.close()


def test_a_server_that_is_ready_stays_until_its_workers_have_ended(fork_client, process):
    fork_client.end_start()
    process.interrupt()
    assert process._child.process.wait(20.0) == -signal.SIGKILL


def test_a_process_that_was_ended_before_it_started_is_none(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", lambda *given, **options: pytest.fail("an interpreter is started"))
    one = Process(HERE(), 0)
    one.interrupt()
    assert one.start() == "no process can be started (it was ended before)"
    assert not one.alive


def test_a_process_that_is_ended_while_it_waits_for_the_server_is_not_forked(fork_client, monkeypatch):
    """Sixteen that were asked for take a busy server seconds."""
    one = Process(HERE(), 0, fork_client)
    monkeypatch.setattr(ForkClient, "serves", lambda client, surroundings: (one.interrupt(), True)[1])
    monkeypatch.setattr(ForkClient, "fork", None)
    assert one.start() == "no process can be started (it was ended before)"


# the client by itself, without a server


def told(*messages):
    """A child whose server has sent these, and goes on; what it would have sent later can be."""
    read, write = os.pipe()
    for message in messages:
        send(write, message)
    return Child(None, None, read), write


def test_a_child_s_id_comes_first_and_then_its_status():
    child, write = told(1234)
    assert (child.pid, child.returncode) == (0, None)
    child.learn_pid(60)
    assert (child.pid, child.poll(), child.returncode) == (1234, None, None)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.0)
    send(write, -9)
    assert (child.wait(60), child.poll(), child.returncode) == (-9, -9, -9)
    os.close(write)
    assert child.wait() == -9, "is known"


def test_a_server_that_ended_before_it_told_a_status_leaves_one():
    child, write = told(1234)
    os.close(write)
    child.learn_pid(60)
    assert child.wait(60) == 1


def test_a_child_s_status_pipe_goes_with_it():
    child, write = told()
    read = child._status
    del child
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read)
    os.close(write)


class Ends:
    """A server's process that ends after so many looks."""

    def __init__(self, looks):
        self.looks, self.done = looks, []

    def poll(self):
        self.looks -= 1
        return None if self.looks > 0 else 0

    def kill(self):
        self.done.append("killed")

    def wait(self):
        self.done.append("waited for")


def client_of(popen=None, ready=None):
    one = object.__new__(ForkClient)
    one.surroundings, one._pid, one._lock, one._ready = HERE(), os.getpid(), threading.Lock(), ready
    one._ours, one._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one._popen, one._ended = popen, False
    return one


@pytest.mark.parametrize(("looks", "done"), [(3, []), (10**9, ["killed", "waited for"])])
def test_a_server_that_does_not_end_in_a_second_is_ended(monkeypatch, looks, done):
    now = itertools.count(0.0, 0.25)
    clock = SimpleNamespace(monotonic=lambda: next(now), sleep=lambda seconds: None)
    monkeypatch.setattr("kerntune.compiling.fork_client.time", clock)
    one = client_of(Ends(looks))
    one.close()
    assert one._popen.done == done
    assert one._ours.fileno() == -1
    one._theirs.close()


def test_another_process_s_server_is_left_alone():
    one = client_of(Ends(10**9))
    one._pid = -1
    assert not one.serves(HERE())
    one.close()
    assert one._popen.done == []
    one._theirs.close()


@pytest.mark.parametrize(
    ("message", "ready"),
    [(READY, True), ("another", False), (7, False), (None, False)],
    ids=["it", "words", "kind", "end"],
)
def test_a_server_says_that_it_is_ready(message, ready):
    one = client_of()
    if message is None:
        one._theirs.close()
    else:
        send_with(one._theirs, message)
    assert one._says_ready() is ready
    one._ours.close()
    one._theirs.close()


def test_a_new_process_that_is_not_ready_is_not_replaced(monkeypatch):
    one = client_of()
    one._says_ready = lambda: False
    one._begin = lambda own_fork: pytest.fail("it is no fork of this process")
    assert not one.serves(HERE())
    assert not one.serves(dataclasses.replace(HERE(), env=()))
    one._ours.close()
    one._theirs.close()


def test_an_own_fork_that_is_not_ready_is_replaced_once(monkeypatch):
    done, answers = [], iter([False, True])
    one = client_of(OwnFork(77))
    one._says_ready = lambda: next(answers)
    one.close = lambda: done.append("closed")
    one._begin = lambda own_fork: done.append(own_fork)
    assert one.serves(HERE())
    assert one.serves(HERE()), "is known"
    assert done == ["closed", False]
    one._ours.close()
    one._theirs.close()


@pytest.mark.parametrize("gone", [True, False])
def test_a_worker_that_no_server_forks_is_none_and_leaves_no_descriptor(monkeypatch, gone):
    """The server is gone, or takes the request and answers nothing: it isn't asked again then."""
    monkeypatch.setattr("kerntune.compiling.fork_client.FORK_SECONDS", 0.01)
    one = client_of(ready=True)
    if gone:
        one._theirs.close()
    before = len(os.listdir("/proc/self/fd"))
    assert one._forked(ForkRequest(7, "[]", "/tmp"), 2) is None
    gc.collect()
    assert one._ready is False
    assert len(os.listdir("/proc/self/fd")) == before
    one._ours.close()
    one._theirs.close()


def test_a_worker_that_could_not_be_forked_costs_itself():
    """The server says so by closing its pipe."""
    one = client_of(ready=True)

    def refuse():
        request, descriptors = receive_with(one._theirs, ForkRequest, DESCRIPTORS)
        assert request == ForkRequest(7, "[]", "/tmp")
        for number in descriptors:
            os.close(number)

    thread = threading.Thread(target=refuse)
    thread.start()
    assert one._forked(ForkRequest(7, "[]", "/tmp"), 2) is None
    thread.join()
    assert one._ready is True
    one._ours.close()
    one._theirs.close()
