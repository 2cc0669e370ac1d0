"""Sealed processes of a fork server that imports little: what they get, what is believed, how they end."""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kerntune.base.frames import send
from kerntune.errors import MeasurementError
from kerntune.referee import sealed_process
from kerntune.referee.sealed_process import FIXED, Answered, SealedEnd, SealedProcesses
from kerntune.referee.sealing import landlock_version

SERVER = "tests.referee.sealed_roles"

needs_landlock = pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")


@pytest.fixture(scope="module")
def processes() -> Iterator[SealedProcesses]:
    """Sealed, where the system can."""
    patch = pytest.MonkeyPatch()
    patch.setenv("KERNTUNE_TEST_SECRET", "1")
    patch.setenv("LANG", "C.UTF-8")
    made = SealedProcesses(bool(landlock_version()), SERVER)
    patch.undo()
    yield made
    made.close()


def asked(
    processes: SealedProcesses, lines: str, readable: tuple[str, ...] = (), seconds: float = 20.0, **words: Any
) -> Answered:
    return processes.ask("run", textwrap.dedent(lines), readable, seconds, words.pop("most", 1 << 20), **words)


def told(processes: SealedProcesses, lines: str, **words: Any) -> Any:
    """The answer, of a process that has ended as it should."""
    found = asked(processes, lines, **words)
    assert (found.end, found.printed) == (SealedEnd(), "")
    return msgspec.json.decode(found.data or b"")


# tasks and answers


@pytest.mark.parametrize("size", [0, 1, 65_536, 3_000_000])
def test_tasks_and_answers_of_any_size_pass(size: int, processes: SealedProcesses) -> None:
    found = processes.ask("echo", "x" * size, (), 20.0, size + 5)
    assert found == Answered(msgspec.msgpack.encode("x" * size), SealedEnd(), "")


@pytest.mark.parametrize(("most", "whole"), [(999, False), (1_000, True)])
def test_an_answer_has_at_most_so_many_bytes(most: int, whole: bool, processes: SealedProcesses) -> None:
    found = asked(processes, "answer = bytes(1_000)", most=most)
    assert found.data == (bytes(1_000) if whole else None)


HEADER = struct.pack("<Q", 5)


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"", None),
        (HEADER[:7], None),
        (HEADER, None),
        (HEADER + b"1234", None),
        (HEADER + b"12345", b"12345"),
        (HEADER + b"123456", b"12345"),
        (struct.pack("<Q", 0), b""),
        (struct.pack("<Q", 6) + b"123456", None),
        (struct.pack("<Q", 1 << 63) + b"12345", None),
    ],
)
def test_what_is_no_whole_answer_is_none(sent: bytes, answer: bytes | None) -> None:
    """Of at most five bytes; whoever has answered need not have read its task."""
    (task_end, task_in), (answer_end, answer_in) = os.pipe(), os.pipe()
    os.write(answer_in, sent)
    os.close(answer_in)
    os.close(task_end)
    assert sealed_process._exchange(task_in, answer_end, [b"a task"], 9.0, 5) == answer
    os.close(task_in)
    os.close(answer_end)


def test_a_task_has_its_size_before_it_and_an_answer_its_time() -> None:
    (task_end, task_in), (answer_end, answer_in) = os.pipe(), os.pipe()
    began = time.monotonic()
    assert sealed_process._exchange(task_in, answer_end, [b"a ", b"", b"task"], 0.1, 5) is None
    assert 0.1 <= time.monotonic() - began < 5
    assert os.read(task_end, 100) == struct.pack("<Q", 6) + b"a task"
    for one in (task_end, task_in, answer_end, answer_in):
        os.close(one)


@pytest.mark.parametrize(
    ("end", "found"),
    [(SealedEnd(3, True, 1, 2, "why"), SealedEnd(3, True, 1, 2, "why")), (None, SealedEnd(-1, True, 0, 1))],
)
def test_a_supervisor_that_says_nothing_has_left_survivors(end: SealedEnd | None, found: SealedEnd) -> None:
    read, write = os.pipe()
    if end is not None:
        send(write, end)
    os.close(write)
    assert sealed_process._end_of(read, 5.0) == found
    os.close(read)


