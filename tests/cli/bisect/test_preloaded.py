"""Processes with imports that run commands: which one a run goes to, and what becomes of its answers."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from kerntune.cli.bisect import preloaded
from kerntune.cli.bisect.bisected_version import Checkout
from kerntune.cli.bisect.preloaded import CommandRuns, RunServer, run_alone


class Server:
    """Answers with its number, from 0; the second one with nothing."""

    made: list[Server]

    def __init__(self, python: str, shared: tuple[str, ...], env: dict[str, str]) -> None:
        self.made.append(self)
        self.place, self.did, self.code = (python, shared, env), list[Any](), len(self.made) - 1 or None

    def run(self, *words: Any) -> int | None:
        self.did.append(words)
        return self.code

    def close(self) -> None:
        self.did.append("closed")


def layout(folder: Path, python: str = "python", shared: tuple[str, ...] | None = ("lib",)) -> Checkout:
    return Checkout(folder, folder, python, {"A": "1"}, shared)


def test_runs_with_the_same_imports_go_to_one_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What it can't run, and what has a path of its own, is run alone."""
    alone: list[Any] = []
    Server.made = []
    monkeypatch.setattr(preloaded, "RunServer", Server)
    monkeypatch.setattr(preloaded, "run_alone", lambda *words: alone.append(words) or 7)
    runs, out = CommandRuns(), tmp_path / "out"
    first, other, own = layout(tmp_path), layout(tmp_path, "python3"), layout(tmp_path, shared=None)
    assert [runs.run(one, ["a"], out) for one in (first, first, other, own)] == [7, 7, 1, 7]
    assert alone == [(first, ["a"], out), (first, ["a"], out), (own, ["a"], out)]
    assert [server.place for server in Server.made] == [
        ("python", ("lib",), {"A": "1"}),
        ("python3", ("lib",), {"A": "1"}),
    ]
    runs.close()
    assert [server.did for server in Server.made] == [
        [(first, ["a"], out), (first, ["a"], out), "closed"], [(other, ["a"], out), "closed"],
    ]  # fmt: skip


def interpreter(folder: Path, body: str) -> str:
    """In the place of a Python: does what ``body`` says."""
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\nimport os, socket, sys\n{body}")
    path.chmod(0o755)
    return str(path)


ANSWERS = """
import json, msgspec
requests = socket.socket(fileno=0)
print("printed at the start", flush=True)
while (found := socket.recv_fds(requests, 1 << 16, 1))[0]:
    asked, (answer,) = msgspec.msgpack.decode(found[0][4:]), found[1]
    open(asked["output"], "a").write(json.dumps([sys.argv[1:], os.getcwd(), os.environ["PYTHONPATH"], asked]) + chr(10))
    code = asked["arguments"][0]
    os.write(answer, bytes([int(code)] if code.isdecimal() else []))
    os.close(answer)
"""


def test_a_process_answers_with_exit_codes(tmp_path: Path) -> None:
    out = tmp_path / "out"
    server = RunServer(interpreter(tmp_path, ANSWERS), ("a", "b"), {**os.environ, "PYTHONPATH": "own"})
    try:
        here = layout(tmp_path)
        assert [server.run(here, [code, "more"], out) for code in ("0", "5", "unable", "255")] == [0, 5, None, 255]
    finally:
        server.close()
    words = ["-m", "kerntune.cli.bisect.run_server"]
    asked = {"cwd": str(tmp_path), "env": {"A": "1"}, "output": str(out)}
    assert [json.loads(line) for line in out.read_text().splitlines()] == [
        [words, "/", f"a{os.pathsep}b", {**asked, "arguments": [code, "more"]}] for code in ("0", "5", "unable", "255")
    ]
    assert server._process.returncode == 0, "it ends when nothing more is asked"


@pytest.mark.parametrize("value", ["x" * (1 << 16), "\udcff"], ids=["too long", "no UTF-8"])
def test_an_environment_that_can_not_be_sent_runs_alone(tmp_path: Path, value: str) -> None:
    server = RunServer(interpreter(tmp_path, ANSWERS), (), dict(os.environ))
    here = Checkout(tmp_path, tmp_path, "python", {"A": value}, ())
    assert server.run(here, ["0"], tmp_path / "out") is None
    server.close()


def test_a_process_that_ends_runs_nothing(tmp_path: Path) -> None:
    """While it is asked, and before."""
    server = RunServer(interpreter(tmp_path, "socket.socket(fileno=0).recv(1)"), (), dict(os.environ))
    here, out = layout(tmp_path), tmp_path / "out"
    assert [server.run(here, ["0"], out) for _ in range(2)] == [None, None]
    server.close()


def test_a_run_of_its_own_has_its_output_in_a_file(tmp_path: Path) -> None:
    body = "print(sys.argv[1:], os.getcwd(), os.environ['A']); print('error', file=sys.stderr); sys.exit(3)"
    made = layout(tmp_path, interpreter(tmp_path, body))
    assert run_alone(made, ["tune", "x"], tmp_path / "out") == 3
    told = (tmp_path / "out").read_text().splitlines()
    assert sorted(told) == sorted(["error", f"['-m', 'kerntune', 'tune', 'x'] {tmp_path} 1"])
