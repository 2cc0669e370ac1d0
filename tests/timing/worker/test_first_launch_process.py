"""The process for first launches: how it starts, answers, ends, and dies with its parent."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from samples import bytes_of, recording

from kerntune.base.child_process import ChildEnded
from kerntune.base.device import Target, typical_device
from kerntune.errors import BackendError, MeasurementError, OutOfResourcesError, PeerTimeout, ReplayError
from kerntune.gpu.base import Buffer
from kerntune.gpu.script import ABORT, HANG, ILLEGAL_ADDRESS, Rule, Script
from kerntune.gpu.scripted import FakeGpu
from kerntune.gpu.staging import HOST, HostStaging, StagedPiece
from kerntune.timing.worker import __main__ as worker_main
from kerntune.timing.worker import first_launch_server
from kerntune.timing.worker.first_launch_server import FirstLaunchWorker, serve_first_launches
from kerntune.timing.worker.requests import (
    FirstLaunchesRequest,
    FirstLaunchFailed,
    FirstLaunchReply,
    FirstLaunchRequest,
    ForgetRequest,
    RequestFailed,
    Staged,
    StageRequest,
)
from kerntune.tuning.isolation import FirstLaunchProcess, Isolation

ROOT = Path(__file__).resolve().parents[3]
WORK = recording()
LOOK = FirstLaunchRequest(WORK, {b.sha256: bytes_of(b.code) for b in WORK.binaries})


def staged() -> StageRequest:
    """All of the recording's storages, at places of their own."""
    layout = {i: (s.nbytes, 0) for i, s in enumerate(WORK.storages)}
    return StageRequest(HOST, b"", layout, tuple(StagedPiece(i, 0, i << 16, n) for i, (n, _) in layout.items()))


@pytest.fixture
def gpu() -> FakeGpu:
    return FakeGpu(typical_device(Target.parse("cuda:90")), Script(isolated=True))


@pytest.fixture
def staging(gpu: FakeGpu) -> Iterator[HostStaging]:
    made = HostStaging(gpu)
    yield made
    made.close()


Start = Callable[..., FirstLaunchProcess]


@pytest.fixture
def begin(gpu: FakeGpu, staging: HostStaging) -> Iterator[Start]:
    """Starts processes on a device with some rules, which end with the test."""
    made: list[FirstLaunchProcess] = []

    def start(*rules: Rule) -> FirstLaunchProcess:
        gpu.script = Script(rules, isolated=True)
        made.append(FirstLaunchProcess(gpu.first_launch_arguments(), staging.file))
        return made[-1]

    yield start
    for process in made:
        process.end()


@pytest.fixture
def start(begin: Start) -> Start:
    """As :func:`begin`; the processes have the recording's storages."""

    def start(*rules: Rule) -> FirstLaunchProcess:
        process = begin(*rules)
        assert process.ask(staged(), 30.0) == Staged()
        return process

    return start


