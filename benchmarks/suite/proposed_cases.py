"""The heuristics' cases: kernel, shape, decorator and space of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from triton import cdiv

import kerntune
from benchmarks.suite import proposed_kernels as kernels
from benchmarks.suite.case import Call, Shape, randn
from benchmarks.suite.proposed import Proposed, one_block, powers, products, tiles

X, XY, XYZ = ({a: f"{a.upper()}BLOCK" for a in axes} for axes in ("x", "xy", "xyz"))
XR = {"x": "XBLOCK", "r0": "RBLOCK"}


def blocks_of(**sizes: int) -> Callable[[Mapping[str, Any]], tuple[int, ...]]:
    """A grid of as many blocks as cover each size: ``blocks_of(XBLOCK=4096)``."""
    return lambda meta: tuple(cdiv(size, meta[block]) for block, size in sizes.items())


def gelu_call(shape: Shape, device: str, dtype: torch.dtype = torch.float16) -> Call:
    x = randn(shape["n"], device=device, dtype=dtype)
    out = torch.empty_like(x)
    arguments = (x, out, x.numel())
    return Call(blocks_of(XBLOCK=x.numel()), arguments, lambda: {1: torch.nn.functional.gelu(x.float()).to(dtype)})


def blend_call(shape: Shape, device: str) -> Call:
    a, b, weight = (randn(shape["n"], device=device, dtype=torch.float32) for _ in range(3))
    out, n = torch.empty_like(a), a.numel()
    return Call(blocks_of(XBLOCK=n), (a, b, weight, out, n), lambda: {3: torch.lerp(b, a, weight.sigmoid())})


def add_transposed_call(shape: Shape, device: str, dtype: torch.dtype = torch.float16) -> Call:
    xs, ys = shape["xs"], shape["ys"]
    a, b = randn(ys, xs, device=device, dtype=dtype), randn(xs, ys, device=device, dtype=dtype)
    grid = blocks_of(XBLOCK=xs, YBLOCK=ys)
    return Call(grid, (a, b, torch.empty_like(a), xs, ys), lambda: {2: a + b.T})


def scale_rows_call(shape: Shape, device: str, dtype: torch.dtype = torch.float16) -> Call:
    xs, ys = shape["xs"], shape["ys"]
    a = randn(ys, xs, device=device, dtype=dtype)
    row, col = (randn(n, device=device, dtype=torch.float32) for n in (ys, xs))
    grid = blocks_of(XBLOCK=xs, YBLOCK=ys)
    arguments = (a, row, col, torch.empty_like(a), xs, ys)
    return Call(grid, arguments, lambda: {3: (a.float() * row[:, None] + col).to(dtype)})


def permute_call(shape: Shape, device: str, dtype: torch.dtype = torch.float32) -> Call:
    xs, ys, zs = shape["xs"], shape["ys"], shape["zs"]
    x = randn(xs, zs, ys, device=device, dtype=dtype)
    out = torch.empty(zs, ys, xs, device=device, dtype=dtype)
    grid = blocks_of(XBLOCK=xs, YBLOCK=ys, ZBLOCK=zs)
    return Call(grid, (x, out, xs, ys, zs), lambda: {1: x.permute(1, 2, 0).contiguous()})


def matrix_of(shape: Shape, device: str, outer: bool, dtype: torch.dtype) -> torch.Tensor:
    """rows by cols, contiguous along cols or, for an outer reduction, along rows."""
    sizes = (shape["cols"], shape["rows"]) if outer else (shape["rows"], shape["cols"])
    x = randn(*sizes, device=device, dtype=dtype)
    return x.T if outer else x


def sums_call(shape: Shape, device: str, outer: bool = False, dtype: torch.dtype = torch.float32) -> Call:
    x = matrix_of(shape, device, outer, dtype)
    rows, cols = x.shape
    out = torch.empty(rows, device=device)
    arguments = (x, out, rows, cols, *x.stride())
    return Call(blocks_of(XBLOCK=rows), arguments, lambda: {1: x.float().sum(1)})


def moments_call(shape: Shape, device: str, outer: bool = False, dtype: torch.dtype = torch.float16) -> Call:
    x = matrix_of(shape, device, outer, dtype)
    rows, cols = x.shape
    mean, square = (torch.empty(rows, device=device) for _ in range(2))

    def expected() -> dict[int, torch.Tensor]:
        return {1: x.float().mean(1), 2: x.float().square().mean(1)}

    return Call(blocks_of(XBLOCK=rows), (x, mean, square, rows, cols, *x.stride()), expected)


def row_softmax_call(shape: Shape, device: str, dtype: torch.dtype = torch.float16) -> Call:
    rows, cols = shape["rows"], shape["cols"]
    x = randn(rows, cols, device=device, dtype=dtype)
    arguments = (x, torch.empty_like(x), rows, cols)
    grid = blocks_of(XBLOCK=rows)
    return Call(grid, arguments, lambda: {1: torch.softmax(x.float(), -1).to(dtype)})


def row_norm_call(shape: Shape, device: str, dtype: torch.dtype = torch.float16) -> Call:
    rows, cols = shape["rows"], shape["cols"]
    x, weight = randn(rows, cols, device=device, dtype=dtype), randn(cols, device=device, dtype=dtype)
    arguments = (x, weight, torch.empty_like(x), rows, cols)

    def expected() -> dict[int, torch.Tensor]:
        return {2: torch.nn.functional.layer_norm(x.float(), (cols,), weight.float()).to(dtype)}

    return Call(blocks_of(XBLOCK=rows), arguments, expected)


LEAST_SCAN_BLOCK = 128
"""The smallest block of the scan's space; the states of so many blocks are kept."""


