"""Reduction hints and splits from strides."""

from __future__ import annotations

import pytest

from kerntune.base.device import TYPICAL_DEVICES
from kerntune.errors import HintError
from kerntune.heuristics import Read, read_of, reduction_split, second_stage_hint
from kerntune.heuristics.call_hints import inferred_read
from kerntune.heuristics.hints import ReductionHint

H100 = TYPICAL_DEVICES["cuda:90"]
B200 = TYPICAL_DEVICES["cuda:100"]
INNER, OUTER, TINY, DEFAULT = (
    ReductionHint.INNER,
    ReductionHint.OUTER,
    ReductionHint.OUTER_TINY,
    ReductionHint.DEFAULT,
)
ROWS = read_of((128, 4096), (4096, 1), [1])
COLUMNS = read_of((4096, 128), (128, 1), [0])
BIAS = read_of((128, 4096), (0, 1), [1])


def test_strides_are_sorted_into_kept_and_reduced() -> None:
    assert read_of((2, 1, 8, 4), (32, 32, 4, 1), [-1, 1]) == Read(kept=(32, 4), reduced=(1,))


@pytest.mark.parametrize(
    ("reads", "hint"),
    [
        ([ROWS], INNER),
        ([COLUMNS], OUTER),
        ([ROWS, COLUMNS], OUTER),
        ([ROWS, ROWS, COLUMNS], INNER),
        ([BIAS], INNER),
        ([COLUMNS, BIAS, BIAS], OUTER),
        ([Read((1,), (0,))], DEFAULT),
        ([], DEFAULT),
    ],
)
def test_reads_vote_and_inner_needs_a_majority(reads: list[Read], hint: ReductionHint) -> None:
    assert reduction_split(reads, 128, 4096, H100).hint is hint


@pytest.mark.parametrize(
    ("outputs", "r", "hint"),
    [(128, 32, DEFAULT), (128, 33, OUTER), (64 * 132, 4096, DEFAULT), (64 * 132 - 1, 4096, OUTER), (1, 8, INNER)],
)
def test_short_or_many_reductions_need_no_shape(outputs: int, r: int, hint: ReductionHint) -> None:
    assert reduction_split([COLUMNS], outputs, r, H100).hint is hint


def test_one_long_row_is_split_among_programs() -> None:
    assert reduction_split([ROWS], 1, 1 << 20, H100).parts > 64
    assert reduction_split([ROWS], 1, 8192, H100).parts == 1
    assert reduction_split([ROWS], 1, 524288, B200).parts == 1
    assert reduction_split([ROWS], 1, 1 << 20, H100, may_split=False).parts == 1
    assert reduction_split([ROWS], 264, 1 << 20, H100) == (INNER, 1)


@pytest.mark.parametrize("r", [1 << 20, (1 << 20) + 7, 12345678])
@pytest.mark.parametrize("outputs", [1, 16, 100])
def test_parts_cover_the_reduction(r: int, outputs: int) -> None:
    for reads in ([ROWS], [COLUMNS]):
        split = reduction_split(reads, outputs, r, H100)
        assert 1 <= split.parts <= r


@pytest.mark.parametrize(
    ("hint", "outputs", "parts", "second"),
    [
        (OUTER, 512, 512, TINY),
        (OUTER, 512, 513, OUTER),
        (OUTER, 256, 1024, TINY),
        (OUTER, 257, 1024, OUTER),
        (INNER, 1, 1, INNER),
    ],
)
def test_second_stage(hint: ReductionHint, outputs: int, parts: int, second: ReductionHint) -> None:
    assert second_stage_hint(hint, outputs, parts) is second


def test_impossible_shapes_are_refused() -> None:
    with pytest.raises(HintError, match="outputs=0"):
        reduction_split([ROWS], 0, 8, H100)
    with pytest.raises(HintError, match="r=-1"):
        reduction_split([ROWS], 1, -1, H100)
    with pytest.raises(HintError, match="no dimension 2"):
        read_of((4, 4), (4, 1), [2])
    with pytest.raises(HintError, match="can't have the strides"):
        read_of((4, 4), (4,), [0])


@pytest.mark.parametrize(
    ("shape", "strides", "read"),
    [
        ((64, 1000), (1000, 1), Read((1000,), (1,))),
        ((64, 1000), (1, 64), Read((1,), (64,))),
        ((1000, 64), (64, 1), Read((1,), (64,))),
        ((8, 8, 1000), (8000, 1000, 1), Read((8000, 1000), (1,))),
        ((8, 8, 10, 100), (8000, 1000, 100, 1), Read((8000, 1000), (100, 1))),
        ((1, 64, 1000), (64000, 1000, 1), Read((1000,), (1,))),
        ((64, 1), (1, 1), None),
        ((64000,), (1,), None),
        ((64,), (1,), None),
        ((10, 64, 100), (6400, 100, 1), None),
    ],
)
def test_what_is_reduced_shows_in_the_shape(
    shape: tuple[int, ...], strides: tuple[int, ...], read: Read | None
) -> None:
    assert inferred_read(shape, strides, 64, 1000) == read


def test_a_square_matrix_shows_nothing() -> None:
    assert inferred_read((64, 64), (64, 1), 64, 64) is None
    assert inferred_read((64, 64), (1, 1), 64, 64) == Read((1,), (1,))


def test_a_single_output_is_read_along_everything() -> None:
    assert inferred_read((10, 100), (100, 1), 1, 1000) == Read((), (100, 1))
