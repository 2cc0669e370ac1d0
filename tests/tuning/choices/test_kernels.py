"""Choices whose implementations launch tuned kernels: each tunes its own, and the decided call launches the winner."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
import triton
from fake_runs import N, block, by_block, configs, increment_kernel, scale_kernel, script

import kerntune
from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.choices.declaration import ChoiceCandidate, code_hash


@triton.jit
def other_scale_kernel(x_ptr, y_ptr, n, factor, BLOCK: triton.language.constexpr):
    i = triton.language.program_id(0) * BLOCK + triton.language.arange(0, BLOCK)
    loaded = triton.language.load(x_ptr + i, mask=i < n)
    triton.language.store(y_ptr + i, loaded * factor, mask=i < n)


@pytest.mark.slow
def test_each_implementation_tunes_what_it_launches(
    this_gpu: FakeBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path))
    gpu: Any = script(this_gpu, block(64, 3000.0), block(128, 1000.0))
    one, other = (kerntune.autotune(configs(64, 128), key=["n"])(k) for k in (scale_kernel, other_scale_kernel))

    def first(x: torch.Tensor, n: int) -> torch.Tensor:
        gpu._clock += 5000.0
        y = torch.empty_like(x)
        one[by_block](x, y, n, 2.0)
        return y

    def second(x: torch.Tensor, n: int) -> torch.Tensor:
        gpu._clock += 1000.0
        y = torch.empty_like(x)
        other[by_block](x, y, n, 2.0)
        return y

    @kerntune.choice([first, second], key=["n"])
    def scale(x: torch.Tensor, n: int) -> torch.Tensor: ...

    scale(torch.empty(N, device="cuda"), N)
    assert scale.operation.decisions[-1].winner.endswith("second")
    assert [kernel.best_config.kwargs["BLOCK"] for kernel in (one, other)] == [128, 128]
    kinds = sorted(w.key.kernel.rpartition(".")[2] for w in WinnerCache().entries())
    assert kinds == ["other_scale_kernel", "scale", "scale_kernel"]


@pytest.mark.slow
def test_what_another_thread_launches_for_an_implementation_is_tuned_there(
    this_gpu: FakeBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """torch runs the backward functions of a GPU in a thread of its own, for which the deciding one waits."""
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path))
    script(this_gpu, block(64, 3000.0), block(128, 1000.0))
    kernel = kerntune.autotune(configs(64, 128), key=["n"])(scale_kernel)
    nested = kerntune.choice([torch.exp2, torch.exp], key=["x"], verify="off")(lambda x: x)
    ended: list[bool] = []

    def elsewhere(x: torch.Tensor, n: int) -> torch.Tensor:
        def backward() -> None:
            kernel[by_block](x, torch.empty_like(x), n, 2.0)
            nested(torch.ones(4))

        thread = threading.Thread(target=backward, daemon=True)
        if all(ended):
            thread.start()
            thread.join(5.0)
            ended.append(not thread.is_alive())
        return x

    scale = kerntune.choice([elsewhere, other_implementation], key=["n"], verify="off")(lambda x, n: x)
    scale(torch.empty(N, device="cuda"), N)
    assert ended
    assert all(ended)
    assert kernel.best_config.kwargs["BLOCK"] == 128
    assert len(nested.operation.decisions) == 1


def other_implementation(x: torch.Tensor, n: int) -> torch.Tensor:
    return x


def launches_one(x: Any) -> None:
    increment_kernel[(1,)](x, N, 64)


def launches_other(x: Any) -> None:
    scale_kernel[(1,)](x, x, N, 1.0, 64)


def calls(x: Any) -> None:
    launches_one(x)


def test_code_is_that_of_what_is_called_and_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [code_hash(ChoiceCandidate("n", f)) for f in (launches_one, calls, launches_other)]
    assert len(set(before)) == 3
    monkeypatch.setitem(launches_one.__globals__, "increment_kernel", scale_kernel)
    after = [code_hash(ChoiceCandidate("n", f)) for f in (launches_one, calls, launches_other)]
    assert [a == b for a, b in zip(before, after, strict=True)] == [False, False, True]


def test_code_of_methods_of_what_is_not_assigned_yet_and_without_a_module() -> None:
    class One:
        def run(self, x: Any) -> None:
            launches_one(x)

    class Other:
        def run(self, x: Any) -> None:
            launches_other(x)

    def open_cell(x: Any) -> None:
        later(x)

    hashes = {code_hash(ChoiceCandidate("n", f)) for f in (One().run, Other().run, open_cell)}
    assert len(hashes) == 3
    later = launches_one
    assert code_hash(ChoiceCandidate("n", open_cell)) not in hashes
    open_cell.__module__ = None  # type: ignore[assignment]  # as of a function that exec made
    assert code_hash(ChoiceCandidate("n", open_cell))
