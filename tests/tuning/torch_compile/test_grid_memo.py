"""Grids that are remembered by the integers of a call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import triton
from compiled_runs import configs, scaled

import kerntune
from kerntune.grids import FixedGrid, Name, ceil_div
from kerntune.tuning.torch_compile.grid_memo import GridMemo, NotingMapping, is_pure

N = 100
GLOBAL = 3


def helper(n: int) -> int:
    return n


def closing(value: Any) -> Callable[[Any], Any]:
    return lambda meta: (value if isinstance(value, int) else value(meta["n"]),)


PURE = {
    "cdiv": lambda meta: (triton.cdiv(N, meta["BLOCK"]),) if False else (triton.cdiv(meta["n"], meta["BLOCK"]),),
    "object": FixedGrid(ceil_div(Name("n"), Name("BLOCK"))),
    "math": lambda meta: (math.ceil(meta["n"] / meta["BLOCK"]), 1),
}
OTHERS = {
    "a global number": lambda meta: (GLOBAL,),
    "a function of the user's": lambda meta: (helper(meta["n"]),),
    "a closed-over function": closing(helper),
    "a nested function": lambda meta: tuple((lambda k: k)(meta["n"]) for _ in range(1)),
    "an object": print,
}


def test_which_grids_are_functions_of_their_argument() -> None:
    assert {name: is_pure(grid) for name, grid in OTHERS.items()} == dict.fromkeys(OTHERS, False)
    assert is_pure(PURE["object"])
    assert is_pure(PURE["math"])
    assert not is_pure(PURE["cdiv"]), "N is a global number"
    assert is_pure(lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),))


@pytest.fixture
def memo() -> GridMemo:
    tuner = kerntune.autotune(configs(64, 128), key=["n"])(scaled)
    return GridMemo(tuner, frozenset({"n", "factor"}))


def won(memo: GridMemo, index: int) -> dict[str, Any]:
    """A launch of the config that has won, as a grid sees it."""
    memo.tuner.cache[N,] = config = memo.tuner.configs[index]
    return {"n": N, "factor": 2.0, **config.all_kwargs()}


def grid(meta: Any) -> tuple[int]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def test_the_winners_grid_is_remembered_until_there_is_another(memo: GridMemo) -> None:
    assert memo.find((N,)) is None
    assert memo.noting(grid, (N,))(won(memo, 0)) == (2,)
    assert memo.find((N,)) == (2,)
    assert memo.find((N + 1,)) is None
    won(memo, 1)
    assert memo.find((N,)) is None, "another config has won since"
    memo.tuner.cache.clear()
    assert memo.find((N,)) is None


def test_trials_are_not_remembered(memo: GridMemo) -> None:
    noted = memo.noting(grid, (N,))
    noted({"n": N, "BLOCK": 64})
    won(memo, 0)
    noted({"n": N, "factor": 2.0, "BLOCK": 128})
    assert memo.find((N,)) is None


def test_what_depends_on_more_is_not_remembered(memo: GridMemo) -> None:
    meta = {**won(memo, 0), "x_ptr": [1, 2]}
    memo.tuner.cache[N,] = memo.tuner.configs[0]
    assert memo.noting(lambda meta: (meta["x_ptr"][1],), (N,))(meta) == (2,)
    assert memo.find((N,)) is None
    assert memo.noting(lambda meta: (meta.copy()["n"],), (N,))(meta) == (N,), "a grid that needs a dictionary"
    assert memo.find((N,)) is None


def test_everything_counts_as_read_where_all_is_gone_through() -> None:
    seen = NotingMapping({"a": 1, "b": 2})
    assert seen.get("a") == 1
    assert seen.read == {"a"}
    assert dict(**seen) == {"a": 1, "b": 2}
    assert seen.read == {"a", "b"}
