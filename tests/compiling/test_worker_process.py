"""One worker process, and the reports of its end."""

from __future__ import annotations

import dataclasses
import errno
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from doubles import raising

from kerntune.base.child_process import LAST_WORDS, ChildProcess, how_it_ended
from kerntune.base.frames import send
from kerntune.compiling import compile_worker, worker_process
from kerntune.compiling.frontend import lower, request_of
from kerntune.compiling.protocol import Answer, CompileFailed, Done, Hello, current_environment
from kerntune.compiling.stream import refusal
from kerntune.compiling.worker_process import Died, Process, is_fault, remedy, says_error, with_words
from kerntune.errors import CompileError, EnvironmentFault, FrameError, PeerClosed, PeerTimeout

from . import kernels


@pytest.fixture
def process():
    one = Process(current_environment(), 0)
    assert one.start() == ""
    yield one
    one.kill()


def test_it_answers_and_its_files_go_with_it(process):
    job = lower(request_of(kernels.add_launch())).job
    told = process.ask(job, 60, "")
    assert isinstance(told.answer, Done)
    assert told.answer.stages["cubin"][:4] == b"\x7fELF"
    assert [name for name, _ in told.answer.times] == ["ttgir", "llir", "ptx", "cubin"]
    folder = Path(process._scratch.folder)
    assert folder.is_dir()
    assert os.getpgid(process.pid) == process.pid
    process.kill()
    assert not folder.exists()
    assert not process.alive
    assert process.pid == 0


def test_an_exception_is_its_text_and_the_process_goes_on(process):
    job = lower(request_of(kernels.launch(kernels.wide_asm, kernels.INTS, kernels.CUDA90, B=128))).job
    answer = process.ask(job, 60, "").answer
    assert isinstance(answer, CompileFailed)
    assert "mul.bogus" in answer.reason or "Unknown modifier '.bogus'" in answer.reason
    assert isinstance(process.ask(lower(request_of(kernels.add_launch())).job, 60, "").answer, Done)


def test_options_that_another_process_reads_otherwise_are_refused(process):
    job = lower(request_of(kernels.add_launch())).job
    answer = process.ask(_with(job, options_hash="another"), 60, "").answer
    assert isinstance(answer, CompileFailed)
    assert answer.refused


def test_an_answer_that_came_while_nobody_could_look_counts(process):
    """When a process that was stopped (Ctrl-Z, a laptop's lid) continues, its time is over and the answers are
    there."""
    job = lower(request_of(kernels.add_launch())).job
    send(process._child.inbox.fileno(), job)
    poll = select.poll()
    poll.register(process._child.process.stdout.fileno(), select.POLLIN)
    assert poll.poll(60_000)
    assert isinstance(process._answer(None, -100.0, ""), Done)


def test_who_does_not_answer_in_time_is_given_up(process):
    assert process._answer(None, 0.01, "") == Died("the compiler did not come back and was ended after 0 s")


def test_a_kill_by_somebody_else_says_nothing_of_the_job(process):
    os.kill(process.pid, signal.SIGKILL)
    answer = process.ask(lower(request_of(kernels.add_launch())).job, 60, "").answer
    assert answer == Died("the compiler process died (SIGKILL)", passing=True)


@pytest.mark.parametrize(
    ("error", "passes"), [(OSError(28, "No space left on device"), True), (ValueError("x"), False)]
)
def test_what_the_system_refuses_a_worker_passes(monkeypatch, error, passes):
    monkeypatch.setattr(compile_worker, "_compile", raising(error))
    answer = compile_worker.answer_to(None)
    assert (answer.reason, answer.passing) == (f"{type(error).__name__}: {error}", passes)


def _with(job, **changes):
    import msgspec

    return msgspec.structs.replace(job, **changes)


