"""Kernels to compile, and their specialized launches; none ever runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl
from triton.language.extra import libdevice

from kerntune.base.device import Target
from kerntune.kernels.compat import triton_compiler
from kerntune.kernels.specialize import Specialized

CUDA80, CUDA90, CUDA100, GFX942 = map(Target.parse, ("cuda:80", "cuda:90", "cuda:100", "hip:gfx942"))
TARGETS = (CUDA80, CUDA90, CUDA100, GFX942)

ALIGNED = [["tt.divisibility", 16]]


@triton.jit
def add(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def softmax(x, out, n, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * n + i, e / tl.sum(e, 0), mask=i < n)


@triton.jit
def matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for at in range(0, tl.cdiv(k, BK)):
        left = tl.load(a + rm[:, None] * k + (at * BK + rk)[None, :])
        right = tl.load(b + (at * BK + rk)[:, None] * n + rn[None, :])
        acc = tl.dot(left, right, acc)
    tl.store(c + rm[:, None] * n + rn[None, :], acc.to(tl.float16), mask=(rm[:, None] < m) & (rn[None, :] < n))


@triton.jit
def matmul_tma(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    da = tl.make_tensor_descriptor(a, [m, k], [k, 1], [BM, BK])
    db = tl.make_tensor_descriptor(b, [k, n], [n, 1], [BK, BN])
    dc = tl.make_tensor_descriptor(c, [m, n], [n, 1], [BM, BN])
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for at in range(0, tl.cdiv(k, BK)):
        acc = tl.dot(da.load([i, at * BK]), db.load([at * BK, j]), acc)
    dc.store([i, j], acc.to(tl.float16))


@triton.jit
def _square(v):
    return v * v


@triton.jit
def norm(x, w, out, n, eps, B: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((B,), dtype=tl.float32)
    for at in range(0, n, B):
        i = at + tl.arange(0, B)
        total += _square(tl.load(x + row * n + i, mask=i < n, other=0).to(tl.float32))
    scale = 1 / tl.sqrt(tl.sum(total, 0) / n + eps)
    for at in range(0, n, B):
        i = at + tl.arange(0, B)
        v = tl.load(x + row * n + i, mask=i < n, other=0) * scale * tl.load(w + i, mask=i < n, other=0)
        tl.store(out + row * n + i, v, mask=i < n)


@triton.jit
def histogram(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out + tl.load(x + i, mask=i < n, other=0) % 64, 1, mask=i < n)


@triton.jit
def scan(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.cumsum(tl.load(x + i, mask=i < n, other=0), 0), mask=i < n)


@triton.jit
def extern(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, libdevice.erf(tl.load(x + i, mask=i < n)), mask=i < n)


@triton.jit
def dropout(x, out, n, p, seed, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    keep = tl.rand(seed, i) > p
    tl.store(out + i, tl.where(keep, tl.load(x + i, mask=i < n) / (1 - p), 0.0), mask=i < n)


@triton.jit
def transpose(x, out, m, n, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    mask = (i[:, None] < m) & (j[None, :] < n)
    v = tl.load(x + i[:, None] * n + j[None, :], mask=mask)
    tl.store(out + j[:, None] * m + i[None, :], tl.trans(v), mask=tl.trans(mask))


@triton.jit
def attention(q, k, v, out, n, scale, B: tl.constexpr, D: tl.constexpr):
    i, d = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D)
    query = tl.load(q + i[:, None] * D + d[None, :])
    best = tl.full((B,), -float("inf"), tl.float32)
    total = tl.zeros((B,), tl.float32)
    acc = tl.zeros((B, D), tl.float32)
    for at in range(0, n, B):
        j = at + tl.arange(0, B)
        s = tl.dot(query, tl.trans(tl.load(k + j[:, None] * D + d[None, :]))) * scale
        new = tl.maximum(best, tl.max(s, 1))
        e, fix = tl.exp(s - new[:, None]), tl.exp(best - new)
        total = total * fix + tl.sum(e, 1)
        acc = acc * fix[:, None] + tl.dot(e.to(tl.float16), tl.load(v + j[:, None] * D + d[None, :]))
        best = new
    tl.store(out + i[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.float16))


@triton.jit
def sort(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.sort(tl.load(x + i)))


@triton.jit
def spin(flag, B: tl.constexpr):
    while tl.atomic_cas(flag, 0, 1) != 0:
        pass
    tl.debug_barrier()
    tl.atomic_xchg(flag, 0)


@triton.jit
def wide_asm(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(out + i, tl.inline_asm_elementwise("mul.bogus.u32 $0, $1, 3;", "=r,r", [v], tl.int32, True, 1))


@triton.jit
def float_asm(x, out, B: tl.constexpr):
    """CUDA's constraint letter f, which the AMD backend can't satisfy."""
    i = tl.arange(0, B)
    v = tl.load(x + i).to(tl.float32)
    y = tl.inline_asm_elementwise("ex2.approx.f32 $0, $1;", "=f,f", [v], tl.float32, True, 1)
    tl.store(out + i, y.to(tl.int32))


@tl.core.extern
def _amd_reciprocal(v, _semantic=None):
    names = {(tl.float32,): ("llvm.amdgcn.rcp.f32", tl.float32)}
    return tl.core.extern_elementwise("", "", [v], names, is_pure=True, _semantic=_semantic)


@triton.jit
def abort(x, out, B: tl.constexpr):
    """An intrinsic that CUDA's backend has no instruction for: LLVM aborts the process."""
    i = tl.arange(0, B)
    tl.store(out + i, _amd_reciprocal(tl.load(x + i)))


