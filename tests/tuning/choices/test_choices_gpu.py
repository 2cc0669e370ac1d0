"""Choices on a real GPU: torch's implementations beside tuned kernels, gradients, graphs, compiled functions, time."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch_warnings import ignore_torchs_own

import kerntune
from kerntune.errors import MeasurementError
from kerntune.gpu.probe import has_cuda
from kerntune.tuning import first_launches

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_cuda(), reason="needs a CUDA GPU"),
    *ignore_torchs_own,
]

N = 1 << 16

SECONDS = 1e-9
"""A nanosecond."""


@triton.jit
def double_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


def tuned() -> Any:
    return kerntune.autotune([triton.Config({"BLOCK": b}) for b in (256, 1024)], key=["n"])(double_kernel)


def by_block(n: int) -> Callable[[dict[str, Any]], tuple[int]]:
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


def implementations() -> tuple[Callable[..., Any], ...]:
    kernel = tuned()

    def of_kernel(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        kernel[by_block(x.numel())](x, y, x.numel())
        return y

    def in_steps(x: torch.Tensor) -> torch.Tensor:
        """Ten launches and more: far slower."""
        for _ in range(10):
            x = x + 0.0
        return x + x

    def of_torch(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    return in_steps, of_kernel, of_torch


def choice_of(*functions: Any, **options: Any) -> Any:
    return kerntune.choice(list(functions), key=["x"], **options)(lambda x: None)


def decision(choice: Any) -> Any:
    return choice.operation.decisions[-1]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("n", [256, N, 1 << 24])
def test_the_slow_one_never_wins_and_the_result_is_right(dtype: torch.dtype, n: int) -> None:
    double = choice_of(*implementations())
    x = torch.randn(n, device="cuda", dtype=dtype)
    before = x.clone()
    assert torch.equal(double(x), before * 2)
    assert torch.equal(x, before)
    found = decision(double)
    assert not found.left_out
    assert not found.winner.endswith("in_steps")
    assert len(found.times_ns) == 3


def test_the_race_agrees_with_the_hosts_clock() -> None:
    functions = implementations()
    double = choice_of(*functions)
    x = torch.randn(N, device="cuda")
    double(x)
    for f in functions:
        times = []
        for _ in range(9):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(50):
                f(x)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - begin) / 50)
        raced = next(ns for name, ns in decision(double).times_ns.items() if name.endswith(f.__name__))
        assert 0.5 < raced * SECONDS / statistics.median(times) < 2, (f.__name__, raced, times)


def test_in_place_is_done_once() -> None:
    kernel = tuned()

    def add_(x: torch.Tensor) -> None:
        x.add_(x)

    def kernel_(x: torch.Tensor) -> None:
        kernel[by_block(x.numel())](x, x, x.numel())

    whole = torch.ones(N + 64, device="cuda")
    choice_of(add_, kernel_)(whole[64:])
    assert whole[:64].tolist() == [1.0] * 64
    assert torch.equal(whole[64:], torch.full((N,), 2.0, device="cuda"))


def test_a_wrong_one_is_left_out() -> None:
    double = choice_of(*implementations(), lambda x: x * 2.5)
    with pytest.warns(RuntimeWarning, match="is left out"):
        double(torch.ones(N, device="cuda"))


def test_out_of_memory_is_left_out() -> None:
    def huge(x: torch.Tensor) -> torch.Tensor:
        return torch.empty(1 << 48, device="cuda")[: len(x)] * 2

    double = choice_of(huge, *implementations())
    x = torch.ones(N, device="cuda")
    with pytest.warns(RuntimeWarning, match="OutOfMemoryError"):
        assert torch.equal(double(x), x * 2)


def test_gradients_are_the_winners() -> None:
    def of_cat(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x, x]).sum(0)

    double = choice_of(of_cat, lambda x: x * 2)
    x = torch.ones(N, device="cuda", requires_grad=True)
    double(x).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.full_like(x, 2.0))
    assert len(decision(double).times_ns) == 2


def test_a_cuda_graph_holds_what_was_decided_before() -> None:
    double = choice_of(*implementations())
    x = torch.ones(N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of an empty graph
        with pytest.raises(MeasurementError, match="call it once before the capture"), torch.cuda.graph(graph):
            double(x)
    torch.cuda.synchronize()
    double(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = double(x)
    x.fill_(3.0)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, torch.full_like(x, 6.0))


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_a_compiled_function_has_the_decided_one(mode: str | None) -> None:
    double = choice_of(*implementations())
    x = torch.ones(N, device="cuda")
    double(x)
    compiled = torch.compile(lambda x: double(x) + 1, mode=mode)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="choice ")
        for _ in range(3):
            assert torch.equal(compiled(x), torch.full_like(x, 3.0))


def test_products_are_decided_with_cublas_among_them() -> None:
    def by_parts(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        half = a.shape[1] // 2
        return a[:, :half] @ b[:half] + a[:, half:] @ b[half:]

    matmul = kerntune.choice([by_parts, torch.mm], key=["a", "b"])(lambda a, b: None)
    for m in (1, 64, 1024):
        a, b = (torch.randn(*s, device="cuda", dtype=torch.float16) for s in ((m, 1024), (1024, 1024)))
        torch.testing.assert_close(matmul(a, b), a @ b, rtol=1e-2, atol=1e-1)
        assert len(decision(matmul).times_ns) == 2


# kernels that nothing tunes


@triton.jit
def far_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i.to(tl.int64) + (1 << 42), tl.load(x + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def endless_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    flag = tl.load(x, volatile=True)
    while flag == flag:
        flag = tl.load(x, volatile=True) * 0.0
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2 + flag, mask=i < n)


@triton.jit
def beside_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
    tl.store(y + n, 1.0)


BARE = {far_kernel: "failed", endless_kernel: "did not end within", beside_kernel: "wrote outside of its tensors"}


@pytest.mark.parametrize("kernel", BARE, ids=lambda kernel: kernel.fn.__name__)
def test_a_bad_kernel_that_nothing_tunes_costs_its_implementation_alone(
    kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_launches, "LIMIT_FIRST_S", 3.0)

    def bare(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        kernel[by_block(x.numel())](x, y, x.numel(), BLOCK=256)
        return y

    def good(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        double_kernel[by_block(x.numel())](x, y, x.numel(), BLOCK=256)
        return y

    double = choice_of(bare, good, lambda x: x * 2)
    x = torch.randn(N, device="cuda")
    said = rf"kernel {kernel.fn.__name__}: its first launch {BARE[kernel]}"
    with pytest.warns(RuntimeWarning, match=f"bare is left out for such arguments: LaunchFault: {said}"):
        found = double(x)
    assert torch.equal(found, x * 2)
    assert [name.rpartition(".")[2] for name in decision(double).left_out] == ["bare"]
    assert len(decision(double).times_ns) == 2
    torch.cuda.synchronize()
    assert torch.equal(torch.arange(5, device="cuda").cpu(), torch.arange(5))
    again = choice_of(bare, good)
    with pytest.warns(
        RuntimeWarning, match=rf"kernel {kernel.fn.__name__}: an earlier run found that its first launch"
    ):
        again(x)


@pytest.mark.parametrize("grad", [False, True])
def test_good_kernels_that_nothing_tunes_run_as_without_a_choice(grad: bool) -> None:
    """Also in a backward function, which torch runs in another thread."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return launched(x)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return launched(gradient.contiguous())

    def launched(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        double_kernel[by_block(x.numel())](x, y, x.numel(), BLOCK=512)
        return y

    def in_steps(x: torch.Tensor) -> torch.Tensor:
        for _ in range(10):
            x = x + 0.0
        return x + x

    double = choice_of(in_steps, lambda x: Double.apply(x))
    x = torch.randn(N, device="cuda", requires_grad=grad)
    y = double(x)
    assert torch.equal(y.detach(), x.detach() * 2)
    assert not decision(double).left_out
    assert len(decision(double).times_ns) == 2
    if grad:
        y.sum().backward()
        assert x.grad is not None
        assert torch.equal(x.grad, torch.full_like(x, 2.0))