def test_a_process_that_finds_no_triton_says_why(monkeypatch, tmp_path):
    (tmp_path / "triton.py").write_text("raise ImportError('no triton here')")
    process = Process(current_environment(), 0)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    reason = process.start()
    assert "no triton here" in reason
    assert "exit status 1" in reason
    assert not process.alive


def test_a_process_that_finds_another_triton_is_not_used(monkeypatch, tmp_path):
    (tmp_path / "triton.py").write_text("__version__ = '2.0'")
    process = Process(dataclasses.replace(current_environment(), knobs="[]"), 0)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert "another Triton (2.0 in" in process.start()


def test_no_executable_is_a_reason(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    process = Process(current_environment(), 0)
    assert "no process can be started" in process.start()
    assert process._scratch is not None
    assert not process._scratch.folder.exists()


@pytest.mark.slow
def test_a_busy_process_ends_with_whoever_asked(monkeypatch, tmp_path):
    """It would compile to the end otherwise, for minutes, and the answer would never be read."""
    busy = tmp_path / "busy"
    (tmp_path / "triton.py").write_text(f"import pathlib, time; pathlib.Path({str(busy)!r}).touch(); time.sleep(600)")
    process = Process(current_environment(), 0)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    child = process._child = process._spawned()
    try:
        while process.alive and not busy.exists():
            time.sleep(0.02)
        child.process.stdin.close()
        assert child.process.wait(60) == -signal.SIGKILL
    finally:
        process.kill()


@pytest.mark.parametrize(
    "text",
    [
        "error: couldn't allocate output register for constraint 'f'",
        "<unknown>:0: error: could not allocate",
        "noise\nkernel.py:177:1: error: Failures have been detected",
        'loc("x.py":1:2): error: operation failed',
        "ptxas /tmp/x.ptx, line 44; error   : Unknown modifier",
        "LLVM ERROR: Cannot select: intrinsic",
        "fatal error: error in backend",
    ],
)
def test_diagnostics_of_errors_are_seen(text):
    assert says_error(text)


@pytest.mark.parametrize(
    "text", ["", "remark: terror: no", "warning: 0 errors so far", "%error_1 = load", 'call "my_error"()']
)
def test_other_words_are_no_errors(text):
    assert not says_error(text)


def test_the_last_words_are_the_error_lines_or_else_the_last_lines():
    assert with_words("died", "a\nLLVM ERROR: x\nb") == "died\n  LLVM ERROR: x"
    assert with_words("died", "\n".join(map(str, range(20)))).splitlines()[-1] == "  19"
    assert with_words("failed", "noise", last=False) == "failed"
    assert with_words("error: x", "error: x") == "error: x"


NOTE = "k.py:6:1: note: Pipeline failed while executing [{}]: reproducer generated at `std::errs, please share it.`"
ONE, TWO = "`OuterPass` on 'builtin.module' operation", "`InnerPass` on 'builtin.module' operation"


@pytest.mark.parametrize(
    ("passes", "named"), [(ONE, "OuterPass"), (f"{ONE}, {TWO}", "OuterPass, in it InnerPass"), ("", "")]
)
def test_the_pass_that_failed_is_named(passes: str, named: str) -> None:
    """MLIR names it in a note alone, after the text of the whole module."""
    vague = "k.py:6:1: error: Failures have been detected while processing an MLIR pass pipeline"
    output = "\n".join(["k.py:9:5: error: too few warps", "module {}", vague, NOTE.format(passes)])
    last = f"failing pass: {named}" if named else vague
    assert with_words("failed", output, last=False) == f"failed\n  k.py:9:5: error: too few warps\n  {last}"


def test_an_end_in_words():
    assert [how_it_ended(code) for code in (-6, -1)] == ["died (SIGABRT)", "died (SIGHUP)"]
    assert [how_it_ended(code) for code in (0, 1)] == [f"ended with exit status {code}" for code in (0, 1)]
    assert how_it_ended(-200) == "died (signal 200)"
    assert Died("x") == Died("x")


@pytest.fixture
def impostor(tmp_path, monkeypatch):
    """A process that runs a Python text instead of a worker."""
    made = []

    def running(text):
        path = tmp_path / "python"
        path.write_text(f"#!{sys.executable}\nimport os, time\n{text}")
        path.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(path))
        made.append(Process(current_environment(), 0))
        made[-1]._child = made[-1]._spawned()
        return made[-1]

    yield running
    for one in made:
        one.kill()


