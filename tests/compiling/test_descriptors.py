"""What forks leave of their parent's descriptors."""

from __future__ import annotations

import os
import sys

import pytest

from kerntune.compiling.descriptors import close_from
from kerntune.compiling.forking import text_of_fork


def test_numbers_stay_taken() -> None:
    """An object of the parent that ends later must not close what the fork has opened."""
    read, write = os.pipe()

    def work() -> str:
        mine = os.open("/proc/self/stat", os.O_RDONLY)
        ends = {os.readlink(f"/proc/self/fd/{number}") for number in (read, write)}
        return f"{mine not in (read, write)} {ends}"

    assert text_of_fork(work, 10) == f"True { {os.devnull} }"
    os.close(write)
    assert os.read(read, 1) == b"", "nobody holds the other end"
    os.close(read)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # from Python 3.12 on
def test_one_is_kept() -> None:
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        close_from(3, write)
        os.write(write, b"here")
        os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    assert os.read(read, 8) == b"here"
    os.close(read)


def test_a_fork_prints_to_nobody() -> None:
    """What the parent prints to may be a file of pytest's that is gone, and what it has not written yet is its own."""

    def work() -> str:
        for stream in (sys.stdout, sys.stderr):
            print("lost", file=stream, flush=True)
        return "went on"

    assert text_of_fork(work, 10) == "went on"
