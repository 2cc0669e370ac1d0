"""The process that talks to a store: asked, away, back, killed and forked."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from doubles import raising

from kerntune.base import child_process
from kerntune.base.child_process import ChildProcess
from kerntune.base.frames import Reader, Timeout, send
from kerntune.base.store_process import (
    Contents,
    ReadRequest,
    ReplaceRequest,
    StoreFailed,
    StoreReady,
    StoreReply,
    StoreRequest,
    WriteLaterRequest,
    WriteReply,
)
from kerntune.errors import CacheError
from kerntune.tuning.cache import store_client
from kerntune.tuning.cache.store_client import DirectClient, StoreClient

READ = ReadRequest(("a",), 100)
NEVER = 1e9
LIMITS = store_client.WAIT_S, store_client.LIMIT_S, store_client.REST_S, store_client.LONGEST_REST_S


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies may take long on a busy machine, and no store that was left alone comes back by itself."""
    monkeypatch.setattr(store_client, "LIMIT_S", 60.0)
    monkeypatch.setattr(store_client, "REST_S", NEVER)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def client(store: Path) -> Iterator[StoreClient]:
    found = StoreClient(f"file://{store}")
    yield found
    found.close(60)


@pytest.fixture
def told(client: StoreClient) -> list[str]:
    """What the client reports, which is no warning then."""
    found: list[str] = []
    client.report = found.append
    return found


@pytest.fixture
def unusable(store: Path, client: StoreClient) -> StoreClient:
    """A client whose store is a file, not a folder."""
    store.write_text("")
    return client


def test_a_process_answers(client: StoreClient, tmp_path: Path) -> None:
    assert client.ask(READ) == Contents((None,))
    assert client.ask(ReplaceRequest("a", b"1")) == WriteReply(True)
    assert client.ask(READ) == Contents((b"1",))
    client.tell(WriteLaterRequest("b", b"2"))
    client.close(60)
    assert (tmp_path / "store" / "b").read_bytes() == b"2"


def test_a_store_that_can_not_be_used_is_said_once_and_left_alone(unusable: StoreClient) -> None:
    with pytest.warns(RuntimeWarning, match="own cache") as told:
        assert unusable.ask(ReplaceRequest("a", b"1")) is None
    assert len(told) == 1
    assert unusable.is_away
    assert unusable.ask(READ) is None
    unusable.tell(WriteLaterRequest("b", b"2"))
    assert unusable._child is None


