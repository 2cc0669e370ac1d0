"""Hints from a call's arguments."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.device import TYPICAL_DEVICES
from kerntune.errors import HintError
from kerntune.heuristics import round_sizes, sizes_from_arguments, tile_hint
from kerntune.heuristics.call_hints import (
    Read,
    TtirCounts,
    count_ttir,
    inferred_read,
    inner_split,
    outer_split,
    read_of,
    reduction_split,
    second_stage_hint,
)
from kerntune.heuristics.hints import KernelHints, ReductionHint, TileHint


@given(st.dictionaries(st.sampled_from(["x", "y", "z", "r0", "r1"]), st.integers(1, 1 << 40), min_size=1))
def test_rounded_sizes_are_hints(numels: dict[str, int]) -> None:
    sizes = round_sizes(numels)
    assert KernelHints(sizes=sizes).sizes == sizes
    assert all(numels[a] <= sizes[a] < 2 * numels[a] for a in numels)


@given(st.integers(1, 1 << 40))
def test_a_bucket_is_all_sizes_with_one_hint(numel: int) -> None:
    last = round_sizes({"x": numel})["x"]
    first = last // 2 + 1
    assert first <= numel <= last
    assert round_sizes({"x": first}) == round_sizes({"x": last})
    assert round_sizes({"x": last + 1}) != round_sizes({"x": last})


def test_sizes_come_from_named_arguments() -> None:
    arguments = {"x_ptr": object(), "rows": 1000, "cols": 77, "batch": 3}
    assert sizes_from_arguments({"x": ("batch", "rows"), "r0": "cols"}, arguments) == {"x": 4096, "r0": 128}


@pytest.mark.parametrize(
    ("dimensions", "arguments", "message"),
    [
        ({"w": "n"}, {"n": 4}, "unknown axis 'w'"),
        ({"x": "m"}, {"n": 4}, "axis x is to be argument 'm', but the call has n"),
        ({"x": "n"}, {"n": 0}, "axis x is argument n=0, which is no positive integer"),
        ({"x": "n"}, {"n": -3}, "n=-3"),
        ({"x": "n"}, {"n": 2.5}, "n=2.5"),
        ({"x": "n"}, {"n": True}, "n=True"),
        ({"x": ("n", "m")}, {"n": 4, "m": 0}, "m=0"),
        ({}, {"n": 4}, "no dimensions"),
    ],
)
def test_what_gives_no_size_is_named(dimensions: dict[str, Any], arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(HintError, match="kernel add: ") as caught:
        sizes_from_arguments(dimensions, arguments, kernel="add")
    assert message in str(caught.value)


@pytest.mark.parametrize(("numels", "message"), [({"x": 0}, "axis x has 0 elements"), ({"q": 4}, "unknown axis 'q'")])
def test_bad_numels_are_named(numels: dict[str, int], message: str) -> None:
    with pytest.raises(HintError) as caught:
        round_sizes(numels)
    assert message in str(caught.value)


def test_square_needs_two_axes_and_four_arguments() -> None:
    assert tile_hint({"x": 1, "y": 1}, 4) is TileHint.SQUARE
    assert tile_hint({"x": 1, "y": 1}, 5) is TileHint.DEFAULT
    assert tile_hint({"x": 1}, 4) is TileHint.DEFAULT


@pytest.mark.parametrize(("r", "parts"), [(1 << 20, 128), (1048573, 128), (1 << 24, 512), (1 << 28, 2048)])
def test_parts_of_one_long_row(r: int, parts: int) -> None:
    """A warp's width for each thread while that fits the device, then as many as fill it, 512 at most."""
    assert inner_split(r, 1, TYPICAL_DEVICES["cuda:90"]) == parts


@pytest.mark.parametrize(("outputs", "parts"), [(263, 8), (264, 1)])
def test_two_outputs_for_each_sm_need_no_split(outputs: int, parts: int) -> None:
    assert inner_split(1 << 20, outputs, TYPICAL_DEVICES["cuda:90"]) == parts


