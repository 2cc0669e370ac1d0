"""A product of fp16 matrices through pointers: one config under triton.autotune."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BM": 128, "BN": 128, "BK": 64, "GROUP": 8}, num_stages=3, num_warps=4)],
    key=["m", "n", "k"],
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, m, n, k, a_stride, b_stride, c_stride,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    tiles_m = tl.cdiv(m, BM)
    tiles_n = tl.cdiv(n, BN)
    width = GROUP * tiles_n
    first = tl.program_id(0) // width * GROUP
    height = min(tiles_m - first, GROUP)
    tile_m = first + tl.program_id(0) % width % height
    tile_n = tl.program_id(0) % width // height
    rows = tile_m * BM + tl.arange(0, BM)
    cols = tile_n * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a_ptrs = a_ptr + rows[:, None] * a_stride + inner[None, :]
    b_ptrs = b_ptr + inner[:, None] * b_stride + cols[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(0, tl.cdiv(k, BK)):  # noqa: B007
        a = tl.load(a_ptrs)
        b = tl.load(b_ptrs)
        total = tl.dot(a, b, total)
        a_ptrs += BK
        b_ptrs += BK * b_stride
    c = total.to(tl.float16)
    inside = (rows[:, None] < m) & (cols[None, :] < n)
    tl.store(c_ptr + rows[:, None] * c_stride + cols[None, :], c, mask=inside)


def run(a, b, bias):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, device=a.device, dtype=torch.float16)
    matmul_kernel[lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)](
        a, b, c, bias, m, n, k, a.stride(0), b.stride(0), c.stride(0)
    )
    return c


def inputs(device):
    a, b = (torch.randn(4096, 4096, device=device, dtype=torch.float16) for _ in range(2))
    return a, b, torch.zeros(4096, device=device, dtype=torch.float16)


def reference(a, b, bias):
    return a @ b
