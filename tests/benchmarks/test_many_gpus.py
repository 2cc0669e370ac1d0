"""The parts of the benchmarks of many GPUs that count."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("xdist")

from benchmarks.many_gpus import half_of
from benchmarks.many_gpus_simulated import makespan


def test_equal_work_on_every_gpu_takes_as_long_as_on_one() -> None:
    one = makespan(1, [1.0] * 12, 0.0)
    assert one == pytest.approx(12.0)
    assert makespan(4, [1.0] * 48, 0.0) == pytest.approx(one)


def test_a_controller_that_is_busy_all_the_time_is_the_limit() -> None:
    assert makespan(8, [1.0] * 80, 0.5) == pytest.approx(40.0, abs=1.0)


def test_a_case_that_takes_long_is_waited_for() -> None:
    assert makespan(2, [1.0, 1.0, 1.0, 9.0], 0.0) == pytest.approx(10.0)


def test_what_was_compiled_again_and_who_was_idle_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))  # the script puts folders before
    from benchmarks.many_gpus import compiled_of, processes_of

    rows = [{"process": 1, "seconds": 3.0}, {"process": 2, "seconds": 2.0}, {"process": 1, "seconds": 1.0}]
    assert processes_of(rows, 4.0) == {"1": {"keys": 2, "busy": 1.0}, "2": {"keys": 1, "busy": 0.5}}
    compiled = [{"code": code, "seconds": 0.5} for code in "abaca"]
    assert compiled_of(compiled) == {"configs": 3, "again": 2, "seconds": 2.5}


@pytest.mark.parametrize(
    ("siblings", "half"), [({0: "0,2", 1: "1,3"}, [0, 2]), ({0: "0-1", 2: "2-3"}, [0, 1]), ({}, [0, 1])]
)
def test_half_of_the_cores_has_both_threads_of_each(tmp_path: Path, siblings: dict[int, str], half: list[int]) -> None:
    for text in siblings.values():
        for core in (int(text[0]), int(text[-1])):
            (tmp_path / f"cpu{core}/topology").mkdir(parents=True)
            (tmp_path / f"cpu{core}/topology/thread_siblings_list").write_text(f"{text}\n")
    assert half_of([0, 1, 2, 3], tmp_path) == half


@pytest.mark.parametrize(
    ("found", "half"),
    [({1: 0.6, 4: 0.98}, [0, 1, 2, 3]), ({1: 0.97, 4: 0.6}, [0, 1, 4, 5]), ({1: 0.9, 4: 0.95}, [0, 1, 2, 3])],
)
def test_threads_that_a_machine_hides_are_measured(tmp_path: Path, found: dict[int, float], half: list[int]) -> None:
    assert half_of(range(8), tmp_path, found) == half


def test_threads_that_a_machine_names_are_believed(tmp_path: Path) -> None:
    for core in range(8):
        (tmp_path / f"cpu{core}/topology").mkdir(parents=True)
        (tmp_path / f"cpu{core}/topology/thread_siblings_list").write_text(f"{core // 2 * 2}-{core // 2 * 2 + 1}\n")
    assert half_of(range(8), tmp_path, {1: 0.97, 4: 0.6}) == [0, 1, 2, 3]


def test_all_ways_tune_with_what_tune_many_makes_of_a_description(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants take a matmul less power: other configs win than with ``gpu/invented``'s numbers."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    from benchmarks.many_gpus_kernels import KERNELS

    for _, call, shapes in KERNELS.values():
        _, args = call(shapes[0], "cpu")
        deviations = [float(one.float().std()) for one in args[:-1] if hasattr(one, "dtype")]
        assert deviations[0] == pytest.approx(1.0, abs=0.1)


def test_what_each_runs_race_gave_its_winner_is_beside_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    from benchmarks import many_gpus, many_gpus_kernels
    from kerntune.gate import measured_gpu

    of = {name: SimpleNamespace(config=name, time_ns=ns) for name, ns in (("one", 54_190.0), ("all", 61_200.0))}
    monkeypatch.setitem(sys.modules, "many_gpus_kernels", many_gpus_kernels)
    monkeypatch.setattr(many_gpus, "backend_of", lambda words: SimpleNamespace(activate=contextlib.nullcontext))
    monkeypatch.setattr(many_gpus, "winner_of", lambda backend, compiler, key, folder: of[folder.name])
    monkeypatch.setattr(many_gpus, "compared", lambda *args: {"configs": args[-1], "change": 0.03})
    monkeypatch.setattr(measured_gpu, "pairs_for", lambda backend: SimpleNamespace(close=lambda: None))
    words = SimpleNamespace(scripted=True, keys=1, kernels=8, compare=8)
    found = many_gpus.compare_winners(Path("one"), Path("all"), words)
    (row,) = found["compared"].values()
    assert row == {"configs": ["one", "all"], "change": 0.03, "tuned_us": [54.19, 61.2]}


def test_the_clock_of_a_tuning_is_told_by_its_range() -> None:
    from benchmarks.winner_contents import summary

    low, high = {"sm_clock_mhz": 1500, "power_w": 690.0, "throttle": "0x4"}, {"sm_clock_mhz": 1980, "throttle": ""}
    assert summary([{}]) == {}
    assert summary([high, low, {}, low]) == {
        "readings": 3, "least_mhz": 1500, "median_mhz": 1500, "most_mhz": 1980, "power_w": 690.0, "throttle": ["0x4"],
    }  # fmt: skip
