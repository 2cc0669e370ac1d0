"""Observed launches: ranges for profilers, bandwidth of every launch, and nothing of it while it is off."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from doubles import raising
from fake_runs import N, block, by_block, configs, scale, scale_kernel, script

import kerntune
from kerntune.gpu.scripted import FakeBackend, FakeGpu
from kerntune.kernels.compat import launch_environment
from kerntune.kernels.dispatch.launch_path import ObservedLaunch, observers, unwatch, watch
from kerntune.tuning import bandwidth_report, context
from kerntune.tuning.context import NvtxRanges, range_name
from kerntune.tuning.tune_options import observers_of


class Counting:
    """An observer that keeps what it sees."""

    def __init__(self) -> None:
        self.seen: list[ObservedLaunch] = []

    def launch(self, seen: ObservedLaunch, run: Callable[[], Any]) -> Any:
        self.seen.append(seen)
        return run()


@pytest.fixture
def counting() -> Iterator[Counting]:
    found = Counting()
    watch(found)
    yield found
    unwatch(found)


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    assert observers() == ()
    yield
    assert observers() == ()


def tuned() -> Any:
    return kerntune.autotune(configs(64, 128), key=["n"])(scale_kernel)


def test_every_launch_is_seen(this_gpu: FakeBackend, counting: Counting) -> None:
    script(this_gpu, block(64, 3000.0), block(128, 1000.0))
    kernel = tuned()
    for _ in range(3):
        scale(kernel)
    assert [(s.kernel, s.config.kwargs, s.grid) for s in counting.seen] == [("scale_kernel", {"BLOCK": 128}, (32,))] * 3
    unwatch(counting)
    scale(kernel)
    assert len(counting.seen) == 3


def test_a_grid_that_only_triton_knows_is_none() -> None:
    seen = ObservedLaunch(tuned(), (), triton.Config({"BLOCK": 64}), (), {"grid": lambda meta: (meta["ROWS"],)})
    assert seen.grid is None
    fixed = ObservedLaunch(tuned(), (), triton.Config({"BLOCK": 64}), (), {"grid": (3, 4)})
    assert fixed.grid == (3, 4)


# ranges


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_environment, "current_stream", lambda: 7)


def test_a_range_has_kernel_config_grid_and_stream(this_gpu: FakeBackend, counting: Counting, stream: None) -> None:
    scale(tuned())
    name = range_name(counting.seen[0])
    assert name.startswith(f"scale_kernel [{scale_kernel.cache_key[:12]}] BLOCK: ")
    assert name.endswith("grid=(64, 1, 1) stream=7") or name.endswith("grid=(32, 1, 1) stream=7")


def test_torchs_profiler_shows_the_range(this_gpu: FakeBackend, stream: None) -> None:
    script(this_gpu, block(64, 3000.0), block(128, 1000.0))
    kernel = tuned()
    scale(kernel)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as found:
        scale(kernel)
    names = [e.name for e in found.events() if e.name.startswith("scale_kernel [")]
    assert len(names) == 1
    assert "BLOCK: 128" in names[0]
    assert names[0].endswith("grid=(32, 1, 1) stream=7")


def test_no_range_is_named_while_no_profiler_is_active(this_gpu: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "range_name", None)
    scale(tuned())


def test_nvtx_marks_each_launch(this_gpu: FakeBackend, monkeypatch: pytest.MonkeyPatch, stream: None) -> None:
    told: list[str] = []

    def begin(name: str) -> Callable[[], object]:
        told.append(name)
        return lambda: told.append("end")

    monkeypatch.setattr(launch_environment, "begin_nvtx_range", begin)
    (observer,) = observers_of({"KERNTUNE_NVTX": "1"})
    watch(observer)
    try:
        kernel = tuned()
        scale(kernel)
        scale(kernel)
    finally:
        unwatch(observer)
    assert [x == "end" for x in told] == [False, True, False, True]
    assert "stream=7" in told[0]


def test_without_nvtx_there_is_one_warning(this_gpu: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_environment, "begin_nvtx_range", raising(RuntimeError("NVTX functions not installed")))
    ranges, seen = NvtxRanges(), ObservedLaunch(tuned(), (), triton.Config({"BLOCK": 64}), (), {"grid": (1,)})
    with pytest.warns(RuntimeWarning, match="KERNTUNE_NVTX: torch has no NVTX here") as told:
        assert [ranges.launch(seen, lambda: 5) for _ in range(2)] == [5, 5]
    assert len(told) == 1


def test_nothing_is_watched_unless_it_is_asked_for() -> None:
    assert observers_of({"KERNTUNE_NVTX": "0"}) == observers_of({}) == []


# bandwidth


@pytest.fixture
def timed(this_gpu: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """Launches of the program take 8, 4, 4, ... microseconds; a copy moves 16 GB/s."""
    script(this_gpu, block(64, 3000.0), block(128, 1000.0))
    times = iter([8000.0, *[4000.0] * 50])
    launch = bandwidth_report.bandwidth.launch

    def during(self: Any, seen: Any, run: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(FakeGpu, "elapsed_ns", lambda gpu, a, b: next(times))
            return launch(self, seen, run)

    monkeypatch.setattr(bandwidth_report.bandwidth, "launch", during)
    monkeypatch.setattr(bandwidth_report, "device_bandwidth", lambda gpu, folder: 16e9)
    monkeypatch.setattr(bandwidth_report, "captures_graph", lambda: False)
    return this_gpu


def test_every_launch_has_its_bandwidth(timed: FakeBackend, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = tuned()
    with kerntune.bandwidth() as report:
        for _ in range(3):
            scale(kernel)
        kernel[by_block](torch.empty(N, device="cuda", dtype=torch.float16), torch.empty(N, device="cuda"), N, 2.0)
    first, second = sorted(report.rows, key=lambda row: -row.launches)
    assert (first.kernel, first.grid, first.launches, first.time_ns) == ("scale_kernel", (32,), 3, 4000.0)
    assert (first.bytes_moved, first.bytes_per_second) == (8 * N, pytest.approx(8 * N / 4e-6))
    assert first.of_bandwidth == pytest.approx(8 * N / 4e-6 / 16e9)
    assert (second.bytes_moved, second.launches) == (6 * N, 1)
    table = capsys.readouterr().err
    assert "8.19 GB/s" in table
    assert "51.2 %" in table
    scale(kernel)
    assert len(report.rows) == 2
    assert sum(row.launches for row in report.rows) == 4, "none after the end"


def test_a_file_gets_the_figures(timed: FakeBackend, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = tuned()
    with kerntune.bandwidth(tmp_path / "b-%p.json"):
        scale(kernel)
    (path,) = tmp_path.glob("b-*.json")
    found = json.loads(path.read_text())
    assert (found["schema"], found["device"], found["bandwidth"]) == ("kerntune.bandwidth/1", "Fake GPU", 16e9)
    assert found["launches"][0]["bytes_moved"] == 8 * N
    assert capsys.readouterr().err == ""


def test_the_variable_reports_the_whole_program(tmp_path: Path) -> None:
    (report,) = observers_of({"KERNTUNE_BANDWIDTH": str(tmp_path / "b.json")})
    assert isinstance(report, bandwidth_report.bandwidth)
    report.tell()
    assert not (tmp_path / "b.json").exists(), "nothing was launched"


def test_a_graph_that_is_captured_is_not_timed(timed: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tuned()
    scale(kernel)
    monkeypatch.setattr(bandwidth_report, "captures_graph", lambda: True)
    with kerntune.bandwidth() as report:
        scale(kernel)
    assert report.rows == ()


@pytest.mark.slow
def test_modules_of_reports_are_not_loaded_by_a_launch() -> None:
    code = "import sys, kerntune.tuning.tuned_call; print('kerntune.tuning.bandwidth_report' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
