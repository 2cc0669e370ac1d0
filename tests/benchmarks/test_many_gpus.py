"""The parts of the benchmarks of many GPUs that count."""

from __future__ import annotations

import pytest

pytest.importorskip("xdist")

from benchmarks.many_gpus_simulated import makespan


def test_equal_work_on_every_gpu_takes_as_long_as_on_one() -> None:
    one = makespan(1, [1.0] * 12, 0.0)
    assert one == pytest.approx(12.0)
    assert makespan(4, [1.0] * 48, 0.0) == pytest.approx(one)


def test_a_controller_that_is_busy_all_the_time_is_the_limit() -> None:
    assert makespan(8, [1.0] * 80, 0.5) == pytest.approx(40.0, abs=1.0)


def test_a_case_that_takes_long_is_waited_for() -> None:
    assert makespan(2, [1.0, 1.0, 1.0, 9.0], 0.0) == pytest.approx(10.0)
