"""What forks leave of their parent's descriptors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import pytest

from kerntune.compiling import forking
from kerntune.compiling.forking import close_from, text_of_fork


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


class System:
    """Stands for ``os``, with so many descriptors that may be open: 11 is the one that leads to nothing."""

    devnull, O_RDWR = os.devnull, os.O_RDWR

    def __init__(self, taken: Sequence[int] | None, limit: int = 64) -> None:
        self._taken, self._limit = taken, limit
        self.done: list[tuple[object, ...]] = []

    def open(self, path: str, flags: int) -> int:
        assert (path, flags) == (os.devnull, os.O_RDWR)
        return 11

    def listdir(self, folder: str) -> list[str]:
        if self._taken is None:
            raise FileNotFoundError(folder)
        return [*map(str, self._taken), "11"]

    def fstat(self, number: int) -> None:
        if number == 9:  # the listing's own: gone
            raise OSError

    def sysconf(self, name: str) -> int:
        assert name == "SC_OPEN_MAX"
        return self._limit

    def dup2(self, one: int, other: int, inheritable: bool) -> None:
        self.done.append(("nothing", one, other, inheritable))

    def close(self, number: int) -> None:
        self.done.append(("close", number))

    def closerange(self, begin: int, end: int) -> None:
        self.done.append(("range", begin, end))


@pytest.mark.parametrize(
    ("given", "left"),
    [((0, -1), [0, 1, 4, 5]), ((4, -1), [4, 5]), ((5, -1), [5]), ((0, 4), [0, 1, 5]), ((1, 1), [4, 5])],
)
def test_all_from_a_number_on_lead_to_nothing(
    monkeypatch: pytest.MonkeyPatch, given: tuple[int, int], left: list[int]
) -> None:
    system = System([0, 1, 4, 5, 9])
    monkeypatch.setattr(forking, "os", system)
    close_from(*given)
    assert system.done == [*(("nothing", 11, number, False) for number in left), ("close", 11)]


@pytest.mark.parametrize(
    ("limit", "end"), [(64, 64), (-1, 1 << 20), (0, 1 << 20), (1, 1), (1 << 20, 1 << 20), (1 << 30, 1 << 20)]
)
def test_without_a_listing_all_numbers_are_closed(monkeypatch: pytest.MonkeyPatch, limit: int, end: int) -> None:
    """Up to the process's own limit, or the system's where that is none."""
    for given, ranges in (((3, 7), [(3, 7), (8, end)]), ((3, -1), [(3, -1), (3, end)]), ((3, 1), [(3, 1), (3, end)])):
        system = System(None, limit)
        monkeypatch.setattr(forking, "os", system)
        close_from(*given)
        assert system.done == [("close", 11), *(("range", *one) for one in ranges)]
