"""The heuristics' kernels at shapes and dtypes that no rule was made for: what the presets' rules carry over to."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from benchmarks.suite.case import Shape
from benchmarks.suite.proposed import Proposed, tiles
from benchmarks.suite.proposed_cases import PROPOSED, whole_rows

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32

SCAN_TOLERANCE = 0.1
"""An fp16 scan adds up blocks in fp32 but in an order of its own, and sums of 300,000 numbers are rounded to fp16."""

volume = partial(
    tiles, ("XBLOCK", "YBLOCK", "ZBLOCK"), ((1, 8, 16, 32, 64, 256), (1, 4, 16, 64), (1, 8, 16, 64, 256)), 256, 4096
)
"""Tiles in all three planes, where the tuned shape's have short blocks of z only."""


def at(name: str, shape: Shape, *, dtype: torch.dtype | None = None, **changes: Any) -> Proposed:
    """A kernel of the suite at another shape, and in another dtype if its call takes one."""
    case = PROPOSED[name]
    call = case.call if dtype is None else partial(case.call, dtype=dtype)
    return replace(case, shape=shape, call=call, **changes)


HELD_OUT: dict[str, Proposed] = {
    case.name: case
    for case in (
        at("gelu_1d", {"n": 10_000_000}, dtype=FP32),
        at("blend_1d", {"n": 25_000_000}),
        at("add_transposed_2d", {"xs": 5000, "ys": 3000}, dtype=FP32),
        at("scale_rows_2d", {"xs": 5120, "ys": 6000}, dtype=FP32),
        at("permute_3d", {"xs": 96, "ys": 768, "zs": 192}, dtype=BF16, space=volume),
        at("sums_inner", {"rows": 3000, "cols": 12000}, dtype=BF16),
        at("moments_inner", {"rows": 20000, "cols": 1536}, dtype=FP32),
        at("sums_outer", {"rows": 12288, "cols": 3000}, dtype=BF16),
        at("moments_outer", {"rows": 20000, "cols": 1000}, dtype=FP32),
        at("softmax_persistent", {"rows": 50000, "cols": 400}, dtype=FP32, space=whole_rows(512)),
        at("layer_norm_persistent", {"rows": 12000, "cols": 640}, dtype=BF16, space=whole_rows(1024)),
        at("cumsum_split", {"rows": 24, "cols": 300_000}, dtype=FP16, tolerance=SCAN_TOLERANCE),
        at("matmul", {"ys": 3000, "xs": 1536, "rs": 4096}, dtype=BF16),
        at("matmul_batched", {"zs": 48, "ys": 384, "xs": 640, "rs": 768}, dtype=BF16),
    )
}
