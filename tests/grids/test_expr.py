"""Expressions: their values, what folding keeps, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.errors import GridError
from kerntune.grids import Name, add, ceil_div, maximum, minimum, mul
from kerntune.grids.expr import Add, CeilDiv, Const, Max, Min, Mul, as_expr, names_in, substitute

from .strategies import SCOPES, expressions


@given(expr=expressions(), scope=SCOPES)
def test_folding_never_changes_a_value(expr, scope) -> None:
    assert substitute(expr, {}).evaluate(scope) == expr.evaluate(scope)


@pytest.mark.slow
@given(expr=expressions(), scope=SCOPES, data=st.data())
def test_substitution_in_any_order_never_changes_a_value(expr, scope, data) -> None:
    before = repr(expr), dict(scope)
    first = data.draw(st.sets(st.sampled_from(sorted(scope))))
    half = substitute(expr, {name: scope[name] for name in first})
    assert {name.name for name in names_in(half)}.isdisjoint(first)
    assert half.evaluate(scope) == expr.evaluate(scope)
    assert substitute(half, scope) == Const(expr.evaluate(scope))
    assert (repr(expr), scope) == before


@given(expr=expressions())
def test_folding_twice_is_folding_once(expr) -> None:
    once = substitute(expr, {})
    assert substitute(once, {}) == once


@pytest.mark.parametrize(
    ("folded", "expected"),
    [
        (ceil_div(257, 128), Const(3)),
        (ceil_div("n", 1), Name("n")),
        (ceil_div(0, 128), Const(0)),
        (add(1, "n", 2), Add((Name("n"), Const(3)))),
        (add("n", 0), Name("n")),
        (add(), Const(0)),
        (add(add("n", 1), add("m", 2)), Add((Name("n"), Name("m"), Const(3)))),
        (mul(2, "n", 3), Mul((Name("n"), Const(6)))),
        (mul("n", 1), Name("n")),
        (mul("n", 0), Mul((Name("n"), Const(0)))),
        (mul(), Const(1)),
        (maximum("n", 3, "n", 7), Max((Name("n"), Const(7)))),
        (maximum("n", 0), Name("n")),
        (maximum(0, 0), Const(0)),
        (minimum("n", 3, 7, "n"), Min((Name("n"), Const(3)))),
        (minimum("n", 0), Min((Name("n"), Const(0)))),
        (minimum("n"), Name("n")),
    ],
)
def test_folds_to(folded, expected) -> None:
    assert folded == expected


def test_persistent_grid_of_a_matmul() -> None:
    tiles = mul(ceil_div("M", "BLOCK_M"), ceil_div("N", "BLOCK_N"))
    grid = minimum("NUM_SMS", tiles)
    assert grid.evaluate({"M": 1000, "N": 513, "BLOCK_M": 128, "BLOCK_N": 256, "NUM_SMS": 132}) == 24
    assert grid.evaluate({"M": 9000, "N": 9000, "BLOCK_M": 128, "BLOCK_N": 256, "NUM_SMS": 132}) == 132


def test_is_exact_beyond_float_precision() -> None:
    assert ceil_div("n", 2).evaluate({"n": 2**63 + 1}) == 2**62 + 1


@pytest.mark.parametrize("value", [np.int64(7), np.int32(7), 7])
def test_takes_any_integer_type_and_gives_int(value) -> None:
    result = Name("n").evaluate({"n": value})
    assert result == 7
    assert type(result) is int


@pytest.mark.parametrize(
    ("expr", "scope", "message"),
    [
        (Name("n"), {}, r"needs n, .*gives nothing"),
        (Name("n"), {"m": 1, "BLOCK": 2}, r"needs n, .*gives BLOCK, m"),
        (Name("n"), {"n": -1}, "n is -1"),
        (Name("n"), {"n": 7.0}, r"n is 7\.0, not an integer"),
        (Name("n"), {"n": "7"}, "n is '7', not an integer"),
        (CeilDiv(Name("n"), Name("B")), {"n": 7, "B": 0}, "block B is 0"),
        (CeilDiv(Name("n"), Const(0)), {"n": 7}, "block of the grid is 0"),
        (CeilDiv(Name("n"), Name("B")), {"n": 7, "B": -2}, "B is -2"),
    ],
)
def test_evaluation_errors_name_the_value(expr, scope, message) -> None:
    with pytest.raises(GridError, match=message):
        expr.evaluate(scope)


@pytest.mark.parametrize("term", [-1, 1.5, None, [1], "a b", "1n", "class", "f()", ""])
def test_refuses_what_is_no_term(term) -> None:
    with pytest.raises(GridError):
        as_expr(term)


@pytest.mark.parametrize("build", [maximum, minimum])
def test_an_extreme_of_nothing_is_an_error(build) -> None:
    with pytest.raises(GridError, match="at least one"):
        build()


def test_constant_zero_block_is_refused_when_folding() -> None:
    with pytest.raises(GridError, match="is 0"):
        ceil_div(5, 0)


def test_default_stands_in_for_a_missing_name_only() -> None:
    block = Name("XBLOCK", 1)
    assert [block.evaluate(scope) for scope in ({}, {"XBLOCK": None}, {"XBLOCK": 64})] == [1, 1, 64]
    assert substitute(block, {}) == block
    assert substitute(block, {"XBLOCK": 64}) == Const(64)


def test_expressions_are_values() -> None:
    one, other = ceil_div("n", "B"), ceil_div("n", "B")
    assert one == other
    assert hash(one) == hash(other)
    assert {name.name for name in names_in(one)} == {"n", "B"}
    with pytest.raises(AttributeError):
        one.block = Const(1)


@pytest.mark.parametrize("kind", [Max, Min])
def test_an_extreme_of_nothing_is_an_error_however_it_is_made(kind: type[Max] | type[Min]) -> None:
    for make in (kind.of, lambda: kind(())):
        with pytest.raises(GridError):
            make()
