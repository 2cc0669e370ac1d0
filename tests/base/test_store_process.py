"""What the process of a store does for the one that started it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.base import store_process
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
        server.work()
        said.append(server.files.read("lease", 100))
    assert len(set(said)) == 3
    server.answer(EndRenewal("lease"))
    server.work()
    assert server.files.read("lease", 100) == said[-1] == b"me 3\n"


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
    server.answer(WriteLaterRequest("a", b"1"))
    server.finish()
    assert (server.files.names(), server.wait_s()) == (["a"], None)


def test_what_is_due_later_is_waited_for(server: StoreServer) -> None:
    assert server.wait_s() is None
    server.answer(RenewRequest("lease", "me", 60.0))
    server.work()
    wait = server.wait_s()
    assert wait is not None
    assert 50.0 < wait <= 60.0
    server.work()
    assert server.files.names() == []
    server.answer(WriteLaterRequest("a", b"1"))
    assert server.wait_s() == 0.0


def test_a_process_serves_until_the_pipe_is_closed(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """And works between requests, once they are all answered."""
    source, requests = os.pipe()
    replies, target = os.pipe()
    did: list[str] = []
    work = server.work

    def closing() -> None:
        did.append("work")
        work()
        os.close(requests)

    monkeypatch.setattr(server, "work", closing)
    send(requests, create("a", b"1"))
    send(requests, WriteLaterRequest("b", b"2"))
    send(requests, ReadRequest(("k/a.json", "b"), 100))
    store_process.serve(server, os.getpid(), source, target)
    reader: Reader[StoreReply] = Reader(replies, StoreReply)
    assert [reader.receive(Timeout(5)) for _ in range(2)] == [WriteReply(True), Contents((b"1", None))]
    assert did == ["work"]
    assert server.files.names() == ["b", "k/a.json"]
    for handle in (source, replies, target):
        os.close(handle)


def test_a_process_ends_with_its_parent_though_a_copy_holds_the_pipe(server: StoreServer) -> None:
    source, requests = os.pipe()
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    try:
        store_process.serve(server, ended.pid, source, requests)
    finally:
        ended.wait()
        os.close(source)
        os.close(requests)


@pytest.mark.parametrize(
    ("url", "loaded"), [("file:///a", []), ("s3://b", ["s3"]), ("sftp://h/a", []), ("nonsense", ["nonsense"])]
)
def test_what_a_store_needs_is_imported_early(monkeypatch: pytest.MonkeyPatch, url: str, loaded: list[str]) -> None:
    found: list[str] = []
    monkeypatch.setitem(sys.modules, "fsspec", SimpleNamespace(get_filesystem_class=found.append))
    monkeypatch.setitem(sys.modules, "paramiko", SimpleNamespace())
    store_process._load(url)
    assert found == loaded
    monkeypatch.setitem(sys.modules, "fsspec", None)
    store_process._load(url)


@pytest.mark.parametrize(("url", "prepared"), [("s3://b", 1), ("file:///a", 1), ("sftp://h/a", 0)])
def test_a_client_is_made_early_but_for_one_that_connects(
    monkeypatch: pytest.MonkeyPatch, url: str, prepared: int
) -> None:
    did: list[Any] = []

    def prepare() -> None:
        did.append(1)
        raise OSError("the first request says it")

    monkeypatch.setattr(
        store_process, "open_files", lambda *given: did.append(given) or SimpleNamespace(prepare=prepare)
    )
    StoreServer(url, 2.0).prepare()
    assert did == [(url, 2.0), 1] * prepared
