"""A product with a bias and GELU, compiled; cuBLAS makes the product."""

import torch


def activation(y):
    return torch.nn.functional.gelu(y)


def f(x, weight, bias):
    y = x @ weight
    return activation(y + bias)


run = torch.compile(f)


def inputs(device):
    x = torch.empty(4096, 1024, device=device, dtype=torch.float16)
    weight = torch.empty(1024, 4096, device=device, dtype=torch.float16)
    return x, weight, torch.empty(4096, device=device, dtype=torch.float16)
