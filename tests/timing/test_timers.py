"""What a timer does in which order, and when times may be compared."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.errors import MeasurementError
from kerntune.timing import timers
from kerntune.timing.timers import GraphSlot, ProfilerSlot, TimingProtocol, executions, flushed_runs, unrolled_runs


class Gpu:
    """Notes what it is asked for; a recording's events are 1,000 ns apart for each execution between them."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *words: self.did.append(name)

    def elapsed_ns(self, start: object, end: object) -> float:
        return 6000.0

    def reached(self, event: object) -> bool:
        return False


class Program:
    """On :class:`Gpu`, with two launches of which one does nothing."""

    def __init__(self, in_place: tuple[int, ...] = (0,)) -> None:
        self.gpu, self.in_place, self.did = Gpu(), in_place, list[str]()
        self.gpu.did = self.did
        launches = (SimpleNamespace(grid=(1, 1, 1)), SimpleNamespace(grid=(1, 0, 1)))
        self.recording = SimpleNamespace(launches=launches, binary_of=lambda launch: SimpleNamespace(symbol="kernel"))

    def rotate(self, replicas: int, runs: int) -> int:
        self.did.append(f"rotate {replicas} {runs}")
        return 3

    def enqueue(self, replica: int = 0) -> None:
        self.did.append(f"run {replica}")

    def restore(self, replica: int = 0) -> None:
        self.did.append(f"restore {replica}")

    def graph(self, runs: int, replicas: int) -> Any:
        self.did.append(f"graph {runs} {replicas}")
        return SimpleNamespace(replay=lambda: self.did.append("replay"))


def test_the_profiler_s_executions_are_each_restored_and_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the device has ended them before the profiler does."""
    program: Any = Program()

    def kernels_of(work: Any) -> list[tuple[str, float]]:
        work()
        program.did.append("end")
        return [("kernel", 5.0), ("another", 90.0), ("kernel", 9.0), ("kernel", 6.0)]

    monkeypatch.setattr(timers, "kernels_of", kernels_of)
    slot = ProfilerSlot(program, 2)
    assert (slot.enqueue()(), slot.late) == (6.0, False)
    assert program.did == ["restore 0", "flush_l2", "run 0"] * 2 + ["synchronize", "end"]


@pytest.mark.parametrize("in_place", [(), (0,)])
def test_a_graph_has_run_once_before_it_is_timed(monkeypatch: pytest.MonkeyPatch, in_place: tuple[int, ...]) -> None:
    """Each copy is visited alone first: that loads code, and says what can't be launched."""
    program: Any = Program(in_place)
    monkeypatch.setattr(timers, "flushes_before", lambda gpu, work, restore: program.did.append("look") or 2)
    slot = GraphSlot(program, 2, 6)
    restores = [f"restore {i}" for i in range(3)] if in_place else []
    runs = [f"run {i}" for i in range(3)]
    made = ["rotate 2 6", *restores, *runs, "synchronize", "graph 6 3", *restores, "replay", "look"]
    assert (program.did, slot.late) == (made, False)
    program.did.clear()
    assert slot.enqueue()() == 1000.0
    assert program.did == [*restores, "flush_l2", "flush_l2", "event", "replay", "event"]


def test_work_is_flushed_once_and_restored_before() -> None:
    gpu: Any = Gpu()
    pieces = flushed_runs(gpu, lambda: gpu.did.append("work"), 2)
    assert gpu.did == ["flush_l2", "event", "work", "event"] * 2
    assert [(piece.ns(), piece.late) for piece in pieces] == [(6000.0, False)] * 2
    gpu.did.clear()
    flushed_runs(gpu, lambda: gpu.did.append("work"), 1, 2, lambda: gpu.did.append("restore"))
    assert gpu.did == ["restore", "flush_l2", "flush_l2", "event", "work", "event"]


@pytest.mark.parametrize(
    ("then", "now", "differences"),
    [
        (TimingProtocol("graph", 8, 4), TimingProtocol("graph", 20, 1), []),
        (TimingProtocol("graph", 8, 4), TimingProtocol("events", 8, 4), ["timer graph -> events"]),
        (TimingProtocol("graph", 8, 4, 1), TimingProtocol("graph", 8, 4), ["timing protocol 1 -> 2"]),
        (TimingProtocol("events", 8, 4, 3), TimingProtocol("profiler", 8, 4, 1),
         ["timer events -> profiler", "timing protocol 3 -> 1"]),
    ],
)  # fmt: skip
def test_when_times_can_be_compared(then: TimingProtocol, now: TimingProtocol, differences: list[str]) -> None:
    assert then.differences(now) == differences


@pytest.mark.parametrize(
    ("seen", "symbols"), [([("a", 1.0)], []), ([], []), ([("a", 1.0)] * 3, ["a", "a"]), ([("b", 1.0)], ["a"])]
)
def test_kernels_that_were_not_launched_are_an_error(seen: list[tuple[str, float]], symbols: list[str]) -> None:
    told = ", ".join(dict.fromkeys(symbols))
    with pytest.raises(MeasurementError, match=f"saw {len(seen)} kernels that are not {told} in turn; end other prof"):
        executions(seen, symbols)


def test_kernels_are_a_row_an_execution() -> None:
    seen = [("a", 1.0), ("a", 2.0), ("b", 3.0), ("a", 4.0), ("a", 5.0), ("b", 6.0)]
    assert executions(seen, ["a", "a", "b"]) == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert executions(seen[:1], ["a"]) == [[1.0]]


@pytest.mark.parametrize(
    ("replicas", "launches", "estimate_ns", "most", "target_ns", "runs"),
    [(1, 1, 1e4, math.inf, 1e6, 100), (1, 1, 0.5, math.inf, 50.0, 50), (1, 2, 1.0, math.inf, 2e6, 100),
     (2, 1, 1e6, 1, 2e6, 2), (4, 1, 1e5, 12, 2e6, 12), (4, 1, 1e5, 11, 2e6, 8), (6, 1, 1e5, math.inf, 2e6, 18),
     (8, 1, 1e5, math.inf, 1.2e6, 16)],
)  # fmt: skip
def test_how_often_a_graph_is_unrolled(
    replicas: int, launches: int, estimate_ns: float, most: float, target_ns: float, runs: int
) -> None:
    assert unrolled_runs(replicas, launches, estimate_ns, most, target_ns) == runs
