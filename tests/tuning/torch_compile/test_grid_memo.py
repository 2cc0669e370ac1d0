"""Grids that are remembered by the integers of a call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
from compiled_runs import configs, scaled

import kerntune
from kerntune.grids import FixedGrid, Name, ceil_div
from kerntune.kernels.compat import tuners
from kerntune.tuning.torch_compile.graph_launch import GridMemo, NotingMapping, reads_of

N = 100
GLOBAL = 3


def remembered(memo: GridMemo, n: int) -> Any:
    """The grid that is remembered; None if none is that still holds."""
    return memo.finder(lambda ints: None)(n)


def helper(n: int) -> int:
    return n


def closing(value: Any) -> Callable[[Any], Any]:
    return lambda meta: (value if isinstance(value, int) else value(meta["n"]),)


LISTED = [3]


def doubled(n: int) -> int:
    return helper(n) * GLOBAL


def with_default(n: int, by: int = 2) -> int:
    return n * by


def counting() -> Callable[[Any], int]:
    count = 0

    def counted(n: int) -> int:
        nonlocal count
        count += 1
        return n + count

    return counted


counted = counting()

KNOWN = {
    "cdiv": (lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),), []),
    "object": (FixedGrid(ceil_div(Name("n"), Name("BLOCK"))), []),
    "math": (lambda meta: (math.ceil(meta["n"] / meta["BLOCK"]), 1), []),
    "a global number": (lambda meta: (GLOBAL,), ["GLOBAL"]),
    "functions of the user's": (lambda meta: (doubled(meta["n"]),), ["doubled", "helper", "GLOBAL"]),
    "a closed-over function": (closing(doubled), ["helper", "GLOBAL"]),
    "a nested function": (lambda meta: tuple((lambda k: k + GLOBAL)(meta["n"]) for _ in range(1)), ["GLOBAL"]),
}
OTHERS = {
    "a list": lambda meta: (LISTED[0],),
    "a function that keeps something": lambda meta: (counted(meta["n"]),),
    "a function with a default": lambda meta: (with_default(meta["n"]),),
    "a closed-over list": closing(LISTED),
    "a module's number": lambda meta: (pytest.version_tuple[0],),
    "an object": print,
}


@pytest.mark.parametrize("name", KNOWN)
def test_what_grids_are_made_of(name: str) -> None:
    grid, names = KNOWN[name]
    reads = reads_of(grid)
    assert reads is not None
    assert sorted(read.name for read in reads) == sorted(names)
    assert all(read.value is read.scope[read.name] for read in reads)


@pytest.mark.parametrize("name", OTHERS)
def test_what_may_change_unseen_is_asked_each_time(name: str, memo: GridMemo) -> None:
    grid = OTHERS[name]
    assert reads_of(grid) is None
    assert memo.noting(grid, (N,)) is grid


def test_another_global_is_another_grid(memo: GridMemo, monkeypatch: pytest.MonkeyPatch) -> None:
    noted, meta = memo.noting(KNOWN["functions of the user's"][0], (N,)), won(memo, 0)
    assert noted(meta) == (N * 3,)
    assert remembered(memo, N) == (N * 3,)
    monkeypatch.setitem(globals(), "GLOBAL", 5)
    assert remembered(memo, N) is None
    assert noted(meta) == (N * 5,)
    assert remembered(memo, N) == (N * 5,)
    monkeypatch.setitem(globals(), "helper", lambda n: 1)
    assert remembered(memo, N) is None


def test_heuristics_are_remembered_where_strides_are_fixed() -> None:
    """Their winner depends on the order of strides, which a graph with symbolic ones doesn't fix."""
    tuner = kerntune.pointwise(sizes={"x": "n"}, blocks={"x": "BLOCK"})(scaled)
    x = torch.empty(N)
    meta = {"x_ptr": x, "y_ptr": x, "n": N, "factor": 2.0}
    config = tuner.cache[tuners.autotuner_key(tuner, meta, {})] = triton.Config({"BLOCK": 64})
    for layouts, grid_found in ((False, None), (True, (2,))):
        memo = GridMemo(tuner, frozenset({"n", "factor"}), layouts)
        assert memo.noting(grid, (N,))({**meta, **config.all_kwargs()}) == (2,)
        assert remembered(memo, N) == grid_found


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
    assert remembered(memo, N) is None
    assert memo.noting(grid, (N,))(won(memo, 0)) == (2,)
    assert remembered(memo, N) == (2,)
    assert remembered(memo, N + 1) is None
    won(memo, 1)
    assert remembered(memo, N) is None, "another config has won since"
    memo.tuner.cache.clear()
    assert remembered(memo, N) is None


def test_trials_are_not_remembered(memo: GridMemo) -> None:
    noted = memo.noting(grid, (N,))
    noted({"n": N, "BLOCK": 64})
    won(memo, 0)
    noted({"n": N, "factor": 2.0, "BLOCK": 128})
    assert remembered(memo, N) is None


def test_what_depends_on_more_is_not_remembered(memo: GridMemo) -> None:
    meta = {**won(memo, 0), "x_ptr": [1, 2]}
    memo.tuner.cache[N,] = memo.tuner.configs[0]
    assert memo.noting(lambda meta: (meta["x_ptr"][1],), (N,))(meta) == (2,)
    assert remembered(memo, N) is None
    assert memo.noting(lambda meta: (meta.copy()["n"],), (N,))(meta) == (N,), "a grid that needs a dictionary"
    assert remembered(memo, N) is None


def test_everything_counts_as_read_where_all_is_gone_through() -> None:
    seen = NotingMapping({"a": 1, "b": 2})
    assert seen.get("a") == 1
    assert seen.read == {"a"}
    assert (list(seen), len(seen)) == (["a", "b"], 2)
    assert seen.read == {"a", "b"}
