"""A task in KernelBench's layout."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.weight + self.bias


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 128)]


def get_init_inputs() -> list[object]:
    return [128, 1e-5]