@pytest.mark.parametrize(
    ("end", "printed", "how"),
    [
        (SealedEnd(3), "", "it ended with status 3 and gave no whole answer"),
        (SealedEnd(-9), " \n", "it ended with status -9 and gave no whole answer"),
        (SealedEnd(-9, late=True), "a\nb\nc\n\n \n", "it was ended, being late: c"),
        (SealedEnd(1), "a\n\x1b" + "y" * 400, f"it ended with status 1 and gave no whole answer: \\u001b{299 * 'y'}"),
        (SealedEnd(0, cannot_seal="no Landlock"), "a\n", "no Landlock"),
        (SealedEnd(-9, excess="it has too much"), "a\n", "it was ended: it has too much"),
    ],
)  # fmt: skip
def test_how_a_process_without_an_answer_ended(end: SealedEnd, printed: str, how: str) -> None:
    assert Answered(None, end, printed).how == how


def test_an_end_of_which_nothing_is_said_is_a_good_one() -> None:
    assert msgspec.structs.astuple(SealedEnd()) == (0, False, 0, 0, "", "")


# what a process gets


MEMORY = """
import ctypes
names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
info = type("Info", (ctypes.Structure,), {"_fields_": [(name, ctypes.c_size_t) for name in names]})
mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = info
large = bytes(100 << 20)
mapped, of_heap = mallinfo().hblkhd >> 20, mallinfo().arena >> 20
del large
answer = [mapped, of_heap >= 100, mallinfo().arena >> 20 == of_heap]
"""
"""MB in maps of their own; whether 100 MB are the heap's, which is as large when they were freed."""

needs_glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc before 2.33, or none")


@needs_glibc
def test_freed_memory_is_used_again(processes: SealedProcesses) -> None:
    """Where no bound is on it: on a GPU."""
    assert told(processes, MEMORY, gpu=True) == [0, True, True]
    assert told(processes, MEMORY) == [100, False, True]


@needs_glibc
@pytest.mark.parametrize("asked", [True, False])
def test_a_program_that_judges_uses_freed_memory_again(asked: bool) -> None:
    lines = f"from {sealed_process.__name__} import use_freed_memory_again as ask\n" + "ask()\n" * asked
    done = subprocess.run([sys.executable, "-c", f"{lines}{MEMORY}print(answer)"], stdout=subprocess.PIPE, text=True)
    assert (done.stdout.strip() == "[0, True, True]") is asked


def test_a_process_has_a_folder_and_variables_of_its_own(processes: SealedProcesses) -> None:
    found = told(
        processes,
        """
        import os, tempfile
        open("written", "w").close()
        answer = {"environment": dict(os.environ), "folder": os.getcwd(), "temporary": tempfile.gettempdir()}
        """,
    )
    folder = found["folder"]
    assert (found["temporary"], Path(folder).parent) == (folder, processes._scratch.folder)
    assert not Path(folder).exists()
    environment = {k: v for k, v in found["environment"].items() if k not in sealed_process.ENVIRONMENT}
    own = {"HOME": "", "TMPDIR": "", "TRITON_CACHE_DIR": "/triton", "TORCHINDUCTOR_CACHE_DIR": "/inductor"}
    own["KERNTUNE_CACHE_DIR"] = "/kerntune"
    environment.pop("LC_CTYPE", None)  # Python's own
    assert environment == {**FIXED, **{name: folder + path for name, path in own.items()}}
    assert (found["environment"]["LANG"], found["environment"]["PATH"]) == ("C.UTF-8", os.environ["PATH"])
    assert asked(processes, "import os; answer = os.getcwd()").data != msgspec.json.encode(folder)


def test_locks_of_processes_are_locks(processes: SealedProcesses) -> None:
    """Packages have one for a kernel; what processes share lies where nothing may be written."""
    found = told(
        processes,
        """
        import multiprocessing
        lock, again = multiprocessing.Lock(), multiprocessing.get_context("spawn").RLock()
        with lock, again, again:
            answer = [lock.acquire(False)]
        answer += [lock.acquire(False)]
        """,
    )
    assert found == [False, True]


def test_a_process_holds_nothing_of_the_judge_s(processes: SealedProcesses) -> None:
    """No socket, no terminal; it leads a session, and the fork server isn't its parent."""
    found = told(
        processes,
        """
        import os
        files = []
        for name in os.listdir("/proc/self/fd"):
            try: files.append(os.readlink(f"/proc/self/fd/{name}"))
            except OSError: pass
        answer = [files, os.getsid(0) == os.getpid(), os.getppid()]
        """,
    )
    files, leads, parent = found
    assert leads
    assert parent not in (os.getpid(), processes._server.pid)
    assert not [name for name in files if name.startswith(("socket:", "/dev/pts", "/dev/tty"))]


