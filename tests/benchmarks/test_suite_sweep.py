"""The exhaustive sweep on the scripted GPU: what it times, how often, and what it keeps."""

from __future__ import annotations

import pytest
import torch
import triton
from fake_runs import COMPILER, N, block, by_block, configs, increment_kernel, scale_kernel, script

from benchmarks.suite import quality, sweep
from benchmarks.suite.case import Call, config_text
from kerntune.gpu.scripted import FakeBackend
from kerntune.timing.timers import event_slot

BLOCKS = (32, 64, 128, 256, 512)


def swept(backend: FakeBackend, *times: float, kernel: object = scale_kernel, **options: object) -> sweep.Sweep:
    gpu = script(backend, *(block(b, t) for b, t in zip(BLOCKS, times, strict=True)))
    tuner = triton.autotune(configs(*BLOCKS), key=["n"])(kernel)
    x = torch.randn(N, device="cuda")
    rest = (torch.empty_like(x), N, 2.0) if kernel is scale_kernel else (N,)
    found = sweep.prepare(backend, COMPILER, tuner, Call(by_block, (x, *rest), dict))
    with gpu.lock():
        sweep.measure(found, **{"rounds": 6, "near": 1.3, **options})
    return found


@pytest.mark.slow
def test_every_config_has_its_time(shared: FakeBackend) -> None:
    times = (10_000.0, 12_000.0, 11_000.0, 50_000.0, 90_000.0)
    found = swept(shared, *times)
    assert [s.config for s in found.swept] == [config_text(c) for c in configs(*BLOCKS)]
    assert [s.time_ns for s in found.swept] == pytest.approx(times, rel=0.01)
    assert [len(s.times_ns) for s in found.swept] == [6, 6, 6, sweep.FEW_ROUNDS, sweep.FEW_ROUNDS]


def test_the_hopeless_are_looked_at_once_but_for_those_that_must(shared: FakeBackend) -> None:
    found = swept(shared, 10_000.0, 12_000.0, 40_000.0, 15_000.0, 90_000.0, look=2.0, always={4})
    assert [len(s.times_ns) for s in found.swept] == [6, 6, 0, sweep.FEW_ROUNDS, 6]
    assert found.swept[2].time_ns == pytest.approx(40_000.0, rel=0.01)


def test_rows_say_what_is_known(shared: FakeBackend) -> None:
    found = swept(shared, *(10_000.0,) * 5)
    sweep.add_metrics([found], shared.spec, 2)
    row = found.rows()[0]
    assert row["grid"] == [N // 32, 1, 1]
    assert row["rounds"] == 6
    assert row["registers"] > 0
    assert row["threads"] == 128
    assert sum(row["instructions"].values()) > 0
    assert "failure" not in row


def test_kernels_that_work_in_place_are_timed_too(shared: FakeBackend) -> None:
    found = swept(shared, *(10_000.0,) * 5, kernel=increment_kernel)
    assert all(len(s.times_ns) == 6 for s in found.swept)


def test_equal_code_is_timed_once(shared: FakeBackend) -> None:
    script(shared)
    listed = [triton.Config({"BLOCK": 64}, num_stages=s) for s in (1, 2, 3)]
    tuner = triton.autotune(listed, key=["n"])(scale_kernel)
    x = torch.randn(N, device="cuda")
    found = sweep.prepare(shared, COMPILER, tuner, Call(by_block, (x, torch.empty_like(x), N, 2.0), dict))
    assert found.running == [0]
    sweep.measure(found, rounds=3, near=1.3)
    assert [row.get("same_as") for row in found.rows()] == [None, 0, 0]
    assert len({row["time_ns"] for row in found.rows()}) == 1


def test_a_config_that_does_not_compile_says_why(shared: FakeBackend) -> None:
    script(shared)
    tuner = triton.autotune([*configs(64), triton.Config({"BLOCK": 48})], key=["n"])(scale_kernel)
    x = torch.randn(N, device="cuda")
    found = sweep.prepare(shared, COMPILER, tuner, Call(by_block, (x, torch.empty_like(x), N, 2.0), dict))
    sweep.measure(found, rounds=3, near=1.3)
    well, bad = found.rows()
    assert well["rounds"] == 3
    assert "power of 2" in bad["failure"]
    assert "time_ns" not in bad


def test_some_configs_are_timed_again_by_another_timer(shared: FakeBackend) -> None:
    times = (10_000.0, 12_000.0, 10_500.0, 50_000.0, 90_000.0)
    found = swept(shared, *times)
    chosen = quality.best_of({i: s.time_ns for i, s in enumerate(found.swept)})
    assert chosen == [0, 2]
    with shared.gpu.lock():
        again = sweep.measure_again(found, chosen, 3, lambda program: event_slot(program, 2))
    assert {i: len(x) for i, x in again.items()} == {0: 3, 2: 3}
    assert again[2][0] / again[0][0] == pytest.approx(1.05, abs=0.03)


def test_the_winner_by_another_timer() -> None:
    ours = {4: 10.0, 7: 10.1, 1: 10.2}
    found = quality.agreement(ours, {4: [9.5, 9.6, 9.7], 7: [9.3, 9.3, 50.0], 1: [9.9]})
    assert (found["winner_by_profiler"], found["rank_by_profiler"]) == (pytest.approx(9.3 / 9.6, abs=1e-4), 2)
    assert quality.agreement(ours, {7: [9.3]})["winner_by_profiler"] is None
