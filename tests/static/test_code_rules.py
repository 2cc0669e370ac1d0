"""Wide accesses that became narrow, and the same work in more instructions."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.static.code_rules import (
    _WIDE,
    DIRECTIONS,
    Direction,
    Draft,
    Finding,
    RuleMessage,
    _lanes,
    _split,
    accesses,
    change,
    heavier,
    issue_slots,
    moved_bytes,
    narrowed,
    percent,
    unpipelined,
    worst_first,
)
from kerntune.static.metrics import StaticMetrics
from kerntune.static.ptx import ProductLoops
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


@pytest.mark.parametrize(
    ("after", "straight", "same_programs", "severity"),
    [
        ({32: 1}, True, True, "warn"), ({16: 1}, True, True, "warn"), ({32: 2}, True, True, "fail"),
        ({32: 1}, False, True, "fail"), ({32: 1}, True, False, "fail"),
    ],
)  # fmt: skip
def test_no_more_accesses_for_fewer_bytes_only_warn(
    after: dict[int, int], straight: bool, same_programs: bool, severity: str
) -> None:
    sides = [metrics({}, {128: 1}), metrics({}, after)]
    flag = {"straight_line": 1} if straight else {}
    sides = [msgspec.structs.replace(m, instructions={**m.instructions, **flag}) for m in sides]
    assert [d.severity for d in narrowed(*sides, STORES, 0.1, same_programs)] == [severity]


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


# many more instructions for the same work


def elementwise(total: int, loads: int = 2, **counts: int) -> StaticMetrics:
    """A kernel whose thread loads ``loads`` times 16 bytes and stores 16."""
    found = {"total": total, "global_load_128": loads, "global_store_128": 1, **counts}
    return StaticMetrics(32, 0, 0, 0, 0, 4096, 128, found, 1.0, "threads")


def product_of_work(slots: int, copies: int = 8, **counts: int) -> StaticMetrics:
    """A matrix product_of_work whose thread copies ``copies`` times 16 bytes."""
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
        pytest.param(product_of_work(SLOTS * 3), 1, id="three products for one"),
        pytest.param(product_of_work(SLOTS * 3, copies=24), 0, id="unrolled"),
        pytest.param(product_of_work(SLOTS // 2), 0, id="less"),
        pytest.param(product_of_work(SLOTS * 2), 0, id="twice is the limit"),
    ],
)
def test_tensor_cores_that_work_longer_for_the_same_bytes(after: StaticMetrics, count: int) -> None:
    assert len(work(product_of_work(SLOTS), after)) == count


def test_a_product_that_waits_for_memory_may_be_of_wider_operands() -> None:
    assert work(product_of_work(2048), product_of_work(2048 * 4)) == []


def test_tiles_copied_in_bulk_have_unknown_bytes() -> None:
    before, after = (msgspec.structs.replace(product_of_work(SLOTS * n, copies=0, tma=4)) for n in (1, 4))
    assert len(work(before, after)) == 1
    assert work(before, product_of_work(SLOTS * 4, copies=0, tma=8)) == []


@pytest.mark.parametrize(
    ("counts", "slots"),
    [
        ({}, 0),
        ({"total": 5}, 5),
        ({"mufu": 2}, 14),
        ({"total": 9, "convert": 2, "shared_load": 1, "shared_store": 2}, 20),
    ],
)
def test_slots_by_hand(counts: dict[str, int], slots: int) -> None:
    """Of 128 lanes 16 are for special functions, 64 for conversions and 32 for shared memory."""
    assert issue_slots(msgspec.structs.replace(metrics({}), instructions=counts)) == slots


@pytest.mark.parametrize(
    ("counts", "threads", "lanes"),
    [({"tensor_core": 4}, 128, 4), ({"tensor_core": 4, "warpgroup_mma": 4}, 256, 2),
     ({"tensor_core": 4, "warpgroup_mma": 3}, 256, 8), ({}, 128, 1)],
)  # fmt: skip
def test_a_warp_or_a_group_of_four_executes_a_product(counts: dict[str, int], threads: int, lanes: float) -> None:
    found = msgspec.structs.replace(metrics({}), instructions=counts, threads=threads)
    assert _lanes(found) == lanes


@pytest.mark.parametrize(
    ("before", "after", "fails"),
    [(elementwise(96), elementwise(288), False), (elementwise(96), elementwise(289), True),
     (elementwise(0), elementwise(900), False), (elementwise(144), elementwise(289), True)],
)  # fmt: skip
def test_six_slots_a_byte_hide_behind_memory(before: StaticMetrics, after: StaticMetrics, fails: bool) -> None:
    """48 bytes: from 289 slots on a thread has more than six for each."""
    assert bool(work(before, after)) is fails


@pytest.mark.parametrize(("threshold", "count"), [(2.0, 0), (1.99, 1)])
def test_a_threshold_has_to_be_exceeded(threshold: float, count: int) -> None:
    assert len(list(heavier(elementwise(100), elementwise(300), threshold))) == count


def test_more_slots_for_more_bytes_are_other_work() -> None:
    """Three times the slots over twice the bytes are half as many more for each byte."""
    before, after = elementwise(300), elementwise(900, loads=5)
    assert [len(list(heavier(before, after, threshold))) for threshold in (0.49, 0.51)] == [1, 0]


@pytest.mark.parametrize(("slots", "fails"), [(32767, False), (32768, True)])
def test_a_product_waits_for_memory_below_64_slots_a_byte(slots: int, fails: bool) -> None:
    """16 bytes by each of 128 threads, whose four warps execute the products."""
    assert bool(work(product_of_work(slots // 16, copies=1), product_of_work(slots, copies=1))) is fails


def worked(slots: int, loads: int, **counts: int) -> StaticMetrics:
    """A block of 128 threads whose tensor core instructions, of one warp each, take so many slots."""
    own = {"tensor_core": 1, "tensor_core_slots": slots, "global_load_128": loads, **counts}
    return StaticMetrics(32, 0, 0, 0, 0, 4096, 128, {k: v for k, v in own.items() if v}, 1.0, "threads")


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (worked(1_000_000, 4), worked(1_200_001, 4), True),
        (worked(1_000_000, 4), worked(1_200_000, 4), False),  # the threshold itself
        (worked(10_000_000, 40), worked(12_000_001, 48), False),  # as many a byte
        (worked(10_000_000, 40), worked(15_000_000, 49), True),  # by 22 % a byte more
        (worked(10_000_000, 40), worked(15_000_000, 51), False),  # by 18 %
        (worked(2_000, 4), worked(131_072, 4), True),  # 64 slots a byte: 4 warps' instructions, 128 threads' bytes
        (worked(2_000, 4), worked(131_071, 4), False),  # which waits for memory
        (worked(0, 4), worked(1_000_000, 4), False),
        (worked(1_000_000, 4), worked(0, 4), False),
        (worked(1_000_000, 0, tma=2), worked(1_300_000, 0, tma=2), True),
        (worked(1_000_000, 0, tma=2), worked(1_300_000, 0, tma=4), False),  # another number of tiles
    ],
)
def test_when_tensor_cores_work_longer(before: StaticMetrics, after: StaticMetrics, found: bool) -> None:
    assert [f.metric for f in heavier(before, after, 0.2)] == ["tensor_core_slots"] * found


@pytest.mark.parametrize(
    ("before", "after", "severity"), [(0, 8, "warn"), (8, 4, "warn"), (8, 5, "fail"), (8, 8, "fail"), (8, 0, "fail")]
)
def test_loads_for_tensor_cores_that_do_half_as_much_may_be_narrower(before: int, after: int, severity: str) -> None:
    old, new = (
        msgspec.structs.replace(m, instructions={**m.instructions, **({"tensor_core_slots": n} if n else {})})
        for m, n in ((metrics({128: 4}), before), (metrics({32: 16}), after))
    )
    (finding,) = narrowed(old, new, LOADS, 0.1)
    assert finding.severity == severity


def test_where_nothing_was_loaded_nothing_got_narrower() -> None:
    assert _split({}, {32: 4}) == (_WIDE[0], 0.0)


@pytest.mark.parametrize(
    ("old", "new", "told", "share"),
    [
        (1024, 512, "1,024 -> 512", " (-50%)"),
        (999, 1000, "999 -> 1,000", " (+0%)"),
        (0, 4, "0 -> 4", ""),
        (2.0, 12.25, "2 -> 12.2", " (+512%)"),
        (-1, 1, "-1 -> 1", " (-200%)"),
    ],
)
def test_how_a_change_is_told(old: float, new: float, told: str, share: str) -> None:
    assert (change(old, new), percent(old, new)) == (told, share)


def test_the_worst_comes_first_then_the_order_of_the_rules() -> None:
    given = [("info", "limits"), ("warn", "work"), ("fail", "no rule"), ("fail", "spills"), ("warn", "limits")]
    messages = [RuleMessage(severity, rule, "") for severity, rule in given]  # type: ignore[arg-type]
    assert [(m.severity, m.rule) for m in worst_first([*messages, RuleMessage("fail", "limits", "")])] == [
        ("fail", "limits"), ("fail", "spills"), ("fail", "no rule"), ("warn", "limits"), ("warn", "work"),
        ("info", "limits"),
    ]  # fmt: skip
    same = [RuleMessage("fail", "work", text) for text in ("b", "a", "c")]
    assert worst_first(same) == same


def test_accesses_are_counted_by_width_the_widest_first() -> None:
    counts = {"global_load_32": 2, "async_copy_128": 3, "global_load_128": 1, "global_load": 3, "global_store_64": 9,
              "global_load_64": 0, "global_load_128_more": 7}  # fmt: skip
    found = msgspec.structs.replace(metrics({}), instructions=counts)
    assert [*accesses(found, LOADS.classes).items()] == [(128, 4), (32, 2)]
    assert [*accesses(found, STORES.classes).items()] == [(64, 9)]
    assert (moved_bytes(found, LOADS), moved_bytes(found, STORES), moved_bytes(found)) == (72, 72, 144)


def test_what_is_left_of_wide_accesses_is_told() -> None:
    """A narrowed access may be a matter of the config only if some are wide still, or there are no more of them."""
    sides = metrics({128: 4, 32: 1}), metrics({128: 1, 32: 13})
    (draft,) = narrowed(*sides, LOADS, 0.1)
    assert draft == Draft(
        "fail", "global_load_width", 544 / 5, 544 / 14,
        "loads from global memory got narrower: 4 of 128 bits, 1 of 32 bits -> 1 of 128 bits, 13 of 32 bits (on "
        "average 108.8 -> 38.9 bits); look for lost alignment or contiguity", "load_width",
    )  # fmt: skip
    (gone,) = narrowed(metrics({128: 4}), metrics({32: 16}), LOADS, 0.1)
    assert gone.any_config
    (fewer,) = narrowed(metrics({128: 4}), metrics({32: 4}), LOADS, 0.1)
    assert not fewer.any_config
    (wider,) = narrowed(sides[1], sides[0], LOADS, 0.1)
    assert (wider.severity, wider.any_config) == ("info", False)
    assert wider.text.startswith("loads from global memory got wider: 1 of 128 bits, 13 of 32 bits -> 4 of 128 bits")


@pytest.mark.parametrize(("threshold", "count"), [(0.5, 0), (0.49, 1)])
def test_more_than_the_threshold_s_share_of_the_bytes_must_be_narrower(threshold: float, count: int) -> None:
    sides = metrics({128: 4}), metrics({128: 2, 32: 8})
    assert len(list(narrowed(*sides, LOADS, threshold))) == count
    assert len(list(narrowed(sides[1], sides[0], LOADS, threshold))) == count


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({128: 4}, {32: 16}, (128, 1.0)),
        ({128: 4}, {64: 8}, (256, 0.0)),
        ({64: 4}, {16: 16}, (64, 1.0)),
        ({256: 1}, {64: 4}, (256, 1.0)),
        ({128: 2, 64: 4}, {32: 4, 16: 24}, (64, 0.75)),
        ({128: 3, 32: 4}, {128: 1, 32: 12}, (128, 0.5)),
    ],
)
def test_the_share_of_bytes_that_are_moved_by_a_quarter_of_the_width(
    old: dict[int, int], new: dict[int, int], expected: tuple[int, float]
) -> None:
    assert _split(old, new) == expected


def test_fewer_bytes_leave_the_growth_of_all_slots() -> None:
    """Half as many slots more, over a third of the bytes: the smaller growth counts."""
    before, after = elementwise(300, loads=5), elementwise(450, loads=1)
    assert [len(list(heavier(before, after, threshold))) for threshold in (0.49, 0.51)] == [1, 0]


@pytest.mark.parametrize(("total", "count"), [(577, 1), (576, 0)])
def test_six_slots_are_for_a_byte_of_the_later_code(total: int, count: int) -> None:
    """96 bytes now, of 48 before."""
    assert len(list(heavier(elementwise(60), elementwise(total, loads=5), 0.2))) == count


@pytest.mark.parametrize(("before", "after", "count"), [(0, 8, 0), (8, 8, 1), (8, 4, 1)])
def test_only_a_new_slow_path_explains_more_slots(before: int, after: int, count: int) -> None:
    sides = elementwise(100, slow_path=before), elementwise(900, slow_path=after)
    assert len(list(heavier(*sides, 1.0))) == count


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (worked(1_300_000, 0, tma=2), worked(1_000_000, 0, tma=2), False),
        (worked(1_000_000, 0, tma=2), worked(1_500_000, 0, tma=2), False),  # the threshold itself
        (worked(1_000_000, 0, tma=2), worked(1_500_001, 0, tma=2), True),
        (worked(1_000_000, 4), worked(3_000_000, 8), False),  # the threshold itself, a byte
        (worked(1_000_000, 4), worked(3_000_001, 8), True),
        (worked(50_000, 1), worked(100_000, 4), False),  # 48 slots a byte now
        (worked(2_000, 4), worked(262_144, 8), True),  # 64 slots a byte now
        (worked(2_000, 4), worked(262_143, 8), False),
        (worked(1_000_000, 4), worked(2_000_000, 0), True),
        (worked(1_000_000, 0), worked(2_000_000, 4), True),
        (worked(1_000_000, 4), worked(2_000_000, 0, tma=1), False),
    ],
)
def test_when_tensor_cores_work_longer_by_more_than_half(
    before: StaticMetrics, after: StaticMetrics, found: bool
) -> None:
    drafts = list(heavier(before, after, 0.5))
    assert [f.metric for f in drafts] == ["tensor_core_slots"] * found
    assert all("the same work takes tensor cores longer: " in f.text for f in drafts)


# atomic operations


def atomics(repeated: int | None, loads: int = 2, **counts: int) -> StaticMetrics:
    own = counts if repeated is None else {**counts, "repeated_atomics": repeated}
    made = metrics({128: loads})
    return msgspec.structs.replace(made, instructions={**made.instructions, **own})


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        pytest.param(atomics(None), atomics(4), 1, id="in the place of stores"),
        pytest.param(atomics(0), atomics(4), 1, id="moved into a loop"),
        pytest.param(atomics(2), atomics(5), 1, id="more than twice as many"),
        pytest.param(atomics(2), atomics(4), 0, id="twice as many"),
        pytest.param(atomics(None), atomics(1), 0, id="one of a block, after its sum"),
        pytest.param(atomics(None), atomics(0), 0, id="beside loops"),
        pytest.param(atomics(None), atomics(None), 0, id="none"),
        pytest.param(atomics(None, atomic=2), atomics(8), 0, id="a baseline that doesn't say where they are"),
        pytest.param(atomics(None, tensor_core=8), atomics(4, tensor_core=8), 0, id="beside products"),
        pytest.param(atomics(4), atomics(0), 0, id="fewer"),
    ],
)
def test_repeated_atomic_operations(before: StaticMetrics, after: StaticMetrics, found: int) -> None:
    drafts = [d for d in heavier(before, after, 1.0) if d.metric == "repeated_atomics"]
    assert [(d.severity, d.rule, d.any_config) for d in drafts] == [("fail", "work", False)] * found
    assert all("many more atomic operations on global memory: " in d.text for d in drafts)


# what a loop has in flight


LOOP = ProductLoops(loading=1, ahead=1, rounds=2.0, grouped=1, overlapped=1, types=("f32.f16.f16",))
ALONE = ProductLoops(loading=1, grouped=1, overlapped=1, types=LOOP.types)


def looped(loops: ProductLoops | None, copies: int = 24, **counts: int) -> StaticMetrics:
    own = {"tensor_core": 8, "async_copy": copies, **counts}
    made = StaticMetrics(32, 0, 0, 0, 0, 4096, 128, {k: n for k, n in own.items() if n}, 1.0, "threads")
    return made if loops is None else msgspec.structs.replace(made, product_loops=loops)


def drafts(before: StaticMetrics, after: StaticMetrics, resident: float | None = None) -> list[Draft]:
    return list(unpipelined(before, after, resident))


def streamed(ahead: int | None, copies: int = 2) -> StaticMetrics:
    loops = {} if ahead is None else {"copying_loops": 1, "copying_ahead": ahead}
    made = looped(None, copies)
    counts = {name: n for name, n in {**made.instructions, **loops}.items() if n and name != "tensor_core"}
    return msgspec.structs.replace(made, instructions=counts)


@pytest.mark.parametrize(
    ("before", "after", "texts"),
    [
        (streamed(1), streamed(0), ["asynchronous copies are waited for in the round that asks for them"]),
        (streamed(1), streamed(None, copies=0), ["loads are no longer asynchronous"]),
        (streamed(1), streamed(1), []), (streamed(0), streamed(1), []),
        (streamed(None), streamed(0), []),  # of an earlier version
        (streamed(1), streamed(None), []),  # no loop any more
    ],
)  # fmt: skip
def test_copies_of_a_loop_without_products(before: StaticMetrics, after: StaticMetrics, texts: list[str]) -> None:
    found = drafts(before, after)
    assert [(d.rule, d.text.partition(":")[0]) for d in found] == [("async_copies", text) for text in texts]


@pytest.mark.parametrize(("rounds", "told"), [(3.0, ["fail"]), (0.0, [])])
def test_copies_for_first_rounds_make_no_share_of_narrow_loads_smaller(rounds: float, told: list[str]) -> None:
    """One of two operands is loaded by element, and no longer copied three rounds ahead."""
    loops = msgspec.structs.replace(LOOP, rounds=rounds)
    before = looped(loops, 32, async_copy_128=32, global_load_64=16)
    after = looped(loops, 16, async_copy_128=16, global_load_64=16, global_load_16=32)
    assert [d.severity for d in narrowed(before, after, LOADS, 0.1)] == told
    assert [d.severity for d in narrowed(after, before, LOADS, 0.1)] == ["info"] * len(told)


@pytest.mark.parametrize(
    ("rounds", "far"), [(0.0, ""), (0.5, ", 0.5 rounds ahead before"), (1.0, ", 1 round ahead before"),
                        (2.0, ", 2 rounds ahead before")]
)  # fmt: skip
def test_a_loop_that_waits_tells_how_far_it_was_ahead(rounds: float, far: str) -> None:
    before, after = looped(msgspec.structs.replace(LOOP, rounds=rounds), tma_load=3), looped(ALONE, copies=0)
    (draft,) = drafts(before, after)
    assert (draft.severity, draft.before, draft.after, draft.any_config) == ("fail", 1, 0, True)
    assert draft.text == (
        "pipelined loops 1 -> 0 (each round of a loop of tensor cores waits for its own loads; asynchronous copies "
        f"27 -> 0 instructions{far}); look at num_stages, and for a barrier or a while loop, which keep a loop from "
        "being pipelined"
    )


def test_a_loop_that_loads_ahead_now_is_better() -> None:
    (draft,) = drafts(looped(ALONE, copies=0), looped(LOOP, tma_load=2))
    assert (draft.severity, draft.metric, draft.rule) == ("info", "pipelined_loops", "pipelining")
    assert draft.text.endswith("load ahead now: 0 -> 1 pipelined loops, asynchronous copies 0 -> 26 instructions")


@pytest.mark.parametrize(
    ("old", "new", "copies", "found"),
    [
        pytest.param({}, {"plain_bytes": 16}, 12, "plain_bytes", id="an operand"),
        pytest.param({}, {"plain_bytes": 15}, 12, None, id="less than an operand"),
        pytest.param({"plain_bytes": 16}, {"plain_bytes": 32}, 12, "plain_bytes", id="a further operand"),
        pytest.param({"plain_bytes": 16}, {"plain_bytes": 31}, 12, None, id="less than a further operand"),
        pytest.param({}, {"plain_bytes": 64}, 24, None, id="as many copies"),
        pytest.param({"ahead": 0}, {"ahead": 0, "plain_bytes": 64}, 12, None, id="that waited before"),
        pytest.param({}, {"rounds": 1.0}, 24, "rounds", id="less far ahead"),
        pytest.param({}, {"rounds": 3.0}, 24, None, id="farther ahead"),
    ],
)
def test_loops_that_are_pipelined_still(
    old: dict[str, int], new: dict[str, int], copies: int, found: str | None
) -> None:
    sides = looped(msgspec.structs.replace(LOOP, **old)), looped(msgspec.structs.replace(LOOP, **new), copies)
    told = {
        "plain_bytes": ("fail", True, "each round of a loop of tensor cores waits for its own loads, some of which are "
                        f"no longer asynchronous: {old.get('plain_bytes', 0)} -> {new.get('plain_bytes', 0)} bytes a "
                        "thread by ordinary loads, asynchronous copies 24 -> 12 instructions"),
        "rounds": ("info", False, "a pipelined loop loads fewer rounds ahead: 2 -> 1"),
    }  # fmt: skip
    expected = [(found, *told[found])] if found else []
    assert [(d.metric, d.severity, d.any_config, d.text) for d in drafts(*sides)] == expected


def test_earlier_figures_say_nothing_of_ordinary_loads() -> None:
    assert drafts(looped(None), looped(msgspec.structs.replace(LOOP, plain_bytes=64), copies=12)) == []
    assert [d.metric for d in drafts(looped(None), looped(ALONE, copies=0))] == ["pipelined_loops"]
    assert drafts(looped(None, copies=0), looped(ALONE, copies=0)) == []


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ({}, {"overlapped": 0}, True),
        ({"overlapped": 2}, {"overlapped": 1}, False),
        ({"overlapped": 0}, {"overlapped": 0}, False),
        ({}, {"overlapped": 0, "grouped": 0}, False),
        ({}, {"overlapped": 0, "types": ("f16.f16.f16",)}, False),
    ],
)
def test_products_that_all_end_before_the_next_round(old: dict[str, int], new: dict[str, int], found: bool) -> None:
    before, after = (looped(msgspec.structs.replace(LOOP, **fields)) for fields in (old, new))
    told = drafts(before, after)
    assert [(d.metric, d.before, d.after, d.any_config) for d in told] == [("overlapped_loops", 1, 0, True)] * found
    assert all("in 1 -> 0 loops they are in flight when the next round begins" in d.text for d in told)


@pytest.mark.parametrize(
    ("before", "after", "resident", "found"),
    [
        ({"async_copy": 9}, {}, None, ("async_copies", False)),
        ({"async_copy": 9}, {}, 0.5, ("async_copies", False)),
        ({"async_copy": 9}, {}, 0.49, ("pipelining", True)),
        ({"async_copy": 9}, {"async_copy": 1}, 0.1, None),
        ({"async_copy": 9}, {"tma_load": 1}, 0.1, None),
        ({"tma_load": 9}, {}, 0.1, None),
        ({}, {}, 0.1, None),
        ({"async_copy": 9, "tensor_core": 1}, {}, 0.1, None),
        ({"async_copy": 9}, {"tensor_core": 1}, 0.1, None),
    ],
)
def test_a_stream_that_lost_its_copies(
    before: dict[str, int], after: dict[str, int], resident: float | None, found: tuple[str, bool] | None
) -> None:
    one, other = (msgspec.structs.replace(metrics({}), instructions=counts) for counts in (before, after))
    told = drafts(one, other, resident)
    assert [(d.rule, d.any_config) for d in told] == ([found] if found else [])
    few = ", and the launch has only 49% of the device's threads to hide their latency" if resident == 0.49 else ""
    text = f"loads are no longer asynchronous{few}: asynchronous copies 9 -> 0 instructions"
    assert all(d.text == text for d in told)
