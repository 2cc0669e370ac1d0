"""The parts of the benchmarks of many GPUs that count."""

from __future__ import annotations

import sys
from pathlib import Path

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
