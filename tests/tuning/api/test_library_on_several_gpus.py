"""``@kerntune.autotune`` in a program with several GPUs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_runs import N, block, by_block, configs, scale_kernel

import kerntune
from kerntune.gpu import device_lock
from kerntune.gpu.script import Script
from kerntune.gpu.scripted import FakeBackend, FakeGpu, scripted_host
from kerntune.tuning import context, tuned_call
from kerntune.tuning.cache import WinnerCache

FIRST, SECOND = (block(64, 1000.0), block(128, 2000.0)), (block(64, 2000.0), block(128, 1000.0))


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)  # it hides the scripted GPUs too
    monkeypatch.setattr(device_lock, "device_node", lambda uuid: None)
    monkeypatch.setattr(tuned_call, "WinnerCache", lambda: WinnerCache(tmp_path))


@contextlib.contextmanager
def host_of(monkeypatch: pytest.MonkeyPatch, devices: Any) -> Iterator[FakeBackend]:
    host = scripted_host(devices, Script(FIRST))
    monkeypatch.setattr(context, "this_gpu", lambda: host.on(host.current()))
    with host.activate():
        yield host


def call(kernel: Any, number: int) -> None:
    with torch.cuda.device(number):
        x = torch.empty(N, device="cuda")
        kernel[by_block](x, torch.empty_like(x), N, 2.0)


def ours() -> Any:
    return kerntune.autotune(configs(64, 128), key=["n"])(scale_kernel)


def launches(host: FakeBackend) -> list[bool]:
    return [host.on(n).gpu.launches > 0 for n in range(host.count)]


def test_a_call_is_tuned_on_the_current_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with host_of(monkeypatch, 2) as host:
        call(ours(), 1)
        assert launches(host) == [False, True]


def test_equal_gpus_share_a_winner(monkeypatch: pytest.MonkeyPatch) -> None:
    with host_of(monkeypatch, 2) as host:
        kernel = ours()
        call(kernel, 0)
        call(kernel, 1)
        call(ours(), 1)
        assert launches(host) == [True, False]
        assert len(kernel.cache) == 1


def test_different_models_have_winners_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the tuner's own cache: what is best on one need not fit on the other."""
    with host_of(monkeypatch, ["cuda:90", "cuda:80"]) as host:
        second: FakeGpu = host.on(1).gpu
        second.script = Script(SECOND)
        kernel = ours()
        for number, best in ((0, 64), (1, 128), (0, 64)):
            call(kernel, number)
            assert kernel.best_config.kwargs == {"BLOCK": best}
        assert launches(host) == [True, True]
        assert len(kernel.cache) == 2


def test_tensors_of_another_gpu_than_the_current_one_are_not_tuned_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton launches on the current one: the call is made as it is, and why is said."""
    with host_of(monkeypatch, 2) as host:
        x = torch.empty(N, device="cuda:1")
        with pytest.warns(RuntimeWarning, match=r"scale_kernel is launched on cuda:0, .* x_ptr on cuda:1"):
            ours()[by_block](x, torch.empty_like(x), N, 2.0)
        assert launches(host) == [False, False]