@pytest.mark.parametrize(
    "text",
    [
        "os.write(1, b'\\x09\\0\\0\\0half'); time.sleep(600)",
        "while True: os.write(1, b'\\0\\0\\0\\x10'); time.sleep(0.05)",
    ],
    ids=["stops", "goes on slowly"],
)
def test_an_answer_that_is_never_whole_hits_the_limit(impostor, monkeypatch, text):
    monkeypatch.setattr("kerntune.base.frames.LAST_SECONDS", 0.2)
    assert impostor(text)._answer(None, 0.5, "") == Died("the compiler did not come back and was ended after 0 s")


def test_a_process_that_reads_no_job_hits_the_limit(impostor):
    """More than a pipe holds would be waited for for ever."""
    process = impostor("time.sleep(600)")
    job = _with(lower(request_of(kernels.add_launch())).job, ir="x" * (1 << 20))
    assert process.ask(job, 0.3, "a moment").answer.reason.endswith("was ended after a moment")
    assert not process.alive


def test_a_job_that_can_not_travel_is_refused(process):
    """It is compiled by the process that asked, then; the worker goes on."""
    job = lower(request_of(kernels.add_launch())).job
    answer = process.ask(_with(job, options={"odd": object()}), 60, "").answer
    assert isinstance(answer, CompileFailed)
    assert answer.refused
    assert isinstance(process.ask(job, 60, "").answer, Done)


# what is made of what a process does, without one


class Standing:
    """Stands for a process that has ended with a code, or closes its pipe and runs on."""

    stdin = stdout = SimpleNamespace(fileno=int, close=lambda: None)

    def __init__(self, code=None):
        self.code, self.pid, self.returncode = code, 77, code

    def wait(self, timeout=None):
        if self.code is None and timeout is not None:
            raise subprocess.TimeoutExpired("worker", timeout)
        return self.code


@pytest.fixture
def standing(monkeypatch):
    """A worker whose process stands for one; messages from it end with an error."""
    monkeypatch.setattr("kerntune.base.child_process.kill_group", lambda pid: None)

    def worker(code=None, error=None):
        one = Process(current_environment(), 0)
        one._child = ChildProcess((), Answer, fork=lambda errors: Standing(code))
        one._child.messages = SimpleNamespace(receive=raising(error or PeerClosed("x")))
        made.append(one)
        return one

    made = []
    yield worker
    for one in made:
        one.kill()


@pytest.mark.parametrize(
    ("code", "died"),
    [
        (None, Died("the compiler process closed its pipe")),
        (1, Died("the compiler process ended with exit status 1")),
        (-11, Died("the compiler process died (SIGSEGV)")),
        (-15, Died("the compiler process died (SIGTERM)", passing=True)),
        (15, Died("the compiler process ended with exit status 15")),
    ],
)
def test_how_a_process_that_says_nothing_ended(standing, code, died):
    assert standing(code)._answer(None, 90.0, "") == died


@pytest.mark.parametrize(
    ("error", "died"),
    [
        (PeerTimeout("x"), Died("the compiler did not come back and was ended after 90 s")),
        (PeerClosed("x"), Died("the compiler process ended with exit status 3")),
        (FrameError("half a message"), Died("the compiler process answered with half a message")),
    ],
)
def test_what_is_no_answer(standing, error, died):
    assert standing(3, error)._answer(None, 90.0, "") == died
    if isinstance(error, PeerTimeout):
        died = standing(3, error)._answer(None, 90.0, "ten times the slowest")
        assert died.reason.endswith("was ended after ten times the slowest")


