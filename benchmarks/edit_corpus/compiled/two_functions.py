"""Two compiled functions, one after the other."""

import torch


@torch.compile
def first(x):
    return torch.relu(x) * 2


@torch.compile
def second(y):
    return y.sum(-1)


def run(x):
    y = first(x)
    return second(y)


def inputs(device):
    return (torch.empty(4096, 2048, device=device),)
