"""silu(x @ gate) * (x @ up) in fp16 through tensor descriptors: a bare kernel."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def gated_kernel(
    x_desc, gate_desc, up_desc, out_desc, x_ptr, gate_ptr, up_ptr, n, k,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    gate = tl.zeros((BM, BN), tl.float32)
    up = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        x = x_desc.load([row, start])
        g = gate_desc.load([start, col])
        u = up_desc.load([start, col])
        gate = tl.dot(x, g, gate)
        up = tl.dot(x, u, up)
    result = gate * tl.sigmoid(gate) * up
    out_desc.store([row, col], result.to(tl.float16))


def run(x, gate, up):
    (m, k), n = x.shape, gate.shape[1]
    BM, BN, BK = 128, 64, 64
    out = torch.empty(m, n, device=x.device, dtype=torch.float16)
    x_desc = TensorDescriptor.from_tensor(x, [BM, BK])
    gate_desc, up_desc = (TensorDescriptor.from_tensor(w, [BK, BN]) for w in (gate, up))
    out_desc = TensorDescriptor.from_tensor(out, [BM, BN])
    grid = (triton.cdiv(m, BM), triton.cdiv(n, BN))
    gated_kernel[grid](
        x_desc, gate_desc, up_desc, out_desc, x, gate, up, n, k, BM=BM, BN=BN, BK=BK, num_warps=4, num_stages=3
    )
    return out


def inputs(device):
    x = torch.randn(4096, 2048, device=device, dtype=torch.float16)
    gate, up = (torch.randn(2048, 4096, device=device, dtype=torch.float16) * 0.02 for _ in range(2))
    return x, gate, up


def reference(x, gate, up):
    return torch.nn.functional.silu(x @ gate) * (x @ up)
