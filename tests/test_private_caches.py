"""Wrappers that keep compiled kernels and launch those by themselves: every launch is captured all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
from fake_runs import N, captured, configs, scale_kernel
from triton.runtime.jit import JITFunction, KernelInterface

import kerntune
from kerntune.capture import Capture
from kerntune.capture.recorder import record
from kerntune.gpu.scripted import FakeBackend
from kerntune.kernels.specialize import as_launch


class Keeping(KernelInterface):  # type: ignore[misc]  # Triton has no types
    """What some libraries wrap their kernels in: compiled once for arguments alike, then launched past Triton."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        self.kept: dict[Any, Any] = {}
        self.jit = fn
        while not isinstance(self.jit, JITFunction):
            self.jit = self.jit.fn

    def run(self, *args: Any, grid: Any, warmup: bool = False, **meta: Any) -> Any:
        key = tuple(str(a.dtype) if isinstance(a, torch.Tensor) else type(a) for a in args), tuple(meta.items())
        if key not in self.kept:
            kernel = self.fn.run(*args, grid=grid, warmup=warmup, **meta)
            tuned = getattr(self.fn, "best_config", None)
            self.kept[key] = kernel, {} if tuned is None else tuned.kwargs
            return kernel
        kernel, tuned = self.kept[key]
        named = {**dict(zip(self.jit.arg_names, args, strict=False)), **meta, **tuned}
        where = grid(named) if callable(grid) else grid
        kernel[(*where, 1, 1)[:3]](*(named[name] for name in self.jit.arg_names))
        return kernel


def launch(kernel: Any, numbers: int = N, **meta: Any) -> None:
    x = torch.randn(numbers, device="cuda")
    kernel[lambda meta: (triton.cdiv(numbers, meta["BLOCK"]),)](x, torch.empty_like(x), numbers, 2.0, **meta)


@pytest.fixture(params=["plain", "installed"])
def installed(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "plain":
        yield
        return
    with kerntune.install():
        yield


def codes(capture: Capture) -> list[str]:
    recording = record(capture).recording
    return [recording.binary_of(x).code for x in recording.launches]


@pytest.mark.usefixtures("installed")
def test_a_kept_kernel_is_captured_as_the_first_was(backend: FakeBackend) -> None:
    kernel = Keeping(scale_kernel)
    first = captured(backend, lambda: launch(kernel, BLOCK=256, num_warps=8))
    again = captured(backend, lambda: [launch(kernel, BLOCK=256, num_warps=8) for _ in range(2)])
    assert len(kernel.kept) == 1
    assert [p.kernel for p in again.launches] == ["scale_kernel"] * 2
    assert codes(again) == codes(first) * 2
    assert again.launches[0].grid == first.launches[0].grid == (triton.cdiv(N, 256), 1, 1)


@pytest.mark.usefixtures("installed")
def test_a_kept_kernel_is_specialized_for_what_it_gets_now(backend: FakeBackend) -> None:
    kernel = Keeping(scale_kernel)
    captured(backend, lambda: launch(kernel, 1024, BLOCK=128))
    odd = captured(backend, lambda: launch(kernel, 1023, BLOCK=128))
    plain = captured(backend, lambda: launch(scale_kernel, 1023, BLOCK=128))
    assert codes(odd) == codes(plain), "the wrapper's key doesn't know of divisibility; what is compiled does"


@pytest.mark.usefixtures("installed")
def test_a_kept_tuned_kernel_is_captured_with_its_config(backend: FakeBackend) -> None:
    kernel = Keeping(triton.autotune(configs(64, 128), key=["n"])(scale_kernel))
    first = captured(backend, lambda: launch(kernel), prefer=lambda site: [1, 0])
    again = captured(backend, lambda: launch(kernel))
    assert first.launches[0].site is not None
    assert codes(again) == codes(first)
    assert again.launches[0].grid == (triton.cdiv(N, 128), 1, 1)


def test_outside_a_capture_nothing_is_noted(backend: FakeBackend) -> None:
    kernel = Keeping(scale_kernel)
    capture = captured(backend, lambda: launch(kernel, BLOCK=64))
    launch(kernel, BLOCK=64)
    assert len(capture.launches) == 1


def test_kernels_without_python_source_are_left_alone() -> None:
    class FromIr:
        src = object()

    assert as_launch(FromIr(), (1, 1, 1)) is None
