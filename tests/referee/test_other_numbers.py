"""Other numbers for what is known when a candidate is recorded."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest

from kerntune.referee.case_inputs import CaseInputs, MappingArgument, PlainArgument, SequenceArgument, TensorAt
from kerntune.referee.declared_inputs import as_launched, parse_line
from kerntune.referee.other_numbers import NAMED, case_before, other_numbers, unchanged, where_numbers_count

CHANCE = random.Random(1)
WHOLE = {3: {1, 6}, 9: {4, 2}, -40: {-20, -10, -5}, **{value: {other} for value, other in NAMED.items()}}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("x: f32[8]; a = 0.3", ["for 0.3"] * 2), ("x: f32[8]; a = -1e-5", ["for -1e-05"] * 2),
        ("x: f32[8]; a = 2.0", ["for 2"] * 2), ("x: f32[5]; a = 3", ["1 for 3"]),
        ("x: f32[8]; a = 3", ["1 for 3", "6 for 3"]), ("x: f32[8,4]; a = 3", ["1 for 3"]),
        ("x: f32[8]; a = 1", ["2 for 1"]), ("x: f32[8]; b = -1", ["-2 for -1"]), ("x: f32[8]; c = 0", ["1 for 0"]),
        ("x: f32[8]; a = True; t = 'no'; n = None; b = 0.5; k = 9", ["for 0.5", "for 0.5", "False for True", "for 9"]),
        ("x: f32[8]", []), ("x: f32[3]; n: i32[3] = [5, 7, 6]", ["n in another order", "n in another order"]),
        ("x: f32[3]; n: i32[2] = [0, 5]", []), ("x: f32[3]; n: i32[4] = [0, 1, 2, 3]", []),
        ("x: f32[8]; k = -40", ["for -40"]),
        ("x: f32[3]; n: i32[3] = [1, 1, 1]", []), ("x: f32[3]; n: f32[2] = [0.0, 0.0]", []),
    ],
)  # fmt: skip
def test_numbers_that_are_known_have_others(line: str, told: list[str]) -> None:
    case = parse_line(line)
    for seed in range(20):
        others = other_numbers(case, random.Random(seed))
        assert len(others) == len(told)
        for other, one in zip(others, told, strict=True):
            assert other.label.removesuffix(", of other numbers").endswith(one)
            for mine, its in zip(case.tensors, other.tensors, strict=True):
                assert {*its.values} <= {5, 6, 7}
                assert (mine.values != its.values) == bool(mine.values)
            for argument, changed in zip(case.arguments, other.arguments, strict=True):
                value = argument.value if isinstance(argument, PlainArgument) else None
                if isinstance(value, (int, float)) and not isinstance(value, bool) and argument != changed:
                    its = changed.value  # type: ignore[union-attr]
                    assert its in WHOLE[value] if isinstance(value, int) else 0 < its / value != 1
                    assert abs(its) <= max(1, 2 * abs(value))
                    assert isinstance(value, int) or not 0.6 < its / value < 1


def test_numbers_that_are_held_have_no_others() -> None:
    """The longest of sequences belongs to their offsets; what isn't held has others."""
    case = parse_line("x: f32[9]; n: i32[3] == [0, 4, 9]; most == 5; eps == 1e-5; a = 0.5")
    assert case.tensors[1].values == (0, 4, 9)
    assert [a.value for a in case.arguments if isinstance(a, PlainArgument)] == [5, as_launched(1e-5), 0.5]
    assert (case.holds, parse_line("x: f32[9]; n: i32[3] = [0, 4, 9]; a = 2").holds) == (True, False)
    assert parse_line("x: f32[9]; a == 2").holds
    for other in other_numbers(case, random.Random(1)):
        assert other.label.endswith("for 0.5")
        assert (other.tensors, other.arguments[:4]) == (case.tensors, case.arguments[:4])


