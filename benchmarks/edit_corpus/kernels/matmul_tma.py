"""A product of fp16 matrices through tensor descriptors: a bare kernel."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def matmul_kernel(
    a_desc, b_desc, c_desc, a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    tile_m = tl.program_id(0)
    tile_n = tl.program_id(1)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        a = a_desc.load([tile_m * BM, start])
        b = b_desc.load([start, tile_n * BN])
        total = tl.dot(a, b, total)
    c_desc.store([tile_m * BM, tile_n * BN], total.to(tl.float16))


def run(a, b, zeros):
    (m, k), n = a.shape, b.shape[1]
    BM, BN, BK = 128, 128, 64
    c = torch.empty(m, n, device=a.device, dtype=torch.float16)
    a_desc = TensorDescriptor.from_tensor(a, [BM, BK])
    b_desc = TensorDescriptor.from_tensor(b, [BK, BN])
    c_desc = TensorDescriptor.from_tensor(c, [BM, BN])
    grid = (triton.cdiv(m, BM), triton.cdiv(n, BN))
    matmul_kernel[grid](a_desc, b_desc, c_desc, a, b, c, m, n, k, BM=BM, BN=BN, BK=BK, num_warps=4, num_stages=3)
    return c


def inputs(device):
    a, b = (torch.randn(4096, 4096, device=device, dtype=torch.float16) for _ in range(2))
    return a, b, torch.zeros(4096, 4096, device=device, dtype=torch.float16)


def reference(a, b, zeros):
    return a @ b