@triton.jit
def huge(x, out, B: tl.constexpr):
    """One product of large tiles: minutes and gigabytes for LLVM at ``B = 1024``."""
    i = tl.arange(0, B)
    v = tl.load(x + i[:, None] * B + i[None, :])
    tl.store(out + i[:, None] * B + i[None, :], tl.dot(v, v))


@triton.jit
def bad_front(x, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), tl.zeros((B + 1,), tl.float32))


def launch(jit: Any, types: Mapping[str, str], target: Target, /, aligned: bool = True, **words: Any) -> Specialized:
    """A launch of ``jit`` with arguments of ``types``; ``words`` are constexprs and options."""
    names = [p.name for p in jit.params]
    constants = {k: v for k, v in words.items() if k in names}
    options = {k: v for k, v in words.items() if k not in names}
    gpu = triton_compiler.gpu_target(target)
    backend = triton_compiler.make_backend(gpu)
    signature = {n: "constexpr" if n in constants else types[n] for n in names}
    attrs = {(i,): ALIGNED for i, n in enumerate(names) if aligned and signature[n].startswith("*")}
    constexprs = {(names.index(k),): v for k, v in constants.items()}
    parsed = backend.parse_options({"enable_fp_fusion": True, **options})
    return Specialized(jit, target, {}, signature, constexprs, attrs, parsed)


def matmul_launch(target: Target, bm: int = 32, bn: int = 32, bk: int = 32, **words: Any) -> Specialized:
    return launch(matmul, HALVES, target, BM=bm, BN=bn, BK=bk, **words)


def add_launch(target: Target = CUDA90, block: int = 128, **words: Any) -> Specialized:
    return launch(add, FLOATS, target, B=block, **words)


NUMBERS = {"n": "i32", "m": "i32", "k": "i32", "p": "fp32", "seed": "i32", "eps": "fp32", "scale": "fp32"}
FLOATS = dict.fromkeys(("x", "y", "w", "out"), "*fp32") | NUMBERS
HALVES = dict.fromkeys(("a", "b", "c", "q", "k", "v", "x", "out"), "*fp16") | NUMBERS
INTS = dict.fromkeys(("x", "out", "flag"), "*i32") | NUMBERS


def gallery(target: Target) -> list[Specialized]:
    """Seventeen launches, different in what they use of the compiler."""
    return [
        add_launch(target),
        add_launch(target, 1024, num_warps=8),
        launch(add, {**FLOATS, "y": "*bf16", "n": "i64"}, target, aligned=False, B=256),
        launch(softmax, FLOATS, target, B=512),
        launch(softmax, HALVES, target, B=2048, num_warps=8),
        matmul_launch(target),
        matmul_launch(target, 64, 64, 32, num_stages=3),
        launch(matmul_tma, HALVES, target, BM=64, BN=64, BK=32),
        launch(norm, FLOATS, target, B=256),
        launch(histogram, INTS, target, B=128),
        launch(scan, FLOATS, target, B=128, num_warps=2),
        launch(extern, FLOATS, target, B=128),
        launch(dropout, FLOATS, target, B=128),
        launch(transpose, FLOATS, target, BM=32, BN=64),
        launch(attention, {**HALVES, "k": "*fp16"}, target, B=64, D=32),
        launch(sort, INTS, target, B=64),
        launch(spin, INTS, target, B=1),
    ]