def test_another_thread_ends_a_process_that_runs(standing, monkeypatch):
    ended = []
    monkeypatch.setattr(worker_process, "kill_group", ended.append)
    standing(None).interrupt()
    standing(0).interrupt()
    Process(current_environment(), 0).interrupt()
    assert ended == [77]


def test_a_process_that_never_began_is_not_alive():
    one = Process(current_environment(), 0)
    assert (one.alive, one.pid) == (False, 0)
    one.kill()


def test_of_what_was_printed_a_job_has_its_own_part():
    """A module is tens of kilobytes, and comes before what is wrong with it."""
    assert LAST_WORDS == 64 << 10
    program = "import os; os.write(2, b'old'); os.read(0, 1); os.write(2, b'new'); os._exit(1)"
    one = Process(current_environment(), 0)
    one._child = ChildProcess([sys.executable, "-c", program], Answer)
    while one._child.printed < 3:
        time.sleep(0.01)
    found = one.ask(lower(request_of(kernels.add_launch())).job, 60, "")
    assert (found.answer, found.output) == (Died("the compiler process ended with exit status 1"), "new")


def test_words_are_eight_lines_of_300_characters_each_once():
    many = with_words("why", "\n".join(f"{i}" for i in range(9)))
    assert many == "why" + "".join(f"\n  {i}" for i in range(1, 9))
    assert with_words("why", "y" * 400) == "why\n  " + "y" * 300
    assert with_words("why", "a\n\na  \n") == "why\n  a"
    assert with_words("why", "first\nerror: x\nlast", last=False) == "why\n  error: x"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Died("it died"), "a worker process does not start: it died\n  its words"),
        (CompileFailed("no room"), "a worker process does not start: no room\n  its words"),
        (Done({}, b"", []), "a worker process does not start: it answers out of turn\n  its words"),
        (Hello("0", "/other"), "another process finds another Triton (0 in /other)"),
    ],
    ids=["died", "failed", "out of turn", "another"],
)
def test_why_a_process_does_not_start(monkeypatch, answer, reason):
    one, seen = Process(current_environment(), 0), []
    monkeypatch.setattr(one, "_spawned", lambda: SimpleNamespace(said=lambda: "its words"))
    monkeypatch.setattr(one, "_answer", lambda job, seconds, why: answer)
    monkeypatch.setattr(one, "kill", lambda: seen.append("killed"))
    assert one.start() == reason
    assert seen == ["killed"]


def test_one_that_finds_the_same_triton_has_started(monkeypatch):
    import triton

    one, seen = Process(current_environment(), 0), []
    monkeypatch.setattr(one, "_spawned", lambda: SimpleNamespace(said=str))
    monkeypatch.setattr(one, "_answer", lambda job, seconds, why: Hello(triton.__version__, triton.__file__))
    monkeypatch.setattr(one, "kill", lambda: seen.append("killed"))
    assert one.start() == ""
    monkeypatch.setattr(one, "_answer", lambda job, seconds, why: Hello(triton.__version__, "/other"))
    assert "another Triton" in one.start()
    assert seen == ["killed"]


@pytest.mark.parametrize(
    ("answer", "outcome", "killed"),
    [
        (CompileFailed("x"), CompileFailed("x"), []),
        (Died("x"), Died("x"), ["killed"]),
        (Hello("1", "2"), Died("the compiler process answered out of turn"), ["killed"]),
    ],
    ids=["failed", "died", "out of turn"],
)
def test_a_process_without_an_answer_is_ended(monkeypatch, answer, outcome, killed):
    one, seen = Process(current_environment(), 0), []
    one._child = SimpleNamespace(printed=7, said=lambda since: f"words since {since}")
    monkeypatch.setattr(one, "_answer", lambda job, seconds, why: answer)
    monkeypatch.setattr(one, "kill", lambda: seen.append("killed"))
    found = one.ask(lower(request_of(kernels.add_launch())).job, 60, "")
    assert (found.answer, found.output) == (outcome, "words since 7")
    assert seen == killed


