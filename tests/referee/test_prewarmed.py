"""Sealed processes that start before they are asked: which is taken, what it has done, and how the others end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kerntune.referee import prewarmed
from kerntune.referee.prewarmed import PrewarmedProcesses
from kerntune.referee.sealed_process import SealedEnd
from kerntune.referee.sealing import landlock_version

LANDLOCK = bool(landlock_version())


@pytest.fixture
def processes() -> Iterator[PrewarmedProcesses]:
    made = PrewarmedProcesses(LANDLOCK, "tests.referee.sealed_roles")
    yield made
    made.close()
    assert not made._scratch.folder.exists()


def noted(processes: PrewarmedProcesses, word: str, readable: tuple[str, ...] = (), gpu: bool = True) -> list[str]:
    found = processes.ask("noted", word, readable, 10.0, 1 << 10, gpu)
    assert found.end == SealedEnd()
    assert found.data is not None
    return msgspec.msgpack.decode(found.data, type=list[str])


def folders(processes: PrewarmedProcesses) -> int:
    """One for each process."""
    return sum(path.name.isdigit() for path in processes._scratch.folder.iterdir())


def until(processes: PrewarmedProcesses, count: int) -> None:
    end = time.monotonic() + 10
    while folders(processes) != count:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_each_task_has_a_process_of_its_own_that_is_prewarmed(processes: PrewarmedProcesses, tmp_path: Path) -> None:
    processes.prewarm("noted", (), 5.0, 2)
    processes.prewarm("noted", (str(tmp_path),), 5.0, 1)
    until(processes, 3)
    first, second, third = (noted(processes, word) for word in ("a", "b", "c"))
    assert (first[1:], second[1:], third) == (["a"], ["b"], ["c"]), "the third starts when it is asked"
    assert first[0].endswith(" False")
    assert first[0] != second[0]
    with_folder = noted(processes, "d", (str(tmp_path),))
    assert (with_folder[0].endswith(" True"), with_folder[1:]) == (True, ["d"])
    assert folders(processes) == 0


def test_other_roles_and_processes_without_a_gpu_are_not_these(processes: PrewarmedProcesses) -> None:
    processes.prewarm("noted", (), 5.0, 1)
    assert noted(processes, "a", gpu=False) == ["a"]
    assert processes.ask("echo", 1, (), 10.0, 9, True).data == b"\1"
    assert len(noted(processes, "b")) == 2


def test_one_that_has_waited_long_is_ended(processes: PrewarmedProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    processes.prewarm("noted", (), 5.0, 1)
    monkeypatch.setattr(prewarmed, "USED_SECONDS", 0.0)
    assert noted(processes, "a") == ["a"]
    until(processes, 0)


def test_those_that_nobody_asks_are_ended(processes: PrewarmedProcesses) -> None:
    processes.prewarm("noted", (), 5.0, 3)
    until(processes, 3)
    processes.discard()
    until(processes, 0)
    assert noted(processes, "a") == ["a"]


def test_an_answer_has_no_more_bytes_than_the_task_s(processes: PrewarmedProcesses) -> None:
    processes.prewarm("noted", (), 1.0, 1)
    assert processes.ask("noted", "a", (), 10.0, 3, True).data is None


def test_its_time_begins_with_its_task(processes: PrewarmedProcesses) -> None:
    processes.prewarm("hang", (), 0.3, 1)
    until(processes, 1)
    time.sleep(0.4)
    began = time.monotonic()
    found = processes.ask("hang", "a", (), 10.0, 3, True)
    assert (found.data, found.end.late, found.how) == (None, True, "it was ended, being late")
    assert 0.2 < time.monotonic() - began < 3
