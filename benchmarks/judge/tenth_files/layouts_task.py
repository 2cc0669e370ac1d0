"""Inputs of unusual strides, in KernelBench's layout: one is turned, one is spread, one is a part."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * scale + shift, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    x = torch.randn(100, 24).t()
    return [x, torch.randn(24, 1).expand(24, 100), torch.rand(24, 200)[:, ::2]]


def get_init_inputs() -> list[object]:
    return []