def test_zero_has_another_number_and_data_and_models_have_other_floats() -> None:
    (other,) = other_numbers(parse_line("x: f32[8]; beta = 0.0"), random.Random(1))
    assert 0.1 <= other.arguments[1].value <= 0.3  # type: ignore[operator, union-attr]
    named = MappingArgument({"x": TensorAt(0), "eps": PlainArgument(1e-5)})
    inside = SequenceArgument((TensorAt(0), PlainArgument(1e-5), PlainArgument(8)))
    case = CaseInputs("", parse_line("x: f32[8]").tensors, (inside,), init=(PlainArgument(0.2), PlainArgument(8)))
    for other, larger in zip(other_numbers(case, random.Random(1)), (False, True), strict=True):
        found = other.arguments[0].items  # type: ignore[union-attr]
        assert found[0::2] == inside.items[0::2]
        assert (found[1].value > 1e-5) == larger
        assert ((other.init[0].value > 0.2) == larger, other.init[1].value) == (True, 8)  # type: ignore[operator, union-attr]
    (other,) = other_numbers(msgspec.structs.replace(case, arguments=(named,), init=()), random.Random(1))
    assert other.arguments[0].items["x"] == TensorAt(0)  # type: ignore[union-attr, call-overload]
    assert other.arguments[0].items["eps"].value != 1e-5  # type: ignore[union-attr, call-overload]


def test_lengths_that_are_equal_and_numbers_in_order_have_smaller_ones() -> None:
    for seed in range(20):
        (other,) = other_numbers(parse_line("x: f32[3]; n: i32[3] = [4, 4, 4]"), random.Random(seed))
        assert other.label == "n of smaller numbers"
        assert {*other.tensors[1].values} <= {1, 2, 3, 4}
        assert other.tensors[1].values != (4, 4, 4)
        (other,) = other_numbers(parse_line("x: f32[3]; n: f32[3] = [-1.0, 1.5, 2.0]"), random.Random(seed))
        found = other.tensors[1].values
        assert (other.label, sorted(found)) == ("n of smaller numbers", list(found))
        assert all(0.7 <= x / y <= 0.95 for x, y in zip(found, (-1.0, 1.5, 2.0), strict=True))
        assert len({x / y for x, y in zip(found, (-1.0, 1.5, 2.0), strict=True)}) > 1
        (other,) = other_numbers(parse_line("x: f32[3]; n: i32[4] = [0, 8, 16, 24]"), random.Random(seed))
        found = other.tensors[1].values
        assert (found[0], found[-1], {x % 4 for x in found}) == (0, 24, {0})
        assert 0 < found[1] < found[2] < 24


@pytest.mark.parametrize("values", [(0, 5, 9), (9, 5, 5), (0, 16, 64, 80), (-3, 1, 2, 40), (0, 0, 1, 1, 1)])
def test_offsets_have_other_steps_between_the_same_ends(values: tuple[int, ...]) -> None:
    case, unit = parse_line(f"x: f32[3]; n: i32[{len(values)}] = {list(values)}"), np.gcd.reduce(np.diff(values))
    drawn = set()
    for seed in range(20):
        (other,) = other_numbers(case, random.Random(seed))
        found = other.tensors[1].values
        assert (other.label, found[0], found[-1]) == ("n of other steps", values[0], values[-1])
        steps = np.diff(found)
        assert not (steps % unit).any()
        assert (np.sign(steps) * np.sign(values[-1] - values[0]) >= (0 if 0 in np.diff(values) else 1)).all()
        assert found != values
        drawn.add(found)
    assert len(drawn) > 1 or len(values) == 3


def both_ways(line: str) -> set[tuple[int, ...]]:
    """Which of the labels' parts are others together, by the number of the case."""
    found = [other_numbers(parse_line(line), random.Random(seed)) for seed in range(60)]
    return {tuple(len(one.label.split(", ")) for one in each) for each in found}


def test_flags_and_whole_numbers_are_others_alone_or_beside_what_was_before() -> None:
    """One flag or number may stand for another, and two may belong together."""
    ways = {(1, 1, i, k) for i in (1, 2) for k in (1, i + 1)}
    assert both_ways("x: f32[8]; a = 0.5; flag = True; n = 9") == ways
    assert both_ways("x: f32[8]; a = True; b = False; c = True") == {(3, 1)}
    case = parse_line("x: f32[8]; m = 8; n = 1; k = 40")
    for seed in range(20):
        both, alone, _ = other_numbers(case, random.Random(seed))
        kept = [[a == b for a, b in zip(case.arguments, one.arguments, strict=True)] for one in (both, alone)]
        assert kept[0] == [True, False, True, False]
        assert kept[1] in ([True, False, True, True], [True, True, True, False])


