"""Sums of which one term is a product: a compiler may round both at once, as Triton does by default.

LLVM's NVPTX backend makes ``fma`` of ``fmul`` and ``fadd`` within a block (``-fp-contract=fast``), also where the
product is used elsewhere (``enableAggressiveFMAFusion``). Products beyond :data:`FUSED_BELOW` are rounded here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerntune.gpu.emulator.rounding_modes import fused
from kerntune.gpu.emulator.ttir_program import TtirProgram

SUMS = ("arith.addf", "arith.subf")

ELEMENTS = ("f32", "f64")

FUSED_BELOW = 2.0**30
"""Of the largest number of a softmax that scales before it takes the maximum the fused difference is a last place, and
its exponential infinite from there on: a float32's last place is above 127 then."""


@dataclass(frozen=True)
class FusedSum:
    """``factors`` and the other term by their values' ids, and whether the product, or the other, is subtracted."""

    factors: tuple[int, ...]
    other: int
    minus_product: bool
    minus_other: bool

    def of(self, values: Mapping[int, Any]) -> np.ndarray:
        """The sum, rounded once."""
        x, y, other = (np.asarray(values[key]) for key in (*self.factors, self.other))
        x, other = -x if self.minus_product else x, -other if self.minus_other else other
        product = x * y
        found = np.where(np.abs(product) < FUSED_BELOW, fused(x, y, other), product + other)
        return np.asarray(found.astype(x.dtype))


def fused_sums(program: TtirProgram) -> dict[int, tuple[FusedSum, ...]]:
    """By the id of a sum, how it can be made with one of its products."""
    found: dict[int, tuple[FusedSum, ...]] = {}
    for block in program.blocks:
        products = {op.results[0]: op.operands for op in block.operations if op.name == "arith.mulf"}
        for op in block.operations:
            if op.name in SUMS and op.types[0].element in ELEMENTS:
                a, b = op.operands
                minus = op.name == "arith.subf"
                first = (FusedSum(products[a], b, False, minus),) if a in products else ()
                second = (FusedSum(products[b], a, minus, False),) if b in products else ()
                if first or second:
                    found[op.results[0]] = first + second
    return found