@pytest.fixture
def interrupted(monkeypatch):
    """A process whose fork client gives a child, or none, after another thread has ended the process; what happens."""

    def forking(child):
        client = SimpleNamespace(serves=lambda surroundings: True)
        one, seen = Process(current_environment(), 0, client), []
        client.fork = lambda *given: one.interrupt() or child
        monkeypatch.setattr(subprocess, "Popen", lambda *given, **options: pytest.fail("an interpreter is started"))
        monkeypatch.setattr(worker_process, "kill_group", seen.append)
        return one, seen

    return forking


def test_one_that_was_ended_while_it_was_to_be_forked_starts_no_other_way(interrupted):
    one, seen = interrupted(None)
    assert one.start() == "no process can be started (it was ended before)"
    assert seen == []


def test_one_that_was_ended_while_it_was_forked_is_killed(interrupted, monkeypatch):
    one, seen = interrupted(Standing(-9))
    monkeypatch.setattr("kerntune.base.child_process.kill_group", lambda pid: None)
    monkeypatch.setattr(one, "_answer", lambda job, seconds, why: Died(f"killed: {seen}"))
    assert one.start() == "a worker process does not start: killed: [77]"


# failures of the machine


PTXAS = "PTXASError: PTXAS error: `ptxas` failed with error code {}\n`ptxas` stderr:\n{}\nRepro command: ptxas -v"

FAULTS = {
    "killed": PTXAS.format(-9, ""),
    "ended": PTXAS.format(-15, ""),
    "killed below a shell": PTXAS.format(137, ""),
    "mapped file on a full disk": PTXAS.format(-7, ""),
    "no room": PTXAS.format(255, f"ptxas fatal   : {os.strerror(errno.ENOSPC)}"),
    "no output": PTXAS.format(255, "ptxas fatal   : Could not open output file '/tmp/a.o'"),
    "not found": "RuntimeError: Cannot find ptxas",
    "another libc": PTXAS.format(1, "ptxas: /lib64/libc.so.6: version `GLIBC_2.34' not found"),
    "linker": "ld.lld: error: cannot open output file a.hsaco: Permission denied",
}

KERNELS = {
    "crash": PTXAS.format(-11, ""),
    "abort": PTXAS.format(-6, ""),
    "refused": PTXAS.format(255, "ptxas error : Entry function 'k' uses too much shared data (0x40000 bytes)"),
    "its own words": "CompileTimeAssertionFailure: Permission denied",
    "hang": "the compiler did not come back and was ended after 30 s",
}


@pytest.mark.parametrize("why", FAULTS.values(), ids=FAULTS)
def test_what_the_machine_does_is_a_fault(why):
    assert is_fault(why)
    error = refusal(kernels.add_launch(), why)
    assert type(error) is EnvironmentFault
    assert kernels.__file__ in str(error)
    assert "What to do: " in str(error)


@pytest.mark.parametrize("why", KERNELS.values(), ids=KERNELS)
def test_what_may_be_the_kernels_doing_is_none(why):
    assert not is_fault(why)
    assert type(refusal(kernels.add_launch(), why)) is CompileError


@pytest.mark.parametrize(
    ("why", "words"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/x"), "make room"),
        (FAULTS["no room"], "make room"),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "open files"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/home/x/.triton"), "make /home/x/.triton one that"),
        (MemoryError(), "want of memory"),
        (FAULTS["killed"], "want of memory"),
        (FAULTS["not found"], "installation"),
    ],
    ids=str,
)
def test_it_says_what_to_do(why, words):
    assert is_fault(why)
    assert words in remedy(why)