@pytest.mark.parametrize(
    ("r", "share"), [(21_492_513, 189), (21_492_230, 160), (21_493_301, 131), (140_009_998, 512)]
)  # 189 * 113,717, 190 * 113,117, 131 * 164,071 with a prime each, and 2 * 70,004,999
def test_all_programs_get_the_same_share_where_a_divisor_is_near(r: int, share: int) -> None:
    """160 elements a thread of 528 blocks are wanted, or 512 at most; the divisor is less than 30 away, or 50."""
    assert inner_split(r, 1, TYPICAL_DEVICES["cuda:90"]) == -(-r // (share * 256))


@pytest.mark.parametrize(("r", "share"), [(418_523, 119), (418_920, 100), (418_527, 81), (418_480, 100)])
def test_strided_ones_look_twenty_elements_far(r: int, share: int) -> None:
    """119, 120, 81 and 80 times a prime; 100 rows a thread are wanted, four at a time."""
    assert outer_split(r, 128, TYPICAL_DEVICES["cuda:90"]) == -(-r // (4 * share))


@pytest.mark.parametrize(
    ("outputs", "parts", "tiny"),
    [(512, 512, True), (513, 512, False), (512, 513, False), (256, 1024, True), (257, 1024, False), (256, 1025, False)],
)
def test_the_second_pass_over_few_parts_is_a_tiny_one(outputs: int, parts: int, tiny: bool) -> None:
    found = [second_stage_hint(hint, outputs, parts) for hint in (ReductionHint.OUTER, ReductionHint.INNER)]
    assert found == [ReductionHint.OUTER_TINY if tiny else ReductionHint.OUTER, ReductionHint.INNER]


@pytest.mark.parametrize(
    ("dims", "kept", "reduced"),
    [
        ((2,), (12, 4), (1,)),
        ((-1,), (12, 4), (1,)),
        ((-3,), (4, 1), (12,)),
        ((0, 2), (4,), (12, 1)),
        ((), (12, 4, 1), ()),
    ],
)
def test_the_strides_of_a_read(dims: tuple[int, ...], kept: tuple[int, ...], reduced: tuple[int, ...]) -> None:
    assert read_of((2, 3, 4), (12, 4, 1), dims) == Read(kept, reduced)
    assert read_of((2, 1, 4), (4, 9, 1), (1,)) == Read((4, 1), ()), "a dimension of one element has no stride"


@pytest.mark.parametrize(
    ("strides", "dims", "told"),
    [((1,), (0,), "a tensor of shape (2, 3) can't have the strides (1,)"),
     ((3, 1), (2,), "no dimension 2 in a tensor of shape (2, 3)"),
     ((3, 1), (0, -3), "no dimension -3 in a tensor of shape (2, 3)")],
)  # fmt: skip
def test_a_read_of_no_tensor_is_named(strides: tuple[int, ...], dims: tuple[int, ...], told: str) -> None:
    with pytest.raises(HintError) as caught:
        read_of((2, 3), strides, dims)
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("shape", "strides", "outputs", "r", "read"),
    [
        ((8, 32), (32, 1), 8, 32, Read((32,), (1,))),
        ((8, 32), (32, 1), 32, 8, Read((1,), (32,))),
        ((8, 4, 8), (32, 8, 1), 8, 32, None),
        ((32, 32), (32, 1), 32, 32, None),
        ((32, 32), (1, 1), 32, 32, Read((1,), (1,))),
        ((8, 32), (32, 1), 8, 33, None),
        ((8, 32), (32, 1), 256, 1, Read((32, 1), ())),
        ((8, 32), (32, 1), 16, 16, None),
    ],
)
def test_a_read_that_is_inferred_from_numbers_of_elements(
    shape: Any, strides: Any, outputs: int, r: int, read: Read | None
) -> None:
    assert inferred_read(shape, strides, outputs, r) == read


INNER, OUTER, FIXED = Read((4096,), (1,)), Read((1,), (4096,)), Read((0,), (4096,))
H100 = TYPICAL_DEVICES["cuda:90"]


@pytest.mark.parametrize(
    ("reads", "outputs", "r", "hint"),
    [
        ([INNER], 4096, 4096, "INNER"), ([OUTER], 4096, 4096, "OUTER"), ([], 4096, 4096, "DEFAULT"),
        ([INNER, OUTER], 4096, 4096, "OUTER"), ([INNER, INNER, OUTER], 4096, 4096, "INNER"),
        ([INNER, FIXED], 4096, 4096, "INNER"), ([FIXED], 4096, 4096, "OUTER"),
        ([INNER], 64 * 132 - 1, 33, "INNER"), ([INNER], 64 * 132, 33, "DEFAULT"), ([INNER], 4096, 32, "DEFAULT"),
        ([OUTER], 1, 33, "INNER"), ([], 1, 8, "INNER"),
    ],
)  # fmt: skip
def test_which_way_a_reduction_walks(reads: list[Read], outputs: int, r: int, hint: str) -> None:
    """Reads that cover all dimensions decide, else those that vary along the reduction; INNER needs most of them."""
    assert reduction_split(reads, outputs, r, H100, may_split=False) == (ReductionHint[hint], 1)


@pytest.mark.parametrize(("outputs", "r", "told"), [(0, 4, "outputs=0"), (4, 0, "r=0")])
def test_a_reduction_of_nothing_is_refused(outputs: int, r: int, told: str) -> None:
    with pytest.raises(HintError, match=f"^a reduction with {told}: both must be at least 1$"):
        reduction_split([], outputs, r, H100)


def test_what_a_text_counts() -> None:
    text = """
    %a = tt.load %p : tensor<8x!tt.ptr<f32>>
    %b = tt.fp_to_fp %a : tensor<8xf8E5M2> -> tensor<8xf32>
    %c = "tt.reduce"(%b) <{axis = 0 : i32}> ({
      tt.reduce.return %x : f32
    })
    %d = tt.atomic_rmw fadd, acq_rel, gpu, %p, %c : f32
    tt.store %p, %c : !tt.ptr<f32>
    """
    assert count_ttir(text) == TtirCounts(1, 1, 1, True, 4, 0)
    assert count_ttir(text.replace("fadd", "max").replace("f8E5M2", "f16")) == TtirCounts(1, 1, 1, False, 0, 0)
    assert count_ttir("nothing of Triton") == TtirCounts(0, 0, 0, False, 0, 0)
