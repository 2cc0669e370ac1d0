"""Hypothesis strategies for sizes, blocks, expressions and grids."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from kerntune import grids
from kerntune.grids.expr import Add, CeilDiv, Const, Expr, Max, Min, Mul, Name

SIZE_NAMES = ("n", "m", "k")
BLOCK_NAMES = ("BLOCK_N", "BLOCK_M")

EDGES = sorted({e * b + d for e in (1, 65535, 2 * 65535, 2**31) for b in (1, 64, 1024) for d in (-1, 0, 1)})
SIZES = st.sampled_from([0, *EDGES]) | st.integers(0, 2**45)
BLOCKS = st.sampled_from([1, 2, 3, 16, 64, 128, 1000, 1024, 4096])

SCOPES = st.fixed_dictionaries({**dict.fromkeys(SIZE_NAMES, SIZES), **dict.fromkeys(BLOCK_NAMES, BLOCKS)})


def expressions() -> st.SearchStrategy[Expr]:
    """Expressions of the names above, not folded, whose blocks are at least 1."""
    leaves: st.SearchStrategy[Any] = st.sampled_from(SIZE_NAMES).map(Name) | st.integers(0, 5000).map(Const)
    blocks = st.sampled_from(BLOCK_NAMES).map(Name) | st.integers(1, 5000).map(Const)

    def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        items = st.lists(inner, min_size=1, max_size=3).map(tuple)
        return st.one_of(st.builds(CeilDiv, inner, blocks), *(st.builds(node, items) for node in (Add, Mul, Max, Min)))

    return st.recursive(leaves, grow, max_leaves=8)


@st.composite
def combos(draw: st.DrawFn) -> tuple[tuple[grids.SubKernel, ...], dict[str, int]]:
    """Sub-kernels with static and dynamic sizes, and the values of the dynamic ones."""
    values: dict[str, int] = {}

    def size(name: str) -> int | str:
        value = draw(SIZES)
        if draw(st.booleans()):
            return value
        values[name] = value
        return name

    kernels = []
    for i in range(draw(st.integers(1, 4))):
        ynumel = size(f"ynumel_{i}") if draw(st.booleans()) else None
        kernels.append(grids.SubKernel(size(f"xnumel_{i}"), ynumel, draw(st.booleans())))
    return tuple(kernels), values
