"""Running products along a dimension, in KernelBench's layout."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumprod(x, dim=self.dim)


batch_size = 8
input_shape = (300,)
dim = 1


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, *input_shape)]


def get_init_inputs() -> list[object]:
    return [dim]
