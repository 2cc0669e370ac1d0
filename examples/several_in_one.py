"""Launches that are more than one kernel over one tensor: no test, but a program to run, on a GPU or anywhere with
TRITON_INTERPRET=1."""

import torch
import triton
import triton.language as tl

import kerntune
from kerntune import ComboPart, grid_barrier
from kerntune.grids import CooperativeReductionGrid

SMALL = bool(triton.knobs.runtime.interpret)


@triton.jit
def decay(block, x_ptr, n, factor, BLOCK: tl.constexpr):
    """A part: it takes its block's index, since a kernel's own program_id is of the whole launch."""
    i = block * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)


@triton.jit
def sums(block, x_ptr, out_ptr, rows, cols, ROWS: tl.constexpr, STEP: tl.constexpr):
    row = block * ROWS + tl.arange(0, ROWS)[:, None]
    total = tl.zeros((ROWS, STEP), tl.float32)
    for start in range(0, cols, STEP):
        col = start + tl.arange(0, STEP)[None, :]
        total += tl.load(x_ptr + row * cols + col, mask=(row < rows) & (col < cols), other=0.0)
    tl.store(out_ptr + row, tl.sum(total, 1)[:, None], mask=row < rows)


decay_and_sums = kerntune.combo(
    [
        ComboPart(decay, {"x": "n"}, {"x": "BLOCK"}),
        ComboPart(sums, {"x": "rows", "r0": "cols"}, {"x": "ROWS", "r0": "STEP"}, kind="reduction"),
    ]
)
decay_all = kerntune.foreach(sizes={"x": "n"}, blocks={"x": "BLOCK"})(decay)


@kerntune.cooperative_reduction(
    sizes={"x": "rows", "r0": "cols"},
    blocks={"x": "ROWS", "r0": "STEP"},
    semaphores="semaphores",
    workspace="partial",
)
@triton.jit
def long_sums(
    x_ptr, out_ptr, rows, cols, semaphores, partial, ROWS: tl.constexpr, STEP: tl.constexpr, RSPLIT: tl.constexpr
):
    """Few long rows: RSPLIT programs share each, and the first one adds their sums up once all have theirs."""
    part, block = tl.program_id(0), tl.program_id(1)
    row = block * ROWS + tl.arange(0, ROWS)[:, None]
    share = tl.cdiv(tl.cdiv(cols, RSPLIT), STEP) * STEP
    total = tl.zeros((ROWS, STEP), tl.float32)
    for start in range(part * share, tl.minimum(part * share + share, cols), STEP):
        col = start + tl.arange(0, STEP)[None, :]
        total += tl.load(x_ptr + row * cols + col, mask=(row < rows) & (col < cols), other=0.0)
    tl.store(partial + row * RSPLIT + part, tl.sum(total, 1)[:, None], mask=row < rows)
    grid_barrier(semaphores + block, RSPLIT)
    if part == 0:
        every = tl.load(partial + row * RSPLIT + tl.arange(0, RSPLIT)[None, :], mask=row < rows, other=0.0)
        tl.store(out_ptr + row, tl.sum(every, 1)[:, None], mask=row < rows)


@kerntune.template({"BLOCK": 512, "num_warps": 8}, {"BLOCK": 1024, "num_warps": 4}, key=["n"])
@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


def main(device: str) -> None:
    torch.manual_seed(0)
    x, rows = torch.ones(3000, device=device), torch.randn(8, 1000, device=device)
    out = torch.empty(8, device=device)
    decay_and_sums((x, x.numel(), 0.5), (rows, out, *rows.shape))
    torch.testing.assert_close(x, torch.full_like(x, 0.5))
    torch.testing.assert_close(out, rows.sum(1), rtol=1e-4, atol=1e-3)

    weights = [torch.ones(n, device=device) for n in ((100, 2000) if SMALL else (100, 2000, 50_000) * 60)]
    decay_all(weights, [w.numel() for w in weights], 0.25)
    assert all((w == 0.25).all() for w in weights)

    long = torch.randn(2, 20_000 if SMALL else 10_000_000, device=device)
    out = torch.empty(2, device=device)
    long_sums[CooperativeReductionGrid("rows", "ROWS", "RSPLIT")](long, out, *long.shape)
    torch.testing.assert_close(out, long.sum(1), rtol=1e-3, atol=1e-1)

    copied = torch.empty_like(x)
    copy_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, copied, x.numel())
    assert torch.equal(copied, x)
    for name, kernel in (("decay_and_sums", decay_and_sums), ("decay_all", decay_all)):
        (choice,) = kernel.choices.values()
        print(f"{name}: {'one launch' if choice.together else 'one by one'}, {choice.ratio or 'unmeasured'}")
    print(f"long_sums: {long_sums.best_config}")


if __name__ == "__main__":
    main("cpu" if SMALL else "cuda")