def test_where_warnings_are_errors_no_error_reaches_the_caller(
    unusable: StoreClient, capsys: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert unusable.ask(ReplaceRequest("a", b"1")) is None
    assert "own cache" in capsys.readouterr().err


def answered(client: StoreClient) -> Any:
    """Its process, once it has answered."""
    assert client.ask(READ) == Contents((None,))
    assert client._child is not None
    return client._child.process


def stopped(process: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the process answers nothing, and calls wait for it no longer than this."""
    monkeypatch.setattr(store_client, "LIMIT_S", 0.05)
    os.kill(process.pid, signal.SIGSTOP)


def test_a_process_that_does_not_answer_is_ended(client: StoreClient, monkeypatch: pytest.MonkeyPatch) -> None:
    process = answered(client)
    stopped(process, monkeypatch)
    with pytest.warns(RuntimeWarning, match=r"0\.05 s"):
        assert client.ask(READ) is None
    assert process.returncode == -signal.SIGKILL
    assert client.ask(READ) is None


def test_a_request_waits_less_than_a_second_in_all(client: StoreClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sending and receiving share one limit, and what follows a failure has its part of the second, too."""
    answered(client)
    monkeypatch.setattr(store_client, "LIMIT_S", LIMITS[1])
    limits: list[float] = []

    def noted(seconds: float) -> Timeout:
        limits.append(seconds)
        return Timeout(60.0)

    monkeypatch.setattr(child_process, "Timeout", noted)
    assert client.ask(READ) == Contents((None,))
    client.close(60)
    assert limits == [LIMITS[1]]
    assert LIMITS[1] < 1.0


def test_a_first_reply_that_is_late_is_waited_for_by_no_call(
    client: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To connect may take longer than a call should wait. Nothing is reported, and the store is used from then on."""
    process = answered(client)
    stopped(process, monkeypatch)
    client._has_answered = False
    assert client.ask(READ) is None
    assert client.ask(READ) is None
    assert client.is_away
    os.kill(process.pid, signal.SIGCONT)
    monkeypatch.setattr(store_client, "LIMIT_S", 60.0)
    while client.is_away:
        client.ask(READ)
    assert client._child is not None
    assert client._child.process is process
    assert client.ask(ReplaceRequest("a", b"1")) == WriteReply(True)


def test_a_first_reply_that_is_late_and_a_failure_is_reported(
    unusable: StoreClient, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = unusable._running()
    stopped(process, monkeypatch)
    assert unusable.ask(ReplaceRequest("a", b"1")) is None
    os.kill(process.pid, signal.SIGCONT)
    while unusable._probing_since is not None:
        unusable.ask(READ)
    assert len(told) == 1
    assert "store" in told[0]
    assert unusable.is_away


def test_a_process_that_ends_before_its_late_reply_is_no_answer(
    client: StoreClient, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = answered(client)
    stopped(process, monkeypatch)
    client._has_answered = False
    assert client.ask(READ) is None
    os.kill(process.pid, signal.SIGKILL)
    while client._probing_since is not None:
        assert client.ask(READ) is None
    assert client.is_away
    assert "does not answer" in told[0]


def test_a_process_that_starts_late_is_waited_for_by_no_call(
    client: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_client, "START_LIMIT_S", 0.0)
    assert client.ask(READ) is None
    assert client.is_away
    process = client._child
    monkeypatch.setattr(store_client, "START_LIMIT_S", 300.0)
    while client.is_away:
        client.ask(READ)
    assert client._child is process
    assert client.ask(READ) == Contents((None,))


def test_what_the_process_said_last_is_reported_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    client, told = StoreClient("s3://user:word@bucket/store"), list[str]()
    client.report = told.append
    program = [sys.executable, "-c", f"import sys; sys.exit('no room for {client.url}')"]
    monkeypatch.setattr(store_client, "module_command", lambda *given: program)
    assert client.ask(READ) is None
    assert "exit status 1: no room for s3://" in told[0]
    assert "word" not in told[0]


def test_a_store_that_comes_back_is_used_again(
    unusable: StoreClient, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it to come back."""
    with pytest.warns(RuntimeWarning, match="own cache"):
        assert unusable.ask(ReplaceRequest("a", b"1")) is None
    store.unlink()
    unusable._away_until = 1e-9
    monkeypatch.setattr(store_client, "START_LIMIT_S", 300.0)
    while unusable.is_away:
        unusable.ask(READ)
    assert unusable.ask(ReplaceRequest("a", b"1")) == WriteReply(True)


def test_one_that_is_still_away_is_left_alone_for_longer(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_client, "REST_S", 100.0)
    client = StoreClient(f"file://{store}")
    monkeypatch.setattr(client, "_start", raising(OSError("no process")))
    with pytest.warns(RuntimeWarning, match="no process"):
        assert client.ask(READ) is None
    assert client._rest == 200.0
    client._away_until = 1e-9
    assert client.ask(READ) is None
    assert client.is_away


def test_a_killed_process_is_replaced(client: StoreClient) -> None:
    process = answered(client)
    process.kill()
    process.wait()
    assert client.ask(READ) == Contents((None,))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # from Python 3.12 on
def test_a_forked_copy_has_a_process_of_its_own(client: StoreClient) -> None:
    assert client.ask(READ) == Contents((None,))
    child = os.fork()
    if child == 0:
        good = client.ask(ReplaceRequest("a", b"1")) == WriteReply(True)
        client.close(60)
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client.ask(READ) == Contents((b"1",))


def test_the_url_is_in_no_command_line(client: StoreClient) -> None:
    assert b"/store\0" not in Path(f"/proc/{answered(client).pid}/cmdline").read_bytes()


def test_an_interrupted_request_leaves_no_reply_behind(client: StoreClient) -> None:
    """The next one would take it for its own."""
    process = answered(client)
    reader: Any = SimpleNamespace(receive=raising(KeyboardInterrupt))
    assert client._child is not None
    client._child.messages = reader
    with pytest.raises(KeyboardInterrupt):
        client.ask(READ)
    assert process.wait(60) == -signal.SIGKILL
    assert client.ask(READ) == Contents((None,))


def test_a_store_is_left_alone_for_twice_as_long_up_to_a_quarter_of_an_hour(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_client, "REST_S", 60.0)
    client, told, until = StoreClient(f"file://{store}"), list[str](), []
    client.report = told.append
    with monkeypatch.context() as inside:
        inside.setattr(store_client.time, "monotonic", lambda: 1000.0)
        for _ in range(6):
            client._leave_alone("no route")
            until.append(client._away_until)
    assert until == [1060.0, 1120.0, 1240.0, 1480.0, 1900.0, 1900.0]
    assert told == [f"{client.url}: can't be used (no route); tuning goes on with this machine's own cache"]


def test_a_store_s_limits_are_the_documented_ones() -> None:
    """docs/shared-store.md."""
    assert LIMITS == (0.5, 0.9, 60.0, 900.0)


def test_a_store_that_is_left_alone_is_told_nothing_and_not_begun(client: StoreClient) -> None:
    client._away_until = NEVER
    client.tell(WriteLaterRequest("a", b"1"))
    client.begin()
    assert client.ask(READ) is None
    assert client._child is None


def test_a_process_that_can_not_start_is_no_error_for_who_begins(
    client: StoreClient, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_start", raising(OSError("no process")))
    client.begin()
    assert client._child is None
    assert not client.is_away
    client.tell(WriteLaterRequest("a", b"1"))
    assert client.is_away
    assert "no process" in told[0]


def test_closing_twice_and_a_client_that_never_began_do_nothing(client: StoreClient) -> None:
    client.close()
    process = answered(client)
    client.close(60)
    assert process.returncode == 0
    assert process.stdin.closed
    assert process.stdout.closed
    client.close()


def test_a_process_that_does_not_end_in_time_ends_by_itself(client: StoreClient) -> None:
    """Its object would warn of a process that still runs."""
    process = answered(client)
    os.kill(process.pid, signal.SIGSTOP)
    client.close(0.01)
    assert process.returncode == 0
    os.kill(process.pid, signal.SIGCONT)
    os.waitpid(process.pid, 0)


def test_a_forked_copy_closes_the_pipes_and_reaps_nobody(client: StoreClient) -> None:
    pipes = [Path(os.devnull).open() for _ in range(2)]  # noqa: SIM115 - closed by what is tested
    process: Any = SimpleNamespace(stdin=pipes[0], stdout=pipes[1], returncode=None)
    client._child = ChildProcess((), StoreReply, fork=lambda errors: process)
    client._pid, client._probing_since = -1, 7.0
    client._forget_forked()
    assert (client._child, client._pid, client._probing_since) == (None, os.getpid(), None)
    assert process.returncode == 0
    assert all(pipe.closed for pipe in pipes)
    client._pid = -1
    client._forget_forked()
    assert client._pid == os.getpid()


@pytest.fixture
def many_descriptors() -> Iterator[int]:
    """How far descriptors' numbers may go: above 1024, from which on ``select()`` can't have them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip(f"a process may have {hard} descriptors here")
    if soft != resource.RLIM_INFINITY and soft < 2048:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
    yield 1024
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_store_comes_back_to_a_process_with_many_descriptors(
    tmp_path: Path, many_descriptors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late first reply is looked for, and what is sent waited for, whatever numbers the pipes have."""

    def pipe() -> tuple[int, int]:
        ends = os.pipe()
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, many_descriptors) for end in ends]
        for end in ends:
            os.close(end)
        return high[0], high[1]

    (asked, stdin), (stdout, answers) = pipe(), pipe()
    client = StoreClient(f"file://{tmp_path}/store")
    with open(stdin, "wb") as sent, open(stdout, "rb") as received, open(asked, "rb"), open(answers, "wb"):
        process: Any = SimpleNamespace(stdin=sent, stdout=received, poll=lambda: None, returncode=None)
        child: ChildProcess[StoreReply] = ChildProcess((), StoreReply, fork=lambda errors: process)
        monkeypatch.setattr(store_client, "ChildProcess", lambda *given: child)
        client._away_until = 1e-9
        assert not client._is_back(), "it is asked now"
        assert Reader(asked, StoreRequest).receive() == ReadRequest(("kerntune-probe",), 1)
        assert not client._is_back(), "nothing is there yet"
        send(answers, StoreReady())
        assert not client._is_back(), "no reply is there yet"
        send(answers, Contents((None,)))
        assert client._is_back()
        assert not client.is_away
        child.forget()
        client._child = None


# a store that is asked from this process


def test_what_is_told_is_done_at_the_end(tmp_path: Path) -> None:
    client = DirectClient(f"file://{tmp_path}/store")
    assert client.ask(ReadRequest(("a",), 10)) == Contents((None,))
    client.tell(WriteLaterRequest("a", b"1"))
    client.tell(WriteLaterRequest("b", b"2"))
    client.finish()
    assert client.ask(ReadRequest(("a", "b"), 10)) == Contents((b"1", b"2"))
    client.finish()


@pytest.mark.parametrize(("reply", "said"), [(None, "no answer"), (StoreFailed("no room"), "no room")])
def test_what_fails_is_an_error_with_the_store(tmp_path: Path, reply: Any, said: str) -> None:
    client = DirectClient(f"file://{tmp_path}/store")
    server: Any = SimpleNamespace(answer=lambda request: reply, finish=lambda: None, failed=said)
    client._server = server
    with pytest.raises(CacheError, match=f"store: {said}"):
        client.ask(ReadRequest(("a",), 10))
    with pytest.raises(CacheError, match=f"store: {said}"):
        client.finish()
