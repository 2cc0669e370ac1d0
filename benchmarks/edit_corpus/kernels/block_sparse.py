"""A matrix of which one block in eight is there (compressed rows of blocks) times a dense one: a bare kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def block_sparse_kernel(first_ptr, col_ptr, block_ptr, b_ptr, out_ptr, n, B: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, B)
    total = tl.zeros([B, BN], tl.float32)
    for i in range(tl.load(first_ptr + row), tl.load(first_ptr + row + 1)):
        a = tl.load(block_ptr + i * B * B + inner[:, None] * B + inner[None, :])
        col = tl.load(col_ptr + i)
        b = tl.load(b_ptr + (col * B + inner)[:, None] * n + cols[None, :])
        total = tl.dot(a, b, total)
    tl.store(out_ptr + (row * B + inner)[:, None] * n + cols[None, :], total.to(tl.float16))


def run(first, col, blocks, b):
    rows, n = first.numel() - 1, b.shape[1]
    out = torch.empty(rows * 64, n, device=b.device, dtype=b.dtype)
    grid = (rows, triton.cdiv(n, 128))
    block_sparse_kernel[grid](first, col, blocks, b, out, n, B=64, BN=128, num_warps=4, num_stages=3)
    return out


def inputs(device):
    first = torch.arange(0, 65 * 8, 8, device=device, dtype=torch.int32)
    col = torch.arange(64 * 8, device=device, dtype=torch.int32) * 7 % 64
    blocks = torch.randn(64 * 8, 64, 64, device=device, dtype=torch.float16)
    return first, col, blocks, torch.randn(4096, 4096, device=device, dtype=torch.float16)


def reference(first, col, blocks, b):
    rows = torch.arange(64, device=b.device).repeat_interleave(8)
    parts = blocks.float() @ b.view(64, 64, -1)[col.long()].float()
    return torch.zeros(64, 64, b.shape[1], device=b.device).index_add(0, rows, parts).view(4096, -1)
