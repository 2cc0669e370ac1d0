"""A task in KernelBench's layout whose inputs have a structure: rows that sum to one."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        return (p * (torch.log(p) - torch.log(q))).sum(-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(512, 8192).softmax(-1), torch.randn(512, 8192).softmax(-1)]
