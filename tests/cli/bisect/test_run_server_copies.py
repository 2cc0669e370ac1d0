"""What the server of copies does with requests and copies, and how a copy becomes the command."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doubles import raising

from kerntune.base.frames import send_with
from kerntune.cli.bisect import run_server
from kerntune.cli.bisect.preloaded import RunRequest
from kerntune.cli.bisect.run_server import installed_paths, serve


class Server:
    """What a server is asked, before it serves until there is nothing more."""

    def __init__(self) -> None:
        self.ask, self.requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.told = list[int]()

    def asked(self, *requests: RunRequest) -> None:
        for request in requests:
            told, answer = os.pipe()
            send_with(self.ask, request, [answer])
            os.close(answer)
            self.told.append(told)

    def serve(self) -> list[bytes]:
        """The answers."""
        self.ask.close()
        serve(self.requests)
        return [os.read(told, 9) for told in self.told]


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.requests.close()
    for told in made.told:
        os.close(told)


def request(folder: Path, number: int) -> RunRequest:
    return RunRequest(str(folder), {}, [], str(folder / f"out{number}"))


def test_what_ran_before_is_imported_and_copies_that_nobody_waits_for_are_ended(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Programs stand in for the copies; the second never ends."""
    programs = [["true"], ["sleep", "600"]]
    children, imported = list[int](), list[Path]()

    def fork() -> int:
        children.append(os.posix_spawnp(programs[len(children)][0], programs[len(children)], os.environ))
        if len(children) == 1:
            os.waitid(os.P_PID, children[0], os.WEXITED | os.WNOWAIT)
        return children[-1]

    monkeypatch.setattr(os, "fork", fork)
    monkeypatch.setattr(run_server, "_import_more", imported.append)
    server.asked(request(tmp_path, 1), request(tmp_path, 2))
    assert server.serve() == [b"", b""]
    assert imported == [tmp_path / "out1.imports"]
    assert os.waitstatus_to_exitcode(os.waitpid(children[1], 0)[1]) == -signal.SIGKILL
    with pytest.raises(ChildProcessError):
        os.waitpid(children[0], 0)


class Ended(BaseException):
    """In the place of a copy's end."""


@pytest.mark.parametrize(("code", "told"), [(0, b"\0"), (3, b"\3"), (-1, b"\xff")])
def test_a_copy_becomes_the_command_without_the_servers_socket_and_tells_its_exit_code(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, told: bytes
) -> None:
    became: list[Any] = []

    def become(*given: Any) -> int:
        assert server.requests.fileno() == -1
        became.append(given)
        return code

    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(os, "fork", lambda: 0)
    hooks: list[Any] = []
    monkeypatch.setattr(os, "register_at_fork", lambda after_in_child: hooks.append(after_in_child))
    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(run_server, "_become", become)
    server.asked(request(tmp_path, 5))
    with pytest.raises(Ended):
        server.serve()
    assert became == [(request(tmp_path, 5), installed_paths())]
    assert os.read(server.told[0], 9) == told
    os.set_blocking(server.told[0], False)
    with pytest.raises(BlockingIOError):
        os.read(server.told[0], 9)
    hooks[0]()
    assert os.read(server.told[0], 9) == b"", "what the command has forked holds it no longer"
    hooks[0]()


def test_code_with_names_of_imported_modules_needs_a_process_of_its_own(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "json.py").touch()
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    server.asked(request(tmp_path, 3))
    assert server.serve() == [b""]


def test_what_is_installed_stays_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/first", "/given", "/site", "/given/../lib"])
    monkeypatch.setattr(run_server, "python_path", lambda: ["/given/"])
    assert installed_paths() == ["/site", "/given/../lib"]


# the copy


@pytest.fixture
def copy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What a copy of this process did to its own signals, files and end."""
    did: list[Any] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", {"OLD": "1"})
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(signal, "signal", lambda *given: did.append(given))
    monkeypatch.setattr(run_server, "_redirect", did.append)
    monkeypatch.setattr(run_server, "_end", lambda: did.append("ended"))
    return did


def test_a_copy_is_as_if_it_had_been_started(copy: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (here := tmp_path / "here").mkdir()
    seen: list[Any] = []

    def command(words: list[str]) -> int:
        seen.extend([words, dict(os.environ), Path.cwd(), list(sys.path)])
        return 4

    monkeypatch.setattr(run_server, "command", command)
    monkeypatch.setattr(run_server, "python_path", lambda env: [env["PYTHONPATH"]])
    asked = RunRequest(str(here), {"PYTHONPATH": "/p"}, ["tune", "x"], str(here / "out1"))
    assert run_server._become(asked, ["/base"]) == 4
    assert seen == [["tune", "x"], {"PYTHONPATH": "/p"}, here, [str(here), "/p", "/base"]]
    assert copy == [(signal.SIGINT, signal.default_int_handler), str(here / "out1"), "ended"]
    assert "json" in (here / "out1.imports").read_text().splitlines()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SystemExit(3), 3),
        (SystemExit(), 0),
        (SystemExit("said"), 1),
        (ValueError("x"), 1),
        (KeyboardInterrupt(), 1),
    ],
)
def test_how_a_copy_ends(
    copy: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException, code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(run_server, "command", raising(error))
    assert run_server._become(request(tmp_path, 1), []) == code
    assert copy[-1] == "ended"
    assert ("Traceback" in capsys.readouterr().err) == (not isinstance(error, SystemExit))


def test_output_and_errors_go_to_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    moved: list[Any] = []
    monkeypatch.setattr(os, "dup2", lambda old, new: moved.append((os.readlink(f"/proc/self/fd/{old}"), new)))
    run_server._redirect(str(tmp_path / "out"))
    assert moved == [(os.devnull, 0), (str(tmp_path / "out"), 1), (str(tmp_path / "out"), 2)]


def test_a_copy_waits_for_its_threads_before_the_exit_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    class Thread:
        def __init__(self, daemon: bool) -> None:
            self.daemon = daemon

        def join(self) -> None:
            order.append(f"joined {self.daemon}")

    monkeypatch.setattr(threading, "enumerate", lambda: [threading.current_thread(), Thread(True), Thread(False)])
    monkeypatch.setattr(atexit, "_run_exitfuncs", lambda: order.append("exit functions"))
    run_server._end()
    assert order == ["joined False", "exit functions"]


def test_the_server_imports_first_and_keeps_its_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard input is nothing's then."""
    did: list[Any] = []
    monkeypatch.setattr(signal, "signal", lambda *given: did.append(given))
    monkeypatch.setattr(os, "dup", lambda number: number + 10)
    monkeypatch.setattr(os, "dup2", lambda old, new: did.append(("nothing", new)))
    monkeypatch.setattr(run_server.importlib, "import_module", did.append)
    monkeypatch.setattr(run_server, "triton_key", lambda: did.append("key"))
    monkeypatch.setattr(gc, "collect", lambda: did.append("collected"))
    monkeypatch.setattr(gc, "freeze", lambda: did.append("frozen"))
    monkeypatch.setattr(socket, "socket", lambda fileno: fileno)
    monkeypatch.setattr(run_server, "serve", lambda requests: did.append(("serves", requests)))
    run_server.main()
    assert did == [
        (signal.SIGINT, signal.SIG_IGN), ("nothing", 0), *run_server.IMPORTED, "key", "collected", "frozen",
        ("serves", 10),
    ]  # fmt: skip
