"""Compiled functions on a GPU: tuning, CUDA graphs, Inductor's own launch of a known winner."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from compiled_runs import accumulated, doubled_in_place, doubling, make
from source_path import source_path
from torch_warnings import ignore_torchs_own

from kerntune.errors import MeasurementError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    *ignore_torchs_own,
]

SIZES = (1 << 12, 3000, 1 << 16)


@pytest.fixture(autouse=True)
def own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path / "kerntune"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The launches that Inductor times."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    seen: list[Any] = []
    bench = CachingAutotuner.bench

    def noting(tuner: Any, launcher: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(launcher)
        return bench(tuner, launcher, *args, **kwargs)

    monkeypatch.setattr(CachingAutotuner, "bench", noting)
    return seen


@pytest.mark.parametrize("dynamic", [False, True])
def test_each_size_has_its_winner_and_inductor_times_nothing(trials: list[Any], dynamic: bool) -> None:
    kernel = make()
    graph = torch.compile(doubling(kernel), fullgraph=True, dynamic=dynamic)
    for n in SIZES:
        x = torch.randn(n, device="cuda")
        assert torch.equal(graph(x), x * 2)
        assert torch.equal(graph(x), x * 2)
    assert {key[0] for key in kernel.cache} == set(SIZES)
    assert trials == []


def test_a_graph_made_after_tuning_has_the_winner(trials: list[Any]) -> None:
    kernel, x = make(), torch.randn(4096, device="cuda")
    f = doubling(kernel)
    f(x)
    found: list[Any] = []
    monkey = kernel._path.launch
    graph = torch.compile(f, fullgraph=True, dynamic=False)
    kernel._path.launch = lambda *args, **kwargs: found.append(args) or monkey(*args, **kwargs)
    assert torch.equal(graph(x), x * 2)
    assert (found, trials) == ([], [])


@pytest.mark.parametrize("dynamic", [False, True])
def test_reduce_overhead_tunes_in_its_warm_up(dynamic: bool) -> None:
    """Three calls: warm-up, capture, replay; torch checks that nothing of ours is left in the graph's pool."""
    from torch._inductor import config

    kernel = make()
    with config.patch({"triton.slow_path_cudagraph_asserts": True}):
        graph = torch.compile(doubling(kernel), fullgraph=True, dynamic=dynamic, mode="reduce-overhead")
        for n in SIZES:
            for _ in range(4):
                x = torch.randn(n, device="cuda")
                assert torch.equal(graph(x).clone(), x * 2)
    assert len(kernel.cache) == len(SIZES)


def test_nothing_is_tuned_during_capture() -> None:
    kernel, x = make(), torch.randn(4096, device="cuda")
    graph = torch.compile(doubling(kernel), fullgraph=True, dynamic=True)
    graph(torch.randn(100, device="cuda"))
    with (
        pytest.raises(MeasurementError, match="kernel scaled has no winner yet"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        graph(x)


def test_in_place_and_atomics() -> None:
    twice, added = make(doubled_in_place), make(accumulated, reset_to_zero=["total_ptr"])

    def f(x: torch.Tensor) -> torch.Tensor:
        x, total, n = x + 1, torch.zeros_like(x), x.numel()
        twice[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, n)
        added[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, total, n)
        return total

    graph = torch.compile(f, fullgraph=True, dynamic=True)
    for n in SIZES:
        x = torch.randn(n, device="cuda")
        assert torch.equal(graph(x), (x + 1) * 2)
        assert torch.equal(graph(x), (x + 1) * 2)


def test_gradients() -> None:
    kernel = make()

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return doubling(kernel)(x)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return doubling(kernel)(gradient.contiguous())

    graph = torch.compile(lambda x: Doubled.apply(x).sin(), fullgraph=True, dynamic=True)
    for n in SIZES:
        x = torch.randn(n, device="cuda", requires_grad=True)
        graph(x).sum().backward()
        torch.testing.assert_close(x.grad, 2 * torch.cos(2 * x.detach()))


PACKAGED_WITHIN = 100.0
"""Seconds for two packages of AOTInductor: torch's headers take most of it, which a C++ compiler reads first."""


def test_an_exported_graph_runs_without_kerntune(tmp_path: Path) -> None:
    """In a process of its own, which a crash in torch's loader ends. ``none``, a function without a Triton kernel of
    ours, says whether torch can load its packages here at all."""
    driver = Path(__file__).with_name("exported_driver.py")
    command = [sys.executable, "-X", "faulthandler", str(driver), str(tmp_path), str(PACKAGED_WITHIN)]
    path = source_path(Path(__file__).parents[3], Path(__file__).parents[2])
    env, latest = {**os.environ, "PYTHONPATH": path}, PACKAGED_WITHIN + 20  # a compiler it started may hold its output
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=latest)
    steps = dict(line.split()[:2] for line in done.stdout.splitlines())  # the last step of each
    told = f"{done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    if steps == {"none": "packaged"} and done.returncode < 0:
        pytest.skip(f"torch can't load packages of AOTInductor here: signal {-done.returncode}")
    assert (done.returncode, steps) == (0, {"none": "equal", "tuned": "equal"}), told
