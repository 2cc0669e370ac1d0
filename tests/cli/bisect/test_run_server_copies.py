"""What the server of copies does with requests and copies, and how a copy becomes the command."""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kerntune.cli.bisect import run_server
from kerntune.cli.bisect.preloaded import ANSWER
from kerntune.cli.bisect.run_server import RunCopies, installed_paths


class Server:
    """A server and the other ends of its pipes."""

    def __init__(self) -> None:
        requests, self.ask = os.pipe()
        self.answers, answers = os.pipe()
        self.ends = [requests, self.ask, self.answers, answers]
        self.copies = RunCopies(requests, answers)

    def read(self) -> str:
        return os.read(self.answers, 1 << 12).decode()

    def hang_up(self) -> None:
        os.close(self.ask)
        self.ends.remove(self.ask)


@pytest.fixture
def server() -> Any:
    made = Server()
    yield made
    for end in made.ends:
        os.close(end)


def request(folder: Path, number: int) -> dict[str, Any]:
    return {"number": number, "cwd": str(folder), "env": {}, "output": str(folder / f"out{number}"), "arguments": []}


def test_requests_are_lines_however_they_arrive(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    data = json.dumps({"number": 1}).encode() + b"\n" + json.dumps({"number": 2}).encode() + b"\n"
    pieces = [data[:5], data[5:20], data[20:], b""]
    monkeypatch.setattr(os, "read", lambda end, limit: pieces.pop(0))
    monkeypatch.setattr(server.copies, "_begin", asked.append)
    os.write(server.ask, b"x")
    server.copies.serve()
    assert asked == [{"number": 1}, {"number": 2}]


def test_copies_that_nobody_waits_for_are_ended(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[Any] = []
    monkeypatch.setattr(os, "kill", lambda *given: killed.append(given))
    server.copies._running[99] = (4242, {})
    server.hang_up()
    server.copies.serve()
    assert killed == [(4242, signal.SIGKILL)]


@pytest.mark.parametrize("code", [0, 3])
def test_a_copys_exit_code_is_answered(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    """A program stands in for the copy."""
    shell = "/bin/sh"
    monkeypatch.setattr(os, "fork", lambda: os.posix_spawn(shell, [shell, "-c", f"exit {code}"], {}))
    imported: list[Path] = []

    def import_more(left: Path) -> None:
        imported.append(left)
        server.hang_up()

    monkeypatch.setattr(run_server, "_import_more", import_more)
    os.write(server.ask, json.dumps(request(tmp_path, 7)).encode() + b"\n")
    server.copies.serve()
    assert server.read() == f"{ANSWER}7 {code}\n"
    assert imported == [tmp_path / "out7.imports"]
    assert server.copies._running == {}


def test_a_copy_becomes_the_command_without_the_servers_pipes(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Ended(BaseException):
        pass

    def end(code: int) -> None:
        raise Ended(code)

    closed: list[int] = []
    monkeypatch.setattr(os, "fork", lambda: 0)
    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(run_server, "_become", lambda asked, base: (asked["number"], base))
    with monkeypatch.context() as patch:
        patch.setattr(os, "close", closed.append)
        with pytest.raises(Ended) as caught:
            server.copies._begin(request(tmp_path, 5))
    assert caught.value.args == ((5, installed_paths()),)
    assert closed == [server.ends[0], server.ends[3]]


def test_code_with_names_of_imported_modules_needs_a_process_of_its_own(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "json.py").touch()
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    server.copies._begin(request(tmp_path, 3))
    assert server.read() == f"{ANSWER}3 own\n"


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
    asked = {**request(here, 1), "arguments": ["tune", "x"], "env": {"PYTHONPATH": "/p"}}
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
    def command(words: list[str]) -> int:
        raise error

    monkeypatch.setattr(run_server, "command", command)
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


def test_the_server_imports_first_and_keeps_its_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard input and output are nothing's then: an import may print."""
    did: list[Any] = []
    monkeypatch.setattr(signal, "signal", lambda *given: did.append(given))
    monkeypatch.setattr(os, "dup", lambda number: number + 10)
    monkeypatch.setattr(os, "dup2", lambda old, new: did.append(("nothing", new)))
    monkeypatch.setattr(run_server.importlib, "import_module", did.append)
    monkeypatch.setattr(run_server, "triton_key", lambda: did.append("key"))
    monkeypatch.setattr(gc, "collect", lambda: did.append("collected"))
    monkeypatch.setattr(gc, "freeze", lambda: did.append("frozen"))

    class Copies:
        def __init__(self, *pipes: int) -> None:
            did.append(pipes)

        def serve(self) -> None:
            did.append("served")

    monkeypatch.setattr(run_server, "RunCopies", Copies)
    run_server.main()
    assert did == [
        (signal.SIGINT, signal.SIG_IGN), ("nothing", 0), ("nothing", 1), *run_server.IMPORTED, "key", "collected",
        "frozen", (10, 11), "served",
    ]  # fmt: skip
