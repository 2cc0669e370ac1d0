"""The gate of a Llama MLP, compiled."""

import torch


def activation(gate):
    return torch.nn.functional.silu(gate)


def f(gate_up):
    gate, up = gate_up.chunk(2, -1)
    activated = activation(gate)
    return activated * up


run = torch.compile(f)


def inputs(device):
    return (torch.empty(2048, 8192, device=device, dtype=torch.float16),)
