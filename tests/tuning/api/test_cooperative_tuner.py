"""Cooperative reductions: candidates, buffers, and the launch; compiled for the scripted GPU, and interpreted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from fake_runs import recorded, script

import kerntune
from kerntune import grid_barrier
from kerntune.errors import ConfigError, UsageError
from kerntune.gpu.probe import has_cuda
from kerntune.gpu.script import Rule
from kerntune.gpu.scripted import FakeBackend
from kerntune.grids import CooperativeReductionGrid

GRID = CooperativeReductionGrid("rows", "ROWS", "RSPLIT")


@triton.jit
def shared_sums(
    x_ptr, out_ptr, rows, cols, semaphores, partial,
    ROWS: tl.constexpr, STEP: tl.constexpr, RSPLIT: tl.constexpr,
):  # fmt: skip
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


def sums(**options: Any) -> Any:
    words = {"sizes": {"x": "rows", "r0": "cols"}, "blocks": {"x": "ROWS", "r0": "STEP"}, "semaphores": "semaphores"}
    return kerntune.cooperative_reduction(**{**words, "workspace": "partial", **options})(shared_sums)


def call(kernel: Any, rows: int = 2, cols: int = 1 << 20, device: str = "cuda") -> torch.Tensor:
    x, out = torch.randn(rows, cols, device=device), torch.full((rows,), 3.0, device=device)
    kernel[GRID](x, out, rows, cols)
    return out - x.sum(1)


def test_candidates_share_a_row_and_launch_cooperatively(this_gpu: FakeBackend) -> None:
    rows, cols = 2, 1 << 20
    x = torch.empty(rows, cols, device="cuda")
    found = sums(max_autotune=True).candidates(x, torch.empty(rows, device="cuda"), rows, cols)
    assert len(found) > 1
    assert {c.kwargs["RSPLIT"] for c in found} == {64}
    assert all(c.options == {"launch_cooperative_grid": True} for c in found)


def test_many_rows_need_no_barrier_and_no_cooperative_launch(this_gpu: FakeBackend) -> None:
    rows, cols = 4096, 4096
    x = torch.empty(rows, cols, device="cuda")
    found = sums().candidates(x, torch.empty(rows, device="cuda"), rows, cols)
    assert {(c.kwargs["RSPLIT"], len(c.options)) for c in found} == {(1, 0)}


def test_a_persistent_block_is_a_programs_share(this_gpu: FakeBackend) -> None:
    x = torch.empty(2, 1 << 16, device="cuda")
    found = sums(persistent=True).candidates(x, torch.empty(2, device="cuda"), 2, 1 << 16)
    assert {(c.kwargs["RSPLIT"], c.kwargs["STEP"]) for c in found} == {(64, 1 << 10)}


@pytest.mark.slow
def test_the_fastest_is_found_with_fresh_buffers_at_each_launch(
    this_gpu: FakeBackend, launches: list[dict[str, Any]]
) -> None:
    kernel = sums(max_autotune=True)
    x = torch.empty(2, 1 << 20, device="cuda")
    steps = sorted({c.kwargs["STEP"] for c in kernel.candidates(x, x, 2, 1 << 20)})
    script(this_gpu, *(Rule(constexprs={"STEP": s}, time_ns=1000.0 + 100 * i) for i, s in enumerate(steps)))
    call(kernel)
    assert kernel.best_config.kwargs["STEP"] == steps[0]
    assert len(launches) == 1
    assert launches[-1]["launch_cooperative_grid"] is True
    call(kernel)
    given = launches[-1]
    assert given["semaphores"].dtype == torch.int32
    assert given["semaphores"].numel() == 2
    assert given["partial"].numel() >= 2 * 64
    assert given["semaphores"] is not launches[0]["semaphores"]


def test_a_capture_has_the_buffers_among_its_memory(backend: FakeBackend) -> None:
    kernel = sums()
    x, out = torch.empty(2, 1 << 20, device="cuda"), torch.empty(2, device="cuda")
    found = recorded(backend, lambda: kernel[GRID](x, out, 2, 1 << 20))
    assert sorted(s.nbytes for s in found.recording.storages) == [8, 8, 4 * backend.spec.sm_count, 8 << 20]


def test_a_descent_leaves_the_split_alone(this_gpu: FakeBackend) -> None:
    kernel = sums(descend=3)
    call(kernel)
    assert {c.kwargs["RSPLIT"] for c in kernel.configs_timings} == {64}
    assert len(kernel.configs_timings) > 1


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ConfigError, match="shared_sums: a cooperative reduction needs the parameter tickets"):
        sums(semaphores="tickets")
    with pytest.raises(ConfigError, match="workspace of 'float31'"):
        call(sums(workspace={"partial": "float31"}), device="cpu")
    x = torch.empty(2, 64)
    with pytest.raises(UsageError, match="semaphores is allocated for each launch"):
        sums()[GRID](x, x, 2, 64, x)
    with pytest.raises(UsageError, match="no argument is a tensor"):
        sums()[GRID](None, None, 2, 64)


def interpreted() -> None:
    """In Triton's interpreter (:mod:`.test_combo_kernel` has a process for it): programs run one after the other there,
    so none may wait for another."""
    for rows, cols in ((1, 1000), (3, 257), (5, 4096)):
        for persistent in (False, True):
            kernel = sums(persistent=persistent)
            assert call(kernel, rows, cols, "cpu").abs().max() < 1e-3, (rows, cols, persistent)
            assert kernel.best_config.kwargs["RSPLIT"] == 1


@pytest.mark.gpu
@pytest.mark.skipif(not has_cuda(), reason="needs a CUDA GPU")
@pytest.mark.parametrize(("rows", "cols"), [(1, 1 << 22), (3, 1_000_003), (16, 1 << 18), (1000, 5000)])
@pytest.mark.parametrize("persistent", [False, True])
def test_on_a_gpu_it_is_right_again_and_again(rows: int, cols: int, persistent: bool) -> None:
    if persistent and cols > 1 << 20:
        pytest.skip("a program's share is longer than a persistent block may be")
    kernel = sums(max_autotune=True, cache_results=False, persistent=persistent)
    for _ in range(20):
        assert call(kernel, rows, cols).abs().max().item() < 0.5
