"""Grids that are texts or Python functions, as expressions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import triton

from kerntune.errors import GridError
from kerntune.grids import FixedGrid
from kerntune.grids.expr import Const, Name, add, ceil_div, maximum, minimum, mul
from kerntune.grids.grid import grid_of_text, traced

N, M, BLOCK = Name("n"), Name("m"), Name("BLOCK")


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("n", (N,)),
        (" 12 ", (Const(12),)),
        ("cdiv(n, BLOCK)", (ceil_div(N, BLOCK),)),
        ("triton.cdiv(n, 4) * m, ceil_div(m, 2), 3", (mul(ceil_div(N, 4), M), ceil_div(M, 2), Const(3))),
        ("n + m + 1", (add(add(N, M), 1),)),
        ("min(n, m), max(n, 1)", (minimum(N, M), maximum(N, 1))),
        ("minimum(n, m, 7), np.maximum(n, m)", (minimum(N, M, 7), maximum(N, M))),
    ],
)
def test_a_text_is_its_expressions(text: str, axes: tuple[Any, ...]) -> None:
    assert grid_of_text(text) == FixedGrid(*axes)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("n +", "'n +' is no grid; write one to three expressions of names, whole numbers"),
        ("", "is no grid"),
        ("()", "has 0 axes; a grid has one to three"),
        ("1, 2, 3, 4", "has 4 axes; a grid has one to three"),
        ("n - 1", "'n - 1' can't stand in a grid"),
        ("n // 2", "can't stand in a grid"),
        ("True", "'True' can't stand in a grid"),
        ("1.5", "can't stand in a grid"),
        ("'n'", "can't stand in a grid"),
        ("pow(n, 2)", "can't stand in a grid"),
        ("max(n, key=m)", "can't stand in a grid"),
        ("f()(n)", "can't stand in a grid"),
        ("n.m", "can't stand in a grid"),
        ("-1", "can't stand in a grid"),
    ],
)
def test_what_is_no_grid_is_named(text: str, told: str) -> None:
    with pytest.raises(GridError) as refused:
        grid_of_text(text)
    assert told in str(refused.value)


def followed(function: Callable[[dict[str, Any]], Any]) -> Any:
    return traced(function, {"BLOCK": 128, "flag": True}, {"n", "m"}, {"x"})


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),), "cdiv(n, 128)"),
        (lambda meta: [triton.cdiv(meta["n"], 4) * meta["m"], 3], "cdiv(n, 4) * m, 3"),
        (lambda meta: meta["n"], "n"),
        (lambda meta: (2 * meta["n"] + 3, 1 + meta["m"], meta["n"] * 2), "n * 2 + 3, m + 1, n * 2"),
        (lambda meta: (meta["n"] + meta["m"], meta["n"] - 1 + 1), "n + m, n"),
        (lambda meta: ((meta["n"] + 5 - 2) // 4,), "cdiv(n, 4)"),
        (lambda meta: ((meta["n"] + 1 + meta["m"] + 2) * (meta["m"] + 1),), "(n + m + 3) * (m + 1)"),
        (lambda meta: (meta["m"] if meta["flag"] else meta["n"], 1, 1), "m, 1, 1"),
    ],
)
def test_a_function_is_followed(function: Callable[[dict[str, Any]], Any], text: str) -> None:
    found, same = followed(function), grid_of_text(text)
    for n, m in ((1, 1), (7, 5), (128, 3), (1000, 77)):
        assert found({"n": n, "m": m}) == same({"n": n, "m": m})
    assert found.names == same.names


def test_what_is_no_function_is_taken_as_it_is() -> None:
    grid = FixedGrid(N)
    assert traced(grid, {}, {"n"}, ()) is grid
    assert traced((4, "n"), {}, {"n"}, ()) == FixedGrid(4, "n")


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda meta: (meta["n"] - 1,), "subtracts 1"),
        (lambda meta: (meta["n"] - meta["m"],), "subtracts an argument"),
        (lambda meta: ((meta["n"] - 2) * 3,), "subtracts 2"),
        (lambda meta: (meta["n"] // 2,), "divides by anything but a rounding up"),
        (lambda meta: ((meta["n"] + 2) // 2,), "divides by anything but a rounding up"),
        (lambda meta: ((meta["n"] + 1) // meta["m"],), "divides by anything but a rounding up"),
        (lambda meta: (meta["x"].shape[0],), "asks the tensor x for its shape"),
        (lambda meta: (meta["x"].numel(),), "asks the tensor x for its numel"),
    ],
)
def test_what_can_not_be_followed_is_named(function: Callable[[dict[str, Any]], Any], told: str) -> None:
    with pytest.raises(GridError) as refused:
        followed(function)
    assert str(refused.value).startswith(f"the grid function {told}, which can't be followed: write the grid as text")


@pytest.mark.parametrize(
    "use",
    [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne, operator.truediv, operator.mod,
     operator.pow, lambda a, b: b - a, lambda a, b: b / a, lambda a, b: b // a, lambda a, b: b % a,
     lambda a, b: bool(a), lambda a, b: int(a), lambda a, b: float(a), lambda a, b: [0, 1, 2][a], lambda a, b: -a],
)  # fmt: skip
def test_any_other_use_is_refused(use: Callable[[Any, int], Any]) -> None:
    with pytest.raises(GridError, match="compares or converts an argument"):
        followed(lambda meta: (use(meta["n"], 2),))


def test_a_stand_in_is_in_no_set() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        followed(lambda meta: ({meta["n"]},))