@needs_landlock
def test_what_may_be_read_is_said(processes: SealedProcesses, tmp_path: Path) -> None:
    (tmp_path / "given").write_text("1")
    lines = f"""
    import os
    def tried(work):
        try: work(); return "did it"
        except OSError as exc: return type(exc).__name__
    path = {str(tmp_path)!r}
    answer = [tried(lambda: open(f"{{path}}/given").read()), tried(lambda: open(f"{{path}}/made", "w")),
              tried(lambda: open("/dev/null", "w")), tried(lambda: open("/etc/shadow").read()),
              tried(lambda: open("/proc/self/comm", "w"))]
    """
    no = "PermissionError"
    assert told(processes, lines) == [no, no, "did it", no, no]
    assert told(processes, lines, readable=(str(tmp_path),)) == ["did it", no, "did it", no, no]
    assert told(processes, lines, gpu=True) == [no, no, "did it", "did it", "did it"]


LIMITS = """
import resource
pages = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
answer = [resource.getrlimit(which) for which in (resource.RLIMIT_CORE, resource.RLIMIT_CPU, resource.RLIMIT_AS)]
answer.append(answer[-1][1] - pages)
"""


def test_a_process_is_limited(processes: SealedProcesses) -> None:
    """Seconds of processor time, and memory beyond what it has: 6 GiB, if nothing else is said."""
    core, seconds, _, memory = told(processes, LIMITS, seconds=7.5)
    assert (core, seconds) == ([0, 0], [8, 8])
    assert abs(memory - (6 << 30)) < 64 << 20
    assert abs(told(processes, LIMITS, memory=2 << 30)[-1] - (2 << 30)) < 64 << 20


def test_a_process_with_the_gpu_has_all_of_the_address_space_and_a_turn(processes: SealedProcesses) -> None:
    """All of one judge have the same file, to lock in turn; others have none."""
    turn = "import os; from kerntune.referee import sealing; at = sealing.turn_file\n"
    lines = turn + LIMITS + "answer = [answer[2][1], os.readlink(f'/proc/self/fd/{at}'), os.fstat(at).st_mode & 0o777]"
    found = [told(processes, lines, gpu=True) for _ in range(2)]
    assert found == [[resource.getrlimit(resource.RLIMIT_AS)[1], f"{processes._scratch.folder}/turn", 0o600]] * 2
    assert told(processes, turn + "answer = at") == -1


@needs_landlock
def test_a_socket_can_be_had_where_a_driver_starts(processes: SealedProcesses) -> None:
    lines = "import socket; answer = bool(socket.socket())"
    assert told(processes, lines, gpu=True) is True
    assert asked(processes, lines).data is None


# how it ends


@pytest.mark.parametrize(
    ("lines", "code", "printed"),
    [
        ("import os; os._exit(3)", 3, ""),
        ("import os; os.kill(os.getpid(), 15)", -15, ""),
        ("print('a', flush=True); raise ValueError", 1, "a\n"),
        ("import os; os.write(1, b'to one'); os.write(2, b'to two'); os._exit(0)", 0, "to oneto two"),
    ],
)
def test_a_process_that_gives_no_answer_is_told_by_its_end(
    lines: str, code: int, printed: str, processes: SealedProcesses
) -> None:
    found = asked(processes, lines)
    assert found == Answered(None, SealedEnd(code), printed)


def test_the_last_that_is_printed_is_kept(processes: SealedProcesses) -> None:
    lines = "import os; os.write(1, b'a' * 10 + b'b' * {}); answer = b''"
    assert asked(processes, lines.format(8_182)).printed == "a" * 10 + "b" * 8_182
    assert asked(processes, lines.format(8_192)).printed == "b" * 8_192


def test_a_late_process_is_ended(processes: SealedProcesses) -> None:
    began = time.monotonic()
    found = asked(processes, "import time; time.sleep(60)", seconds=0.2)
    assert (found.data, found.end) == (None, SealedEnd(-9, late=True))
    assert time.monotonic() - began < 10


