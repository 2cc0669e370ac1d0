"""Prepared launches on a real GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kerntune
from kerntune.gpu.probe import has_cuda

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_cuda(), reason="needs a CUDA GPU")]

N = 1000


@triton.jit
def scale(x, y, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


@triton.jit
def double_square(source, target, BLOCK: tl.constexpr):
    first = tl.make_tensor_descriptor(source, [BLOCK, BLOCK], [BLOCK, 1], [BLOCK, BLOCK])
    second = tl.make_tensor_descriptor(target, [BLOCK, BLOCK], [BLOCK, 1], [BLOCK, BLOCK])
    second.store([0, 0], first.load([0, 0]) * 2)


@triton.jit
def double_described(source, target, BLOCK: tl.constexpr):
    target.store([0, 0], source.load([0, 0]) * 2)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path))


def tuned(jit: Any = scale, **options: Any) -> Any:
    configs = [triton.Config({"BLOCK": b}, **options) for b in (128, 256)]
    return kerntune.autotune(configs, key=["n"])(jit)


def by_block(meta: dict[str, Any]) -> tuple[int]:
    return (triton.cdiv(N, meta["BLOCK"]),)


def test_all_kinds_of_arguments_give_the_right_result(slow: list[Any]) -> None:
    kernel = tuned()
    base = torch.randn(N + 1, device="cuda")
    for dtype in (torch.float32, torch.float16):
        for offset in (0, 1):
            x = base.to(dtype)[offset : offset + N]
            for factor in (2, 1, 3.0, 16):
                for _ in range(2):
                    y = torch.zeros(N, device="cuda", dtype=dtype)
                    kernel[by_block](x, y, N, factor)
                    assert torch.equal(y, (x * factor).to(dtype))
    assert len(slow) < 20, "the second call of each kind was prepared"


@pytest.mark.parametrize(
    "options", [{"num_ctas": 2}, {"pre_hook": lambda named: named["y"].zero_()}], ids=["cluster", "hook"]
)
def test_clusters_and_hooks(slow: list[Any], options: dict[str, Any]) -> None:
    kernel, x = tuned(**options), torch.randn(N, device="cuda")
    for _ in range(4):
        y = torch.full((N,), 7.0, device="cuda")
        kernel[by_block](x, y, N, 2.0)
        assert torch.equal(y, x * 2)


def test_a_graph_captures_prepared_launches(slow: list[Any]) -> None:
    kernel, x, y = tuned(), torch.randn(N, device="cuda"), torch.zeros(N, device="cuda")
    for _ in range(3):
        kernel[by_block](x, y, N, 2.0)
    graph, before = torch.cuda.CUDAGraph(), len(slow)
    with torch.cuda.graph(graph):
        kernel[by_block](x, y, N, 2.0)
    assert len(slow) == before
    x.copy_(torch.randn(N, device="cuda"))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, x * 2)


def test_launches_go_to_the_current_stream() -> None:
    kernel, x, y = tuned(), torch.randn(N, device="cuda"), torch.zeros(N, device="cuda")
    for _ in range(3):
        kernel[by_block](x, y, N, 2.0)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        kernel[by_block](x, y, N, 3.0)
    assert not side.query()
    assert torch.equal(y, x * 2), "it waits on the other stream"
    side.synchronize()
    assert torch.equal(y, x * 3)


def test_host_tensors_are_refused_as_ever() -> None:
    kernel, x = tuned(), torch.randn(N, device="cuda")
    for _ in range(3):
        kernel[by_block](x, torch.empty_like(x), N, 2.0)
    with pytest.raises(ValueError, match="cannot be accessed from Triton"):
        kernel[by_block](x, torch.zeros(N), N, 2.0)


def test_scratch_memory_and_descriptors(slow: list[Any]) -> None:
    from triton.tools.tensor_descriptor import TensorDescriptor

    if torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("descriptors need Hopper")
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    x = torch.randn(64, 64, device="cuda")
    plain = kerntune.autotune([triton.Config({"BLOCK": 64})], key=[])(double_square)
    described = kerntune.autotune([triton.Config({"BLOCK": 64})], key=[])(double_described)
    for _ in range(4):
        y, z = torch.zeros_like(x), torch.zeros_like(x)
        plain[(1,)](x, y)
        described[(1,)](*(TensorDescriptor.from_tensor(t, [64, 64]) for t in (x, z)))
        assert torch.equal(y, x * 2)
        assert torch.equal(z, x * 2)
    assert len(slow) == 2


def test_a_profile_shows_the_range() -> None:
    kernel, x = tuned(), torch.randn(N, device="cuda")
    for _ in range(3):
        kernel[by_block](x, torch.empty_like(x), N, 2.0)
    with torch.profiler.profile(acc_events=True) as profile:
        kernel[by_block](x, torch.empty_like(x), N, 2.0)
        torch.cuda.synchronize()
    names = [e.key for e in profile.key_averages()]
    assert any(name.startswith(f"scale [{scale.cache_key[:12]}] BLOCK: ") for name in names), names
