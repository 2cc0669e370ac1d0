"""Launches, warm-ups, autotuners, benchmarks: nothing runs."""

import kernels as K
import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

seen = []


def even_first(configs, named, **kwargs):
    return [config for config in configs if config.kwargs["BLOCK"] == 128]


CONFIGS = [triton.Config({"BLOCK": b}, num_warps=w, pre_hook=seen.append) for b in (64, 128) for w in (4, 8)]


@triton.autotune(configs=CONFIGS, key=["n"], prune_configs_by={"early_config_prune": even_first})
@triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})
@triton.jit
def tuned(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 0.0, mask=None if EVEN else at < n)


@triton.jit
def descriptor_kernel(source, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    out.store([row, column], source.load([row, column]) * 2)


@triton.autotune(configs=[triton.Config({"tuner": 1}), triton.Config({"tuner": 2})], key=["kernel"])
@triton.jit
def oddly_named(kernel, args, kwargs, tuner: tl.constexpr):
    tl.store(kernel, args + kwargs + tuner)


@pytest.fixture
def x():
    torch.manual_seed(0)
    yield torch.randn(1000, device="cuda")
    torch.cuda.synchronize()


@pytest.mark.parametrize("rows", [1, 3, 65536])
def test_parametrized(rows):
    with K.launched() as names:
        y = torch.randn(rows, 65536, device="cuda")
        torch.testing.assert_close(K.softmax(y), torch.softmax(y, -1))
    assert names == ["softmax_kernel"]


def test_slices(x):
    assert K.add(x[1:], x[:-1]).shape == (999,)


def test_autotuner_runs_the_first_config_that_pruning_leaves(x):
    with K.launched() as names:
        tuned[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, 1000)
    assert names == ["tuned"]
    assert tuned.best_config.kwargs == {"BLOCK": 128}
    assert tuned.best_config.num_warps == 4
    assert tuned.cache == {}
    assert [given["n"] for given in seen] == [1000]


def test_any_argument_name_will_do(x):
    oddly_named[(1,)](kernel=x, args=1, kwargs=2)
    assert oddly_named.best_config.kwargs == {"tuner": 1}
    assert oddly_named.fn.warmup(kernel=x, args=1, kwargs=2, tuner=3, grid=(1,)).n_regs > 0


def test_wrong_launches_fail(x):
    with pytest.raises(TypeError):
        K.add_kernel[(1,)](x, x)
    with pytest.raises(KeyError):
        K.add_kernel[(1,)](x, x, x, 1000, BLOCK=16, unknown=3)
    with pytest.raises(ZeroDivisionError):
        K.add_kernel[lambda meta: (1 // 0,)](x, x, x, 1000, BLOCK=16)


def test_pre_run_hooks_run(x):
    calls = []
    K.add_kernel.add_pre_run_hook(lambda *args, **kwargs: calls.append(kwargs["BLOCK"]))
    try:
        K.add(x, x)
    finally:
        K.add_kernel.pre_run_hooks.clear()
    assert calls == [1024]


def test_warmup_is_compiled_for_the_target(x):
    kernel = K.add_kernel.warmup(x, x, x, 1000, BLOCK=1024, grid=(1,))
    kernel._init_handles()
    assert kernel.metadata.target.arch == 90
    assert ".target sm_90" in kernel.asm["ptx"]
    assert 0 < kernel.n_regs <= 255
    assert kernel.n_spills == 0
    assert kernel.n_max_threads == 1024
    assert kernel.metadata.num_warps == 4
    kernel[(1, 1, 1)](x, x, x, 1000, 1024)
    with pytest.raises(TypeError, match="BLOCK"):
        kernel[(1, 1, 1)](x, x, x, 1000)  # a compiled kernel takes constants too, all by position


def test_what_a_launch_returns_compiles_when_asked(x):
    kernel = K.add_kernel[(1,)](x, x, x, 1000, BLOCK=64, num_warps=2)
    assert "compiled" not in vars(kernel)
    assert kernel.metadata.num_warps == 2


def test_warmup_of_types():
    assert K.add_kernel.warmup(torch.half, torch.half, torch.half, 64, BLOCK=64, grid=(1,)).name == "add_kernel"


def test_host_descriptors():
    y = torch.randn(256, 256, device="cuda", dtype=torch.half)
    source, out = (TensorDescriptor.from_tensor(t, [64, 64]) for t in (y, torch.empty_like(y)))
    kernel = descriptor_kernel[(4, 4)](source, out, ROWS=64, COLUMNS=64)
    assert "tensormap" in kernel.asm["ptx"] or "bulk.tensor" in kernel.asm["ptx"]


def test_benchmarks_end(x):
    assert triton.testing.do_bench(lambda: K.add(x, x)) > 0
    assert len(triton.testing.do_bench(lambda: K.add(x, x), quantiles=[0.5, 0.2, 0.8])) == 3
    assert triton.testing.do_bench_cudagraph(lambda: K.add(x, x)) > 0