def test_lists_have_another_largest_number_and_two_lengths_are_others() -> None:
    largest, known = set(), "x: f32[3]; n: i32[4] = [5, 70, 33, 12]"
    for seed in range(40):
        same, other = other_numbers(parse_line(known), random.Random(seed))
        assert sorted(same.tensors[1].values) == [5, 12, 33, 70]
        assert len({*other.tensors[1].values}) == 4
        largest.add(max(other.tensors[1].values))
        (pair,) = other_numbers(parse_line("x: f32[3]; n: i32[2] = [5, 9]"), random.Random(seed))
        assert {*pair.tensors[1].values} <= {*range(1, 10)}
        assert pair.tensors[1].values != (5, 9)
        (odd,) = other_numbers(parse_line("x: f32[3]; n: i32[4] = [0, 5, 10, 15]"), random.Random(seed))
        assert odd.tensors[1].values != (0, 5, 10, 15)
    assert len(largest) > 5
    again = [other_numbers(parse_line("x: f32[3]; n: i32[3] = [2, 0, 1]"), random.Random(i))[0] for i in range(20)]
    assert all(sorted(one.tensors[1].values) == [0, 1, 2] for one in again)


def test_what_is_never_another_is_told() -> None:
    line = "x: f32[8]; z: i32[2] = [0, 0]; h: i32[2] == [0, 0]; a = -1; b == 1; c = 5; how = 'no'; n = None"
    case = msgspec.structs.replace(parse_line(line), init=(PlainArgument(64), PlainArgument(0.5)))
    told = unchanged(case, other_numbers(case, random.Random(1)))
    assert told == ("known, and never another: z, 'no', 64; hold back other inputs",)
    case = parse_line("x: f32[8]; c = 5")
    assert unchanged(case, other_numbers(case, random.Random(1))) == ()


def test_numbers_in_data_that_never_are_others_are_told() -> None:
    data = MappingArgument({"turns": PlainArgument(3), "more": SequenceArgument((PlainArgument(0.5), TensorAt(0)))})
    case = msgspec.structs.replace(parse_line("x: f32[3]"), arguments=(data,))
    assert unchanged(case, []) == ("known, and never another: 3, 0.5; hold back other inputs",)
    assert unchanged(case, other_numbers(case, random.Random(1))) == (
        "known, and never another: 3; hold back other inputs",
    )


def in_data(line: str, *numbers: int) -> list[str]:
    data = SequenceArgument((TensorAt(0), MappingArgument({str(n): PlainArgument(n) for n in numbers})))
    return [one.label for one in other_numbers(msgspec.structs.replace(parse_line(line), arguments=(data,)), CHANCE)]


@pytest.mark.parametrize(
    ("line", "numbers", "told"),
    [
        ("x: f32[16,64]", [3], ["1 for 3", "6 for 3"]), ("x: f32[16,64]", [64], []), ("x: f32[16,64]", [1024], []),
        ("x: f32[16,64]", [0], ["1 for 0"]), ("x: f32[16,48]", [12, 4], []),
        ("x: f32[1,64]", [1], []),
    ],
)  # fmt: skip
def test_whole_numbers_in_data_have_others_that_are_no_sizes(line: str, numbers: list[int], told: list[str]) -> None:
    """Twelve of four are 48; a candidate may read a size from the data or from the input."""
    assert in_data(line, *numbers) == told


@pytest.mark.parametrize(
    ("line", "first"),
    [("x: f32[1000]; step = 10000", True), ("x: f32[1000]; step = 250", False), ("x: f32[64,64]; part = 512", False)],
)
def test_a_number_that_counts_something_is_a_small_one_once(line: str, first: bool) -> None:
    """Where it divides the inputs' sizes, it may be a part's size."""
    for seed in range(9):
        others = [one.arguments[1].value for one in other_numbers(parse_line(line), random.Random(seed))]  # type: ignore[union-attr]
        assert bool({*others} & {2, 3, 4}) == first


