"""The report of a fresh process on its first call, and a huge in-place call."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton

import kerntune
from benchmarks.suite import child
from benchmarks.suite.case import Call, config_text
from benchmarks.suite.cases import CASES
from benchmarks.suite.child import decorator, extra_configs, settled, timed

CONFIGS = [triton.Config({"BLOCK": b}) for b in (64, 128, 256)]


class Tuner:
    """Takes the second config; ``work`` is what its launch does."""

    def __init__(self, work: Callable[[], None] = lambda: None) -> None:
        self.work = work
        self.best_config = CONFIGS[1]
        self.configs_timings = {
            CONFIGS[0]: [2.0, 2.0, 2.0],
            CONFIGS[1]: [1.0, 1.0, 1.0],
            CONFIGS[2]: [float("inf")] * 3,
        }

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *args: self.work()


@pytest.fixture(autouse=True)
def _without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


@pytest.mark.parametrize(("lines", "words"), [
    ("", ["context"]),
    ("go\n", ["context", "ready"]),
    ("go\ngo\n", ["context", "ready", "done"]),
    ("go\ngo\ngo\n", ["context", "ready", "done", "done"]),
])  # fmt: skip
def test_a_step_is_taken_at_each_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lines: str, words: list[str]
) -> None:
    monkeypatch.setattr(torch, "zeros", lambda *shape, device: None)
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    child.in_steps(lambda: [lambda n=n: {"step": n} for n in range(2)])
    said = [json.loads(line.removeprefix(child.MARK)) for line in capsys.readouterr().out.splitlines()]
    assert [one["word"] for one in said] == words
    assert [one["step"] for one in said[2:]] == list(range(len(words) - 2))


def test_the_winner_is_told_with_its_place() -> None:
    found = timed(Tuner(), Call(lambda meta: (1,), (), dict), CONFIGS)
    assert (found["winner"], found["index"]) == (config_text(CONFIGS[1]), 1)
    assert (found["timed"], found["configs"]) == (2, 3)
    assert found["seconds"] >= 0
    assert "error" not in found


def test_an_error_is_a_result() -> None:
    def fail() -> None:
        raise torch.OutOfMemoryError("Tried to allocate 70 GiB")

    found = timed(Tuner(fail), Call(lambda meta: (1,), (), dict), CONFIGS)
    assert found["error"] == "OutOfMemoryError: Tried to allocate 70 GiB"
    assert "winner" not in found


def test_engines_are_the_decorators_of_both() -> None:
    assert decorator("triton") is triton.autotune
    assert decorator("kerntune") is kerntune.autotune


def test_the_added_config_is_new() -> None:
    case = CASES["matmul"]
    listed = [config_text(c) for c in case.configs(case.shapes[0])]
    assert len(listed) == 48
    assert [config_text(c) in listed for c in extra_configs()] == [False]


class Patient(Tuner):
    """Has two late configs, which its third call tries; the first of all is the best."""

    def __init__(self) -> None:
        super().__init__()
        late = type("Late", (), {"configs": CONFIGS[:2]})()
        self.untried, self.calls = {"key": late}, 0

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*args: Any) -> None:
            self.calls += 1
            if self.calls == 3:
                self.untried.clear()
                self.best_config = CONFIGS[0]

        return launch


def test_what_became_of_late_configs_is_told() -> None:
    found = timed(Patient(), Call(lambda meta: (1,), (), dict), CONFIGS)
    assert (found["winner"], found["final_winner"]) == (config_text(CONFIGS[1]), config_text(CONFIGS[0]))
    assert (found["late"], found["left"]) == (2, 0)
    assert found["all_tried"] > found["seconds"]
    assert found["settling_ms"] >= 0


class Clock:
    """A replacement of ``time`` that advances by sleeps and by the durations that calls give."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("tries_at", [1, 3])
def test_a_plain_call_is_none_that_tries_configs(monkeypatch: pytest.MonkeyPatch, tries_at: int) -> None:
    """However few calls there were before."""
    clock = Clock()
    monkeypatch.setattr(child, "time", clock)

    class Slow(Patient):
        def __getitem__(self, grid: Any) -> Callable[..., None]:
            def launch(*args: Any) -> None:
                self.calls += 1
                clock.now += 0.7 if self.calls == tries_at else 0.002
                if self.calls == tries_at:
                    self.untried.clear()

            return launch

    found = settled(Slow(), Call(lambda meta: (1,), (), dict), 0.0)
    assert (found["settling_ms"], found["plain_ms"]) == (700.0, 2.0)
    assert found["all_tried"] == pytest.approx(0.7 + 0.002 * (tries_at - 1) + 0.01 * tries_at)
