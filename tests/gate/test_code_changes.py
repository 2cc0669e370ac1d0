"""Hunks of changed code in results, by the real compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from fake_runs import N, by_block

from gate.project import Project
from kerntune.gate import code_changes as module


@triton.jit
def first_kernel(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def second_kernel(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.sqrt(tl.load(x_ptr + i, mask=i < n)) + 1, mask=i < n)


def launch(kernel: Any, block: int = 128) -> Any:
    def fn(x: torch.Tensor) -> None:
        kernel[by_block](x, N, BLOCK=block)

    return fn


def judged(tmp_path: Path, *runs: Any, code: bool = True) -> Any:
    """The result of the last of several runs of one case on the scripted GPU."""
    project = Project(tmp_path)
    for fn in runs:
        with project.run(code_changes=code) as run:
            found = run.judge(fn, torch.zeros(N, device="cuda"))
    return found


def test_assembly_and_machine_code_of_a_changed_source(tmp_path: Path) -> None:
    result = judged(tmp_path, launch(first_kernel), launch(second_kernel))
    ptx, sass = result.code
    assert (ptx.kernel, ptx.stage, sass.stage) == ("second_kernel", "ptx", "sass")
    added = [line for line in ptx.diff.splitlines() if line.startswith("+")]
    assert any("sqrt" in line for line in added)
    assert any("MUFU" in line for line in sass.diff.splitlines() if line.startswith("+"))
    assert len(ptx.diff.splitlines()) <= module.MAX_LINES
    assert result.launches[0].before is not None
    assert result.launches[0].before.registers is not None
    assert result.launches[0].occupancy is not None
    assert result.baseline_times_ns
    assert result.replayed is not None
    assert len(result.replayed.baseline_ns) == len(result.replayed.current_ns) > 0


def test_nothing_where_nobody_asked_or_the_code_is_the_same(tmp_path: Path) -> None:
    assert judged(tmp_path / "a", launch(first_kernel), launch(second_kernel), code=False).code == ()
    assert judged(tmp_path / "b", launch(first_kernel), launch(first_kernel)).code == ()


def test_another_constant_alone_is_no_changed_code(tmp_path: Path) -> None:
    """Its diff is of two configs: long, and says nothing about an edit."""
    assert judged(tmp_path, launch(first_kernel), launch(first_kernel, 256)).code == ()


def test_without_a_gpu(tmp_path: Path) -> None:
    project = Project(tmp_path)
    for kernel in (first_kernel, second_kernel):
        with project.static_run("cuda:90", "hip:gfx942", code_changes=True) as run:
            checked = run.check(launch(kernel), torch.zeros(N, device="cuda"))
            checked.commit()
    nvidia, amd = checked.results
    assert [c.stage for c in nvidia.code] == ["ptx", "sass"]
    assert [c.stage for c in amd.code] == ["amdgcn"]
    assert "v_sqrt" in amd.code[0].diff


def test_what_cant_be_compiled_again_is_shown_as_ttir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any) -> Any:
        raise module.KerntuneError("Triton refuses it")

    monkeypatch.setattr(module, "stages_from", refused)
    result = judged(tmp_path, launch(first_kernel), launch(second_kernel))
    assert [c.stage for c in result.code] == ["ttir"]
    assert "+" in result.code[0].diff
