"""Wide accesses replaced by narrow ones, and what only looks like it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.static.code_rules import DIRECTIONS, Direction, Finding
from kerntune.static.metrics import StaticMetrics
from kerntune.static.rules import compare_static

LOADS, STORES = DIRECTIONS


def metrics(loads: Mapping[int, int], stores: Mapping[int, int] | None = None) -> StaticMetrics:
    counts = {f"global_load_{bits}": n for bits, n in loads.items()}
    counts |= {f"global_store_{bits}": n for bits, n in (stores or {}).items()}
    return StaticMetrics(32, 0, 0, 0, 0, 4096, 128, counts, 1.0, "threads")


def found(before: StaticMetrics, after: StaticMetrics, *, other_config: bool = False) -> list[Finding]:
    return [f for f in compare_static(before, after, other_config=other_config) if f.rule.endswith("_width")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({128: 4}, {128: 4, 32: 1}, id="a scalar is loaded too"),
        pytest.param({128: 4, 32: 1}, {128: 2, 32: 1}, id="an input is dropped"),
        pytest.param({128: 4}, {128: 4, 16: 32}, id="a table is looked up as well"),
        pytest.param({128: 4}, {64: 4}, id="another tile, or elements of half the size"),
        pytest.param({128: 4}, {64: 8}, id="loaded in two halves"),
        pytest.param({128: 8}, {128: 2}, id="a smaller tile, a loop no longer unrolled"),
        pytest.param({128: 2}, {128: 16}, id="unrolled"),
        pytest.param({256: 2}, {128: 4}, id="another architecture's widest"),
        pytest.param({}, {32: 4}, id="nothing was loaded"),
        pytest.param({128: 4}, {}, id="bulk copies instead"),
    ],
)
def test_what_splits_no_wide_access(before: dict[int, int], after: dict[int, int]) -> None:
    assert found(metrics(before), metrics(after)) == []
    assert found(metrics({}, before), metrics({}, after)) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({128: 4}, {32: 16}, id="alignment lost"),
        pytest.param({128: 4}, {128: 2, 32: 8}, id="of one of two"),
        pytest.param({128: 4, 32: 9}, {128: 3, 32: 13}, id="of one of four, beside scalars"),
        pytest.param({128: 1}, {16: 8}, id="of 16-bit elements"),
        pytest.param({64: 2}, {16: 8}, id="in a small tile"),
        pytest.param({128: 2}, {32: 64}, id="and unrolled"),
    ],
)
@pytest.mark.parametrize("direction", DIRECTIONS, ids=lambda d: d.rule)
def test_wide_accesses_that_were_split(before: dict[int, int], after: dict[int, int], direction: Direction) -> None:
    sides = [metrics(w) if direction is LOADS else metrics({}, w) for w in (before, after)]
    (finding,) = found(*sides)
    assert (finding.rule, finding.metric, finding.severity) == (direction.rule, direction.metric, "fail")
    assert f"{direction.noun} global memory got narrower" in finding.text
    (back,) = found(*reversed(sides))
    assert (back.rule, back.severity) == (direction.rule, "info")


def test_loads_and_stores_are_told_apart() -> None:
    before, after = metrics({128: 4}, {128: 2}), metrics({128: 4}, {32: 8})
    (finding,) = found(before, after)
    assert finding.rule == "store_width"
    assert "2 of 128 bits -> 8 of 32 bits (on average 128 -> 32 bits)" in finding.text


@pytest.mark.parametrize(
    ("before", "after", "severity"),
    [
        pytest.param({128: 2}, {32: 32}, "fail", id="larger tile, and none is wide any more"),
        pytest.param({128: 2}, {32: 2}, "warn", id="too small a tile for wide ones"),
        pytest.param({128: 4}, {128: 2, 16: 16}, "warn", id="some are wide still"),
    ],
)
def test_between_two_configs_only_the_end_of_wide_accesses_fails(
    before: dict[int, int], after: dict[int, int], severity: str
) -> None:
    assert [f.severity for f in found(metrics(before), metrics(after), other_config=True)] == [severity]


def product(slots: int, loads: Mapping[int, int], stores: Mapping[int, int]) -> StaticMetrics:
    """A kernel with tensor cores."""
    made = metrics(loads, stores)
    counts = {"tensor_core": 8, "tensor_core_slots": slots} if slots else {}
    return msgspec.structs.replace(made, instructions={**made.instructions, **counts})


def test_the_stores_of_a_product_hide_behind_it() -> None:
    before, after = product(8192, {128: 8}, {128: 16}), product(8192, {128: 8}, {16: 128})
    assert [(f.rule, f.severity) for f in found(before, after)] == [("store_width", "warn")]


@pytest.mark.parametrize(
    ("before", "after", "severity"),
    [
        pytest.param(8192, 8192, "fail", id="the same products"),
        pytest.param(8192, 16384, "fail", id="slower ones"),
        pytest.param(0, 8192, "warn", id="products that are on tensor cores only now"),
        pytest.param(24576, 8192, "warn", id="a third of the products"),
    ],
)
def test_loads_for_products_that_became_cheaper(before: int, after: int, severity: str) -> None:
    """Operands of tf32 are loaded by element where they are transposed on the way."""
    sides = product(before, {128: 24}, {128: 8}), product(after, {128: 12, 32: 48}, {128: 8})
    assert [f.severity for f in found(*sides)] == [severity]


_WIDTHS = st.dictionaries(st.sampled_from([16, 32, 64, 128, 256]), st.integers(1, 64), min_size=1)


@given(_WIDTHS, _WIDTHS)
def test_more_or_fewer_accesses_of_the_same_kernel_split_nothing(before: dict[int, int], more: dict[int, int]) -> None:
    """Adding loads takes none away, dropping loads adds none."""
    after = {bits: before.get(bits, 0) + more.get(bits, 0) for bits in {*before, *more}}
    assert found(metrics(before), metrics(after)) == []
    assert found(metrics(after), metrics(before)) == []
