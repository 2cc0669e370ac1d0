"""Compilers of all processes of a host share tokens."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from doubles import raising
from source_path import source_path

from kerntune.base import locks as locks_module
from kerntune.base.locks import locks_work
from kerntune.compiling import compiler_tokens
from kerntune.compiling.compiler_tokens import SWITCH, CompilerTokens, tell_if_none, token_count
from kerntune.compiling.protocol import Done
from kerntune.errors import UsageError

from . import kernels
from .test_farm import answer, submit

SOURCE = Path(__file__).parents[2]

HOLDER = """
import os
import sys
from kerntune.compiling.compiler_tokens import TOKENS
ends, mine = os.pipe()
with TOKENS.token(lambda: False) as held:
    child = os.fork()  # has the descriptor, and lives on until this process ends
    if not child:
        os.close(mine)
        os.read(ends, 1)
        os._exit(0)
    print(held, flush=True)
    input()
sys.stdin.read()
"""

WORKER = """
import sys, time
from pathlib import Path
from kerntune.compiling.compiler_tokens import TOKENS
print(flush=True)
input()
for _ in range(int(sys.argv[2])):
    with TOKENS.token(lambda: False) as held:
        assert held
        begin = time.monotonic_ns()
        time.sleep(0.002)
        end = time.monotonic_ns()
    print(begin, end)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A host of its own."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", source_path(SOURCE))
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    for known in (locks_work, compiler_tokens._works, compiler_tokens._tell):
        known.cache_clear()


def never() -> bool:
    return False


def at_most(times: list[tuple[int, int]]) -> int:
    """How many intervals overlap at most."""
    moments = sorted([(begin, 1) for begin, _ in times] + [(end, -1) for _, end in times])
    running = found = 0
    for _, change in moments:
        running += change
        found = max(found, running)
    return found


def test_processes_never_hold_more_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "2")
    command = [sys.executable, "-c", WORKER, "", "20"]
    several = [subprocess.Popen(command, stdin=-1, stdout=-1, text=True) for _ in range(5)]
    for one in several:  # all are there before the first begins: else they may come one after the other
        assert one.stdout is not None
        assert one.stdout.readline() == "\n"
    for one in several:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    lines = [line for one in several for line in one.communicate()[0].splitlines()]
    times = [(int(begin), int(end)) for begin, end in map(str.split, lines)]
    assert len(times) == 100
    assert at_most(times) == 2


@pytest.mark.parametrize("why", [errno.EMFILE, errno.ENOENT])
def test_where_no_file_can_be_opened_any_more_nobody_waits(monkeypatch: pytest.MonkeyPatch, why: int) -> None:
    """Descriptors may run out, and a folder for temporary files may go, after the first token was had."""
    tokens, asked = CompilerTokens(), list[None]()
    with tokens.token(never) as held:
        assert held

    def stopped() -> bool:
        asked.append(None)
        return len(asked) > 9

    monkeypatch.setattr("kerntune.base.locks.open_lock_file", raising(OSError(why, "refused")))
    with tokens.token(stopped) as held:
        assert not held
    assert len(asked) == 1


def test_threads_of_a_process_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "2")
    tokens, times = CompilerTokens(), list[tuple[int, int]]()

    def work() -> None:
        for _ in range(10):
            with tokens.token(never) as held:
                begin = time.monotonic_ns()
                time.sleep(0.001)
                times.append((begin, time.monotonic_ns()))
            assert held

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(times) == 60
    assert at_most(times) == 2


def test_a_killed_holder_s_token_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    one = subprocess.Popen([sys.executable, "-c", HOLDER.replace("os.fork()", "1")], stdin=-1, stdout=-1, text=True)
    assert one.stdout is not None
    assert one.stdout.readline() == "True\n"
    asked: list[int] = []

    def asked_twice() -> bool:
        asked.append(1)
        return len(asked) > 2

    with CompilerTokens().token(asked_twice) as held:
        assert not held
    one.kill()
    one.communicate()
    with CompilerTokens().token(never) as held:
        assert held


def test_a_fork_that_lives_on_keeps_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    one = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=-1, stdout=-1, text=True)
    assert one.stdout is not None
    assert one.stdin is not None
    assert one.stdout.readline() == "True\n"
    one.stdin.write("\n")
    one.stdin.flush()
    with CompilerTokens().token(never) as held:
        assert held
    one.stdin.close()
    one.wait()
    one.stdout.close()


def test_waiting_ends_when_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    stopped = threading.Event()
    with CompilerTokens().token(never) as first:
        assert first
        timer = threading.Timer(0.02, stopped.set)
        timer.start()
        with CompilerTokens().token(stopped.is_set) as held:
            assert not held
        timer.join()


