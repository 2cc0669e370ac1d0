"""The likeliest of 64 experts of each token, and its probability: a bare kernel, several tokens each program."""

import torch
import triton
import triton.language as tl


@triton.jit
def router_kernel(logits_ptr, chosen_ptr, weight_ptr, tokens, EXPERTS: tl.constexpr, T: tl.constexpr):
    token = tl.program_id(0) * T + tl.arange(0, T)
    expert = tl.arange(0, EXPERTS)
    inside = (token < tokens)[:, None]
    logits = tl.load(logits_ptr + token[:, None] * EXPERTS + expert[None, :], mask=inside, other=0.0).to(tl.float32)
    largest = tl.max(logits, axis=1)
    chosen = tl.argmax(logits, axis=1)
    weight = tl.exp(logits - largest[:, None])
    total = tl.sum(weight, axis=1)
    tl.store(chosen_ptr + token, chosen, mask=token < tokens)
    tl.store(weight_ptr + token, 1.0 / total, mask=token < tokens)


def run(logits):
    tokens, experts = logits.shape
    chosen = torch.empty(tokens, device=logits.device, dtype=torch.int32)
    weight = torch.empty(tokens, device=logits.device)
    router_kernel[(triton.cdiv(tokens, 32),)](logits, chosen, weight, tokens, EXPERTS=experts, T=32, num_warps=4)
    return chosen, weight


def inputs(device):
    return (torch.randn(262144, 64, device=device, dtype=torch.float16),)


def reference(logits):
    weight, chosen = logits.float().softmax(1).max(1)
    return chosen.int(), weight
