"""Files on an SFTP server, whose package stands for itself with a folder here."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from doubles import raising

from kerntune.base.url_files import UrlFiles, open_files


class Server:
    """paramiko's client of SSH and of SFTP at once. A rename fails where the target exists, as the protocol has it."""

    def __init__(self) -> None:
        self.connected: list[Any] = []
        self.waits: list[float | None] = []
        self.stat, self.mkdir, self.remove = os.stat, os.mkdir, os.remove
        self.posix_rename = os.replace

    def connect(self, host: str, port: int, **words: Any) -> None:
        self.connected += [host, port, words]

    def load_system_host_keys(self) -> None:
        self.connected.append("known hosts")

    def set_missing_host_key_policy(self, policy: str) -> None:
        self.connected.append(policy)

    def open(self, name: str, mode: str) -> Any:
        return open(name, {"wbx": "xb"}.get(mode, mode))

    def open_sftp(self) -> Server:
        return self

    def get_channel(self) -> Any:
        return SimpleNamespace(settimeout=self.waits.append)

    def rename(self, name: str, to: str) -> None:
        os.link(name, to)
        os.unlink(name)

    def listdir_attr(self, folder: str) -> list[Any]:
        return [SimpleNamespace(filename=e.name, st_mode=e.stat().st_mode) for e in os.scandir(folder)]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server()
    package: Any = SimpleNamespace(SSHClient=lambda: found, RejectPolicy=lambda: "unknown hosts are rejected")
    monkeypatch.setitem(sys.modules, "paramiko", package)
    monkeypatch.setattr("kerntune.base.url_files.check_packages", lambda url: None)
    return found


@pytest.fixture
def files(server: Server, tmp_path: Path) -> UrlFiles:
    return open_files(f"sftp://me:a%40b@host:2222{tmp_path}/a%20store", 0.5)


def test_who_connects_and_how_long_that_may_take(files: UrlFiles, server: Server) -> None:
    limits = dict.fromkeys(("timeout", "banner_timeout", "auth_timeout"), 3.0)
    words = {"username": "me", "password": "a@b", **limits}
    assert server.connected == ["known hosts", "unknown hosts are rejected", "host", 2222, words]
    assert server.waits == [0.5]
    open_files("sftp://host/store")
    assert server.connected[-3:] == ["host", 22, {"username": None, "password": None}]


def test_a_server_reads_what_was_written(files: UrlFiles, tmp_path: Path) -> None:
    assert (files.names(), files.read("a/b", 9)) == ([], None)
    files.replace("a/b", b"12345")
    files.replace("a/b", b"54321")
    assert (tmp_path / "a store/a/b").read_bytes() == b"54321"
    assert [files.read("a/b", limit) for limit in (3, 4, 9)] == [b"5432", b"54321", b"54321"]
    files.replace("c", b"1")
    (tmp_path / "a store/.hidden").touch()
    assert (files.names(), files.names("a/")) == (["a/b", "c"], ["a/b"])
    assert files.read_many(["a/b", "a", "none"], 9) == [b"54321", None, None]
    for _ in range(2):
        files.remove("a/b")
    assert files.names() == ["c"]


def test_who_comes_second_changes_nothing_and_leaves_nothing(files: UrlFiles, tmp_path: Path) -> None:
    assert [files.create("a/b", data) for data in (b"1", b"2")] == [True, False]
    assert files.read("a/b", 9) == b"1"
    assert os.listdir(tmp_path / "a store/a") == ["b"]


def test_what_keeps_a_file_from_being_named_is_an_error(
    files: UrlFiles, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "rename", raising(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        files.create("a", b"1")
    assert files.names() == []