@pytest.mark.parametrize(
    ("line", "odd"),
    [("x: f32[4,100]; period = 16", True), ("x: f32[4,100]; k = 8", True), ("x: f32[9]; k = 4", False),
     ("x: f32[9]; k = 24", False), ("x: f32[4,48]; part = 16", False), ("x: f32[9]; step = 1024", False)],
)  # fmt: skip
def test_a_power_of_two_that_divides_no_size_is_odd_once(line: str, odd: bool) -> None:
    """A remainder by low bits is that of powers of two alone."""
    for seed in range(9):
        others = [one.arguments[1].value for one in other_numbers(parse_line(line), random.Random(seed))]  # type: ignore[union-attr]
        found = [n for n in others if isinstance(n, int) and n > 4 and n % 2]
        assert len(found) == odd
        assert all(n < parse_line(line).numbers[0] < 2 * n for n in found)


def test_weights_in_no_order_have_another_sum_once() -> None:
    """Who leaves a division by their sum out is right where that is one."""
    for values in ("0.1, 0.4, 0.2, 0.25, 0.05", "-0.5, 2.0, 1.0"):
        for seed in range(9):
            case = parse_line(f"x: f32[80,5]; w: f32[{len(values.split(','))}] = [{values}]")
            same, other = (one.tensors[1].values for one in other_numbers(case, random.Random(seed)))
            assert sorted(same) == sorted(case.tensors[1].values)
            assert sum(map(abs, other)) < 0.95 * sum(map(abs, same))
    flags = other_numbers(parse_line("x: f32[3]; m: f32[3] = [0.0, 1.0, 0.0]"), random.Random(1))
    assert all({*one.tensors[1].values} == {0.0, 1.0} for one in flags)


def test_a_task_s_numbers_are_others_alone() -> None:
    """It has no way to say which belong together."""
    case = parse_line("x: f32[100]; a = 0.5; n = 7; m = 9; flag = True")
    case = msgspec.structs.replace(case, given={"size": 100})
    alone = {one.label.rpartition(" ")[2] for seed in range(9) for one in other_numbers(case, random.Random(seed))}
    assert alone == {"0.5", "7", "9", "True"}
    for one in other_numbers(case, random.Random(1)):
        assert sum(a != b for a, b in zip(case.arguments, one.arguments, strict=True)) == 1
    assert len(other_numbers(case, random.Random(1))) == 6


def test_a_model_s_flags_are_others_alone() -> None:
    case = CaseInputs("", parse_line("x: f32[8]").tensors, (), init=(PlainArgument(True), PlainArgument(2)))
    (other,) = other_numbers(case, random.Random(1))
    assert [one.value for one in other.init] == [False, 2]  # type: ignore[union-attr]


def test_a_number_for_each_row_may_be_larger_up_to_its_length() -> None:
    for seed in range(20):
        for line, most in (
            ("x: f32[4,200]", 180),
            ("x: f32[4,120]", 110),
            ("x: f32[4,91]", 90),
            ("x: f32[3,200]", 90),
            ("x: f32[4]", 90),
        ):
            case = parse_line(f"{line}; n: i32[4] = [40, 90, 10, 60]")
            same, other = (max(one.tensors[1].values) for one in other_numbers(case, random.Random(seed)))
            assert (same, other == most or (most == 90 and other < 90)) == (90, True)
        for number in (0, 1):
            case = parse_line(f"x: f32[4,100]; n: i32[4] = {[number] * 4}")
            (other,) = other_numbers(case, random.Random(seed))
            assert {*other.tensors[1].values} <= {*range(number, 100)}
            assert max(other.tensors[1].values) > number


def test_other_numbers_are_judged_where_small_ones_count() -> None:
    forms = where_numbers_count(parse_line("x: f32[100]"), random.Random(1))
    assert 0 < len(forms) <= 2
    assert {word for form in forms for word in form} <= {"tiny", "broad", "down"}
    made = msgspec.structs.replace(parse_line("x: f32[100]").tensors[0], content="author")
    assert where_numbers_count(CaseInputs("", (made,), ()), random.Random(1)) == []


def test_a_case_is_recorded_behind_another_shape_as_well() -> None:
    """A model is made anew for each."""
    first, second = parse_line("x: f32[600]"), parse_line("x: f16[600]")
    assert case_before([first, second], 0) == second
    made = msgspec.structs.replace(first, init=(PlainArgument(4),))
    assert case_before([first], 0) is case_before([made, second], 0) is case_before([first, first], 1) is None
