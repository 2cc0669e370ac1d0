"""Kernels compiled for GPUs that this machine need not have, with ptxas's figures."""

from __future__ import annotations

import contextlib
import functools
import io
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from kerntune.base.device import Target
from kerntune.static.metrics import BinaryInput

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402 - only where Triton is


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def add_whole(x, y, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) + tl.load(y + i))


@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * n + i, e / tl.sum(e, 0), mask=i < n)


@triton.jit
def double(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.exp(tl.load(x + i).to(tl.float64) * 1.5).to(tl.float32))


@triton.jit
def sine(x, out, BLOCK: tl.constexpr):
    """The slow path of sin has a local array of its own."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.sin(tl.load(x + i)))


@triton.jit
def histogram(x, counts, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(counts + tl.load(x + i, mask=i < n, other=0), 1, mask=i < n)


@triton.jit
def printing(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.device_print("v", v)
    tl.store(out + i, v)


@triton.jit(noinline=True)
def _normalized(p, a, b):
    i = tl.arange(0, 1024)
    v = tl.load(p + i) * a + b
    total = tl.sum(v, 0)
    tl.store(p + i, v / total)
    return total


@triton.jit
def calling(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    w = tl.load(x + i)
    s = _normalized(out, 1.0, 2.0)
    tl.store(x + i, w * s)
    t = _normalized(out + BLOCK, s, 3.0)
    tl.store(x + BLOCK + i, w * t)


@triton.jit
def matmul(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * K + rk[None, :]
    pb = b + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(pa), tl.load(pb), acc)
        pa += BK
        pb += BK * N
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(tl.float16))


@triton.jit
def descriptor_matmul(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
    c.store([m, n], acc.to(tl.float16))


ALIGNED = [["tt.divisibility", 16]]
"""Triton's attribute of an argument that is divisible by 16: its loads can be wide then."""

TILE = {"BM": 64, "BN": 64, "BK": 32}
KERNELS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "add": (add, "*fp32 *fp32 *fp32 i32", {"BLOCK": 1024}),
    "add_whole": (add_whole, "*fp32 *fp32 *fp32", {"BLOCK": 1024}),
    "add_half": (add_whole, "*fp16 *fp16 *fp16", {"BLOCK": 1024}),
    "softmax": (softmax, "*fp32 *fp32 i32", {"BLOCK": 4096}),
    "add_huge": (add, "*fp32 *fp32 *fp32 i32", {"BLOCK": 4096}),
    "double": (double, "*fp32 *fp32", {"BLOCK": 512}),
    "sine": (sine, "*fp32 *fp32", {"BLOCK": 2048}),
    "histogram": (histogram, "*i32 *i32 i32", {"BLOCK": 1024}),
    "printing": (printing, "*fp32 *fp32", {"BLOCK": 1024}),
    "calling": (calling, "*fp32 *fp32", {"BLOCK": 512}),
    "matmul": (matmul, "*fp16 *fp16 *fp16 i32 i32", TILE),
    "matmul_deep": (matmul, "*fp16 *fp16 *fp16 i32 i32", {"BM": 128, "BN": 128, "BK": 128}),
    "descriptor_matmul": (
        descriptor_matmul,
        "tensordesc<fp16[64,32]> tensordesc<fp16[32,64]> tensordesc<fp16[64,64]> i32",
        TILE,
    ),
}


class Compiled(NamedTuple):
    """A binary, and what ptxas printed of it (nothing for AMD)."""

    binary: BinaryInput
    log: str


@pytest.fixture(scope="package", autouse=True)
def _own_triton_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Its variables end with this package's tests: those of others read what their processes print."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        patch.setenv("TRITON_DUMP_PTXAS_LOG", "1")
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns when it is unset
        yield


@pytest.fixture(scope="session")
def compiled() -> Callable[..., Compiled]:
    """``compiled(name, where, **options)``: one of ``KERNELS``; ``aligned=True`` promises divisibility by 16."""
    return _compiled


@functools.cache
def _compiled(name: str, where: str, aligned: bool = False, **options: Any) -> Compiled:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel, types, constants = KERNELS[name]
    target = Target.parse(where)
    free = [p for p in kernel.arg_names if p not in constants]
    given = dict(zip(free, types.split(), strict=True)) | dict.fromkeys(constants, "constexpr")
    known = {(i,): ALIGNED for i, p in enumerate(kernel.arg_names) if p not in constants and aligned}
    source = ASTSource(kernel, {p: given[p] for p in kernel.arg_names}, constants, known)
    with contextlib.redirect_stdout(io.StringIO()) as log:
        done = triton.compile(
            source, target=GPUTarget(target.backend, target.triton_arch, target.warp_size), options=options
        )
    return Compiled(_binary(done, target), log.getvalue())


def _binary(done: Any, target: Target) -> BinaryInput:
    kind, text = ("cubin", "ptx") if target.backend == "cuda" else ("hsaco", "amdgcn")
    found = re.search(r"^\.target (sm_\w+)", done.asm[text], re.MULTILINE)
    return BinaryInput(
        kind=kind,  # type: ignore[arg-type]
        data=done.asm[kind],
        asm=done.asm[text],
        shared_bytes=done.metadata.shared,
        num_warps=done.metadata.num_warps,
        arch=found[1] if found else target.arch,
        tensor_memory_columns=getattr(done.metadata, "tmem_size", None) or 0,
    )
