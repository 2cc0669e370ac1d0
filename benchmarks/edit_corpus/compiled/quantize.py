"""Rows quantized to 8 bits, compiled."""

import torch


def read(x):
    return x.float()


def f(x):
    rows = read(x)
    amax = rows.abs().amax(-1, keepdim=True)
    scale = amax / 127
    rounded = (rows / scale).round()
    return rounded.to(torch.int8), scale


run = torch.compile(f)


def inputs(device):
    return (torch.empty(4096, 4096, device=device, dtype=torch.float16),)
