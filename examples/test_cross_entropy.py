"""Cross entropy that overwrites its logits with their gradient, as large-vocabulary training does to save memory.

Each launch destroys its own input: `restore_value` makes the autotuner restore it, and the test keeps a copy for the
reference.
"""

import pytest
import torch
import torch.nn.functional as F
import triton
import triton.language as tl

ROWS = 2048
DTYPE = torch.bfloat16


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": block}, num_warps=warps)
        for block, warps in [(1024, 4), (2048, 4), (4096, 8), (8192, 8), (8192, 16), (16384, 16)]
    ],
    key=["vocabulary"],
    restore_value=["logits_ptr"],
)
@triton.jit
def cross_entropy_kernel(logits_ptr, target_ptr, loss_ptr, vocabulary, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * vocabulary
    target = tl.load(target_ptr + row)
    target_logit = tl.load(logits_ptr + target).to(tl.float32)

    largest = -float("inf")
    total = 0.0
    for start in range(0, vocabulary, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        logits = tl.load(logits_ptr + columns, mask=columns < vocabulary, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(largest, tl.max(logits, axis=0))
        total = total * tl.exp(largest - larger) + tl.sum(tl.exp(logits - larger), axis=0)
        largest = larger
    log_total = largest + tl.log(total)
    tl.store(loss_ptr + row, log_total - target_logit)

    for start in range(0, vocabulary, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < vocabulary
        logits = tl.load(logits_ptr + columns, mask=inside, other=-float("inf")).to(tl.float32)
        gradient = tl.exp(logits - log_total) - tl.where(columns == target, 1.0, 0.0)
        tl.store(logits_ptr + columns, gradient.to(logits_ptr.dtype.element_ty), mask=inside)


def cross_entropy_(logits: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows' float32 losses, and the same logits (rows, vocabulary), now holding the gradient of the summed loss."""
    rows, vocabulary = logits.shape
    loss = torch.empty(rows, device=logits.device)
    cross_entropy_kernel[(rows,)](logits, target, loss, vocabulary)
    return loss, logits


def expected(logits: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    logits = logits.float().requires_grad_()
    loss = F.cross_entropy(logits, target, reduction="none")
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    return loss.detach(), gradient.to(DTYPE)


@pytest.mark.autotune(interpret={"vocabulary": 1000})
@pytest.mark.parametrize("vocabulary", [32_000, 128_256])
def test_cross_entropy(autotune, vocabulary):
    torch.manual_seed(0)
    logits = torch.randn(ROWS, vocabulary, device=autotune.device, dtype=DTYPE)
    target = torch.randint(vocabulary, (ROWS,), device=autotune.device)
    before = logits.clone()
    autotune(cross_entropy_, logits, target, reference=lambda: expected(before, target), rtol=1e-2, atol=1e-6)