def test_a_supervisor_has_time_to_say_how_it_was(processes: SealedProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a late process, a second after its time; and three times what killing all of it may take."""
    waited: list[float] = []
    exchange, end_of = sealed_process._exchange, sealed_process._end_of
    monkeypatch.setattr(sealed_process, "_exchange", lambda *words: (waited.append(words[3]), exchange(*words))[1])
    monkeypatch.setattr(sealed_process, "_end_of", lambda *words: (waited.append(words[1]), end_of(*words))[1])
    asked(processes, "answer = b''", seconds=7.0)
    assert waited == [pytest.approx(8.0, abs=0.5), 22.0]


@pytest.mark.parametrize("count", [1, 3])
def test_what_a_process_has_started_is_ended_and_counted(count: int, processes: SealedProcesses) -> None:
    """Though it has left its session and its parent."""
    found = asked(
        processes,
        f"""
        import os, time
        read, write = os.pipe()
        for _ in range({count}):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    os.write(write, b"%d " % os.getpid())
                    time.sleep(60)
                os._exit(0)
            os.wait()
        answer = b""
        while answer.count(b" ") < {count}: answer += os.read(read, 100)
        """,
    )
    assert found.end == SealedEnd(killed=count)
    assert not [pid for pid in bytes(found.data or b"").split() if Path(f"/proc/{int(pid)}").exists()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("for _ in range(64):\n    if not os.fork(): break", "it has more than 64 processes"),
        ("for i in range(10_001): open(str(i), 'w').close()", "it writes more than 1.07 GB or 10,000 files"),
    ],
    ids=["processes", "files"],
)
def test_what_uses_too_much_is_ended(processes: SealedProcesses, lines: str, told: str) -> None:
    """Nothing of it is left. Without a limit of memory nobody looks."""
    lines = f"import os, time\n{lines}\ntime.sleep(60)\nanswer = b''"
    found = asked(processes, lines)
    assert (found.end.code, found.end.late, found.end.survivors, found.end.excess) == (-9, False, 0, told)
    assert found.how == f"it was ended: {told}"
    assert asked(processes, lines, memory=0, seconds=1.0).end.late


GIB = 1 << 30
ITS = "its processes take more than 12.9 GB of memory"


@pytest.mark.parametrize(("most", "told"), [(3, ""), (2, "it writes more than 1.07 GB or 2 files")])
def test_one_that_has_ended_is_looked_at_too(
    most: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before what it has answered counts: it may be quicker than a look."""
    for name in "ab":
        (tmp_path / name).touch()
    monkeypatch.setattr(sealed_process, "MOST_FILES", most)
    monkeypatch.setattr(sealed_process, "LOOK_SECONDS", 60.0)
    child = subprocess.Popen([sys.executable, "-c", ""])
    assert sealed_process._waited(child.pid, time.monotonic() + 30, os.getppid(), str(tmp_path)) == (0, False, told)
    child.returncode = 0


def test_what_has_used_too_much_has_no_answer(processes: SealedProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    for end, data in ((SealedEnd(), b"\1"), (SealedEnd(excess="too much"), None)):
        monkeypatch.setattr(sealed_process, "_end_of", lambda *args, end=end: end)
        assert processes.ask("echo", 1, (), 10.0, 9).data == data


WRITES = "it writes more than 1.07 GB or 10,000 files"


@pytest.mark.parametrize(
    ("count", "memory", "blocks", "names", "told"),
    [
        (64, 0, 0, 0, ""), (65, 0, 0, 0, "it has more than 64 processes"), (4, 3 * GIB, 0, 0, ""),
        (4, 3 * GIB + 1, 0, 0, ITS), (1, 0, GIB // 512, 0, ""), (1, 0, GIB // 512 + 1, 0, WRITES),
        (1, 0, 0, 9_997, ""), (1, 0, 0, 9_998, WRITES),
    ],
)  # fmt: skip
def test_what_a_process_and_its_own_may_use_together(
    count: int, memory: int, blocks: int, names: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Descendants of any generation; others' processes don't count. The folder, those below it and files are names."""
    me, first = os.getpid(), 10_000_000
    parents = [(first + i, first + i - 1) for i in reversed(range(1, count))] + [(first, me), (5, 4), (me, 3)]
    monkeypatch.setattr(sealed_process, "_parents", lambda: iter(parents))
    monkeypatch.setattr(sealed_process, "_own_bytes", lambda pid: memory if pid >= first else 1 << 50)
    folders = [("s", ["t"], ["a"]), ("s/t", [], [str(i) for i in range(names)])]
    monkeypatch.setattr(sealed_process.os, "walk", lambda folder: iter(folders if folder == "s" else []))
    stat = SimpleNamespace(st_blocks=blocks)
    monkeypatch.setattr(
        sealed_process.os, "lstat", lambda path: stat if path == "s/a" else SimpleNamespace(st_blocks=0)
    )
    assert sealed_process._excess("s") == told


def test_memory_that_is_a_file_s_is_not_a_process_s_own() -> None:
    with open("/proc/self/statm") as file:
        _, resident, shared, *_ = map(int, file.read().split())
    own = (resident - shared) * resource.getpagesize()
    assert abs(sealed_process._own_bytes(os.getpid()) - own) < 32 << 20
    assert sealed_process._own_bytes(1 << 30) == 0


@pytest.mark.parametrize(("alone", "killed"), [(True, [-1]), (False, [7, 8])])
def test_what_is_left_is_killed_at_once_where_signals_reach_nothing_else(
    alone: bool, killed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one by one: of a chain of processes that fork and end none is left in a list."""
    asked, ends = list[int](), iter([(7, 9), (8, 9)])

    def waitpid(pid: int, options: int) -> tuple[int, int]:
        try:
            return next(ends)
        except StopIteration:
            raise ChildProcessError from None

    monkeypatch.setattr(sealed_process, "_children", lambda: [7, 8])
    monkeypatch.setattr(os, "kill", lambda pid, number: asked.append(pid))
    monkeypatch.setattr(os, "waitpid", waitpid)
    assert sealed_process._kill_all(alone) == (2, 0)
    assert asked == killed


@needs_landlock
def test_a_process_that_can_not_be_sealed_runs_nothing(processes: SealedProcesses) -> None:
    """Landlock takes no rule for a pipe, which its standard input is."""
    found = asked(processes, "answer = b'it ran'", readable=("/proc/self/fd/0",))
    assert found.data is None
    assert found.how == "Landlock takes no rule for /proc/self/fd/0 (File descriptor in bad state)"
    assert found.end == SealedEnd(cannot_seal=found.how)


def test_nothing_is_left_of_processes_that_have_ended(processes: SealedProcesses) -> None:
    """Neither a child of the fork server, nor a descriptor here, nor a folder."""
    asked(processes, "answer = b''")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        asked(processes, "answer = b''")
    assert len(os.listdir("/proc/self/fd")) == before
    assert [p.name for p in processes._scratch.folder.iterdir() if p.name.isdigit()] == []
    deadline = time.monotonic() + 5
    while (children := _children_of(processes._server.pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert children == []


def _children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


# the fork server


def test_a_closed_judge_has_no_processes_and_no_files() -> None:
    made = SealedProcesses(False, SERVER)
    folder, server = made._scratch.folder, made._server
    made.wait()
    made.wait()
    assert asked(made, "answer = b'1'").data == b"1"
    server.kill()
    server.wait()
    with pytest.raises(MeasurementError) as caught:
        asked(made, "answer = b''")
    assert str(caught.value) == "the judge's processes have ended (Broken pipe)"
    made.close()
    assert not folder.exists()


def test_closing_ends_the_fork_server() -> None:
    made = SealedProcesses(False, SERVER)
    made.wait()
    assert made._server.poll() is None
    made.close()
    assert made._server.returncode in (-9, 0), "killed, or it has seen that nothing asks it"


def test_a_fork_server_ends_with_its_judge() -> None:
    made = SealedProcesses(False, SERVER)
    made.wait()
    made._ours.close()
    assert made._server.wait(10) == 0
    made.close()


def test_a_fork_server_that_does_not_start_is_an_error() -> None:
    made = SealedProcesses(False, "tests.referee.no_such_module")
    with pytest.raises(MeasurementError, match="the judge's processes do not start: "):
        made.wait()
    assert not made._scratch.folder.exists()


def test_a_process_that_ended_well_has_nothing_else_to_say() -> None:
    assert msgspec.structs.astuple(SealedEnd()) == (0, False, 0, 0, "", "")
    asked = sealed_process.SealRequest("role", (), 1.0, True, False, 0)
    assert (msgspec.structs.astuple(asked)[6:], asked.early) == (("",), 0.0)
    assert msgspec.structs.replace(asked, gpu=True).early == sealed_process.EARLY_SECONDS
