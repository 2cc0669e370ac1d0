"""Matmul in grouped order: a realistic config list, pruned by shape, and a heuristic that depends on the config."""

import pytest
import torch
import triton
import triton.language as tl

N = K = 4096


def tile(m: int, n: int, k: int, warps: int, stages: int) -> triton.Config:
    return triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": 8}, num_warps=warps, num_stages=stages)


CONFIGS = [
    tile(128, 256, 64, warps=8, stages=3),
    tile(128, 256, 64, warps=8, stages=4),
    tile(256, 128, 64, warps=8, stages=3),
    tile(256, 128, 64, warps=8, stages=4),
    tile(128, 128, 64, warps=8, stages=3),
    tile(128, 128, 64, warps=4, stages=4),
    tile(128, 128, 32, warps=4, stages=5),
    tile(128, 64, 64, warps=4, stages=4),
    tile(64, 256, 64, warps=4, stages=4),
    tile(64, 128, 64, warps=4, stages=5),
    tile(64, 64, 64, warps=4, stages=6),
    tile(64, 64, 128, warps=4, stages=4),
    tile(64, 32, 128, warps=4, stages=5),
    tile(64, 32, 256, warps=4, stages=3),
]


def drop_tall_tiles(configs, arguments, **_):
    """Tiles much taller than the matrix only compute padding."""
    return [config for config in configs if config.kwargs["BLOCK_M"] <= max(64, arguments["m"])]


@triton.autotune(CONFIGS, key=["m", "n", "k"], prune_configs_by={"early_config_prune": drop_tall_tiles})
@triton.heuristics({"EVEN_K": lambda args: args["k"] % args["BLOCK_K"] == 0})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, a_row, a_col, b_row, b_col, c_row, c_col,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    # Walk down GROUP rows of tiles before going right: neighbouring programs then share a and b in L2.
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    program = tl.program_id(0)
    first = program // (GROUP * tiles_n) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    within = program % (GROUP * tiles_n)
    tile_m = first + within % height
    tile_n = within // height

    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (rows % m)[:, None] * a_row + inner[None, :] * a_col
    b_ptrs = b_ptr + inner[:, None] * b_row + (cols % n)[None, :] * b_col
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        if EVEN_K:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            a = tl.load(a_ptrs, mask=inner[None, :] < k - start, other=0.0)
            b = tl.load(b_ptrs, mask=inner[:, None] < k - start, other=0.0)
        total = tl.dot(a, b, total)
        a_ptrs += BLOCK_K * a_col
        b_ptrs += BLOCK_K * b_row
    c_ptrs = c_ptr + rows[:, None] * c_row + cols[None, :] * c_col
    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < m) & (cols[None, :] < n))


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b for a of shape (m, k) and b of shape (k, n), any strides."""
    (m, k), (_, n) = a.shape, b.shape
    c = torch.empty(m, n, device=a.device, dtype=a.dtype)

    def grid(meta):
        return (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)

    matmul_kernel[grid](a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride())
    return c


@pytest.mark.autotune(interpret={"m": 64})
@pytest.mark.parametrize("m", [64, 1024, 8192])
def test_matmul(autotune, m):
    torch.manual_seed(0)
    n, k = (200, 300) if autotune.interpreted else (N, K)
    a = torch.randn(m, k, device=autotune.device, dtype=torch.float16)
    b = torch.randn(k, n, device=autotune.device, dtype=torch.float16)
    autotune(matmul, a, b, reference=lambda: a @ b, rtol=1e-2, atol=0.25, flops=2 * m * n * k)
