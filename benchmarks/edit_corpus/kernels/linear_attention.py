"""Linear attention in chunks, the state kept in registers from chunk to chunk: a bare kernel, few programs."""

import torch
import triton
import triton.language as tl


@triton.jit
def chunk_kernel(q_ptr, k_ptr, v_ptr, decay_ptr, out_ptr, length, D: tl.constexpr, C: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * length * D
    dims = tl.arange(0, D)
    steps = tl.arange(0, C)
    state = tl.zeros((D, D), tl.float32)
    for first in range(0, length, C):
        at = base + (first + steps)[:, None] * D + dims[None, :]
        q = tl.load(q_ptr + at)
        k = tl.load(k_ptr + at)
        v = tl.load(v_ptr + at)
        decay = tl.load(decay_ptr + tl.program_id(0) * (length // C) + first // C)
        scores = tl.dot(q, k.T)
        scores = tl.where(steps[:, None] >= steps[None, :], scores, 0.0)
        out = tl.dot(q, state.to(tl.bfloat16))
        out = tl.dot(scores.to(tl.bfloat16), v, out)
        state = tl.dot(k.T, v, state * tl.exp(decay))
        tl.store(out_ptr + at, out.to(tl.bfloat16))


def run(q, k, v, decay):
    heads, length, head = q.shape
    out = torch.empty_like(q)
    chunk_kernel[(heads,)](q, k, v, decay, out, length, D=head, C=64, num_warps=4, num_stages=3)
    return out


def inputs(device):
    q, k, v = (torch.randn(64, 4096, 64, device=device, dtype=torch.bfloat16) for _ in range(3))
    return q, k, v, torch.full((64, 4096 // 64), -0.1, device=device)


def reference(q, k, v, decay):
    heads, _, head = q.shape
    state = torch.zeros(heads, head, head, device=q.device)
    outs = []
    for i, (qs, ks, vs) in enumerate(zip(q.split(64, 1), k.split(64, 1), v.split(64, 1), strict=True)):
        scores = (qs.float() @ ks.float().mT).tril()
        outs.append(scores @ vs.float() + qs.float() @ state)
        state = state * decay[:, i, None, None].exp() + ks.float().mT @ vs.float()
    return torch.cat(outs, 1).bfloat16()