def gone(pid: int) -> bool:
    """Whether a process is no more, or a zombie that nobody has waited for."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


def test_looks_on_staged_storages(begin: Start) -> None:
    process = begin(Rule(time_ns=1234.0))
    refused = process.ask(LOOK, 30.0)
    assert isinstance(refused, FirstLaunchFailed)
    assert "was not staged" in refused.reason
    assert not refused.spoiled
    assert process.ask(staged(), 30.0) == Staged()
    reply = process.ask(LOOK, 30.0)
    assert isinstance(reply, FirstLaunchReply)
    assert reply.ns == pytest.approx(1234.0, rel=0.05)
    assert process.ask(ForgetRequest(), 30.0) == Staged()
    assert isinstance(process.ask(LOOK, 30.0), FirstLaunchFailed)


def test_code_is_loaded_once_a_tuning(gpu: FakeGpu, staging: HostStaging) -> None:
    looker = FirstLaunchWorker(gpu, staging.file)
    looker.prepare()
    own = gpu.modules
    for _ in range(2):
        assert looker.answer(staged()) == Staged()
        for _ in range(3):
            assert isinstance(looker.answer(LOOK), FirstLaunchReply)
        assert gpu.modules == own + len(WORK.binaries)
        assert looker.answer(ForgetRequest()) == Staged()
        assert gpu.modules == own


@pytest.mark.parametrize(
    ("error", "lost", "told"),
    [
        (BackendError("no"), True, FirstLaunchFailed("no", True, False, 7, False)),
        (BackendError("no"), False, FirstLaunchFailed("no", False, False, 7, False)),
        (MeasurementError("no"), False, FirstLaunchFailed("no", False, False, 7, True)),
        (OutOfResourcesError("no"), False, FirstLaunchFailed("no", False, True, 7, False)),
        (ReplayError("no"), False, FirstLaunchFailed("no", False, False, 7, False)),
    ],
)  # fmt: skip
def test_what_is_told_of_a_launch_that_failed(
    gpu: FakeGpu, staging: HostStaging, error: Exception, lost: bool, told: FirstLaunchFailed
) -> None:
    """The device is spoiled if it answers no more; ``7`` is the launch that ran."""
    looker = FirstLaunchWorker(gpu, staging.file)

    def run(*words: object) -> FirstLaunchReply:
        assert looker._running == 0, "counted anew"
        looker._running = 7
        raise error

    def answers() -> None:
        if lost:
            raise BackendError("gone")

    looker._run, gpu.synchronize = run, answers  # type: ignore[method-assign]
    looker._running = 5
    assert looker.answer(LOOK) == told
    assert FirstLaunchFailed("no") == FirstLaunchFailed("no", True, False, 0, False)


def test_storages_are_laid_out_anew_where_their_size_changes(gpu: FakeGpu, staging: HostStaging) -> None:
    looker = FirstLaunchWorker(gpu, staging.file)
    assert looker._nothing.pristine.nbytes == 0
    sizes = []
    for nbytes in (512, 512, 1024):
        assert looker.answer(StageRequest(HOST, b"", {0: (nbytes, 16)}, ())) == Staged()
        sizes.append((looker._pristine[0], looker._guarded[0].nbytes, looker._guarded[0].buffer.address % 512))
    assert sizes[0] == sizes[1] == (sizes[0][0], 512, 16)
    assert (sizes[2][0].nbytes, *sizes[2][1:]) == (1024, 1024, 16)
    gpu.allocate = refused  # type: ignore[method-assign]
    assert looker.answer(StageRequest(HOST, b"", {1: (8, 0)}, ())) == RequestFailed("no room", replayable=True)
    assert looker.answer(Staged()) == RequestFailed(
        "a process for first launches can't answer Staged", replayable=False
    )


def test_a_first_look_finds_all_ready_and_leaves_the_zones_on_the_device(gpu: FakeGpu, staging: HostStaging) -> None:
    looker = FirstLaunchWorker(gpu, staging.file)
    looker.prepare()
    loaded = gpu.modules
    assert loaded > 0
    assert looker.answer(staged()) == Staged()
    gpu.allocate_host = refused  # type: ignore[method-assign]
    assert isinstance(looker.answer(LOOK), FirstLaunchReply)
    assert gpu.modules == loaded + len(WORK.binaries)


def test_a_process_that_can_prepare_nothing_begins_all_the_same(gpu: FakeGpu, staging: HostStaging) -> None:
    looker = FirstLaunchWorker(gpu, staging.file)
    gpu.allocate = refused  # type: ignore[method-assign]
    looker.prepare()


def refused(nbytes: int) -> Buffer:
    raise MeasurementError("no room")


def test_a_changed_guard_names_launch_and_storage(start: Start) -> None:
    process = start(Rule(beside=(16, 4)))
    for _ in range(2):  # the zones are mended
        reply = process.ask(LOOK, 30.0)
        assert isinstance(reply, FirstLaunchReply)
        (guard,) = reply.guards
        assert (guard.launch, guard.storage, guard.count) == (0, 1, 4)
        assert guard.first == WORK.storages[1].nbytes + 16


def test_a_fault_is_the_last_answer(start: Start) -> None:
    process = start(Rule(fault=ILLEGAL_ADDRESS))
    reply = process.ask(LOOK, 30.0)
    assert isinstance(reply, FirstLaunchFailed)
    assert (reply.spoiled, "ILLEGAL_ADDRESS" in reply.reason) == (True, True)
    with pytest.raises(ChildEnded, match="exit status 3") as caught:
        process.ask(LOOK, 30.0)
    assert caught.value.signal is None


def test_several_in_one_request_are_answered_each(start: Start) -> None:
    process = start(Rule(time_ns=1234.0))
    replies = list(process.ask_each(FirstLaunchesRequest((LOOK,) * 3), lambda: 30.0))
    assert [type(reply) for reply in replies] == [FirstLaunchReply] * 3
    assert (process.asked, process.alive) == (2, True)
    some = process.ask_each(FirstLaunchesRequest((LOOK,) * 3), lambda: 30.0)
    next(some)
    some.close()
    assert not process.alive, "a late reply would be taken for one to the next request"


@pytest.mark.parametrize(("device", "opened"), [("3", [3]), ("--script", [])])
def test_its_device_is_opened_while_the_rest_is_imported(
    monkeypatch: pytest.MonkeyPatch, device: str, opened: list[int]
) -> None:
    seen: list[int] = []
    monkeypatch.setattr("kerntune.gpu.early_context.open_context", seen.append)
    monkeypatch.setattr("kerntune.timing.worker.first_launch_server.main", lambda words: len(words) + len(seen))
    assert worker_main.run_first_launches(["1", "2", device]) == 3 + len(opened)
    assert seen == opened


def test_an_abort_is_told_with_its_signal(start: Start) -> None:
    process = start(Rule(fault=ABORT))
    with pytest.raises(ChildEnded, match="SIGABRT") as caught:
        process.ask(LOOK, 30.0)
    assert caught.value.signal == signal.SIGABRT


def test_an_abort_leaves_no_core_file(start: Start) -> None:
    """Gigabytes in the user's working folder, for each candidate that aborts."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    if before[1] == 0:
        pytest.skip("this process may not write core files either")
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    try:
        process = start()
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)
    limits = Path(f"/proc/{process.child.pid}/limits").read_text()
    assert re.search(r"^Max core file size +0 +0 ", limits, re.MULTILINE)


