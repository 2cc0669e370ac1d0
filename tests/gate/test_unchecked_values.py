"""Comparisons that pass on stand-ins, whose values nothing has: each is told, with the users' line."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_runs import N, by_block, scale_kernel

from gate.project import Project, Run
from kerntune.base.case_result import UncheckedValue
from kerntune.gate.report import unchecked_line

HERE = Path(__file__)


def scaled(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    scale_kernel[by_block](x, y, N, 2.0, BLOCK=64)
    return y


@contextlib.contextmanager
def static_run(project: Project) -> Iterator[Run]:
    """Whose project is this folder, so that places are those of this file."""
    with project.static_run("cuda:90") as run:
        run.session.settings = replace(run.session.settings, root=HERE.parent)
        yield run


def allclose(y: torch.Tensor, ref: torch.Tensor) -> None:
    assert torch.allclose(y, ref)


def not_equal(y: torch.Tensor, ref: torch.Tensor) -> None:
    assert not torch.equal(y, ref)


def reduced(y: torch.Tensor, ref: torch.Tensor) -> None:
    assert (y == 0).all()


def single(y: torch.Tensor, ref: torch.Tensor) -> None:
    assert (y - ref).abs().max() < 1e-3


def close(y: torch.Tensor, ref: torch.Tensor) -> None:
    torch.testing.assert_close(y, ref)


def in_a_loop(y: torch.Tensor, ref: torch.Tensor) -> None:
    for _ in range(3):
        assert torch.equal(y, ref)


def a_branch(y: torch.Tensor, ref: torch.Tensor) -> None:
    if torch.isnan(y).any():
        raise ValueError("nan")


@pytest.mark.parametrize(
    ("compare", "line", "asserted"),
    [
        (allclose, "assert torch.allclose(y, ref)", True),
        (not_equal, "assert not torch.equal(y, ref)", True),
        (reduced, "assert (y == 0).all()", True),
        (single, "assert (y - ref).abs().max() < 1e-3", True),
        (close, "torch.testing.assert_close(y, ref)", True),
        (in_a_loop, "assert torch.equal(y, ref)", True),
        (a_branch, "if torch.isnan(y).any():", False),
    ],
)
def test_each_is_told_once_with_its_line(
    project: Project, compare: Callable[..., None], line: str, asserted: bool
) -> None:
    with static_run(project) as run:
        x = torch.randn(8, device="cuda")
        compare(x, x + 1)
        found = run.session.take_unchecked()
        number = compare.__code__.co_firstlineno + (2 if compare is in_a_loop else 1)
        assert found == (UncheckedValue(f"{HERE.name}:{number}", line, asserted),)
        assert run.session.take_unchecked() == ()


def test_what_is_checked_is_not_told(project: Project) -> None:
    with static_run(project) as run:
        known, unknown = torch.arange(8, device="cuda"), torch.randn(8, device="cuda")
        assert torch.equal(known, torch.arange(8, device="cuda"))
        assert (known < 8).all()
        assert not torch.equal(unknown, unknown[:4])  # of another shape
        torch.testing.assert_close(known, known.clone())
        assert torch.allclose(torch.ones(3), torch.ones(3))
        assert run.session.take_unchecked() == ()


def test_with_a_gpu_there_is_none(project: Project) -> None:
    with project.run() as run:
        allclose(torch.randn(8, device="cuda"), torch.randn(8, device="cuda"))
        assert run.session.take_unchecked() == ()


def needs_values() -> torch.Tensor:
    return torch.ones(N, device="cuda") * torch.randn(4, device="cuda").sum().item()


def ends(x: torch.Tensor) -> Any:
    return scaled(x).sum().item()


@pytest.mark.parametrize(
    ("fn", "reference", "told"),
    [
        (scaled, lambda: torch.randn(N, device="cuda"), True),
        (scaled, needs_values, True),
        (scaled, None, False),
        (ends, needs_values, True),
        (ends, None, False),
    ],
    ids=["compared", "not computed", "none", "stopped before", "stopped, none"],
)
def test_a_reference_is_one_too(project: Project, fn: Callable[..., Any], reference: Any, told: bool) -> None:
    with static_run(project) as run:
        run.check(fn, torch.randn(N, device="cuda"), reference=reference)
        found = run.session.take_unchecked()
    assert [(x.place.partition(":")[0], x.asserted) for x in found] == [("project.py", True)] * told


def test_the_line_counts_kinds_and_tests() -> None:
    yes, no = UncheckedValue("a.py:1", "assert x", True), UncheckedValue("a.py:2", "if x:")
    assert unchecked_line({}) == ""
    assert unchecked_line({"a": (yes,)}) == "values not checked without a GPU: 1 assertion in 1 test"
    assert unchecked_line({"a": (no, no)}) == "values not checked without a GPU: 2 comparisons in 1 test"
    assert unchecked_line({"a": (yes, yes), "b": (yes, no)}) == (
        "values not checked without a GPU: 3 assertions and 1 other comparison in 2 tests"
    )
