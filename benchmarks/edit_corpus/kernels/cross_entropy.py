"""Cross entropy over a large vocabulary, in one loop with a running maximum: a bare kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def cross_entropy_kernel(logits_ptr, target_ptr, loss_ptr, stride, vocabulary, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * stride
    target = tl.load(target_ptr + row)
    largest = -float("inf")
    total = 0.0
    for start in range(0, vocabulary, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + columns, mask=columns < vocabulary, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(largest, tl.max(x, axis=0))
        total = total * tl.exp(largest - larger) + tl.sum(tl.exp(x - larger), axis=0)
        largest = larger
    chosen = tl.load(logits_ptr + target).to(tl.float32)
    tl.store(loss_ptr + row, largest + tl.log(total) - chosen)


def run(logits, target, smoothing):
    rows, vocabulary = logits.shape
    loss = torch.empty(rows, device=logits.device)
    cross_entropy_kernel[(rows,)](logits, target, loss, logits.stride(0), vocabulary, BLOCK=4096, num_warps=8)
    return loss


def inputs(device):
    logits = torch.randn(4096, 50304, device=device, dtype=torch.bfloat16)
    target = torch.arange(4096, device=device)
    return logits, target, torch.zeros(1, device=device)


def reference(logits, target, smoothing):
    return torch.nn.functional.cross_entropy(logits.float(), target, reduction="none")
