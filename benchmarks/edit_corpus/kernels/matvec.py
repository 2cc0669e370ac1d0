"""A matrix by a vector: one config under triton.autotune."""

import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"ROWS": 4, "BLOCK": 512}, num_warps=4, num_stages=3)], key=["cols"])
@triton.jit
def matvec_kernel(w_ptr, x_ptr, out_ptr, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        w = tl.load(w_ptr + rows[:, None] * cols + columns[None, :]).to(tl.float32)
        x = tl.load(x_ptr + columns).to(tl.float32)
        total += w * x[None, :]
    tl.store(out_ptr + rows, tl.sum(total, axis=1))


def run(w, x):
    rows, cols = w.shape
    out = torch.empty(rows, device=w.device)
    matvec_kernel[lambda meta: (triton.cdiv(rows, meta["ROWS"]),)](w, x, out, cols)
    return out


def inputs(device):
    w = torch.randn(16384, 8192, device=device, dtype=torch.float16)
    return w, torch.randn(8192, device=device, dtype=torch.float16)


def reference(w, x):
    return w.float() @ x.float()