def scan_call(shape: Shape, device: str, dtype: torch.dtype = torch.float32) -> Call:
    rows, cols = shape["rows"], shape["cols"]
    x = randn(rows, cols, device=device, dtype=dtype, scale=0.1)
    state = torch.zeros(rows, cdiv(cols, LEAST_SCAN_BLOCK), device=device, dtype=torch.int64)
    arguments = (x, torch.empty_like(x), state, rows, cols, state.stride(0))
    return Call(lambda meta: (cdiv(cols, meta["RBLOCK"]), rows), arguments, lambda: {1: x.float().cumsum(-1).to(dtype)})


def product_call(shape: Shape, device: str, dtype: torch.dtype = torch.float16) -> Call:
    ys, xs, rs = shape["ys"], shape["xs"], shape["rs"]
    a, b = randn(ys, rs, device=device, dtype=dtype), randn(rs, xs, device=device, dtype=dtype, scale=rs**-0.5)
    c = torch.empty(ys, xs, device=device, dtype=a.dtype)
    return Call(
        lambda meta: (cdiv(xs, meta["XBLOCK"]) * cdiv(ys, meta["YBLOCK"]),),
        (a, b, c, ys, xs, rs),
        lambda: {2: (a.float() @ b.float()).to(dtype)},
    )


def batched_product_call(shape: Shape, device: str, dtype: torch.dtype = torch.float16) -> Call:
    zs, ys, xs, rs = shape["zs"], shape["ys"], shape["xs"], shape["rs"]
    a = randn(zs, ys, rs, device=device, dtype=dtype)
    b = randn(zs, rs, xs, device=device, dtype=dtype, scale=rs**-0.5)
    c = torch.empty(zs, ys, xs, device=device, dtype=a.dtype)
    grid = blocks_of(XBLOCK=xs, YBLOCK=ys, ZBLOCK=zs)
    return Call(grid, (a, b, c, zs, ys, xs, rs), lambda: {2: (a.float() @ b.float()).to(dtype)})


LINE = {"sizes": {"x": "n"}, "blocks": X}
PLANE = {"sizes": {"x": "xs", "y": "ys"}, "blocks": XY}
ROWS = {"sizes": {"x": "rows", "r0": "cols"}, "blocks": XR}

line = partial(one_block, "XBLOCK", powers(32, 16384))
plane = partial(tiles, ("XBLOCK", "YBLOCK"), (powers(1, 1024), powers(1, 1024)), 256, 8192)
room = partial(
    tiles, ("XBLOCK", "YBLOCK", "ZBLOCK"), ((1, 4, 16, 32, 64, 256), (1, 4, 16, 32, 64, 256), (1, 2, 8)), 256, 4096
)
steps = partial(tiles, ("XBLOCK", "RBLOCK"), (powers(1, 256), powers(4, 8192)), 256, 8192)


def whole_rows(cols: int) -> partial[list]:
    return partial(one_block, "XBLOCK", powers(1, 32), {"RBLOCK": (cols,)})


