"""A step of Adam, new values beside the old ones: a bare kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def adam_kernel(
    p_ptr, g_ptr, m_ptr, v_ptr, p_out_ptr, m_out_ptr, v_out_ptr, n, lr, beta1, beta2, eps, step, BLOCK: tl.constexpr
):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    p = tl.load(p_ptr + offsets, mask=inside)
    g = tl.load(g_ptr + offsets, mask=inside).to(tl.float32)
    m = tl.load(m_ptr + offsets, mask=inside)
    v = tl.load(v_ptr + offsets, mask=inside)
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    update = m / (tl.sqrt(v) + eps)
    tl.store(p_out_ptr + offsets, p - lr * update, mask=inside)
    tl.store(m_out_ptr + offsets, m, mask=inside)
    tl.store(v_out_ptr + offsets, v, mask=inside)


def run(p, g, m, v):
    p_out, m_out, v_out = (torch.empty_like(p) for _ in range(3))
    n = p.numel()
    adam_kernel[(triton.cdiv(n, 1024),)](p, g, m, v, p_out, m_out, v_out, n, 1e-3, 0.9, 0.999, 1e-8, 1, BLOCK=1024)
    return p_out, m_out, v_out


def inputs(device):
    n = 2**24
    p, m = torch.randn(n, device=device), torch.randn(n, device=device)
    return p, torch.randn(n, device=device, dtype=torch.bfloat16), m, torch.rand(n, device=device)


def reference(p, g, m, v):
    g = g.float()
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return p - 1e-3 * m / (v.sqrt() + 1e-8), m, v
