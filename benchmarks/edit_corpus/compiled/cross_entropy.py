"""The cross-entropy of capped logits, compiled."""

import torch


def capped(logits):
    return 30.0 * torch.tanh(logits / 30.0)


def f(logits, labels):
    soft = capped(logits)
    logp = torch.log_softmax(soft, -1)
    return -logp.gather(1, labels[:, None]).mean()


run = torch.compile(f)


def inputs(device):
    return torch.empty(2048, 16384, device=device), torch.zeros(2048, device=device, dtype=torch.int64)