scans = partial(one_block, "RBLOCK", powers(LEAST_SCAN_BLOCK, 16384))

PROPOSED: dict[str, Proposed] = {
    case.name: case
    for case in (
        Proposed(
            "gelu_1d", kernels.gelu_kernel, {"n": 1 << 24}, {"n": 1000}, gelu_call, kerntune.pointwise, LINE, line
        ),
        Proposed(
            "blend_1d", kernels.blend_kernel, {"n": 1 << 22}, {"n": 1000}, blend_call, kerntune.pointwise, LINE, line
        ),
        Proposed(
            "add_transposed_2d", kernels.add_transposed_kernel, {"xs": 4096, "ys": 4096}, {"xs": 50, "ys": 70},
            add_transposed_call, kerntune.pointwise, PLANE, plane,
        ),
        Proposed(
            "scale_rows_2d", kernels.scale_rows_kernel, {"xs": 2048, "ys": 8192}, {"xs": 50, "ys": 70},
            scale_rows_call, kerntune.pointwise, PLANE, plane,
        ),
        Proposed(
            "permute_3d", kernels.permute_kernel, {"xs": 256, "ys": 512, "zs": 64}, {"xs": 20, "ys": 30, "zs": 5},
            permute_call, kerntune.pointwise, {"sizes": {"x": "xs", "y": "ys", "z": "zs"}, "blocks": XYZ}, room,
        ),
        Proposed(
            "sums_inner", kernels.sums_kernel, {"rows": 4096, "cols": 8192}, {"rows": 10, "cols": 300},
            sums_call, kerntune.reduction, ROWS, steps,
        ),
        Proposed(
            "moments_inner", kernels.moments_kernel, {"rows": 512, "cols": 65536}, {"rows": 10, "cols": 300},
            moments_call, kerntune.reduction, ROWS, steps,
        ),
        Proposed(
            "sums_outer", kernels.sums_kernel, {"rows": 16384, "cols": 1024}, {"rows": 100, "cols": 70},
            partial(sums_call, outer=True), kerntune.reduction, ROWS, steps,
        ),
        Proposed(
            "moments_outer", kernels.moments_kernel, {"rows": 65536, "cols": 512}, {"rows": 100, "cols": 70},
            partial(moments_call, outer=True), kerntune.reduction, ROWS, steps,
        ),
        Proposed(
            "softmax_persistent", kernels.row_softmax_kernel, {"rows": 16384, "cols": 1024}, {"rows": 10, "cols": 100},
            row_softmax_call, kerntune.persistent_reduction, ROWS, whole_rows(1024),
        ),
        Proposed(
            "layer_norm_persistent", kernels.row_norm_kernel, {"rows": 32768, "cols": 256}, {"rows": 10, "cols": 100},
            row_norm_call, kerntune.persistent_reduction, ROWS, whole_rows(256),
        ),
        Proposed(
            "cumsum_split", kernels.scan_kernel, {"rows": 16, "cols": 1 << 20}, {"rows": 2, "cols": 1000},
            scan_call, kerntune.split_scan, {"sizes": {"x": "rows", "r0": "cols"}, "blocks": {"r0": "RBLOCK"}}, scans,
            options={"reset_to_zero": ["state_ptr"]},
        ),
        Proposed(
            "matmul", kernels.product_kernel, {"ys": 2048, "xs": 2048, "rs": 2048}, {"ys": 70, "xs": 90, "rs": 100},
            product_call, kerntune.matmul,
            {"sizes": {"y": "ys", "x": "xs", "r0": "rs"}, "blocks": {**XY, "r0": "RBLOCK"}},
            partial(products, ("YBLOCK", "XBLOCK", "RBLOCK")),
        ),
        Proposed(
            "matmul_batched", kernels.batched_product_kernel, {"zs": 32, "ys": 512, "xs": 512, "rs": 512},
            {"zs": 2, "ys": 40, "xs": 50, "rs": 60}, batched_product_call, kerntune.matmul,
            {"sizes": {"z": "zs", "y": "ys", "x": "xs", "r0": "rs"}, "blocks": {**XYZ, "r0": "RBLOCK"}},
            partial(products, ("YBLOCK", "XBLOCK", "RBLOCK"), ZBLOCK=1),
        ),
    )
}  # fmt: skip
