"""What the process of a store does for the one that started it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kerntune.base.frames import Reader, Timeout, send
from kerntune.base.store_process import (
    URL,
    Contents,
    CreateRequest,
    EndRenewal,
    Names,
    NamesRequest,
    ReadRequest,
    RemoveLaterRequest,
    RenewRequest,
    ReplaceRequest,
    StoreFailed,
    StoreReady,
    StoreReply,
    StoreServer,
    WriteLaterRequest,
    WriteReply,
)


@pytest.fixture
def server(tmp_path: Path) -> StoreServer:
    return StoreServer(f"file://{tmp_path}/store", 0.5)


def create(name: str, data: bytes) -> CreateRequest:
    return CreateRequest(f"k/{name}.json", data, 100)


def test_the_first_write_stands_and_the_second_reads_it(server: StoreServer) -> None:
    assert server.answer(create("a", b"1")) == WriteReply(True)
    assert server.answer(create("a", b"2")) == WriteReply(False, b"1")
    assert server.answer(ReadRequest(("k/a.json", "k/b.json"), 100)) == Contents((b"1", None))
    assert server.answer(ReplaceRequest("k/a.json", b"3")) == WriteReply(True)
    assert server.answer(NamesRequest("k")) == Names(("k/a.json",))


def test_later_writes_come_in_order(server: StoreServer) -> None:
    server.answer(WriteLaterRequest("a", b"1"))
    server.answer(WriteLaterRequest("b", b"1"))
    server.answer(RemoveLaterRequest(("a",)))
    assert server.files.names() == []
    server.finish()
    assert server.files.names() == ["b"]


def test_a_renewal_says_something_new_each_time(server: StoreServer) -> None:
    server.answer(RenewRequest("lease", "me", 0.0))
    said = []
    for _ in range(3):
        assert server.work()
        said.append(server.files.read("lease", 100))
    assert len(set(said)) == 3
    server.answer(EndRenewal("lease"))
    assert not server.work()


def test_an_error_is_a_reply(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file, not a folder")
    found = StoreServer(f"file://{tmp_path}/store", 0.5).answer(create("a", b"1"))
    assert isinstance(found, StoreFailed)
    assert "store" in found.message


def test_an_error_of_what_nobody_waits_for_does_not_come_again(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file, not a folder")
    server = StoreServer(f"file://{tmp_path}/store", 0.5)
    server.answer(WriteLaterRequest("a", b"1"))
    server.finish()
    assert server.wait_s() is None
    assert server.failed


def test_a_process_writes_what_is_left_when_its_parent_closes_the_pipe(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kerntune.base.store_process", str(os.getpid()), "0.5"]
    env = {**os.environ, URL: f"file://{tmp_path}/store"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        reader: Reader[StoreReply] = Reader(process.stdout.fileno(), StoreReply)
        limit = Timeout(60)
        assert reader.receive(limit) == StoreReady()
        send(process.stdin.fileno(), create("a", b"1"))
        assert reader.receive(limit) == WriteReply(True)
        send(process.stdin.fileno(), WriteLaterRequest("b", b"1"))
        process.stdin.close()
        assert process.wait(60) == 0
    assert StoreServer(f"file://{tmp_path}/store", None).files.names() == ["b", "k/a.json"]


def test_a_lease_is_not_renewed_by_a_process_that_ends(server: StoreServer) -> None:
    server.answer(RenewRequest("lease", "me", 0.0))
    assert server.wait_s() == 0.0
    assert not server.work(ending=True)
    assert server.files.names() == []
    assert server.work()
    assert server.files.names() == ["lease"]


def test_what_is_due_later_is_waited_for(server: StoreServer) -> None:
    assert server.wait_s() is None
    server.answer(RenewRequest("lease", "me", 60.0))
    server.work()
    wait = server.wait_s()
    assert wait is not None
    assert 50.0 < wait <= 60.0
    assert not server.work()
    server.answer(WriteLaterRequest("a", b"1"))
    assert server.wait_s() == 0.0
