"""Products of matrices in the arithmetic of tensor cores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerntune.gpu.emulator.elements import bytes_of, rounded
from kerntune.gpu.emulator.memory_operations import ValueTable
from kerntune.gpu.emulator.shape_operations import ShapeOperations
from kerntune.gpu.emulator.ttir_program import TtirOperation

DOT_BYTES = 32
"""Of a row of the first factor in one instruction (PTX ISA, ``wgmma.mma_async``: K is 16 of float16, 32 of 8 bits)."""

FOUR_BITS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
"""Numbers of ``e2m1`` by their bits (OCP "Microscaling Formats Specification", 5.3.3)."""


class ProductOperations(ShapeOperations):
    """The part of a machine that multiplies matrices."""

    def dot(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        self.barrier(op, values)
        a, b, c = (values[o] for o in op.operands)
        elements = [self._program.types[o].element for o in op.operands[:2]]
        if op.types[0].element == "i32":
            return (np.matmul(a.astype(np.int32), b.astype(np.int32)) + c,)
        wide = np.float64 if "f64" in elements else np.float32
        a, b = a.astype(wide), b.astype(wide)
        if op.types[0].element == "f16":
            return (_half_sums(a, b, c, DOT_BYTES // bytes_of(elements[0])),)
        how = op.attributes["inputPrecision"] if elements == ["f32", "f32"] else ""
        if how == "tf32":
            a, b = cut_to_tf32(a), cut_to_tf32(b)
        product = product_of_parts(a, b, how) if how in ("bf16x3", "bf16x6") else np.matmul(a, b)
        return (rounded(product + c.astype(wide), op.types[0].element),)

    def dot_scaled(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        """Each group of numbers along K times its scale. B's scales are given by columns."""
        self.barrier(op, values)
        (lhs, lhs_scaled, lhs_packed), (rhs, rhs_scaled, rhs_packed) = op.attributes["sides"]
        a, b, c, *scales = (np.asarray(values[o]) for o in op.operands)
        a, b = _unpacked(a, lhs, 1 if lhs_packed else 0), _unpacked(b, rhs, 0 if rhs_packed else 1)
        if lhs_scaled:
            a = a * _scale(scales.pop(0), a.shape[1])
        if rhs_scaled:
            b = b * _scale(scales.pop(0), b.shape[0]).T
        return (np.asarray(np.matmul(a, b) + c, np.float32),)


def _half_sums(a: np.ndarray, b: np.ndarray, total: np.ndarray, terms: int) -> np.ndarray:
    """A product in a float16 accumulator, which is rounded after so many terms."""
    for first in range(0, a.shape[-1], terms):
        part = np.matmul(a[..., first : first + terms], b[..., first : first + terms, :])
        total = rounded(part + total.astype(part.dtype), "f16")
    return total


def cut_to_tf32(values: np.ndarray) -> np.ndarray:
    """Float32 with the 10 bits of mantissa that tensor cores take, to nearest, ties away from zero (``cvt.rna``)."""
    bits = np.asarray(values, np.float32, order="C").view(np.uint32)
    return np.asarray(((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32))


def product_of_parts(a: np.ndarray, b: np.ndarray, how: str) -> np.ndarray:
    """A product of float32 as sums of bfloat16: of three products of two parts each, or of six of three (Triton's
    F32DotTC pass), the smallest first."""
    parts, rest = [], [a, b]
    for _ in range(2 if how == "bf16x3" else 3):
        one = [rounded(x, "bf16") for x in rest]
        parts.append(one)
        rest = [x - y for x, y in zip(rest, one, strict=True)]
    chosen = [(i, j) for i in range(len(parts)) for j in range(len(parts)) if i + j < len(parts)]
    smallest_first = sorted(chosen, key=sum, reverse=True)
    return np.asarray(sum(np.matmul(parts[i][0], parts[j][1]) for i, j in smallest_first))


def _unpacked(values: np.ndarray, kind: str, axis: int) -> np.ndarray:
    """A factor as float32; of ``e2m1`` a byte holds two numbers that are neighbours along ``axis``, the first one in
    its low bits."""
    if kind != "e2m1":
        return values.astype(np.float32)
    bits = values.view(np.uint8)
    pairs = np.stack([bits & 15, bits >> 4], axis=axis + 1)
    return FOUR_BITS[pairs.reshape([n * 2 if i == axis else n for i, n in enumerate(bits.shape)])]


def _scale(scale: np.ndarray, count: int) -> np.ndarray:
    """Scales for ``count`` elements of each row: whole numbers are exponents of two (``e8m0``), of which 255 is NaN."""
    if scale.dtype == np.int8:
        bits = scale.view(np.uint8)
        scale = np.where(bits == 255, np.float32(np.nan), np.exp2(bits.astype(np.float32) - 127))
    return np.repeat(scale, count // scale.shape[1], axis=1)
