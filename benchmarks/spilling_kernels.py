"""A reduction that holds so much that its heuristic's configs spill: power sums, each with its rounding error."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _add(total, error, term):
    """Compensated summation (Kahan 1965): the error of each addition is carried into the next."""
    corrected = term - error
    raised = total + corrected
    return raised, (raised - total) - corrected


@triton.jit
def power_sums(x_ptr, out_ptr, rows, cols, row_stride, col_stride, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    """The sums of x to the powers 1 to 12 along the columns, of powers k and k + 6 together: 24 accumulators."""
    row = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    zero = tl.zeros((XBLOCK, RBLOCK), tl.float32)
    s1, s2, s3, s4, s5, s6 = zero, zero, zero, zero, zero, zero
    s7, s8, s9, s10, s11, s12 = zero, zero, zero, zero, zero, zero
    e1, e2, e3, e4, e5, e6 = zero, zero, zero, zero, zero, zero
    e7, e8, e9, e10, e11, e12 = zero, zero, zero, zero, zero, zero
    for start in range(0, cols, RBLOCK):
        col = start + tl.arange(0, RBLOCK)[None, :]
        inside = (row < rows) & (col < cols)
        x = tl.load(x_ptr + row * row_stride + col * col_stride, mask=inside, other=0.0).to(tl.float32)
        power = x
        s1, e1 = _add(s1, e1, power)
        power *= x
        s2, e2 = _add(s2, e2, power)
        power *= x
        s3, e3 = _add(s3, e3, power)
        power *= x
        s4, e4 = _add(s4, e4, power)
        power *= x
        s5, e5 = _add(s5, e5, power)
        power *= x
        s6, e6 = _add(s6, e6, power)
        power *= x
        s7, e7 = _add(s7, e7, power)
        power *= x
        s8, e8 = _add(s8, e8, power)
        power *= x
        s9, e9 = _add(s9, e9, power)
        power *= x
        s10, e10 = _add(s10, e10, power)
        power *= x
        s11, e11 = _add(s11, e11, power)
        power *= x
        s12, e12 = _add(s12, e12, power)
    keep = row < rows
    tl.store(out_ptr + row * 6 + 0, tl.sum(s1 + s7, 1)[:, None], mask=keep)
    tl.store(out_ptr + row * 6 + 1, tl.sum(s2 + s8, 1)[:, None], mask=keep)
    tl.store(out_ptr + row * 6 + 2, tl.sum(s3 + s9, 1)[:, None], mask=keep)
    tl.store(out_ptr + row * 6 + 3, tl.sum(s4 + s10, 1)[:, None], mask=keep)
    tl.store(out_ptr + row * 6 + 4, tl.sum(s5 + s11, 1)[:, None], mask=keep)
    tl.store(out_ptr + row * 6 + 5, tl.sum(s6 + s12, 1)[:, None], mask=keep)