def test_a_hang_ends_with_its_process(start: Start) -> None:
    process = start(Rule(fault=HANG))
    pid = process.child.pid
    with pytest.raises(PeerTimeout, match=r"within 0\.2 s"):
        process.ask(LOOK, 0.2)
    process.end()
    assert gone(pid)


class Interrupted(BaseException):
    """What a signal handler raises: KeyboardInterrupt, or a test's time limit."""


def test_an_interrupted_question_ends_the_process(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else who asks next waits for a launch that never ends, or gets the reply to this question."""
    process = start(Rule(fault=HANG))
    pid = process.child.pid

    def interrupted(*given: object) -> FirstLaunchReply:
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(process.child.messages, "receive", interrupted)
        with pytest.raises(Interrupted):
            process.ask(LOOK, 30.0)
    assert gone(pid)
    assert not process.alive
    with pytest.raises(ChildEnded, match="ended before"):
        process.ask(ForgetRequest(), 30.0)


def test_one_that_can_not_start_says_why(gpu: FakeGpu, begin: Start) -> None:
    gpu.first_launch_arguments = lambda: ("--nothing",)  # type: ignore[method-assign]
    with pytest.raises(MeasurementError, match="did not start: its process ended with exit status 1: ValueError"):
        begin().wait()


def test_it_runs_this_kerntune_in_any_working_folder(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which may be another checkout, or have modules that are called as those of the standard library."""
    (tmp_path / "kerntune").mkdir()
    for name in ("kerntune/__init__.py", "select.py"):
        (tmp_path / name).write_text(f"raise SystemExit('{name} of the working folder')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert start().alive


def no_process(*given: object, **options: object) -> None:
    raise OSError(24, "Too many open files")


@pytest.mark.parametrize("names", [(subprocess, "Popen"), (tempfile, "TemporaryFile")])
def test_where_no_process_can_be_had_first_launches_run_here(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, names: tuple[Any, str]
) -> None:
    monkeypatch.setattr(*names, no_process)
    isolation = Isolation(gpu)
    isolation.begin()
    assert not isolation.wanted
    assert isolation.why_not == "a process can't be started: [Errno 24] Too many open files"
    isolation.close()


LATE = """
import sys, threading
sys.path[:0] = [{tests!r}, {root!r}]
from timing.worker.test_first_launch_process import *
device = FakeGpu(typical_device(Target.parse("cuda:90")), Script(isolated=True))
staging = HostStaging(device)

def tune(process=None):
    main = threading.main_thread()
    main.join()
    time.sleep(0.5)
    process = process or FirstLaunchProcess(device.first_launch_arguments(), staging.file)
    print(process.ask(staged(), 30.0), flush=True)
    process.end(wait=False)

given = [FirstLaunchProcess(device.first_launch_arguments(), staging.file)] if {early} else []
threading.Thread(target=tune, args=given).start()
"""


@pytest.mark.slow
@pytest.mark.parametrize("early", [True, False], ids=["started before", "started after"])
def test_it_serves_a_thread_that_goes_on_after_the_main_one(early: bool) -> None:
    text = LATE.format(tests=str(ROOT / "tests"), root=str(ROOT), early=early)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Staged()\n", "")


PARENT = """
import sys
sys.path[:0] = [{tests!r}, {root!r}]
from timing.worker.test_first_launch_process import *
device = FakeGpu(typical_device(Target.parse("cuda:90")), Script([Rule(fault=HANG)], isolated=True))
process = FirstLaunchProcess(device.first_launch_arguments(), HostStaging(device).file)
process.ask(staged(), 30.0)
print(process.child.pid, flush=True)
process.ask(LOOK, 600.0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_dies_with_its_parent(number: int) -> None:
    """Also while a launch never ends, so that it reads no pipe."""
    text = PARENT.format(tests=str(ROOT / "tests"), root=str(ROOT))
    parent = subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not gone(pid)
        os.kill(parent.pid, number)
        parent.wait(60.0)
        for _ in range(600):
            if gone(pid):
                break
            time.sleep(0.05)
        assert gone(pid)
    finally:
        parent.kill()
        parent.wait()
        if parent.stdout is not None:
            parent.stdout.close()


def test_it_starts_without_what_only_comparisons_need() -> None:
    """numpy takes as much of a processor as all else that it imports (``benchmarks/results/quarantine_host.json``)."""
    text = (
        "import sys; import kerntune.timing.worker.first_launch_server, kerntune.gpu.driver_gpu; "
        "print(*{'numpy', 'torch', 'triton'} & {m.partition('.')[0] for m in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "\n"


def test_a_server_prepares_before_it_is_asked(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[str] = []
    monkeypatch.setattr(first_launch_server, "send", lambda outbox, message: did.append(type(message).__name__))
    monkeypatch.setattr(FirstLaunchWorker, "prepare", lambda self: did.append("prepare"))
    monkeypatch.setattr(first_launch_server, "Reader", lambda file, kind: iter([ForgetRequest()]))
    assert serve_first_launches(gpu, 0, 1) == 0
    assert did == ["Ready", "prepare", "Staged"]


def test_a_server_whose_device_is_spoiled_ends(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = FirstLaunchFailed("no", True, False, 0, False)
    monkeypatch.setattr(first_launch_server, "send", lambda outbox, message: None)
    monkeypatch.setattr(FirstLaunchWorker, "answers", lambda self, request: iter([failed]))
    monkeypatch.setattr(first_launch_server, "Reader", lambda file, kind: iter([ForgetRequest()]))
    assert serve_first_launches(gpu, 0, 1) == 3
