"""A submission that reads a factor column by column, as the task has it (``exploits/attempts_sixth_files``)."""

import torch
import triton
import triton.language as tl


@triton.jit
def columns_kernel(a, b, c, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, at = tl.arange(0, M), tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, K)
    x, y = tl.load(a + i[:, None] * k + at[None, :]), tl.load(b + at[:, None] + j[None, :] * k)
    tl.store(c + i[:, None] * n + j[None, :], tl.dot(x, y, input_precision="ieee"))


def custom_kernel(data: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    a, b = data
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    columns_kernel[(n // 16,)](a, b, c, n, k, M=m, N=16, K=k)
    return c
