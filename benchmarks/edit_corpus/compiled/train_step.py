"""A layer norm and GELU with their backward pass, compiled."""

import torch


def activation(y):
    return torch.nn.functional.gelu(y)


def f(x, weight, bias):
    y = torch.nn.functional.layer_norm(x, (2048,), weight, bias)
    return activation(y)


compiled = torch.compile(f)


def run(x, weight, bias):
    out = compiled(x, weight, bias)
    out.sum().backward()
    return x.grad


def inputs(device):
    x = torch.empty(4096, 2048, device=device, requires_grad=True)
    weight = torch.empty(2048, device=device, requires_grad=True)
    return x, weight, torch.empty(2048, device=device, requires_grad=True)
