"""Which process gets a request, and when processes start and end."""

from __future__ import annotations

import ctypes.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import recording

from kerntune.base.child_process import module_command
from kerntune.base.frames import encode, send
from kerntune.errors import MeasurementError, ReplayError
from kerntune.timing.worker import pool as pool_module
from kerntune.timing.worker.pool import Worker, WorkerPool
from kerntune.timing.worker.requests import Message, PairReply, PairRequest, Ready, RequestFailed

READY = 3
REQUESTS = 10


REQUEST = PairRequest(recording(), recording(), recording().storages, {}, blocks=1, seed=0)


class Scripted:
    """A worker without a process. ``replies`` are its last answers, in place of a pair of times."""

    made: list[Scripted] = []
    replies: dict[int, Message] = {}
    broken: set[int] = set()

    def __init__(self, ordinal: int) -> None:
        self.number, self.asked, self.closed = len(Scripted.made), 0, False
        Scripted.made.append(self)

    def wait(self) -> None:
        if self.number in Scripted.broken:
            raise MeasurementError(f"worker {self.number} did not start")

    def ask(self, request: PairRequest) -> Message:
        assert not self.closed
        self.asked += 1
        return Scripted.replies.get(self.number, PairReply((float(self.number),), (1.0,)))

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    reset()
    yield
    reset()


def reset() -> None:
    Scripted.made, Scripted.replies, Scripted.broken = [], {}, set()


def pool(requests: int = REQUESTS) -> WorkerPool:
    return WorkerPool(0, requests, Scripted)  # type: ignore[arg-type]  # all of a worker that a pool uses


def asked(made: WorkerPool, count: int) -> list[int]:
    """Numbers of the workers that answer ``count`` requests."""
    return [int(made.run(REQUEST).a_ns[0]) for _ in range(count)]


@given(decisions=st.lists(st.sampled_from([(3,), (4,), (3, 5)]), max_size=12), requests=st.integers(1, 10))
def test_no_decision_asks_a_process_twice(decisions: list[tuple[int, ...]], requests: int) -> None:
    reset()
    made = pool(requests)
    for looks in decisions:
        seen: list[int] = []
        for count in looks:
            made.expect(len(seen) + count)
            seen += asked(made, count)
        assert len(set(seen)) == len(seen)
    assert all(w.asked <= requests for w in Scripted.made)


def test_processes_serve_ten_decisions_before_others_start() -> None:
    made = pool()
    for _ in range(REQUESTS):
        made.expect(3)
        asked(made, 3)
    first, later = Scripted.made[:3], Scripted.made[3:]
    assert [w.asked for w in first] == [REQUESTS] * 3
    assert all(w.closed for w in first), "used up"
    assert len(later) == READY, "started while the caller goes on"
    assert not any(w.asked or w.closed for w in later)


def test_an_escalation_starts_only_what_is_missing() -> None:
    made = pool()
    made.expect(3)
    first = asked(made, 3)
    made.expect(8)
    assert len(Scripted.made) == 8
    assert not set(first) & set(asked(made, 5))
    made.expect(3)
    assert len(Scripted.made) == 8


@pytest.mark.parametrize(("replayable", "error"), [(True, MeasurementError), (False, ReplayError)])
def test_one_that_fails_is_dropped(replayable: bool, error: type[Exception]) -> None:
    """An illegal address, say, spoils its context for good."""
    made = pool()
    made.expect(2)
    bad = int(made.run(REQUEST).a_ns[0])
    Scripted.replies[bad] = RequestFailed("an illegal address", replayable)
    asked(made, 1)
    with pytest.raises(error, match="an illegal address"):
        made.run(REQUEST)
    assert Scripted.made[bad].closed
    assert bad not in asked(made, 4)


def test_one_that_does_not_start_is_told_when_it_is_needed() -> None:
    made = pool()
    made.expect(2)
    Scripted.broken = {0}
    made.settle()
    assert asked(made, 2) == [1, 1]
    Scripted.broken = {0, 1, 2}
    made.close()
    with pytest.raises(MeasurementError, match="worker 2 did not start"):
        made.run(REQUEST)
    Scripted.broken = set()
    assert asked(made, 1) == [3], "another try later"


