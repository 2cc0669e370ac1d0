"""Rendered grids: the Python evaluates, and the C++ compiles, to the same values."""

from __future__ import annotations

import itertools
import shutil

import pytest
from hypothesis import given

from kerntune.errors import GridError
from kerntune.grids import FixedGrid, Grid1D, Grid2DWithYZOverflow, Name, add, ceil_div, maximum, minimum, mul
from kerntune.grids.expr import C_HELPERS, substitute, to_c, to_cpp, to_python

from . import differential
from .strategies import SCOPES, expressions

script = differential.load()

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


@given(expr=expressions(), scope=SCOPES)
def test_python_has_the_same_value(expr, scope) -> None:
    assert eval(to_python(expr), dict(scope)) == expr.evaluate(scope)
    assert eval(to_python(substitute(expr, {})), dict(scope)) == expr.evaluate(scope)


@pytest.mark.parametrize(
    ("expr", "python", "cpp"),
    [
        (ceil_div("n", 128), "((n + 128 - 1) // 128)", "((int64_t(n) + (128 - 1)) / 128)"),
        (mul(add("n", 1), 2), "((n + 1) * 2)", "((int64_t(n) + 1) * 2)"),
        (maximum("n", 3), "max(n, 3)", "std::max<int64_t>({int64_t(n), 3})"),
        (minimum("n", "m"), "min(n, m)", "std::min<int64_t>({int64_t(n), int64_t(m)})"),
        (Name("n"), "n", "int64_t(n)"),
    ],
)
def test_reads_plainly(expr, python, cpp) -> None:
    assert to_python(expr) == python
    assert to_cpp(expr) == cpp


def test_c_has_functions_of_two_for_an_extreme_of_many() -> None:
    """C99 has no ``std::max``."""
    expr = maximum(minimum("n", "m"), ceil_div("k", 4), add("n", 1), 7)
    n, m, k = (f"((int64_t)({name}))" for name in "nmk")
    assert to_c(expr) == (f"grid_max(grid_min({n}, {m}), grid_max((({k} + (4 - 1)) / 4), grid_max(({n} + 1), 7)))")
    assert Grid1D("n", None).to_c({"n": "args[0]"}) == ("((int64_t)(args[0]))", "1", "1")
    assert C_HELPERS.count("return a > b ? a : b;") == C_HELPERS.count("return a < b ? a : b;") == 1


def test_spelling_replaces_names() -> None:
    grid = Grid1D("xnumel", "XBLOCK")
    spelling = {"XBLOCK": "result.xblocks[0]"}
    assert (
        grid.to_cpp(spelling)[0]
        == "((int64_t(xnumel) + (int64_t(result.xblocks[0]) - 1)) / int64_t(result.xblocks[0]))"
    )
    assert grid.to_python(spelling)[0] == "((xnumel + (result.xblocks[0]) - 1) // (result.xblocks[0]))"


def test_an_argument_that_hides_a_builtin_needs_another_spelling() -> None:
    grid = FixedGrid(maximum("max", 3))
    with pytest.raises(GridError, match=r"^an argument named max hides the builtin .* calls; spell it otherwise$"):
        grid.to_python()
    assert grid.to_python({"max": "max_"})[0] == "max(max_, 3)"


def families_sample():
    """Some cases of every grid whose outcome is a triple."""
    for name in script.FAMILIES:
        good = (
            case for case in script.FAMILIES[name]() if script.attempt(lambda c=case: c.ours({**c.config, **c.sizes}))
        )
        yield from ((name, case) for case in itertools.islice(good, 3, 300, 23))


def test_python_of_every_grid_has_the_same_triple() -> None:
    count = 0
    for name, case in families_sample():
        grid = case.ours.specialize(case.config)
        axes = tuple(eval(text, dict(case.sizes)) for text in grid.to_python())
        assert axes == case.ours({**case.config, **case.sizes}), name
        count += 1
    assert count >= 150


@pytest.mark.slow
@needs_compiler
def test_cpp_of_every_grid_has_the_same_triple() -> None:
    functions, rows, expected = {}, [], []
    for i, (_, case) in enumerate(families_sample()):
        names = sorted(case.sizes)
        axes = case.ours.specialize(case.config).to_cpp()
        functions[f"grid{i}"] = (", ".join(f"int64_t {name}" for name in names), script.cpp_return(axes))
        rows.append((f"grid{i}", tuple(case.sizes[name] for name in names)))
        expected.append(list(case.ours({**case.config, **case.sizes})))
    assert len(rows) >= 150
    assert script.evaluate_cpp(functions, rows) == expected


@needs_compiler
def test_cpp_takes_blocks_as_variables_and_narrow_sizes() -> None:
    """int32 sizes at their end, where ``xnumel + XBLOCK - 1`` would overflow unless it is widened first."""
    grid = Grid2DWithYZOverflow()
    args = "int32_t xnumel, uint32_t ynumel, int XBLOCK, unsigned YBLOCK"
    order = ("xnumel", "ynumel", "XBLOCK", "YBLOCK")
    table = [(2**31 - 1, 2**32 - 1, 1024, 1), (2**31 - 1, 131071, 2, 1), (0, 0, 1024, 64), (1, 65536, 1, 1)]
    values = script.evaluate_cpp({"grid": (args, script.cpp_return(grid.to_cpp()))}, [("grid", row) for row in table])
    assert values == [list(grid(dict(zip(order, row, strict=True)))) for row in table]
