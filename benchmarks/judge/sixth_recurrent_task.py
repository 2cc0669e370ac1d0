"""A recurrent network in KernelBench's layout."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.input = nn.Linear(features, features)
        self.state = nn.Linear(features, features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros_like(x[0])
        for step in x:
            h = torch.tanh(self.input(step) + self.state(h))
        return h


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(12, 16, 32)]


def get_init_inputs() -> list[object]:
    return [32]
