"""Rotary embedding of queries, compiled."""

import torch


def rotate(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def f(q, cos, sin):
    turned = rotate(q)
    return (q * cos + turned * sin).to(q.dtype)


run = torch.compile(f)


def inputs(device):
    table = torch.empty(1024, 1, 128, device=device, dtype=torch.float16)
    return torch.empty(4, 1024, 16, 128, device=device, dtype=torch.float16), table, torch.empty_like(table)
