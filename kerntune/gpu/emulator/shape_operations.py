"""Operations of TTIR that move a tensor's elements, or count them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerntune.gpu.emulator.elements import unsigned
from kerntune.gpu.emulator.memory_operations import MemoryOperations, ValueTable
from kerntune.gpu.emulator.ttir_program import TtirOperation


class ShapeOperations(MemoryOperations):
    """The part of a machine that knows shapes."""

    def make_range(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return (np.arange(op.attributes["start"], op.attributes["end"], dtype=np.int32),)

    def splat(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return (np.broadcast_to(values[op.operands[0]], op.types[0].shape),)

    def reshape(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        value, kind = values[op.operands[0]], op.types[0]
        before, after = (tuple(n for n in shape if n > 1) for shape in (np.shape(value), kind.shape))
        if op.attributes.get("any_order") and before != after:
            value = np.ravel(value)[self._any_order((before, after), math.prod(after))]
        return (np.reshape(value, kind.shape),)

    def expand(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return (np.expand_dims(values[op.operands[0]], op.attributes["axis"]),)

    def transpose(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return (np.transpose(values[op.operands[0]], op.attributes["order"]),)

    def concatenate(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        """Triton's ``tl.cat`` may put the elements in any order, the same for all tensors of a shape."""
        value = np.concatenate([values[o] for o in op.operands])
        return (value[self._any_order(value.shape, len(value))],)

    def join(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return (np.stack([values[o] for o in op.operands], axis=-1),)

    def split(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        value = values[op.operands[0]]
        return (value[..., 0], value[..., 1])

    def gather(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        self.barrier(op, values)
        source, indices = (values[o] for o in op.operands)
        return (np.take_along_axis(source, unsigned(indices).astype(np.int64), op.attributes["axis"]),)

    def histogram(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        """A GPU looks at as many low bits as the bins' numbers have (Triton's ``HistogramOpToLLVM``): what is in no bin
        is counted in another one."""
        self.barrier(op, values)
        source = np.asarray(values[op.operands[0]])
        if len(op.operands) > 1:
            source = source[np.asarray(values[op.operands[1]])]
        bins = op.types[0].shape[0]
        low = source.astype(np.int64).ravel() & (bins - 1)
        return (np.bincount(low, minlength=bins).astype(np.int32),)