def test_closing_ends_all() -> None:
    made = pool()
    made.expect(3)
    made.close()
    assert all(w.closed for w in Scripted.made)


@pytest.mark.skipif(ctypes.util.find_library("cuda") is not None, reason="a driver is here")
def test_a_process_without_a_driver_says_so() -> None:
    worker = Worker(0)
    try:
        with pytest.raises(MeasurementError, match="driver library can't be loaded"):
            worker.ask(REQUEST)
    finally:
        worker.close()


def another_kerntune(folder: Path) -> str:
    (folder / "kerntune").mkdir(parents=True)
    (folder / "kerntune" / "__init__.py").write_text("raise SystemExit('another kerntune')")
    return str(folder)


def test_a_process_imports_this_kerntune_wherever_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a checkout that isn't installed, too: neither the working folder nor the user's paths come before it."""
    monkeypatch.chdir(another_kerntune(tmp_path / "working"))
    monkeypatch.setenv("PYTHONPATH", another_kerntune(tmp_path / "theirs"))
    root = str(Path(pool_module.__file__).parents[3])
    monkeypatch.setattr(sys, "path", ["", os.environ["PYTHONPATH"], *(x for x in sys.path if x != root)])
    done = subprocess.run(module_command("kerntune", "--help"), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    worker = Worker(-1)
    try:
        with pytest.raises(MeasurementError) as caught:
            worker.wait()
        assert "another kerntune" not in str(caught.value)
    finally:
        worker.close()


def test_a_process_has_this_ones_path_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the working folder, which may have modules that are called as those of others."""
    monkeypatch.setenv("PYTHONPATH", "theirs")
    monkeypatch.setattr(sys, "path", ["", *sys.path, "/no/such/folder"])
    code = "import json, os, runpy, sys; print(json.dumps([sys.path, sys.argv[1:], os.environ['PYTHONPATH']]))"
    command = module_command("a module", "7")
    command[2] = command[2].partition("import runpy")[0] + code
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [sys.path[1:], ["7"], "theirs"]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has the next workers run a Python text instead of a worker's own."""

    def is_run(text: str) -> None:
        path = tmp_path / "python"
        path.write_text(f"#!{sys.executable}\n{text}")
        path.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(path))

    return is_run


def test_a_worker_that_stops_within_its_reply_is_given_up(
    program: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limit is the whole reply's, not that of its first byte."""
    ready, reply = bytes(encode(Ready("a device"))), bytes(encode(PairReply((1.0,), (1.0,))))
    program(f"import os, time; os.write(1, {ready!r}); os.read(0, 1); os.write(1, {reply[:-1]!r}); time.sleep(600)")
    monkeypatch.setattr(pool_module, "REQUEST_TIMEOUT_S", 0.3)
    worker = Worker(0)
    try:
        with pytest.raises(MeasurementError, match="has not answered"):
            worker.ask(REQUEST)
    finally:
        worker.close()


@pytest.mark.slow
def test_a_worker_that_measures_ends_when_its_parent_has(program: Callable[[str], None], tmp_path: Path) -> None:
    """It would go on to the end of its request, minutes of a GPU that nobody waits for."""
    root, busy = str(Path(pool_module.__file__).parents[3]), tmp_path / "busy"
    program(
        f"import sys, time, pathlib; sys.path.insert(0, {root!r})\n"
        "from kerntune.gpu import driver_gpu\n"
        "from kerntune.timing.worker import serve\n"
        "class Gpu:\n    def __init__(self, ordinal): self.spec = type('Spec', (), {'name': 'a device'})\n"
        "driver_gpu.DriverGpu = Gpu\n"
        f"serve.answer = lambda *given: (pathlib.Path({str(busy)!r}).touch(), time.sleep(600))\n"
        "serve.serve(0)\n"
    )
    worker = Worker(0)
    try:
        worker.wait()
        send(worker._child.inbox.fileno(), REQUEST)
        while not busy.exists() and worker._child.alive:
            time.sleep(0.02)
        worker._child.process.stdin.close()  # type: ignore[union-attr]
        assert worker._child.process.wait(60) == -signal.SIGKILL
    finally:
        worker.close()
