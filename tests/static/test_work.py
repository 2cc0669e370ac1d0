"""Many more instructions for the same work."""

from __future__ import annotations

import msgspec
import pytest

from kerntune.static.code_rules import Finding
from kerntune.static.metrics import StaticMetrics
from kerntune.static.rules import compare_static


def elementwise(total: int, loads: int = 2, **counts: int) -> StaticMetrics:
    """A kernel whose thread loads ``loads`` times 16 bytes and stores 16."""
    found = {"total": total, "global_load_128": loads, "global_store_128": 1, **counts}
    return StaticMetrics(32, 0, 0, 0, 0, 4096, 128, found, 1.0, "threads")


def product(slots: int, copies: int = 8, **counts: int) -> StaticMetrics:
    """A matrix product whose thread copies ``copies`` times 16 bytes."""
    found = {"total": 900, "tensor_core": 64, "tensor_core_slots": slots, "async_copy_128": copies, **counts}
    return StaticMetrics(128, 0, 0, 0, 65536, 9000, 128, found, 0.25, "registers")


def work(before: StaticMetrics, after: StaticMetrics) -> list[Finding]:
    return [f for f in compare_static(before, after) if f.rule == "work"]


def test_three_times_the_instructions_that_memory_cannot_hide() -> None:
    (finding,) = work(elementwise(150), elementwise(600))
    assert finding.severity == "fail"
    assert "many more issue slots: 3.1 -> 12.5 per byte that a thread moves" in finding.text
    assert finding.text.endswith("(150 -> 600 slots (+300%) for 150 -> 600 instructions in the code)")
    (finding,) = work(elementwise(150), elementwise(1200, loads=5))
    assert "many more issue slots: 3.1 -> 12.5 per byte that a thread moves" in finding.text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(elementwise(60), elementwise(180), id="a fused activation hides behind memory"),
        pytest.param(elementwise(300), elementwise(550), id="not twice as many"),
        pytest.param(elementwise(200), elementwise(800, loads=11), id="unrolled, or a larger tile"),
        pytest.param(elementwise(800, loads=11), elementwise(400, loads=2), id="an input dropped"),
        pytest.param(elementwise(100, tma=1), elementwise(900, tma=1), id="bytes that TMA moves aren't known"),
        pytest.param(elementwise(100), elementwise(900, slow_path=8), id="sines of large angles"),
        pytest.param(elementwise(100, tensor_core=8), elementwise(900, tensor_core=8), id="behind tensor cores"),
    ],
)
def test_what_is_no_loss(before: StaticMetrics, after: StaticMetrics) -> None:
    assert work(before, after) == []


def test_special_functions_take_longer() -> None:
    (finding,) = work(elementwise(200, mufu=8), elementwise(260, mufu=64))
    assert finding.severity == "fail"


def test_slots_are_not_taken_for_the_number_of_instructions() -> None:
    """Another finding of the same case has that number."""
    before, after = elementwise(200, mufu=8), elementwise(260, mufu=64)
    (finding,) = work(before, after)
    (counted,) = (f for f in compare_static(before, after) if f.rule == "instructions")
    assert "256 -> 708 slots" in finding.text
    assert "200 -> 260 instructions" in finding.text
    assert "200 -> 260" in counted.text


SLOTS = 64 * 2048 * 2


@pytest.mark.parametrize(
    ("after", "count"),
    [
        pytest.param(product(SLOTS * 3), 1, id="three products for one"),
        pytest.param(product(SLOTS * 3, copies=24), 0, id="unrolled"),
        pytest.param(product(SLOTS // 2), 0, id="less"),
        pytest.param(product(SLOTS * 2), 0, id="twice is the limit"),
    ],
)
def test_tensor_cores_that_work_longer_for_the_same_bytes(after: StaticMetrics, count: int) -> None:
    assert len(work(product(SLOTS), after)) == count


def test_a_product_that_waits_for_memory_may_be_of_wider_operands() -> None:
    assert work(product(2048), product(2048 * 4)) == []


def test_tiles_copied_in_bulk_have_unknown_bytes() -> None:
    before, after = (msgspec.structs.replace(product(SLOTS * n, copies=0, tma=4)) for n in (1, 4))
    assert len(work(before, after)) == 1
    assert work(before, product(SLOTS * 4, copies=0, tma=8)) == []
