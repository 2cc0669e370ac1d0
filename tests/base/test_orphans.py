"""A worker ends with its parent's process, however that ends, and takes along what it has started."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forked import until

from kerntune.base import orphans
from kerntune.base.folders import TemporaryFolder
from kerntune.base.orphans import bound_command, process_end, run_to_end

ROOT = Path(__file__).resolve().parents[2]

WORKER = """
import os, subprocess, sys, time
sys.path.insert(0, {root!r})
from kerntune.base.orphans import end_with_parent
end_with_parent(0, os.getppid(), sys.argv[1])
child = subprocess.Popen(["sleep", "600"])
print(os.getpid(), child.pid, flush=True)
time.sleep(600)
"""

PARENT = """
import os, subprocess, sys, time
sys.path.insert(0, {root!r})
from kerntune.base.folders import TemporaryFolder
made, unused = TemporaryFolder("test"), TemporaryFolder("test")
worker = subprocess.Popen(
    [sys.executable, "-c", {worker!r}, sys.argv[1] or str(made.folder)], stdin=subprocess.PIPE, start_new_session=True
)
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
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a parent with a worker, which has a child: the parent, and the ids of the other two."""
    made: list[subprocess.Popen[str]] = []

    def started(forks: bool = False, folder: str = "") -> tuple[subprocess.Popen[str], list[int]]:
        text = PARENT.format(root=str(ROOT), worker=WORKER.format(root=str(ROOT)), forks=forks)
        env = {**os.environ, "TMPDIR": str(tmp_path)}
        made.append(
            subprocess.Popen(
                [sys.executable, "-c", text, folder], stdout=subprocess.PIPE, text=True, start_new_session=True, env=env
            )
        )
        stdout = made[-1].stdout
        assert stdout is not None
        return made[-1], [int(word) for word in stdout.readline().split()]

    yield started
    for one in made:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)
        one.communicate()


def killed(start: Start, forks: bool = False, folder: str = "") -> None:
    """Kill a parent, and wait until its worker and the worker's child are gone."""
    parent, others = start(forks, folder)
    assert len(others) == 2
    assert all(map(running, others))
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert until(lambda: not any(map(running, others)))


def test_a_worker_ends_with_its_parent_and_takes_children_and_folder_along(start: Start, tmp_path: Path) -> None:
    killed(start)
    assert list(tmp_path.glob("kerntune-test-*")) == []


@pytest.mark.slow
def test_a_copy_of_the_parent_that_holds_the_pipe_hides_nothing(start: Start) -> None:
    killed(start, forks=True)


@pytest.mark.parametrize("name", ["folder", "kerntune-folder", "kerntune-test-folder"])
def test_a_folder_that_is_not_ours_stays(start: Start, tmp_path: Path, name: str) -> None:
    """A worker's ``TMPDIR`` could be anything: the system's own, say."""
    file = tmp_path / name / "file"
    file.parent.mkdir()
    file.touch()
    killed(start, folder=str(file.parent))
    assert file.exists()


def test_a_thread_of_the_parent_that_ends_is_not_its_end_nor_is_a_request() -> None:
    """A test may be run in a thread of its own; the workers that it starts serve the next ones. What the parent writes
    into the pipe is for whoever reads it."""
    worker: list[subprocess.Popen[str]] = []

    def begin() -> None:
        command = [sys.executable, "-c", WORKER.format(root=str(ROOT)), ""]
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


def test_a_folder_that_no_process_locks_is_removed_at_once_and_another_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(orphans, "ENDING_SECONDS", 0.05)
    held = TemporaryFolder("test")
    orphans._sweep(str(held.folder))
    assert held.folder.is_dir(), "its owner has it still"
    held.remove()
    left = tmp_path / held.folder.name
    left.mkdir()
    orphans._sweep(str(left))
    assert not left.exists()
    (tmp_path / "mine").mkdir()
    orphans._sweep(str(tmp_path / "mine"))
    assert (tmp_path / "mine").is_dir(), "no folder of ours"
