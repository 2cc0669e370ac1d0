"""Parts of traced calls that need no tracer: grids as functions, stand-ins for arguments, what is kerntune's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from compiled_runs import configs, make, scaled

import kerntune
from kerntune.errors import GridError
from kerntune.grids import (
    Choice,
    FixedGrid,
    Grid,
    Grid1D,
    Grid2DWithYZOverflow,
    PrecomputedGrid,
    add,
    ceil_div,
    maximum,
    minimum,
    mul,
)
from kerntune.tuning.torch_compile import kernel_calls
from kerntune.tuning.torch_compile.kernel_calls import DescribedExample, as_function, has_hooks, is_ours

META = {"n": 1000, "m": 70_000, "BLOCK": 64}


@pytest.mark.parametrize(
    "grid",
    [
        FixedGrid(3, "n"),
        FixedGrid(add("n", "m", 7), mul("n", "m", 3), maximum("n", "m", 5)),
        FixedGrid(minimum("n", "m"), minimum("n", "m", 5)),
        FixedGrid(ceil_div("n", "BLOCK"), ceil_div("m", 3), ceil_div(1001, "BLOCK")),
        Grid1D("n"),
        Grid2DWithYZOverflow("n", "m", "BLOCK"),
        PrecomputedGrid((Choice.of({"BLOCK": 32}, 1), Choice.of({"BLOCK": 64, "n": 1000}, "n", 2))),
    ],
)
def test_a_grid_as_a_function_gives_the_same(grid: Grid) -> None:
    assert tuple(as_function(grid)(META)) == grid(META)


def test_a_default_yields_to_the_call_and_what_has_none_must_be_given() -> None:
    found = as_function(Grid1D("n"))
    assert [found({"n": 10, **more})[0] for more in ({}, {"XBLOCK": 4})] == [10, 3]
    with pytest.raises(KeyError):
        as_function(FixedGrid("n"))({})
    with pytest.raises(GridError, match="no grid was computed for these arguments"):
        as_function(PrecomputedGrid((Choice.of({"BLOCK": 32}, 1),)))(META)


def test_one_config_of_each_kind_stands_for_all() -> None:
    """Block sizes change no access; flags, texts and counts of one may."""
    words = [{"B": 64}, {"B": 128}, {"B": 1}, {"B": 0}, {"B": 64, "E": True}, {"B": 2, "E": False}, {"E": True, "B": 2}]
    listed = [triton.Config(kwargs) for kwargs in words]
    found = [listed.index(config) for config in kernel_calls._unlike(listed)]
    assert sorted(found) == [0, 2, 3, 4, 5]


def test_what_stands_in_for_an_argument() -> None:
    x = torch.empty(4, 8, 2, device="meta")
    symbols = [type(name, (), {})() for name in ("SymInt", "SymFloat")]
    size, share, plain = (kernel_calls._stand_in(value) for value in (*symbols, 7))
    assert (size > 1, size % 16, 0 < share < 1, plain) == (True, 0, True, 7)
    pointer = kernel_calls._stand_in(x)
    assert (pointer.dtype, pointer.data_ptr()) == (torch.float32, 0)
    found = kernel_calls._stand_in(DescribedExample(x, x.dtype, x.shape, x.stride(), (2, 4, 1)))
    assert (found.base.dtype, found.block_shape, found.shape) == (torch.float32, [2, 4, 1], [size] * 3)
    assert [(stride % 16, stride > 1) for stride in found.strides[:-1]] == [(0, True)] * 2
    assert found.strides[-1] == 1, "descriptors need that"


@pytest.mark.parametrize(
    ("found", "words", "ours"),
    [
        (configs(64, 128), {}, True),
        (configs(64), {}, False),
        (configs(64), {"pre_hook": lambda named, reset_only=False: None}, True),
        (configs(64), {"post_hook": lambda named, exception: None}, True),
        ([triton.Config({"BLOCK": 64}, pre_hook=lambda named: None)], {}, True),
        (configs(64), {"descend": True}, True),
    ],
)
def test_a_kernel_with_a_choice_or_a_hook_is_kerntunes(found: list[Any], words: dict[str, Any], ours: bool) -> None:
    tuner = kerntune.autotune(found, key=["n"], **words)(scaled)
    assert is_ours(tuner) is ours
    assert has_hooks(tuner) is (ours and not words.get("descend") and len(found) == 1)


def test_a_kernel_without_our_tuner_is_not_kerntunes() -> None:
    assert not is_ours(scaled)
    assert not is_ours(triton.autotune(configs(64, 128), key=["n"])(scaled)), "not installed"
    assert not is_ours(SimpleNamespace(configs=make().configs))
