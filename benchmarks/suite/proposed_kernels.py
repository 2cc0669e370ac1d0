"""The kernels of the heuristics' benchmark: what a compiler generates, in the words of a person."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, out_ptr, n, XBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    value = tl.load(x_ptr + x, mask=x < n).to(tl.float32)
    out = 0.5 * value * (1 + tl.erf(value * 0.7071067811865476))
    tl.store(out_ptr + x, out.to(out_ptr.dtype.element_ty), mask=x < n)


@triton.jit
def blend_kernel(a_ptr, b_ptr, weight_ptr, out_ptr, n, XBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    inside = x < n
    a = tl.load(a_ptr + x, mask=inside)
    b = tl.load(b_ptr + x, mask=inside)
    weight = tl.sigmoid(tl.load(weight_ptr + x, mask=inside))
    tl.store(out_ptr + x, a * weight + b * (1 - weight), mask=inside)


@triton.jit
def add_transposed_kernel(a_ptr, b_ptr, out_ptr, xs, ys, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr):
    """out[y, x] = a[y, x] + b[x, y]."""
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    y = tl.program_id(1) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    inside = (x < xs) & (y < ys)
    a = tl.load(a_ptr + y * xs + x, mask=inside)
    b = tl.load(b_ptr + x * ys + y, mask=inside)
    tl.store(out_ptr + y * xs + x, a + b, mask=inside)


@triton.jit
def scale_rows_kernel(a_ptr, row_ptr, col_ptr, out_ptr, xs, ys, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr):
    """out[y, x] = a[y, x] * row[y] + col[x]."""
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    y = tl.program_id(1) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    inside = (x < xs) & (y < ys)
    a = tl.load(a_ptr + y * xs + x, mask=inside).to(tl.float32)
    out = a * tl.load(row_ptr + y, mask=y < ys) + tl.load(col_ptr + x, mask=x < xs)
    tl.store(out_ptr + y * xs + x, out.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def permute_kernel(
    in_ptr, out_ptr, xs, ys, zs, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr, ZBLOCK: tl.constexpr
):  # fmt: skip
    """out[z, y, x] = in[x, z, y]."""
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[None, None, :]
    y = tl.program_id(1) * YBLOCK + tl.arange(0, YBLOCK)[None, :, None]
    z = tl.program_id(2) * ZBLOCK + tl.arange(0, ZBLOCK)[:, None, None]
    inside = (x < xs) & (y < ys) & (z < zs)
    value = tl.load(in_ptr + (x * zs + z) * ys + y, mask=inside)
    tl.store(out_ptr + (z * ys + y) * xs + x, value, mask=inside)


@triton.jit
def sums_kernel(in_ptr, out_ptr, rows, cols, row_stride, col_stride, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    """Sums over cols, whatever the strides."""
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    total = tl.zeros((XBLOCK, RBLOCK), tl.float32)
    for start in range(0, cols, RBLOCK):
        r = start + tl.arange(0, RBLOCK)[None, :]
        inside = (x < rows) & (r < cols)
        total += tl.load(in_ptr + x * row_stride + r * col_stride, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + x, tl.sum(total, axis=1)[:, None], mask=x < rows)


@triton.jit
def moments_kernel(
    in_ptr, mean_ptr, square_ptr, rows, cols, row_stride, col_stride, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr
):  # fmt: skip
    """Mean and mean square over cols, whatever the strides."""
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    total = tl.zeros((XBLOCK, RBLOCK), tl.float32)
    squares = tl.zeros((XBLOCK, RBLOCK), tl.float32)
    for start in range(0, cols, RBLOCK):
        r = start + tl.arange(0, RBLOCK)[None, :]
        inside = (x < rows) & (r < cols)
        value = tl.load(in_ptr + x * row_stride + r * col_stride, mask=inside, other=0.0).to(tl.float32)
        total += value
        squares += value * value
    tl.store(mean_ptr + x, tl.sum(total, axis=1)[:, None] / cols, mask=x < rows)
    tl.store(square_ptr + x, tl.sum(squares, axis=1)[:, None] / cols, mask=x < rows)


@triton.jit
def row_softmax_kernel(in_ptr, out_ptr, rows, cols, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    r = tl.arange(0, RBLOCK)[None, :]
    inside = (x < rows) & (r < cols)
    value = tl.load(in_ptr + x * cols + r, mask=inside, other=-1e30).to(tl.float32)
    power = tl.exp(value - tl.max(value, axis=1)[:, None])
    out = power / tl.sum(power, axis=1)[:, None]
    tl.store(out_ptr + x * cols + r, out.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def row_norm_kernel(in_ptr, weight_ptr, out_ptr, rows, cols, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    """A layer norm without a bias."""
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    r = tl.arange(0, RBLOCK)[None, :]
    inside = (x < rows) & (r < cols)
    value = tl.load(in_ptr + x * cols + r, mask=inside, other=0.0).to(tl.float32)
    centred = tl.where(inside, value - tl.sum(value, axis=1)[:, None] / cols, 0.0)
    variance = tl.sum(centred * centred, axis=1)[:, None] / cols
    weight = tl.load(weight_ptr + r, mask=r < cols, other=0.0).to(tl.float32)
    out = centred / tl.sqrt(variance + 1e-5) * weight
    tl.store(out_ptr + x * cols + r, out.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def packed(value, state):
    """A sum and how much it covers (1: its own block, 2: all up to it) as one word that is written at once."""
    return (value.to(tl.int32, bitcast=True).to(tl.int64) << 32) | state


@triton.jit
def scan_kernel(in_ptr, out_ptr, state_ptr, rows, cols, state_stride, RBLOCK: tl.constexpr):
    """Cumulative sums: each block publishes its sum, then adds up those before it (decoupled look-back, Merrill and
    Garland 2016). ``state_ptr`` holds zeros at first."""
    block = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    r = block * RBLOCK + tl.arange(0, RBLOCK)
    value = tl.load(in_ptr + row * cols + r, mask=r < cols, other=0.0).to(tl.float32)
    own = tl.sum(value, axis=0)
    state = state_ptr + row * state_stride
    tl.atomic_xchg(state + block, packed(own, 1), sem="relaxed")
    before = own * 0.0
    at = block - 1
    while at >= 0:
        word = tl.atomic_add(state + at, 0, sem="relaxed")
        covers = (word & 3).to(tl.int32)
        part = (word >> 32).to(tl.int32).to(tl.float32, bitcast=True)
        before += tl.where(covers > 0, part, 0.0)
        at = tl.where(covers == 2, -1, tl.where(covers == 1, at - 1, at))
    tl.atomic_xchg(state + block, packed(before + own, 2), sem="relaxed")
    tl.store(out_ptr + row * cols + r, tl.cumsum(value, axis=0) + before, mask=r < cols)


@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, ys, xs, rs, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr
):  # fmt: skip
    """c[y, x] = a[y, r] b[r, x], all contiguous."""
    across = tl.cdiv(xs, XBLOCK)
    y = tl.program_id(0) // across * YBLOCK + tl.arange(0, YBLOCK)
    x = tl.program_id(0) % across * XBLOCK + tl.arange(0, XBLOCK)
    r = tl.arange(0, RBLOCK)
    total = tl.zeros((YBLOCK, XBLOCK), tl.float32)
    for start in range(0, rs, RBLOCK):
        k = start + r
        a = tl.load(a_ptr + (y % ys)[:, None] * rs + k[None, :], mask=k[None, :] < rs, other=0.0)
        b = tl.load(b_ptr + k[:, None] * xs + (x % xs)[None, :], mask=k[:, None] < rs, other=0.0)
        total = tl.dot(a, b, total)
    inside = (y[:, None] < ys) & (x[None, :] < xs)
    tl.store(c_ptr + y[:, None] * xs + x[None, :], total.to(c_ptr.dtype.element_ty), mask=inside)


@triton.jit
def batched_product_kernel(
    a_ptr, b_ptr, c_ptr, zs, ys, xs, rs,
    ZBLOCK: tl.constexpr, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr,
):  # fmt: skip
    """c[z, y, x] = a[z, y, r] b[z, r, x], all contiguous; ZBLOCK is 1."""
    z = tl.program_id(2).to(tl.int64) * ZBLOCK
    y = tl.program_id(1) * YBLOCK + tl.arange(0, YBLOCK)
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    r = tl.arange(0, RBLOCK)
    total = tl.zeros((YBLOCK, XBLOCK), tl.float32)
    for start in range(0, rs, RBLOCK):
        k = start + r
        a = tl.load(a_ptr + z * ys * rs + (y % ys)[:, None] * rs + k[None, :], mask=k[None, :] < rs, other=0.0)
        b = tl.load(b_ptr + z * rs * xs + k[:, None] * xs + (x % xs)[None, :], mask=k[:, None] < rs, other=0.0)
        total = tl.dot(a, b, total)
    inside = (y[:, None] < ys) & (x[None, :] < xs)
    at = c_ptr + z * ys * xs + y[:, None] * xs + x[None, :]
    tl.store(at, total.to(c_ptr.dtype.element_ty), mask=inside)
