"""Registers decide in heuristics' decorators: halved reduction blocks, and none that spills among others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from fake_runs import script

import kerntune
from kerntune.gpu.script import Rule
from kerntune.gpu.scripted import FakeBackend, FakeGpu
from kerntune.static import resource_model
from kerntune.tuning.api import heuristic_tuner

ROWS, COLUMNS = 1 << 15, 1 << 14


@triton.jit
def sum_rows(x, y, rows, columns, XB: tl.constexpr, STEP: tl.constexpr):
    row = tl.program_id(0) * XB + tl.arange(0, XB)[:, None]
    total = tl.zeros((XB, STEP), tl.float32)
    for start in range(0, columns, STEP):
        at = start + tl.arange(0, STEP)[None, :]
        total += tl.load(x + row * columns + at, mask=(row < rows) & (at < columns), other=0.0)
    tl.store(y + row, tl.sum(total, 1)[:, None], mask=row < rows)


def binary_step(compiled: Any) -> int:
    return int(compiled.binary.constexprs["STEP"])


def reduction(**options: Any) -> Any:
    words = {"sizes": {"x": "rows", "r0": "columns"}, "blocks": {"x": "XB", "r0": "STEP"}}
    return kerntune.reduction(**words, reduction="inner", **options)(sum_rows)


def call(kernel: Any) -> None:
    x = torch.empty(ROWS, COLUMNS, device="cuda")
    kernel[lambda meta: (triton.cdiv(ROWS, meta["XB"]),)](x, torch.empty(ROWS, device="cuda"), ROWS, COLUMNS)


@pytest.fixture
def crowded(this_gpu: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """A step of 1024 elements or more takes 128 registers, and so long that half of it is faster."""
    load = FakeGpu.load

    def loaded(self: FakeGpu, binary: Any, data: bytes) -> Any:
        found = load(self, binary, data)
        found.registers = 128 if int(binary.constexprs["STEP"]) >= 1024 else 32
        return found

    monkeypatch.setattr(FakeGpu, "load", loaded)
    monkeypatch.setattr(heuristic_tuner, "static_registers", lambda c: 128 if binary_step(c) >= 1024 else 32)
    script(
        this_gpu, *(Rule(constexprs={"STEP": s}, time_ns=1000.0 + abs(s - 512)) for s in (4096, 2048, 1024, 512, 256))
    )
    return this_gpu


@pytest.mark.slow
def test_a_block_is_halved_until_registers_fit(crowded: FakeBackend) -> None:
    kernel = reduction()
    call(kernel)
    listed = {c.kwargs["STEP"] for c in kernel.candidates(None, None, ROWS, COLUMNS)}
    (winner,) = kernel.cache.values()
    assert winner.kwargs["STEP"] == 512 not in listed


@pytest.mark.slow
def test_the_winner_is_kept_under_its_lists_question(crowded: FakeBackend) -> None:
    call(reduction())
    gpu = script(crowded)
    again = reduction()
    call(again)
    assert gpu.launches == 0
    (winner,) = again.cache.values()
    assert winner.kwargs["STEP"] == 512


@pytest.mark.slow
def test_few_registers_change_nothing(this_gpu: FakeBackend) -> None:
    gpu = script(this_gpu)
    kernel = reduction(preset="inductor-2.13")
    call(kernel)
    assert gpu.launches == 0, "a lone candidate is launched untimed"
    several = reduction(max_autotune=True)
    call(several)
    listed = {c.kwargs["STEP"] for c in several.candidates(None, None, ROWS, COLUMNS)}
    assert {c.kwargs["STEP"] for c in several.configs_timings} == listed


def test_few_blocks_are_reason_enough_to_ask_nothing(this_gpu: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The grid is resident at once, whatever the registers."""
    monkeypatch.setattr(heuristic_tuner, "static_registers", None)
    kernel = reduction()
    x = torch.empty(100, COLUMNS, device="cuda")
    kernel[(100,)](x, torch.empty(100, device="cuda"), 100, COLUMNS)


# candidates that spill


@pytest.fixture
def spilling(this_gpu: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Bytes that candidates spill, by their shared constexpr BLOCK."""
    found: dict[str, int] = {}
    real = resource_model.figures_of

    def figures(compiled: Any, grid: Any, spec: Any) -> Any:
        plain = real(compiled, grid, spec)
        return None if plain is None else resource_model.Figures(
            plain.cost, found.get(compiled.binary.constexprs["STEP"], 0), plain.occupancy
        )  # fmt: skip

    monkeypatch.setattr(resource_model, "figures_of", figures)
    script(this_gpu)
    return found


def steps(kernel: Any) -> list[int]:
    return sorted({c.kwargs["STEP"] for c in kernel.candidates(None, None, ROWS, COLUMNS)})


def test_what_spills_is_left_out_unrun(spilling: dict[str, int]) -> None:
    kernel = reduction(max_autotune=True)
    most = max(steps(kernel))
    assert len(steps(kernel)) > 1
    spilling[str(most)] = 17 * 8
    call(kernel)
    left = {c.kwargs["STEP"]: why for c, why in kernel.left_out.items()}
    assert left == {most: "spills 17 registers a thread, more than 16, and others don't"}
    assert most not in {c.kwargs["STEP"] for c in kernel.configs_timings}


def test_a_few_spilled_registers_are_no_reason(spilling: dict[str, int]) -> None:
    kernel = reduction(max_autotune=True)
    spilling[str(max(steps(kernel)))] = 16 * 8
    call(kernel)
    assert kernel.left_out == {}


def test_where_all_spill_all_run(spilling: dict[str, int]) -> None:
    kernel = reduction(max_autotune=True)
    spilling.update({str(s): 400 for s in steps(kernel)})
    call(kernel)
    assert kernel.left_out == {}
    assert {c.kwargs["STEP"] for c in kernel.configs_timings} >= set(steps(kernel))


def test_a_users_own_list_may_spill(this_gpu: FakeBackend, spilling: dict[str, int]) -> None:
    listed = [triton.Config({"XB": 1, "STEP": s}) for s in (512, 1024)]
    kernel = kerntune.autotune(listed, key=["rows"])(sum_rows)
    spilling["1024"] = 4000
    call(kernel)
    assert kernel.left_out == {}
