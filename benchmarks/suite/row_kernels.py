"""Kernels over rows: softmax, RMS norm, a layer norm's backward pass, cross entropy with its gradient in place."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from benchmarks.suite.case import Call, Case, Shape, randn

WARPS = (1, 2, 4, 8, 16, 32)

MOST_A_THREAD = 256
"""Elements that people let a thread hold; beyond, nothing stays in registers."""


@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, cols, x_stride, out_stride, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (col[None, :] < cols)
    x = tl.load(x_ptr + row[:, None] * x_stride + col[None, :], mask=inside, other=-float("inf")).to(tl.float32)
    top = tl.max(x, axis=1)
    power = tl.exp(x - tl.where(top == -float("inf"), 0.0, top)[:, None])
    out = power / tl.sum(power, axis=1)[:, None]
    tl.store(out_ptr + row[:, None] * out_stride + col[None, :], out.to(out_ptr.dtype.element_ty), mask=inside)


def softmax_call(shape: Shape, device: str) -> Call:
    rows, cols = shape["rows"], shape["cols"]
    x = randn(rows, cols, device=device)
    out = torch.empty_like(x)
    return Call(
        lambda meta: (triton.cdiv(rows, meta["ROWS"]),),
        (x, out, rows, cols, x.stride(0), out.stride(0)),
        lambda: {1: torch.softmax(x.float(), -1).half()},
    )


def softmax_configs(shape: Shape) -> list[triton.Config]:
    block = triton.next_power_of_2(shape["cols"])
    sizes = [
        (rows, warps) for rows in (1, 2, 4, 8, 16) for warps in WARPS if rows * block <= MOST_A_THREAD * 32 * warps
    ]
    return [triton.Config({"ROWS": rows, "BLOCK": block}, num_warps=warps) for rows, warps in sizes]


SOFTMAX = Case(
    name="softmax",
    kernel=softmax_kernel,
    shapes=({"rows": 8192, "cols": 1024}, {"rows": 65536, "cols": 512}, {"rows": 4096, "cols": 4096}),
    small={"rows": 13, "cols": 100},
    call=softmax_call,
    configs=softmax_configs,
    key=("cols",),
)


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, cols, x_stride, out_stride, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    out_ptr += row * out_stride
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
        squares += x * x
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / cols + eps)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
        tl.store(out_ptr + col, (x * scale * weight).to(out_ptr.dtype.element_ty), mask=col < cols)


def rms_norm_call(shape: Shape, device: str) -> Call:
    rows, cols = shape["rows"], shape["cols"]
    x, weight = randn(rows, cols, device=device), randn(cols, device=device)
    out = torch.empty_like(x)

    def expected() -> dict[int, torch.Tensor]:
        wide = x.float()
        return {2: (wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight.float()).half()}

    return Call(lambda meta: (rows,), (x, weight, out, cols, x.stride(0), out.stride(0), 1e-6), expected)


def rms_norm_configs(shape: Shape) -> list[triton.Config]:
    return [
        triton.Config({"BLOCK": block}, num_warps=warps) for block in (512, 1024, 2048, 4096, 8192) for warps in WARPS
    ]


RMS_NORM = Case(
    name="rms_norm",
    kernel=rms_norm_kernel,
    shapes=({"rows": 4096, "cols": 4096}, {"rows": 16384, "cols": 2048}, {"rows": 1024, "cols": 16384}),
    small={"rows": 5, "cols": 1300},
    call=rms_norm_call,
    configs=rms_norm_configs,
    key=("cols",),
)


@triton.jit
def layer_norm_backward_kernel(
    dy_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, dweight_ptr, dbias_ptr, rows, cols, stride, per_program,
    BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Each program has its rows' dx, and one row of partial sums of dweight and dbias."""
    part = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    inside = col < cols
    weight = tl.load(weight_ptr + col, mask=inside, other=0.0).to(tl.float32)
    dweight = tl.zeros((BLOCK,), tl.float32)
    dbias = tl.zeros((BLOCK,), tl.float32)
    for row in tl.range(part * per_program, min((part + 1) * per_program, rows), num_stages=STAGES):
        x = tl.load(x_ptr + row * stride + col, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * stride + col, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        normal = tl.where(inside, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
        scaled = dy * weight
        along = tl.sum(scaled * normal, axis=0) / cols
        across = tl.sum(scaled, axis=0) / cols
        dx = (scaled - normal * along - across) * rstd
        tl.store(dx_ptr + row * stride + col, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        dweight += dy * normal
        dbias += dy
    tl.store(dweight_ptr + part * cols + col, dweight, mask=inside)
    tl.store(dbias_ptr + part * cols + col, dbias, mask=inside)


PROGRAMS = 264
"""Two a multiprocessor of an H200; fixed by the call, because the partial sums' shape follows from it."""


def layer_norm_backward_call(shape: Shape, device: str) -> Call:
    rows, cols = shape["rows"], shape["cols"]
    each = triton.cdiv(rows, shape.get("programs", PROGRAMS))
    parts = triton.cdiv(rows, each)
    dy, x, weight = randn(rows, cols, device=device), randn(rows, cols, device=device), randn(cols, device=device)
    wide = x.float()
    mean = wide.mean(-1)
    rstd = (wide.var(-1, correction=0) + 1e-5).rsqrt()
    dx = torch.empty_like(x)
    dweight, dbias = (torch.empty(parts, cols, device=device) for _ in range(2))

    def expected() -> dict[int, torch.Tensor]:
        normal, g = (x.float() - mean[:, None]) * rstd[:, None], dy.float()
        scaled = g * weight.float()
        along, across = (scaled * normal).mean(-1, keepdim=True), scaled.mean(-1, keepdim=True)
        groups = torch.arange(rows, device=device) // each
        sums = (torch.zeros(parts, cols, device=device).index_add_(0, groups, t) for t in (g * normal, g))
        return {5: ((scaled - normal * along - across) * rstd[:, None]).half(), **dict(zip((6, 7), sums, strict=True))}

    arguments = (dy, x, weight, mean, rstd, dx, dweight, dbias, rows, cols, x.stride(0), each)
    return Call(lambda meta: (parts,), arguments, expected)


def layer_norm_backward_configs(shape: Shape) -> list[triton.Config]:
    block = triton.next_power_of_2(shape["cols"])
    return [
        triton.Config({"BLOCK": block, "STAGES": stages}, num_warps=warps)
        for warps in WARPS
        for stages in (1, 2, 3, 4, 5)
    ]


LAYER_NORM_BACKWARD = Case(
    name="layer_norm_backward",
    kernel=layer_norm_backward_kernel,
    shapes=({"rows": 8192, "cols": 1024}, {"rows": 4096, "cols": 4096}, {"rows": 16384, "cols": 2048}),
    small={"rows": 30, "cols": 100, "programs": 8},
    call=layer_norm_backward_call,
    configs=layer_norm_backward_configs,
    key=("cols",),
)


@triton.jit
def cross_entropy_kernel(x_ptr, label_ptr, loss_ptr, cols, stride, BLOCK: tl.constexpr):
    """Each row's loss; the logits are replaced by their gradient."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    label = tl.load(label_ptr + row)
    chosen = tl.load(x_ptr + label).to(tl.float32)
    top = -float("inf")
    total = 0.0
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + col, mask=col < cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=0)
        top = higher
    tl.debug_barrier()
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + col, mask=col < cols, other=-float("inf")).to(tl.float32)
        gradient = tl.exp(x - top) / total - tl.where(col == label, 1.0, 0.0)
        tl.store(x_ptr + col, gradient.to(x_ptr.dtype.element_ty), mask=col < cols)
    tl.store(loss_ptr + row, top + tl.log(total) - chosen)


def cross_entropy_call(shape: Shape, device: str) -> Call:
    rows, cols = shape["rows"], shape["cols"]
    x = randn(rows, cols, device=device)
    labels = torch.randint(cols, (rows,), device=device)
    loss = torch.empty(rows, device=device)

    def expected() -> dict[int, torch.Tensor]:
        wide = x.float()
        one = torch.nn.functional.one_hot(labels, cols)
        return {0: (torch.softmax(wide, -1) - one).half(), 2: torch.nn.functional.cross_entropy(
            wide, labels, reduction="none")}  # fmt: skip

    return Call(lambda meta: (rows,), (x, labels, loss, cols, x.stride(0)), expected)


def cross_entropy_configs(shape: Shape) -> list[triton.Config]:
    return [triton.Config({"BLOCK": b}, num_warps=w) for b in (512, 1024, 2048, 4096, 8192, 16384) for w in WARPS[1:]]


CROSS_ENTROPY = Case(
    name="cross_entropy",
    kernel=cross_entropy_kernel,
    shapes=({"rows": 2048, "cols": 32000}, {"rows": 1024, "cols": 50257}, {"rows": 512, "cols": 128256}),
    small={"rows": 4, "cols": 1500},
    call=cross_entropy_call,
    configs=cross_entropy_configs,
    key=("cols",),
    options={"restore_value": ["x_ptr"]},
)
