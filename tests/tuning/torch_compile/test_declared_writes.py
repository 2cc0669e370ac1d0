"""Which tensors a graph takes for written."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from compiled_runs import accumulated, configs, doubled_in_place, scaled

import kerntune
from kerntune.search import Choice, Search, Space
from kerntune.tuning.torch_compile.kernel_calls import DescribedExample, written_names


@triton.jit
def either(x_ptr, y_ptr, n, IN_PLACE: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x_ptr + i, mask=i < n)
    if IN_PLACE or SPLIT == 1:
        tl.store(x_ptr + i, value, mask=i < n)
    else:
        tl.store(y_ptr + i, value, mask=i < n)


@triton.jit
def by_descriptor(source, target, BLOCK: tl.constexpr):
    target.store([0, 0], source.load([0, 0]))


def written(kernel: Any, found: list[Any], names: str = "x_ptr y_ptr", **options: Any) -> set[str]:
    tensors = {name: torch.empty(8, device="meta") for name in names.split()}
    rest = {"n": 8, "factor": 2.0}
    given = {name: {**tensors, **rest}[name] for name in kernel.arg_names if name in {**tensors, **rest}}
    return set(written_names(kerntune.autotune(found, key=[], **options)(kernel), given))


def test_what_the_kernel_stores() -> None:
    assert written(scaled, configs(64, 128)) == {"y_ptr"}
    assert written(doubled_in_place, configs(64, 128), "x_ptr") == {"x_ptr"}
    assert written(accumulated, configs(64, 128), "x_ptr total_ptr") == {"total_ptr"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([{"IN_PLACE": False, "SPLIT": 2}], {"y_ptr"}),
        ([{"IN_PLACE": True, "SPLIT": 2}], {"x_ptr"}),
        ([{"IN_PLACE": False, "SPLIT": 2}, {"IN_PLACE": True, "SPLIT": 2}], {"x_ptr", "y_ptr"}),
        ([{"IN_PLACE": False, "SPLIT": 4}, {"IN_PLACE": False, "SPLIT": 1}], {"x_ptr", "y_ptr"}),
    ],
)
def test_what_any_config_stores(words: list[dict[str, Any]], expected: set[str]) -> None:
    assert written(either, [triton.Config({**w, "BLOCK": 64}) for w in words]) == expected


def test_what_any_config_of_a_search_stores() -> None:
    axes = (Choice("IN_PLACE", (False, True)), Choice("SPLIT", (2, 4)), Choice("BLOCK", (64, 128)))
    assert written(either, [], search=Search(Space(axes))) == {"x_ptr", "y_ptr"}
    assert written(either, [], search=Search(Space((Choice("IN_PLACE", (False,)), *axes[1:])))) == {"y_ptr"}


def test_what_hooks_may_write() -> None:
    assert written(scaled, configs(64, 128), reset_to_zero=["x_ptr"]) == {"x_ptr", "y_ptr"}
    assert written(scaled, configs(64, 128), post_hook=lambda named, exception: None) == {"x_ptr", "y_ptr"}
    hooked = [triton.Config({"BLOCK": 64}, pre_hook=lambda named: None)]
    assert written(scaled, hooked) == {"x_ptr", "y_ptr"}


def test_heuristics_decorators() -> None:
    kernel = kerntune.pointwise(sizes={"x": "n"}, blocks={"x": "BLOCK"})(scaled)
    tensors = {name: torch.empty(8, device="meta") for name in ("x_ptr", "y_ptr")}
    assert written_names(kernel, {**tensors, "n": 8, "factor": 2.0}) == {"y_ptr"}


def test_tensor_descriptors() -> None:
    base = torch.empty(64, 64, device="meta")
    described = DescribedExample(base, base.dtype, base.shape, base.stride(), (32, 32))
    kernel = kerntune.autotune(configs(32), key=[])(by_descriptor)
    assert written_names(kernel, {"source": described, "target": described}) == {"target"}


def test_all_where_it_cannot_be_seen() -> None:
    """A kernel that doesn't compile as it is called: an argument is missing."""
    kernel = kerntune.autotune(configs(64), key=[])(scaled)
    x = torch.empty(8, device="meta")
    assert written_names(kernel, {"x_ptr": x, "y_ptr": x}) == {"x_ptr", "y_ptr"}
