"""Running sums of the numbers that a mask keeps, in KernelBench's layout."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x * mask, dim=self.dim)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(16, 500), torch.randint(0, 2, (16, 500)).bool()]


def get_init_inputs() -> list[object]:
    return [1]
