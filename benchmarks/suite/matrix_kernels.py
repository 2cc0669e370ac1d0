"""Products: a plain matmul, one split along K with atomic adds, and a gated MLP's two products in one kernel."""

from __future__ import annotations

from itertools import product

import torch
import triton
import triton.language as tl

from benchmarks.suite.case import Call, Case, Shape, randn


@triton.jit
def tile_of(pid, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Program ids in groups of GROUP tile rows, so that neighbours share operands in the L2 cache."""
    across = tl.cdiv(N, BN)
    first = pid // (GROUP * across) * GROUP
    rows = min(tl.cdiv(M, BM) - first, GROUP)
    inside = pid % (GROUP * across)
    return first + inside % rows, inside // rows


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = tile_of(tl.program_id(0), M, N, BM, BN, GROUP)
    m = (tile_m * BM + tl.arange(0, BM)) % M
    n = (tile_n * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    a = a_ptr + m[:, None] * stride_am + k[None, :] * stride_ak
    b = b_ptr + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(0, tl.cdiv(K, BK)):
        left = K - step * BK
        x = tl.load(a, mask=k[None, :] < left, other=0.0)
        y = tl.load(b, mask=k[:, None] < left, other=0.0)
        total = tl.dot(x, y, total)
        a += BK * stride_ak
        b += BK * stride_bk
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    c = c_ptr + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c, total.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def matmul_call(shape: Shape, device: str) -> Call:
    m, n, k = shape["M"], shape["N"], shape["K"]
    a, b = randn(m, k, device=device), randn(k, n, device=device, scale=k**-0.5)
    c = torch.empty(m, n, device=device, dtype=torch.float16)
    return Call(
        lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),),
        (a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride()),
        lambda: {2: (a.float() @ b.float()).half()},
    )


def tile(bm: int, bn: int, bk: int, warps: int, stages: int, **more: int) -> triton.Config:
    return triton.Config({"BM": bm, "BN": bn, "BK": bk, "GROUP": 8, **more}, num_warps=warps, num_stages=stages)


def large_tiles() -> list[triton.Config]:
    """48: every combination of what people try on a Hopper GPU (the list behind the 23.06 s of triton.autotune)."""
    grid = product((64, 128), (64, 128, 256), (32, 64), (4, 8), (3, 4))
    return [tile(bm, bn, bk, warps, stages) for bm, bn, bk, warps, stages in grid]


def matmul_configs(shape: Shape) -> list[triton.Config]:
    if min(shape.values()) >= 4096:
        return large_tiles()
    grid = product((64, 128), (64, 128), (32, 64), (4, 8), (3, 4))
    return [tile(bm, bn, bk, warps, stages) for bm, bn, bk, warps, stages in grid]


MATMUL = Case(
    name="matmul",
    kernel=matmul_kernel,
    shapes=({"M": 4096, "N": 4096, "K": 4096}, {"M": 2048, "N": 2048, "K": 2048}, {"M": 256, "N": 8192, "K": 4096}),
    small={"M": 70, "N": 90, "K": 100},
    call=matmul_call,
    configs=matmul_configs,
    key=("M", "N", "K"),
)


@triton.jit
def split_matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = tile_of(tl.program_id(0), M, N, BM, BN, GROUP)
    part = tl.program_id(1)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    k = part * BK + tl.arange(0, BK)
    a = a_ptr + (m % M)[:, None] * stride_am + k[None, :] * stride_ak
    b = b_ptr + k[:, None] * stride_bk + (n % N)[None, :] * stride_bn
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(0, tl.cdiv(K, BK * SPLIT)):
        left = K - step * BK * SPLIT
        x = tl.load(a, mask=k[None, :] < left, other=0.0)
        y = tl.load(b, mask=k[:, None] < left, other=0.0)
        total = tl.dot(x, y, total)
        a += BK * SPLIT * stride_ak
        b += BK * SPLIT * stride_bk
    c = c_ptr + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.atomic_add(c, total, mask=(m[:, None] < M) & (n[None, :] < N), sem="relaxed")


def split_matmul_call(shape: Shape, device: str) -> Call:
    m, n, k = shape["M"], shape["N"], shape["K"]
    a, b = randn(m, k, device=device), randn(k, n, device=device, scale=k**-0.5)
    c = torch.zeros(m, n, device=device, dtype=torch.float32)
    return Call(
        lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]), meta["SPLIT"]),
        (a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride()),
        lambda: {2: a.float() @ b.float()},
    )


def split_matmul_configs(shape: Shape) -> list[triton.Config]:
    blocks = ((16, 64, 128), (32, 64, 64), (64, 64, 64), (64, 128, 64))
    return [tile(*block, 4, stages, SPLIT=split) for block in blocks for split in (2, 4, 8) for stages in (3, 4)]


SPLIT_MATMUL = Case(
    name="split_matmul",
    kernel=split_matmul_kernel,
    shapes=({"M": 16, "N": 4096, "K": 4096}, {"M": 64, "N": 2048, "K": 8192}, {"M": 256, "N": 1024, "K": 16384}),
    small={"M": 20, "N": 70, "K": 300},
    call=split_matmul_call,
    configs=split_matmul_configs,
    key=("M", "N", "K"),
    options={"reset_to_zero": ["c_ptr"]},
)


@triton.jit
def gated_mlp_kernel(
    x_ptr, gate_ptr, up_ptr, out_ptr, M, N, K, stride_xm, stride_wk, stride_om,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """silu(x @ gate) * (x @ up); the last dimension of every matrix is contiguous."""
    tile_m, tile_n = tile_of(tl.program_id(0), M, N, BM, BN, GROUP)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x_at = x_ptr + (m % M)[:, None] * stride_xm + k[None, :]
    w_at = k[:, None] * stride_wk + (n % N)[None, :]
    gate = tl.zeros((BM, BN), tl.float32)
    up = tl.zeros((BM, BN), tl.float32)
    for step in range(0, tl.cdiv(K, BK)):
        left = K - step * BK
        x = tl.load(x_at, mask=k[None, :] < left, other=0.0)
        gate = tl.dot(x, tl.load(gate_ptr + w_at, mask=k[:, None] < left, other=0.0), gate)
        up = tl.dot(x, tl.load(up_ptr + w_at, mask=k[:, None] < left, other=0.0), up)
        x_at += BK
        w_at += BK * stride_wk
    out = gate * tl.sigmoid(gate) * up
    at = out_ptr + m[:, None] * stride_om + n[None, :]
    tl.store(at, out.to(out_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def gated_mlp_call(shape: Shape, device: str) -> Call:
    m, n, k = shape["M"], shape["N"], shape["K"]
    bf16 = torch.bfloat16 if device != "cpu" else torch.float16  # the interpreter's bf16 is wrong (triton#4972)
    x = randn(m, k, device=device, dtype=bf16)
    gate, up = (randn(k, n, device=device, dtype=bf16, scale=k**-0.5) for _ in range(2))
    out = torch.empty(m, n, device=device, dtype=bf16)

    def expected() -> dict[int, torch.Tensor]:
        wide = x.float()
        return {3: (torch.nn.functional.silu(wide @ gate.float()) * (wide @ up.float())).to(bf16)}

    return Call(
        lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),),
        (x, gate, up, out, m, n, k, x.stride(0), gate.stride(0), out.stride(0)),
        expected,
    )


def gated_mlp_configs(shape: Shape) -> list[triton.Config]:
    blocks = ((64, 64, 32), (64, 64, 64), (64, 128, 32), (128, 64, 64), (128, 128, 32), (128, 128, 64))
    return [tile(*block, warps, stages) for block in blocks for warps, stages in product((4, 8), (2, 3))]


GATED_MLP = Case(
    name="gated_mlp",
    kernel=gated_mlp_kernel,
    shapes=({"M": 2048, "N": 4096, "K": 2048}, {"M": 512, "N": 8192, "K": 2048}, {"M": 4096, "N": 2048, "K": 1024}),
    small={"M": 70, "N": 90, "K": 100},
    call=gated_mlp_call,
    configs=gated_mlp_configs,
    key=("M", "N", "K"),
)
