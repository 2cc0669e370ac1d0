"""Tuning while torch warms a CUDA graph up: in another thread, whose allocations aren't the graph's."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from doubles import raising
from fake_runs import N, block, by_block, configs, scale_kernel, script

import kerntune
from kerntune.gpu.scripted import FakeBackend
from kerntune.kernels.compat import torch_private
from kerntune.tuning import tuned_call
from kerntune.tuning.tuned_call import outside_graph_pool


@pytest.fixture
def warming(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A CUDA graph is being warmed up on device 0."""
    manager = SimpleNamespace(in_warmup=True)
    trees = SimpleNamespace(get_manager=lambda device, create_if_none_exists: manager if device == 0 else None)
    monkeypatch.setitem(torch_private.sys.modules, torch_private.TREES, trees)
    monkeypatch.setattr(tuned_call, "device_in_use", lambda: 0)
    monkeypatch.setattr(tuned_call, "current_thread_state", lambda: torch.no_grad)
    return manager


def test_work_is_done_in_another_thread(warming: SimpleNamespace) -> None:
    here = threading.get_ident()
    assert outside_graph_pool(threading.get_ident) != here
    warming.in_warmup = False
    assert outside_graph_pool(threading.get_ident) == here


def test_without_a_gpu_or_a_warm_up_it_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert outside_graph_pool(threading.get_ident) == threading.get_ident()
    monkeypatch.setattr(tuned_call, "device_in_use", lambda: 1)
    assert outside_graph_pool(threading.get_ident) == threading.get_ident()


def test_errors_are_raised_where_it_was_asked(warming: SimpleNamespace) -> None:
    with pytest.raises(KeyboardInterrupt, match="stop"):
        outside_graph_pool(raising(KeyboardInterrupt("stop")))


def test_a_call_is_tuned_there_and_launched_on_its_stream(warming: SimpleNamespace, this_gpu: FakeBackend) -> None:
    """Also where a hook of the call tunes another kernel: the lock is the other thread's."""
    script(this_gpu, block(64, 3000.0), block(128, 1000.0))
    inner = kerntune.autotune(configs(64, 128), key=["n"])(scale_kernel)
    threads: list[int] = []

    def hook(named: dict[str, Any], reset_only: bool = False) -> None:
        threads.append(threading.get_ident())
        inner[by_block](x, x, N, 3.0)

    x = torch.empty(N, device="cuda")
    kernel = kerntune.autotune(configs(64, 128), key=["n"], pre_hook=hook)(scale_kernel)
    kernel[by_block](x, x, N, 2.0)
    assert kernel.best_config is kernel.configs[1]
    assert threading.get_ident() not in threads
    kernel[by_block](x, x, N, 2.0)
    assert threads, "the second call tunes nothing"
