"""A launch for each step of a recurrent network."""

import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def step_kernel(x, h, w, bias, u, o, N: tl.constexpr, FIRST: tl.constexpr):
    row, i, j = tl.program_id(0), tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    total = tl.sum(tl.load(w + i * N + j) * tl.load(x + row * N + j), 1) + tl.load(bias + tl.arange(0, N))
    if not FIRST:
        total += tl.sum(tl.load(u + i * N + j) * tl.load(h + row * N + j), 1)
    tl.store(o + row * N + tl.arange(0, N), libdevice.tanh(total))


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.input = nn.Linear(features, features)
        self.state = nn.Linear(features, features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps, rows, n = x.shape
        h, o = torch.empty_like(x[0]), torch.empty_like(x[0])
        for step in range(steps):
            step_kernel[(rows,)](
                x[step], h, self.input.weight, self.input.bias, self.state.weight, o, N=n, FIRST=step == 0
            )
            h, o = o, h
        return h
