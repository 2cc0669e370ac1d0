"""Gluon kernels under kerntune's decorators, Triton's, and heuristics: tuned as Triton's are."""

from __future__ import annotations

from typing import Any

import pytest
import triton
from fake_runs import block, script
from gluon_kernels import N, floats, gl, gluon

import kerntune
from kerntune.gpu.scripted import FakeBackend
from kerntune.grids import Grid1D


@gluon.jit
def add_one_kernel(x_ptr, y_ptr, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(y_ptr + i, gl.load(x_ptr + i, mask=i < n) + 1.0, mask=i < n)


CONFIGS = [triton.Config({"BLOCK": b}, num_warps=4) for b in (256, 512, 1024)]
FASTER_512 = (block(256, 3000.0), block(512, 1000.0), block(1024, 2000.0))


@pytest.fixture
def backend(this_gpu: FakeBackend) -> FakeBackend:
    """The GPU on which tuning happens."""
    return this_gpu


def call(kernel: Any) -> None:
    kernel[lambda meta: (triton.cdiv(N, meta["BLOCK"]),)](floats(N), floats(N), N)


def test_kerntunes_decorator_tunes_it_once(backend: FakeBackend) -> None:
    gpu = script(backend, *FASTER_512)
    kernel = kerntune.autotune(CONFIGS, key=["n"])(add_one_kernel)
    call(kernel)
    assert kernel.best_config.kwargs == {"BLOCK": 512}
    before = gpu.launches
    call(kernel)
    assert gpu.launches == before


def test_tritons_decorator_is_taken_over(backend: FakeBackend) -> None:
    script(backend, *FASTER_512)
    kernel = triton.autotune(CONFIGS, key=["n"])(add_one_kernel)
    with kerntune.install():
        call(kernel)
    assert kernel.best_config.kwargs == {"BLOCK": 512}


def test_a_heuristic_proposes_for_it(backend: FakeBackend) -> None:
    script(backend, *FASTER_512)
    kernel = kerntune.pointwise(sizes={"x": "n"}, blocks={"x": "BLOCK"})(add_one_kernel)
    kernel[Grid1D("n", "BLOCK")](floats(N), floats(N), N)
    assert kernel.best_config.kwargs["BLOCK"] in (256, 512, 1024)