def test_a_farm_waits_for_a_token_of_another_process(farm, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a job that is cancelled meanwhile was never begun."""
    monkeypatch.setenv(SWITCH, "1")
    one = farm(workers=2)
    other = CompilerTokens()
    with other.token(never):
        first, second = submit(one, kernels.add_launch()), submit(one, kernels.add_launch(block=256))
        assert not first.done()
        assert one.pids == []
        assert second.cancel()
    assert isinstance(answer(first), Done)


def test_a_closed_farm_waits_for_none(farm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    one = farm()
    with CompilerTokens().token(never):
        future = submit(one, kernels.add_launch())
        one.close()
    assert "closed" in future.result(timeout=60).reason


def test_what_the_environment_says(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", {0: {4, 5}}.__getitem__)
    assert token_count() == 2, "this process's own cores"
    monkeypatch.setenv(SWITCH, "3")
    assert token_count() == 3
    monkeypatch.setenv(SWITCH, "0")
    with CompilerTokens().token(never) as held:
        assert not held
    assert list(place.iterdir()) == []
    monkeypatch.setenv(SWITCH, "many")
    with pytest.raises(UsageError, match="KERNTUNE_COMPILERS is 'many'; give a number"):
        token_count()


def told_twice() -> None:
    for _ in range(2):
        tell_if_none()


def refused(handle: int, how: int) -> None:
    raise OSError("no locks available")


@pytest.mark.parametrize("flock", [lambda handle, how: None, refused])
def test_where_locks_do_nothing_each_process_is_limited_by_itself(
    flock: object, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kerntune.base.locks.fcntl.flock", flock)
    with pytest.warns(RuntimeWarning, match=f"no locks can be had in {place}.*set TMPDIR") as told:
        told_twice()
    assert len(told) == 1
    with CompilerTokens().token(never) as held:
        assert not held


def test_a_folder_that_can_not_be_written_has_none(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_tokens, "open_lock_file", raising(PermissionError))
    with pytest.warns(RuntimeWarning, match="no locks can be had"):
        tell_if_none()
    with CompilerTokens().token(never) as held:
        assert not held


def test_a_file_that_was_cleaned_up_is_made_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    with CompilerTokens().token(never):
        (file,) = place.glob("kerntune-compiler-*")
        file.unlink()
        with CompilerTokens().token(never) as held:
            assert held
    assert list(place.glob("kerntune-compiler-*"))


# one attempt, without another process


@pytest.fixture
def locks(monkeypatch: pytest.MonkeyPatch) -> dict[int, int | OSError | None]:
    """What locking each token's file gives: a descriptor, None, or an error."""
    found: dict[int, int | OSError | None] = {}

    def locked(path: str) -> int | None:
        number = int(path.rpartition("-")[2].partition(".")[0])
        one = found[number]
        if isinstance(one, OSError):
            raise one
        return one

    monkeypatch.setattr(compiler_tokens, "locked_file", locked)
    monkeypatch.setattr(compiler_tokens, "token_count", lambda: len(found))
    monkeypatch.setattr(compiler_tokens, "can_be_had", lambda: True)
    return found


def test_the_first_free_token_is_taken(locks: dict[int, int | OSError | None]) -> None:
    one = CompilerTokens()
    locks |= {0: None, 1: OSError(errno.EMFILE, "no more files"), 2: 70, 3: 80}
    assert one._taken() == (2, 70)
    assert one._held == {2}
    assert one._taken() == (3, 80)
    assert one._taken() is None, "of the rest, none is free"


def test_an_error_is_one_only_where_nothing_is_held_and_no_file_opens(locks: dict[int, int | OSError | None]) -> None:
    refused = [OSError(errno.EMFILE, str(number)) for number in range(2)]
    locks |= dict(enumerate(refused))
    one = CompilerTokens()
    with pytest.raises(OSError, match="0"):
        one._taken()
    one._held.add(5)
    assert one._taken() is None, "one that is held is given back some time"
    one._held.clear()
    locks[0] = None
    assert one._taken() is None, "one file could be opened"


def test_a_thread_that_waits_asks_again_and_lets_others_ask(
    locks: dict[int, int | OSError | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, slept = CompilerTokens(), list[float]()
    locks[0] = None

    def sleep(seconds: float) -> None:
        assert one._asking.locked(), "one thread of a process asks at a time"
        slept.append(seconds)
        locks[0] = 70 if len(slept) == 3 else None

    monkeypatch.setattr(compiler_tokens, "time", SimpleNamespace(sleep=sleep))
    assert one._wait(never) == (0, 70)
    assert slept == [0.005] * 3
    assert not one._asking.locked()
    locks[0] = OSError(errno.EMFILE, "no more files")
    one._held.clear()
    assert one._wait(never) is None
    assert not one._asking.locked()
    one._asking.acquire()
    stops = iter([False, False, True])
    assert one._wait(lambda: next(stops)) is None, "another thread asks"


def test_a_forked_copy_has_no_threads_that_ask(
    locks: dict[int, int | OSError | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = CompilerTokens()
    one._asking.acquire()
    one._held.add(0)
    one._pid = -1
    locks[0] = 70
    assert one._wait(never) == (0, 70)
    assert one._pid == os.getpid()


def test_a_token_is_unlocked_closed_and_free_again(
    locks: dict[int, int | OSError | None], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlocked: list[tuple[int, int]] = []
    handle = os.open(place, os.O_RDONLY)
    locks[0] = handle
    monkeypatch.setattr(locks_module.fcntl, "flock", lambda handle, how: unlocked.append((handle, how)))
    one = CompilerTokens()
    with one.token(never) as held:
        assert held
        assert one._held == {0}
    assert unlocked == [(handle, locks_module.fcntl.LOCK_UN)]
    assert one._held == set()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handle)


def test_a_token_that_another_one_holds_leaves_no_descriptor_open(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits asks 200 times a second: descriptors would run out."""
    path = compiler_tokens._path(0)
    opened, closed = list[int](), list[int]()
    open_, close = locks_module.open_lock_file, os.close
    monkeypatch.setattr(locks_module, "open_lock_file", lambda path: opened.append(open_(path)) or opened[-1])
    monkeypatch.setattr(os, "close", lambda handle: closed.append(handle) or close(handle))
    held = compiler_tokens.locked_file(path)
    assert opened == [held]
    assert compiler_tokens.locked_file(path) is None
    assert opened[1] in closed
    assert held not in closed
    close(opened[0])
