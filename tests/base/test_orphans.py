"""A worker ends with its parent's process, however that ends, and takes along what it has started."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forked import until

from kerntune.base.orphans import bound_command, process_end, run_to_end

ROOT = Path(__file__).resolve().parents[2]

WORKER = """
import os, subprocess, sys, time
sys.path.insert(0, {root!r})
from kerntune.base.orphans import end_with_parent
end_with_parent(0, os.getppid())
child = subprocess.Popen(["sleep", "600"])
print(os.getpid(), child.pid, flush=True)
time.sleep(600)
"""

PARENT = """
import os, subprocess, sys, time
sys.path.insert(0, {root!r})
worker = subprocess.Popen([sys.executable, "-c", {worker!r}], stdin=subprocess.PIPE, start_new_session=True)
if {forks}:
    if not os.fork():  # a copy of the parent that outlives it, and holds the worker's pipe
        time.sleep(600)
time.sleep(600)
"""


def running(pid: int) -> bool:
    """Neither gone nor a zombie that a container's first process doesn't reap."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


Start = Callable[..., tuple["subprocess.Popen[str]", list[int]]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a parent with a worker, which has a child: the parent, and the ids of the other two."""
    made: list[subprocess.Popen[str]] = []

    def started(forks: bool) -> tuple[subprocess.Popen[str], list[int]]:
        text = PARENT.format(root=str(ROOT), worker=WORKER.format(root=str(ROOT)), forks=forks)
        made.append(
            subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, start_new_session=True)
        )
        stdout = made[-1].stdout
        assert stdout is not None
        return made[-1], [int(word) for word in stdout.readline().split()]

    yield started
    for one in made:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)
        one.communicate()


def killed(start: Start, forks: bool = False) -> None:
    """Kill a parent, and wait until its worker and the worker's child are gone."""
    parent, others = start(forks)
    assert len(others) == 2
    assert all(map(running, others))
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert until(lambda: not any(map(running, others)))


def test_a_worker_ends_with_its_parent_and_takes_children_along(start: Start) -> None:
    killed(start)


@pytest.mark.slow
def test_a_copy_of_the_parent_that_holds_the_pipe_hides_nothing(start: Start) -> None:
    killed(start, forks=True)


def test_a_thread_of_the_parent_that_ends_is_not_its_end_nor_is_a_request() -> None:
    """A test may be run in a thread of its own; the workers that it starts serve the next ones. What the parent writes
    into the pipe is for whoever reads it."""
    worker: list[subprocess.Popen[str]] = []

    def begin() -> None:
        command = [sys.executable, "-c", WORKER.format(root=str(ROOT))]
        worker.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        )

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    assert worker[0].stdout is not None
    pids = [int(word) for word in worker[0].stdout.readline().split()]
    try:
        assert worker[0].stdin is not None
        worker[0].stdin.write("request")
        worker[0].stdin.flush()
        time.sleep(0.2)
        assert all(map(running, pids))
    finally:
        worker[0].communicate()  # closes its input
    assert until(lambda: not any(map(running, pids)))


def test_the_end_of_a_process_can_be_waited_for() -> None:
    process = subprocess.Popen(["sleep", "600"])
    end = process_end(process.pid)
    process.kill()
    if end is None:
        pytest.skip("this system has no descriptors of processes")
    assert select.select([end], [], [], 60)[0]
    os.close(end)
    process.wait()
    assert process_end(process.pid) is None
    assert process_end(0) is None


RUNS = """
import subprocess, sys
sys.path.insert(0, {root!r})
from kerntune.base.orphans import bound_command
subprocess.run(bound_command(["sh", "-c", "echo $$; exec sleep 600"]))
"""


def test_a_program_that_is_waited_for_ends_with_who_waits() -> None:
    command = [sys.executable, "-c", RUNS.format(root=str(ROOT))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        assert parent.stdout is not None
        program = int(parent.stdout.readline())
        assert running(program)
        parent.kill()
        parent.wait()
    assert until(lambda: not running(program))


def test_a_bound_program_is_the_same_one() -> None:
    """Its words, standard files, descriptors and exit code; one that isn't there says so."""
    read, write = os.pipe()
    text = f"import os, sys; print(sys.stdin.read(), end=''); os.write({write}, sys.argv[1].encode()); sys.exit(7)"
    words = [sys.executable, "-c", text, "a b"]
    done = subprocess.run(bound_command(words), input="in", capture_output=True, text=True, pass_fds=(write,))
    os.close(write)
    with open(read) as told:
        assert (done.stdout, done.returncode, told.read()) == ("in", 7, "a b")
    missing = subprocess.run(bound_command(["/no/such"]), capture_output=True, text=True, check=False)
    assert (missing.returncode, missing.stderr) == (1, "/no/such: No such file or directory\n")


def test_a_program_is_run_to_its_end(tmp_path: Path) -> None:
    """With its folder and environment, but with nothing to read; empty lines aren't kept."""
    text = "import os, sys; print(os.getcwd(), sys.stdin.read() or None, '', os.environ['A'], '', sep='\\n')"
    text += "; sys.stderr.buffer.write(b'first\\n\\nlast \\xff\\n'); sys.exit(3)"
    done = run_to_end([sys.executable, "-c", text], tmp_path, {**os.environ, "A": "b"})
    assert done == (3, [str(tmp_path), "None", "b"], ["first", "last \ufffd"])
    assert (done.last(1), done.last(3), len(done.last().splitlines())) == ("last \ufffd", "b\nfirst\nlast \ufffd", 5)
