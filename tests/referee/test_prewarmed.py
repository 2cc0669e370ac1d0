"""Sealed processes that start before they are asked: which is taken, what it has done, and how the others end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.msgpack import encode as encoded

from kerntune.base.device import Target, typical_device
from kerntune.referee import prewarmed, sealed_process
from kerntune.referee.candidate_speed import ROOMY, GpuSpeeds
from kerntune.referee.declared_inputs import parse_line
from kerntune.referee.prewarmed import PrewarmedProcesses
from kerntune.referee.sealed_process import Answered, SealedEnd
from kerntune.referee.sealing import landlock_version
from kerntune.referee.tasks import DeviceAnswer

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


def since(found: list[str]) -> float:
    """When the process was prewarmed, in seconds of the monotonic clock."""
    return float(found[0].split()[1])


def folders(processes: PrewarmedProcesses, pattern: str = "*") -> int:
    """One for each process, or what is in it."""
    return sum(path.parts[-1 - pattern.count("/")].isdigit() for path in processes._scratch.folder.glob(pattern))


def until(processes: PrewarmedProcesses, count: int, pattern: str = "*") -> None:
    end = time.monotonic() + 10
    while folders(processes, pattern) != count:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_each_task_has_a_process_of_its_own_that_is_prewarmed(processes: PrewarmedProcesses, tmp_path: Path) -> None:
    processes.prewarm("noted", (), 5.0, 2)
    processes.prewarm("noted", (str(tmp_path),), 5.0, 1)
    until(processes, 3, "*/prewarmed")
    asked = time.monotonic()
    first, second, third = (noted(processes, word) for word in ("a", "b", "c"))
    assert (first[1:], second[1:], third[1:]) == (["a"], ["b"], ["c"])
    assert max(since(first), since(second)) < asked < since(third), "the third starts when it is asked"
    assert first[0].endswith(" False")
    assert first[0] != second[0]
    with_folder = noted(processes, "d", (str(tmp_path),))
    assert (with_folder[0].endswith(" True"), with_folder[1:]) == (True, ["d"])
    processes.wait_for_ends()
    assert folders(processes) == 0


def test_an_answer_is_there_before_its_process_has_ended_but_nothing_is_timed_meanwhile(
    processes: PrewarmedProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end, ended, end_of = threading.Event(), list[float](), sealed_process._end_of

    def late(status: int, seconds: float) -> SealedEnd:
        assert may_end.wait(20)
        ended.append(time.monotonic())
        return end_of(status, seconds)

    processes.prewarm("noted", (), 5.0, 2)
    until(processes, 2, "*/prewarmed")
    monkeypatch.setattr(sealed_process, "_end_of", late)
    assert noted(processes, "a")[1:] == ["a"]
    assert ended == []
    assert folders(processes) == 2
    threading.Timer(0.2, may_end.set).start()
    found = processes.ask("time", 1, (), 10.0, 1 << 10, gpu=True)
    assert found.data is not None
    assert ended[0] < msgspec.msgpack.decode(found.data, type=float)
    assert folders(processes) == 1, "the other one is still to be asked"
    assert [one.result().data for one in processes._ending] == [None], "it may be large"


def test_while_one_waits_for_ends_others_answer(processes: PrewarmedProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    may_end, end_of, found = threading.Event(), sealed_process._end_of, list[bytearray | None]()

    def late(status: int, seconds: float) -> SealedEnd:
        assert may_end.wait(20)
        return end_of(status, seconds)

    processes.prewarm("noted", (), 5.0, 2)
    until(processes, 2, "*/prewarmed")
    with monkeypatch.context() as patch:
        patch.setattr(sealed_process, "_end_of", late)
        noted(processes, "a")
        ask = partial(processes.ask, "time", 1, (), 10.0, 1 << 10, gpu=True)
        asked = [threading.Thread(target=lambda: found.append(ask().data)) for _ in range(2)]
        for one in asked:
            one.start()
        time.sleep(0.1)
        began = time.monotonic()
        noted(processes, "b")
        assert time.monotonic() - began < 10
        time.sleep(0.5)
        assert found == [], "each of those that are timed waits"
        may_end.set()
        for one in asked:
            one.join()
    assert None not in found


def test_other_roles_and_processes_without_a_gpu_are_not_these(processes: PrewarmedProcesses) -> None:
    processes.prewarm("noted", (), 5.0, 1)
    assert noted(processes, "a", gpu=False) == ["a"]
    assert processes.ask("echo", 1, (), 10.0, 9, True).data == b"\1"
    assert len(noted(processes, "b")) == 2


def test_one_that_has_waited_long_is_ended(processes: PrewarmedProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    processes.prewarm("noted", (), 5.0, 1)
    monkeypatch.setattr(prewarmed, "USED_SECONDS", 0.0)
    until(processes, 1, "*/prewarmed")
    asked = time.monotonic()
    assert since(noted(processes, "a")) > asked
    until(processes, 0)


def test_those_that_nobody_asks_are_ended(processes: PrewarmedProcesses) -> None:
    processes.prewarm("noted", (), 5.0, 3)
    until(processes, 3)
    processes.discard()
    until(processes, 0)
    discarded = time.monotonic()
    assert since(noted(processes, "a")) > discarded


def test_an_answer_has_no_more_bytes_than_the_task_s(processes: PrewarmedProcesses) -> None:
    processes.prewarm("noted", (), 1.0, 1)
    assert processes.ask("noted", "a", (), 10.0, 3, True).data is None


@pytest.mark.slow
def test_its_time_begins_with_its_task(processes: PrewarmedProcesses) -> None:
    processes.prewarm("run", (), 0.3, 1)
    until(processes, 1)
    time.sleep(0.4)
    began = time.monotonic()
    found = processes.ask("run", "import time; time.sleep(60)", (), 10.0, 3, True)
    assert (found.data, found.end.late, found.how) == (None, True, "it was ended, being late")
    assert 0.2 < time.monotonic() - began < 3


@pytest.mark.slow
@pytest.mark.parametrize("early", [True, False])
def test_to_open_the_gpu_takes_none_of_its_time(processes: PrewarmedProcesses, early: bool) -> None:
    """With a cold disk that took 20 seconds, and right candidates were refused for it."""
    (processes._scratch.folder / "slow").touch()
    if early:
        processes.prewarm("noted", (), 0.3, 1)
    found = processes.ask("noted", "a", (), 0.3, 1 << 10, True)
    assert (found.data is not None, found.end) == (True, SealedEnd())


# what a GPU's speeds start early


class Prewarming:
    """A device with so many free bytes. Notes what is started."""

    def __init__(self, free: int) -> None:
        spec = typical_device(Target.parse("cuda:90"))
        self._device = Answered(encoded(DeviceAnswer(spec, 1e12, free)), SealedEnd(), "")
        self.early: list[tuple[Any, ...]] = []
        self.discarded = False

    def ask(self, *words: Any, gpu: bool) -> Answered:
        assert gpu
        return self._device

    def prewarm(self, *words: Any) -> None:
        self.early.append(words)

    def discard(self) -> None:
        self.discarded = True


def speeds_of(processes: Prewarming) -> GpuSpeeds:
    speeds = GpuSpeeds()
    speeds.start(processes)  # type: ignore[arg-type]
    return speeds


@pytest.mark.parametrize(
    ("line", "content", "authors", "replays"),
    [
        ("x: f32[16777216]", "normal", 5, 7),
        ("x: f32[2097153]", "normal", 4, 7),
        ("x: f32[2097152]", "normal", 5, 7),
        ("x: f32[2097151]", "normal", 2, 7),
        ("x: f32[2097152]", "author", 1, 6),
    ],
)
def test_authors_and_replays_are_prewarmed_as_many_as_are_asked(
    line: str, content: str, authors: int, replays: int
) -> None:
    """For large inputs that the referee makes, authors are several."""
    processes, case = Prewarming(ROOMY), parse_line(line)
    speeds = speeds_of(processes)
    case = msgspec.structs.replace(case, tensors=(msgspec.structs.replace(case.tensors[0], content=content),))
    speeds.prewarm(("/folder", "/utils.py"), case, 11.0)
    assert processes.early == [("expect", ("/folder", "/utils.py"), 300.0, authors), ("replay", (), 11.0, replays)]
    speeds.discard()
    assert processes.discarded


@pytest.mark.parametrize("further", [0, 2])
@pytest.mark.parametrize("readable", [("/folder",), ()])
def test_timing_is_prewarmed_with_what_a_live_reference_may_read(readable: tuple[str, ...], further: int) -> None:
    """And as many further results as are wanted, on both sides."""
    processes = Prewarming(ROOMY)
    speeds_of(processes).prewarm_timing(readable, ("/folder",), further)
    authors = ("expect", ("/folder",), 300.0, further)
    assert processes.early == [authors, ("time", readable, 60.0, 3), ("replay", (), 60.0, 3 + further)]


def test_a_small_device_has_no_early_processes() -> None:
    processes = Prewarming(ROOMY - 1)
    speeds = speeds_of(processes)
    speeds.prewarm(("/folder",), parse_line("x: f32[64]"), 11.0)
    speeds.prewarm_timing((), ("/folder",), 2)
    speeds.discard()
    assert processes.early == []
    assert not processes.discarded
