"""An in-place kernel on one huge tensor: what tuning it costs in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from benchmarks.suite.case import Case, Shape

SAMPLE = 1 << 20
"""Elements at the start and the end that are compared afterwards."""


@triton.jit
def halve_kernel(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(x_ptr + i, x * 0.5 + 1, mask=i < n)


@dataclass(frozen=True)
class InPlaceCall:
    """As :class:`benchmarks.suite.case.Call`; ``check()`` returns whether the tensor is what one launch leaves."""

    grid: Any
    arguments: tuple[Any, ...]
    before: tuple[torch.Tensor, torch.Tensor]

    def check(self) -> bool:
        """Compares both ends, computed on the host."""
        x = self.arguments[0]
        after = (x[:SAMPLE].cpu(), x[-SAMPLE:].cpu())
        return all(torch.equal(a, b * 0.5 + 1) for a, b in zip(after, self.before, strict=True))


def memory_call(shape: Shape, device: str) -> InPlaceCall:
    """``n`` whole fp16 numbers below 64: one launch, or a second, leaves numbers that are exact."""
    x = torch.empty(shape["n"], device=device, dtype=torch.float16)
    for part in x.split(1 << 30):
        part.random_(0, 64)
    ends = (x[:SAMPLE].to("cpu", copy=True), x[-SAMPLE:].to("cpu", copy=True))
    return InPlaceCall(lambda meta: (triton.cdiv(shape["n"], meta["BLOCK"]),), (x, shape["n"]), ends)


def memory_case(restore: bool) -> Case:
    """Four configs; ``restore`` names the tensor in ``restore_value``, as ``triton.autotune`` needs it."""
    return Case(
        name="memory",
        kernel=halve_kernel,
        shapes=(),
        small={"n": 5000},
        call=memory_call,  # type: ignore[arg-type]  # its check is asked for by the child
        configs=lambda shape: [triton.Config({"BLOCK": b}, num_warps=w) for b in (1024, 4096) for w in (4, 8)],
        key=("n",),
        options={"restore_value": ["x_ptr"]} if restore else {},
    )
