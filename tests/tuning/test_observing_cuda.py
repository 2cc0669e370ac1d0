"""The bandwidth report, descent and profiles on a real GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fake_runs import by_block, configs, scale_kernel

import kerntune
from kerntune.gpu.probe import has_cuda

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_cuda(), reason="needs a CUDA GPU")]

N = 4096


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path / "cache"))


def launch(kernel: object, n: int = N) -> torch.Tensor:
    x = torch.arange(n, device="cuda", dtype=torch.float32)
    y = torch.empty_like(x)
    kernel[by_block](x, y, n, 2.0)  # type: ignore[index]
    return y


def test_every_launch_is_timed_and_right() -> None:
    kernel = kerntune.autotune(configs(64, 128), key=["n"])(scale_kernel)
    launch(kernel)
    with kerntune.bandwidth() as report:
        for _ in range(5):
            assert launch(kernel)[5].item() == 10.0
    (row,) = report.rows
    assert row.launches == 5
    assert 500 < row.time_ns < 1e6
    assert row.bytes_moved == 8 * N
    assert row.of_bandwidth is not None
    assert 0 < row.of_bandwidth < 1.5


def test_a_descent_ends_at_a_right_config() -> None:
    kernel = kerntune.autotune(configs(64), key=["n"], descend=6)(scale_kernel)
    assert torch.equal(launch(kernel), 2.0 * torch.arange(N, device="cuda", dtype=torch.float32))
    (winner,) = kernel.cache.values()
    assert winner.kwargs["BLOCK"] >= 1


def test_nvtx_ranges_do_not_change_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    from kerntune.kernels.dispatch.launch_path import unwatch, watch
    from kerntune.tuning.tune_options import observers_of

    kernel = kerntune.autotune(configs(64, 128), key=["n"])(scale_kernel)
    (observer,) = observers_of({"KERNTUNE_NVTX": "1"})
    watch(observer)
    try:
        assert launch(kernel)[7].item() == 14.0
    finally:
        unwatch(observer)
