"""A call that takes no tensors itself stays the same case where an edit adds or drops what its kernels read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from fake_runs import block

from gate.project import Project
from kerntune.base.device import Target
from kerntune.base.policy import Update, Verdict
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import Argument
from kerntune.gate.stores import ReferenceStore

N = 4096


@triton.jit
def one_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i) * 2)


@triton.jit
def two_kernel(x_ptr, w_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i) * tl.load(w_ptr))


@triton.jit
def broken_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i).to(tl.float32) * "2")


def launching(kernel: Any, n: int = N, scalars: int = 0) -> Callable[[], torch.Tensor]:
    x, w, y = torch.randn(n, device="cuda"), torch.randn(1, device="cuda"), torch.empty(n, device="cuda")

    def call() -> torch.Tensor:
        kernel[(n // 64,)](x, *[w] * scalars, y, BLOCK=64)
        return y

    return call


def one(n: int = N) -> Callable[[], torch.Tensor]:
    return launching(one_kernel, n)


def two(n: int = N) -> Callable[[], torch.Tensor]:
    return launching(two_kernel, n, scalars=1)


@pytest.mark.parametrize(("before", "after"), [(one, two), (two, one)])
def test_an_input_more_or_less_is_no_new_case(project: Project, before: Any, after: Any) -> None:
    with project.static_run("cuda:90") as run:
        assert run.check(before()).commit()[0].recorded
    with project.static_run("cuda:90") as run:
        (result,) = run.check(after()).commit()
        stale = run.session.stale([result.case.nodeid], True)
    assert (result.verdict, stale) == (Verdict.PASS, [])
    with project.static_run("cuda:90", update=Update.ALL) as run:
        assert run.check(after()).commit()[0].recorded
    assert len(project.files()) == 1
    with project.static_run("cuda:90") as run:
        assert run.check(after(2 * N)).commit()[0].verdict is Verdict.NEW


def test_nor_on_a_gpu(project: Project) -> None:
    rule = block(64, 10_000.0)
    assert project.once(rule).judge(one()).recorded
    with project.run(rule) as run:
        assert run.judge(two()).verdict is Verdict.PASS
        assert run.judge(two(2 * N)).verdict is Verdict.NEW


def test_what_is_not_compiled_any_more_is_not_stale(project: Project) -> None:
    with project.static_run("cuda:90") as run:
        assert run.check(one()).commit()[0].recorded
    with project.static_run("cuda:90") as run:
        (result,) = run.check(launching(broken_kernel)).commit()
        stale = run.session.stale([result.case.nodeid], True)
    assert (result.verdict, stale) == (Verdict.REGRESSED, [])


def test_two_that_may_be_meant_are_none(project: Project) -> None:
    """x with w, and x of another length with w: a call that reads w alone is neither."""
    for n in (N, 2 * N):
        with project.static_run("cuda:90") as run:
            assert run.check(two(n)).commit()[0].verdict is Verdict.NEW
    with project.static_run("cuda:90") as run:
        assert run.check(one(1)).commit()[0].verdict is Verdict.NEW
        assert run.check(two(2 * N)).commit()[0].verdict is Verdict.PASS


def test_a_yardstick_without_the_case_knows_none(project: Project) -> None:
    result = project.static_once("cuda:90").judge(one())
    own, target = BaselineStore(project.baselines, project.root), Target.parse("cuda:90")
    known = {(Argument("float32", (N,), (1,)),)}
    assert own.known_arguments(target, result.case) == known
    elsewhere = project.root / "elsewhere"
    assert ReferenceStore(elsewhere, "main").known_arguments(target, result.case) == set()
    project.files()[0].write_text("{")
    assert own.known_arguments(target, result.case) == set()
