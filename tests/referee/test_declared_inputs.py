"""Lines of inputs: what they mean, what is refused, and the numbers."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest

from kerntune.errors import MeasurementError, UsageError
from kerntune.gpu.compare import decode_floats
from kerntune.gpu.number_formats import FLOAT_FORMATS, values
from kerntune.referee import declared_inputs
from kerntune.referee.case_inputs import PlainArgument, TensorAt, TensorInput
from kerntune.referee.content_forms import ENDS, EXTREMES, GRIDS, OF_ALIKE, OF_MADE, extreme_forms
from kerntune.referee.declared_inputs import (
    as_launched,
    bytes_of,
    content_of,
    contents_of,
    drawn_distance,
    parse_line,
    poison_patterns,
    rolled,
)


def tensor(text: str) -> TensorInput:
    return parse_line(f"x: {text}").tensors[0]


def test_a_line_is_a_case() -> None:
    case = parse_line("x: f16[4096, 128] normal; idx: i64[7] < 32000;  eps = 1e-5; flag = True; how = 'sum'")
    assert case.label == "x: f16[4096, 128] normal; idx: i64[7] < 32000; eps = 1e-5; flag = True; how = 'sum'"
    assert [(t.name, t.dtype, t.shape, t.strides) for t in case.tensors] == [
        ("x", "float16", (4096, 128), (128, 1)),
        ("idx", "int64", (7,), (1,)),
    ]
    plain = (PlainArgument(as_launched(1e-5)), PlainArgument(True), PlainArgument("sum"))
    assert case.arguments == (TensorAt(0), TensorAt(1), *plain)


@pytest.mark.parametrize(
    ("text", "dtype", "strides", "content"),
    [
        ("f16[4096, 128] normal", "float16", (128, 1), ("normal", 0.0, 1.0, True, ())),
        ("bfloat16[3]", "bfloat16", (1,), ("normal", 0.0, 1.0, True, ())),
        ("f32[2,2,3] normal(-3, 0.5e1)", "float32", (6, 3, 1), ("normal", -3.0, 5.0, False, ())),
        ("f64[] uniform ( -1. , +2 )", "float64", (), ("uniform", -1.0, 2.0, False, ())),
        ("f8e5m2[4] zeros", "float8_e5m2", (1,), ("zeros", 0.0, 0.0, False, ())),
        ("i32[5] < 1", "int32", (1,), ("integers", 0.0, 0.0, False, ())),
        ("u8[5] <7", "uint8", (1,), ("integers", 0.0, 6.0, False, ())),
        ("i8[5] in -2..3", "int8", (1,), ("integers", -2.0, 3.0, False, ())),
        ("i16[5] in 3 .. 3", "int16", (1,), ("integers", 3.0, 3.0, False, ())),
        ("bool[5]", "bool", (1,), ("integers", 0.0, 1.0, False, ())),
        ("bool[5] < 1", "bool", (1,), ("integers", 0.0, 0.0, False, ())),
        ("i64[3] zeros", "int64", (1,), ("zeros", 0.0, 0.0, False, ())),
        ("i64[3] = [5, 7, 9]", "int64", (1,), ("fixed", 0.0, 0.0, False, (5, 7, 9))),
        ("f32[2,1] = [0.5, True]", "float32", (1, 1), ("fixed", 0.0, 0.0, False, (0.5, True))),
        ("i64[3] in -9007199254740992..9007199254740992", "int64", (1,), ("integers", -(2.0**53), 2.0**53, False, ())),
        ("i8[3] in -128..127", "int8", (1,), ("integers", -128.0, 127.0, False, ())),
        ("u8[3] < 256", "uint8", (1,), ("integers", 0.0, 255.0, False, ())),
        ("bool[2] = [0, 1]", "bool", (1,), ("fixed", 0.0, 0.0, False, (0, 1))),
        ("f16[3] normal(0, 21834)", "float16", (1,), ("normal", 0.0, 21834.0, False, ())),
        ("f8e4m3[3] normal(0, 300)", "float8_e4m3fn", (1,), ("normal", 0.0, 300.0, False, ())),
        ("f64[3] uniform(-8e307, 8e307)", "float64", (1,), ("uniform", -8e307, 8e307, False, ())),
        ("f64[3] normal(0, 2.3e-308)", "float64", (1,), ("normal", 0.0, 2.3e-308, False, ())),
        ("f32[3] normal(7, 0)", "float32", (1,), ("normal", 7.0, 0.0, False, ())),
        ("f16[17179869184]", "float16", (1,), ("normal", 0.0, 1.0, True, ())),
    ],
)
def test_what_an_item_means(
    text: str, dtype: str, strides: tuple[int, ...], content: tuple[str, float, float, bool, tuple[float, ...]]
) -> None:
    x = tensor(text)
    assert (x.dtype, x.strides, (x.content, x.low, x.high, x.varied, x.values)) == (dtype, strides, content)


@pytest.mark.parametrize(
    ("text", "value"),
    [("-1e-5", as_launched(-1e-5)), ("7", 7), ("'sum'", "sum"), ("True", True), ("None", None), (" 3 ", 3)],
)
def test_a_plain_argument_is_a_literal(text: str, value: object) -> None:
    assert parse_line(f"x: f32[1]; a = {text}").arguments == (TensorAt(0), PlainArgument(value))  # type: ignore[arg-type]


def test_a_line_may_have_64_k_characters() -> None:
    line = "x: f32[1];"
    parse_line(line + " " * (65_536 - len(line)))
    with pytest.raises(UsageError) as caught:
        parse_line(line + " " * (65_537 - len(line)))
    assert str(caught.value) == "a line of inputs has 65,537 characters, more than 65,536"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "has no tensor"),
        ("eps = 1", "has no tensor"),
        ("x: f17[3]", "f17 is no dtype"),
        ("x: f16[3,a]", "no whole numbers"),
        ("x: f16[0]", "1 or more, of 17,179,869,184 elements at most"),
        ("x: f16[17179869185]", "1 or more, of 17,179,869,184 elements at most"),
        ("x: f16[3,0]", "1 or more, of 17,179,869,184 elements at most"),
        ("x: i64[3] = (1, 2, 3)", "no list of numbers"),
        ("x: i64[1] = ['a']", "no list of numbers"),
        ("x: f16[3], y: f16[3]", "parted by semicolons; floats take"),
        ("x: f16[3] in 1..2", "'in 1..2' is no content; floats take"),
        ("x: i64[3] normal", "'normal' is no content; integers take"),
        ("x: i64[3] uniform(1, 2)", "is no content; integers take"),
        ("x: i64[3]", "it has no content; integers take"),
        ("x: f16[3]; y = [1]", "no number"),
        ("x: i64[3]", "integers take"),
        ("x: f16[3] < 7", "is no content"),
        ("x: i64[3] < 0", "is no content"),
        ("x: i64[3] in 5..2", "is no content"),
        ("x: i64[3] = [1, 2]", "2 numbers for 3 elements"),
        ("x: i64[1] = [open('/etc/passwd')]", "no list of numbers"),
        ("x: f16[3]; x: f16[3]", "a name twice"),
        ("x: f16[3]; y = __import__('os')", "no number"),
        ("x: f32[3] normal(0, -1)", "a deviation of -1 is below 0"),
        ("x: f32[3] uniform(3, 1)", "3 is above 1"),
        ("x: f64[3] uniform(-1e308, 1e308)", "float64 ends at 1.79769e[+]308, and its numbers don't"),
        ("x: f64[3] normal(1e308, 1e308)", "float64 ends at"),
        ("x: f64[3] uniform(0, 1e309)", "float64 ends at"),
        ("x: f16[3] normal(0, 21836)", "float16 ends at 65504"),
        ("x: bf16[3] uniform(0, 3.4e38)", "bfloat16 ends at 3.38953e[+]38"),
        ("x: f64[3] normal(0, 1e-310)", "float64 has no numbers so close together"),
        ("x: f32[3] uniform(0, 1e-38)", "float32 has no numbers so close together"),
        ("x: i64[3] < 9007199254740994", "beyond 2[*][*]53"),
        ("x: i64[3] in -9007199254740993..0", "beyond 2[*][*]53"),
        ("x: i8[3] < 1000", "int8 has no 999"),
        ("x: i8[3] < 1000 known", "int8 has no 999"),
        ("x: i8[3] in -129..0", "int8 has no -129"),
        ("x: u8[3] in -5..5", "uint8 has no -5"),
        ("x: bool[3] < 3", "bool has no 2"),
        ("x: i16[2] = [0, 32768]", "int16 has no 32,768"),
        ("x f16[3]", "neither"),
        ("x: f16[3] ; " + "y" * 70_000, "characters"),
    ],
)
def test_what_cannot_be_read_is_named(line: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse_line(line)


def floats(given: TensorInput, seed: int) -> np.ndarray:
    return decode_floats(content_of(given, seed), given.dtype)


def test_a_plain_normals_mean_and_deviation_vary_from_seed_to_seed() -> None:
    found = [floats(tensor("f32[20000]"), seed) for seed in range(20)]
    deviations, means = [x.std() for x in found], [x.mean() for x in found]
    assert min(deviations) < 0.7
    assert max(deviations) > 1.4
    assert min(deviations) > 0.45
    assert max(deviations) < 2.1
    assert max(abs(m) for m in means) > 0.2
    assert len({np.sign(m) for m in means}) == 2
    assert max(abs(m) / d for m, d in zip(means, deviations, strict=True)) < 0.53


def test_a_normal_with_numbers_has_those() -> None:
    for seed in range(3):
        x = floats(tensor("f32[20000] normal(3, 0.5)"), seed)
        assert (x.mean(), x.std()) == pytest.approx((3, 0.5), abs=0.03)


def test_other_contents() -> None:
    x = floats(tensor("f64[5000] uniform(-1, 3)"), 1)
    assert -1 <= x.min() < -0.99
    assert 2.99 < x.max() <= 3
    whole = np.frombuffer(content_of(tensor("i32[5000] < 7"), 1), "<i4")
    assert set(whole) == set(range(7))
    assert set(np.frombuffer(content_of(tensor("i8[5000] in -2..2"), 1), "i1")) == {-2, -1, 0, 1, 2}
    assert set(content_of(tensor("bool[500]"), 1)) == {0, 1}
    assert content_of(tensor("f16[4] zeros"), 1) == bytes(8)
    assert list(np.frombuffer(content_of(tensor("i64[3] = [5, 7, 9]"), 1), "<i8")) == [5, 7, 9]


def test_seeds_and_names_give_other_numbers_and_no_part_repeats() -> None:
    x, y = tensor("f32[4096]"), parse_line("y: f32[4096]").tensors[0]
    assert content_of(x, 1) == content_of(x, 1)
    assert content_of(x, 1) != content_of(x, 2)
    assert content_of(x, 1) != content_of(y, 1)
    long = parse_line("gradient_of_weights: f32[9]; gradient_of_weights_2: f32[9]").tensors
    assert content_of(long[0], 1) != content_of(long[1], 1)
    assert len(np.unique(floats(x, 1))) > 4090
    one, other = parse_line("projection_weight_a: f32[64]; projection_weight_b: f32[64]").tensors
    assert content_of(one, 1) != content_of(other, 1)


@pytest.mark.parametrize("dtype", ["f8e4m3", "f8e5m2"])
def test_eight_bit_floats_are_to_the_nearest(dtype: str) -> None:
    given = tensor(f"{dtype}[4000] uniform(-2, 2)")
    wide = np.random.default_rng([3, int.from_bytes(b"x", "little")]).uniform(-2, 2, 4000)
    found = values(np.frombuffer(content_of(given, 3), "u1").astype("u8"), FLOAT_FORMATS[given.dtype])
    assert np.abs(found - wide).max() <= 2 * (2**-4 if "4m3" in dtype else 2**-3) / 2 + 1e-9
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("dtype", "number", "data"),
    [
        ("bool", 3.0, b"\1"), ("bool", 1.0, b"\1"), ("bool", 0.0, b"\0"),
        ("int16", -2.0, b"\xfe\xff"), ("float16", 1e6, b"\0\x7c"),
        ("bfloat16", 0.1, b"\xcd="), ("bfloat16", 1 + 2**-8, b"\x80?"), ("bfloat16", 1 + 3 * 2**-8, b"\x82?"),
        ("float8_e4m3fn", 1e6, b"\x7e"), ("float8_e4m3fn", -1e6, b"\xfe"), ("float8_e4m3fn", 1.0625, b"\x38"),
        ("float8_e5m2", 1.375, b"\x3e"), ("float8_e5m2", 0.0, b"\0"), ("float8_e5m2", -0.3, b"\xb5"),
    ],
)  # fmt: skip
def test_numbers_are_rounded_to_the_nearest_of_two_to_the_even_one(dtype: str, number: float, data: bytes) -> None:
    """What is beyond a format of eight bits is its largest number."""
    assert bytes_of(np.array([number]), dtype) == data


class Chance:
    """Draws this number."""

    def __init__(self, number: int) -> None:
        self.number, self.asked = number, list[tuple[int, int]]()

    def randrange(self, low: int, high: int) -> int:
        self.asked.append((low, high))
        return self.number


@pytest.mark.parametrize(
    ("item", "nbytes", "drawn", "distance"),
    [(4, 256, 5, 20), (4, 256, 4, 12), (4, 256, 1, 4), (4, 256, 63, 252), (8, 512, 60, 472), (2, 32, 1, 2),
     (2, 32, 9, 16)],
)  # fmt: skip
def test_a_drawn_distance_is_no_whole_number_of_sixteenths(item: int, nbytes: int, drawn: int, distance: int) -> None:
    chance = Chance(drawn)
    assert drawn_distance(item, nbytes, chance) == distance  # type: ignore[arg-type]
    assert chance.asked == [(1, nbytes // item)]


def test_rolled_content_begins_later() -> None:
    assert rolled(b"abcdef", 2) == b"cdefab"


def test_poison_has_eight_bytes_of_each_kind_in_an_order_that_is_drawn() -> None:
    """The kind is the high byte of each pair; of ordinary numbers that is drawn, too, and half of them are small."""
    drawn = [poison_patterns(5) for _ in range(100)]
    ordinary = {0x3C, 0x3D, 0x3E, 0x3F, 0xBC, 0xBD, 0xBE, 0xBF}
    small = {*range(0x36, 0x3B)}
    low, high, sizes = set[int](), set[int](), set[int]()
    for patterns in drawn:
        assert {len(p) for p in patterns} == {8}
        known = [p for p in patterns if p[1] in (0x7F, 0x7B, 0xFB)]
        assert sorted(p[1] for p in known) == [0x7B, 0x7F, 0xFB]
        assert all(p[1::2] == p[1:2] * 4 and {*p[::2]} <= {*range(0xF1, 0xFF)} for p in known)
        (other,) = (p for p in patterns if p not in known and any(p))
        (large,) = (i for i in (0, 4) if other[i + 3] in ordinary)
        low, high = low | {*other[::2]}, high | {*other[large + 1 : large + 4 : 2]}
        assert other[7 - large] & 0x7F in small
        sizes |= {other[5 - large] & 0x7F}
        assert bytes(8) in patterns
    assert (high, len(low) > 150) == (ordinary, True)
    assert (min(sizes) < 0x14, max(sizes) < 0x3B) == (True, True)
    assert len({tuple(p[1] for p in patterns) for patterns in drawn}) > 20
    assert {b for patterns in drawn for p in patterns if p[1] in (0x7F, 0x7B, 0xFB) for b in p[::2]} == {
        *range(0xF1, 0xFF)
    }


def extreme(text: str, form: str, seed: int = 1, name: str = "x") -> np.ndarray:
    given = msgspec.structs.replace(tensor(text), name=name)
    return decode_floats(content_of(given, seed, form), given.dtype).reshape(given.shape)


def test_extreme_numbers() -> None:
    for seed in range(4):
        for form, sign in (("up", 1), ("down", -1)):
            x = extreme("f32[20000]", form, seed)
            assert 31 < sign * x.mean() / x.std() < 65
            assert 0.45 < x.std() < 2.1
        far = extreme("f32[20000]", "far", seed)
        assert abs(far.mean()) / far.std() == pytest.approx(1024, rel=0.05)
        deep = extreme("f16[20000]", "deep", seed)
        assert -520 < deep.min() < deep.max() < -246
        assert not np.exp(deep.astype("<f4")).any()
        assert extreme("f32[20000]", "tiny", seed).std() == pytest.approx(2**-12, rel=0.05)
        assert 60 < extreme("f32[20000]", "wide", seed).std() < 132
        assert extreme("bf16[20000]", "huge", seed).std() == pytest.approx(2**20, rel=0.05)
        assert extreme("bf16[20000]", "vast", seed).std() == pytest.approx(2**80, rel=0.05)
        broad = extreme("f32[40,500]", "broad", seed)
        assert np.count_nonzero(~broad.any(1)) == 10
        assert 3.8 < broad[broad != 0].std() < 8.3
        assert 0.04 < np.mean(broad[broad.any(1)] == 0) < 0.09
        assert 0.2 < np.mean(extreme("f32[20000]", "broad", seed) == 0) < 0.35
    assert np.count_nonzero(~extreme("f16[2,70]", "broad").any(1)) == 1


@pytest.mark.parametrize(
    ("content", "nearest"), [("", 0.0), ("normal(3, 2)", 3.0), ("uniform(-2, 1)", 0.0), ("uniform(0.5, 1)", 0.5)]
)
def test_sparse_numbers_are_near_one_number_but_for_a_few(content: str, nearest: float) -> None:
    for shape, few in (("[20,1000]", 20000 / 64), ("[20000]", 64)):
        row = extreme(f"f64{shape} {content}", "sparse")
        assert 0.6 * few < np.count_nonzero(np.abs(row - nearest) > 0.02) < 1.4 * few
    x, usual = extreme(f"f64[20,1000] {content}", "sparse"), extreme(f"f64[20,1000] {content}", "")
    if "uniform" in content:
        assert usual.min() - 1e-3 < x.min()
        assert x.max() < usual.max() + 1e-3


def test_each_tensor_has_each_extreme_form_once_and_its_neighbours_others() -> None:
    line = "x: f16[8]; i: i64[8] < 3; y: f32[8]; u: f32[8] uniform(0, 1); c: f32[8] normal(1, 0); z: f32[8] zeros"
    forms = extreme_forms(parse_line(line).tensors, random.Random(3))
    varied = {"up", "down", "tiny", "broad", "wide", "round", "huge", "vast", "holes", "infinite"}
    rest = forms.index(("sparse", "", "sparse", "sparse", "", ""))
    each = [sorted(f[n] for f in forms[:rest] if f[n]) for n in (0, 2)]
    assert each == [sorted(varied - {"vast"}), sorted(varied)], "float16 has no such"
    assert all(f[0] != f[2] for f in forms[:rest])
    odd = [{*f} - {""} for f in forms[:rest] if {"holes", "infinite"} & {*f}]
    assert all(f <= {"holes", "infinite"} for f in odd), "nothing is beside what may demand nothing"
    assert len(odd) in (3, 4)
    assert forms[rest : rest + 7] == [
        ("sparse", "", "sparse", "sparse", "", ""), ("ordered", "", "", "", "", ""), ("", "few", "", "", "", ""),
        ("", "full", "", "", "", ""), ("", "least", "", "", "", ""), ("", "arranged", "", "", "", ""),
        ("", "", "", "paired", "", ""),
    ]  # fmt: skip
    assert forms[rest + 7] == ("none", "", "none", "", "", "")
    rest += 3
    lone, alike = "lone", "alike"
    assert sorted(forms[rest + 5 : rest + 8]) == [
        (alike, "", alike, lone, "", ""), (alike, "", lone, alike, "", ""), (lone, "", alike, alike, "", "")
    ]  # fmt: skip
    assert forms[rest + 8 : -2] == [("hole", *[""] * 5), ("", "", "hole", "", "", "")] * 3
    assert forms[-2:] == [("deep", "", "deep", "", "", ""), ("deep", "", "up", "", "", "")]
    assert [f for f in extreme_forms(parse_line("x: f16[8]").tensors, random.Random(3)) if "deep" in f] == [("deep",)]
    others = {"ties", "close", "far", "banded", "scaled", "powers", *ENDS, *GRIDS, *OF_MADE, OF_ALIKE}
    assert {form for f in forms for form in f} == {*EXTREMES} - others | {""}
    for line, count in (("x: f32[8]; y: f32[1,9]", 1), ("x: f32[8]; y: f32[2,9]", 0), ("u: f32[8] uniform(0, 1)", 0)):
        assert sum("none" in f for f in extreme_forms(parse_line(line).tensors, random.Random(3))) == count
    assert not extreme("f32[9]", "none").any()
    line = "x: f16[8]; a: f32[8]; b: f32[8]; c: f32[9]; i: i64[8] in -8..8; j: i64[8] < 18"
    forms = extreme_forms(parse_line(line).tensors, random.Random(3))
    assert [f for f in forms if {"paired", "powers"} & {*f}] == [
        ("", "", "", "", "", "powers"), ("", "paired", "paired", "", "", "")
    ]  # fmt: skip
    many = parse_line("; ".join(f"x{i}: f32[8]" for i in range(9))).tensors
    assert sum("lone" in f for f in extreme_forms(many, random.Random(3))) == 4
    single = extreme_forms(parse_line("x: f32[8]; a: f32[1]; b: f32[]").tensors, random.Random(3))
    assert {f[k] for f in single for k in (1, 2)} & {"up", "holes", "infinite", "hole"} == {"up"}
    assert {f[0] for f in single} > {"up", "holes", "infinite", "hole"}
    assert extreme_forms(parse_line("u: f32[8] uniform(2, 2); i: i64[8] < 1").tensors, random.Random(3)) == []


@pytest.mark.parametrize("form", ["sparse", "lone"])
@pytest.mark.parametrize(("shape", "piece"), [("[20,1000]", 64), ("[20000]", 312), ("[9]", 64)])
def test_each_piece_has_a_full_number_and_ends_the_least_and_the_largest(form: str, shape: str, piece: int) -> None:
    """So nothing can be left out at an end, nor twice the length of a piece anywhere. Of either form another end has
    the largest alone, which a maximum may leave out."""
    for seed in range(5):
        x = extreme(f"f32{shape}", form, seed).reshape(-1)
        full = np.flatnonzero(np.abs(x) > (0.005 if form == "sparse" else 0))
        if shape != "[9]":
            assert (x[0], x[-1])[:: 1 if form == "sparse" else -1] == (x.min(), x.max())
        assert form == "sparse" or np.diff(full).max() < 2 * piece  # where a full number may be nearly zero
        assert len(full) <= len(x) / piece + 3


def test_of_lone_numbers_on_one_side_both_ends_are_far_away() -> None:
    x = extreme("f32[20000] uniform(0, 1)", "lone").reshape(-1)
    assert x[0] == x[-1] == x.max()
    x = extreme("f32[20000] uniform(0, 1)", "sparse").reshape(-1)
    assert (x[0] < 0.001, x[-1] == x.max()) == (True, True)


def test_lone_numbers_are_beside_one_number() -> None:
    assert np.count_nonzero(extreme("f32[64,100]", "lone") == 0) > 6000
    assert np.count_nonzero(extreme("f32[64,100] uniform(0.5, 1)", "lone") == 0.5) > 6000
    assert np.abs(extreme("f32[64,100]", "lone")).max() > 1


def test_half_of_the_rows_are_alike() -> None:
    begins = set()
    for seed in range(20):
        x = extreme("f32[40,50]", "alike", seed)
        (alike,) = np.nonzero((x == x[0]).all(1))
        assert len(alike) in (20, 21)  # the first row is like itself
        assert len({*x[:, 0]}) == 40 - len(alike) + 1
        begins.add(int(alike[-1]))
    assert len(begins) > 5
    assert len({*extreme("f32[50]", "alike")}) == 50


def test_ordered_rows_go_up_down_and_from_anywhere_on() -> None:
    x = extreme("bf16[64,200]", "ordered")
    falls = [int(np.count_nonzero(np.diff(row) < 0)) for row in x]
    assert sum(n == 0 for n in falls) >= 8
    assert sum(n > 100 for n in falls) >= 24
    assert sum(n == 1 for n in falls) >= 8
    assert len({int(np.argmax(row)) // 20 for row in x}) > 5
    assert sorted(x.flat) == sorted(extreme("bf16[64,200]", "").flat)


def test_few_floats_tie() -> None:
    for text in ("f32[40,50]", "f32[40,50] uniform(0, 1)", "f32[2000] normal(3, 1)"):
        assert len({*extreme(text, "ties").flat}) == 3


def test_few_whole_numbers_are_three_and_one_along_half_of_the_rows() -> None:
    (given,) = parse_line("i: i64[40,500] in -7..1000").tensors
    found = np.frombuffer(content_of(given, 5, "few"), "<i8").reshape(40, 500)
    assert len({*found.flat}) == 3
    assert {-7, 1000} < {*found.flat}
    alike = [row[0] for row in found if len({*row}) == 1]
    assert len(alike) == 20
    assert len({*alike}) == 3
    (row,) = parse_line("m: bool[500]").tensors
    assert 100 < sum(content_of(row, 5, "few")) < 400


def test_few_whole_numbers_have_pieces_of_rows_and_most_of_a_single_one() -> None:
    """A row whose first block is masked, but not all of it; a bin of most numbers; runs longer than any other."""
    (given,) = parse_line("m: bool[64,500]").tensors
    found = np.frombuffer(content_of(given, 5, "few"), "u1").reshape(64, 500)
    for piece in (found[:, :100], found[:, -100:]):
        for value in (0, 1):
            assert any((row == value).all() and {*other} == {0, 1} for row, other in zip(piece, found, strict=True))
    for seed in range(5):
        ids = np.frombuffer(content_of(parse_line("i: i32[40000] < 64").tensors[0], seed, "few"), "<i4")
        assert np.bincount(ids).max() >= 35_000
        assert len({*ids}) == 3
        assert np.diff(np.flatnonzero(np.diff(ids))).max() >= 34_999


@pytest.mark.parametrize("sizes", ["64,128", "3,40,128", "2,1,64,96", "64,1,1,128"])
def test_half_of_the_rows_of_a_mask_see_one_piece_and_others_have_a_length(sizes: str) -> None:
    """Tiles that are masked as a whole come before others, for all rows of a tile; rows end somewhere."""
    (given,) = parse_line(f"m: bool[{sizes}]").tensors
    own = given.shape[-2] if given.shape[-2] > 1 else 64
    lengths = 0
    for m in np.frombuffer(content_of(given, 5, "few"), "u1").reshape(-1, own, given.columns):
        halves, quarter = np.split(m, [own // 2]), given.columns // 4
        seen = [half[0] for half in halves if (half == half[0]).all()]
        assert [(one.sum(), int(one.argmax()) // quarter) for one in seen] in ([(quarter, 1)], [(quarter, 2)])
        other = next(half for half in halves if not (half == half[0]).all())
        lengths += sum(np.count_nonzero(np.diff(row.astype(int))) == 1 for row in other)
    assert lengths >= 4


@pytest.mark.parametrize("sizes", ["64,128", "5,48,64", "20,64", "300,256"])
def test_arranged_flags_are_a_mask_with_one_other_flag_in_a_few_rows(sizes: str) -> None:
    """Rows with a single flag, and such in tiles that are masked for all other rows, of either kind."""
    (given,) = parse_line(f"m: bool[{sizes}]").tensors
    rows, columns = given.shape[-2:]
    for m in np.frombuffer(content_of(given, 5, "arranged"), "u1").reshape(-1, rows, columns):
        first = rows // 3 if rows >= 128 else 0
        causal, halves = m[:first], np.split(m[first:], [(rows - first) // 2])
        if first:
            assert not causal[:, -1].any()
            assert causal[0].sum() == 1
            assert causal[first // 2 - 1, : columns // 2 - 4].all()
            assert (causal[-1, : columns // 2].any(), causal[-1, columns // 2 : -4].all()) == (False, True)
        assert sorted(half.mean() > 0.5 for half in halves) == [False, True]
        for half in (half ^ int(half.mean() > 0.5) for half in halves):
            alone = half.sum(1) == 1
            share = 2 if len(half) < 32 else 8
            assert np.count_nonzero(alone) == -(-len(half) // share)
            assert (half[~alone] == half[~alone][0]).all()
            assert half[~alone][0].sum() == columns // 4


def test_arranged_flags_of_a_vector_are_mostly_one_in_each_half() -> None:
    (given,) = parse_line("m: bool[4000]").tensors
    first, last = np.split(np.frombuffer(content_of(given, 5, "arranged"), "u1"), 2)
    assert sorted(min(one.mean(), 1 - one.mean()) for one in (first, last))[0] > 0.01
    assert sorted((first.mean(), last.mean()))[0] < 0.02
    assert sorted((first.mean(), last.mean()))[1] > 0.98


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [("i32[5000] in -9..1000000000", -9, 10**9), ("u8[900] < 200", 0, 129), ("u8[900] in 40..90", 63, 65)],
)
def test_powers_of_two_and_ten_have_neighbours(text: str, first: int, last: int) -> None:
    given = tensor(text)
    found = {*np.frombuffer(content_of(given, 1, "powers"), given.dtype).tolist()}
    powers = [base**k for base in (2, 10) for k in range(33)]
    near = {sign * x + beside for sign in (1, -1) for x in powers for beside in (-1, 0, 1)}
    assert found == {x for x in near if given.low <= x <= given.high}
    assert (min(found), max(found) >= last) == (first, True)
    (none,) = parse_line("i: i32[900] in 140..250").tensors
    assert content_of(none, 1, "powers") == content_of(none, 1)


LAID = [("12,256", 12), ("1024", 4), ("1,1024", 4), ("48", 3), ("300,2", 4), ("5", 1)]


@pytest.mark.parametrize(("sizes", "rows"), LAID)
def test_arranged_whole_numbers_are_in_order_have_repeats_or_follow_each_other(sizes: str, rows: int) -> None:
    """As sorted indices are, segments of a batch, places of a sequence."""
    steps = set[str]()
    for seed in range(40 if rows < 4 else 2):
        (given,) = parse_line(f"i: i64[{sizes}] in -20..900").tensors
        pieces = np.array_split(np.frombuffer(content_of(given, seed, "arranged"), "<i8"), rows)
        assert all(given.low <= x.min() <= x.max() <= given.high for x in pieces)
        for x in pieces:
            by = np.diff(x)
            falls = np.flatnonzero(by < 0)
            kind = "on" if np.isin(by, (1, -920)).all() else "up" if len(falls) == 0 else "down"
            if kind == "down" and len(falls) == 1 and len(x) > 4:
                assert x[: falls[0] + 1].min() >= x[falls[0] + 1 :].max(), "the least come last"
                assert falls[0] + 1 >= 0.74 * len(x)
                kind = "anew"
            assert kind != "down" or (by <= 0).all()
            steps.add("repeats" if kind == "up" and len(by) > 4 and (by == 0).mean() > 0.6 else kind)
    assert steps >= {"on", "down"} | ({"repeats", "anew"} if rows > 1 else {"up"})


def test_paired_numbers_are_equal_or_zeros_and_have_the_ends_of_their_range() -> None:
    for text in ("f32[40,50]", "f16[2000]", "f32[4,500] normal(0, 3)"):
        x, y = (extreme(f"{text}", "paired", 5, name).reshape(-1) for name in "xy")
        assert 0.15 < np.mean((x == y) & (x != 0)) < 0.35
        assert 0.15 < np.mean((x == 0) & (y == 0)) < 0.35
        assert 0.3 < np.mean(np.signbit(x[x == 0])) < 0.7
        assert 0.4 < np.mean(x != y) < 0.6
    x, y = (extreme("f32[2000] uniform(-1, 0.3)", "paired", 5, name) for name in "xy")
    for end in (-1, np.float32(0.3)):
        assert 0.08 < np.mean(x == end) < 0.18
    assert np.mean(x == y) > 0.2
    x, y = (extreme("f32[2000] normal(3, 1)", "paired", 5, name) for name in "xy")
    assert (0.15 < np.mean(x == y) < 0.35, x.any()) == (True, True)


def test_round_numbers_are_where_functions_have_borders_and_what_is_known() -> None:
    x = extreme("f32[2000]", "round")
    assert {*x.flat} == {*np.arange(-32, 33) / 2}
    assert (np.signbit(x[x == 0]).any(), np.signbit(x[x == 0]).all()) == (True, False)
    tensors = parse_line("x: f32[2000]; edges: f32[2] = [-0.3, 0.7]; n: i32[1] = [99]").tensors
    for form in ("round", "scaled"):
        x, *_ = (np.frombuffer(c, "<f4") for c in contents_of(tensors, 5, (form, "", "")))
        assert all(40 < np.count_nonzero(x == np.float32(edge)) < 250 for edge in (-0.3, 0.7))
        assert not (x == 99).any()


def test_elements_may_equal_numbers_of_the_call_that_their_dtype_has() -> None:
    """A threshold, an index that stands for what isn't there; not one that a narrow dtype rounds."""
    tensors = "x: f32[2000]; y: f16[2000]; i: i64[2000] < 90"
    case = parse_line(f"{tensors}; t = 0.3; half = 0.28125; k = 41; n = 1000; b = True")
    assert case.numbers == [float(np.float32(0.3)), 0.28125, 41, 1000]
    for form in ("round", "scaled"):
        x, y, i = contents_of(case.tensors, 5, (form, form, "powers"), case.numbers)
        found = [np.frombuffer(x, "<f4"), np.frombuffer(y, "<f2"), np.frombuffer(i, "<i8")]
        each = [[np.count_nonzero(one == np.dtype(one.dtype).type(n)) for n in case.numbers[:3]] for one in found]
        assert all(30 < n < 120 for n in (*each[0], *each[1][1:]))
        assert each[1][0] == 0
        assert (150 < each[2][2] < 350, found[2].max()) == (True, 65)


def test_scaled_numbers_of_few_rows_reach_both_ends() -> None:
    """A maximum that begins at -1,000 is wrong where a whole row of float16 is below."""
    for seed in range(200):
        x = extreme("f16[40,50]", "scaled", seed)
        assert ((x < -2048).all(1).any(), (x > 2048).all(1).any()) == (True, True)


@pytest.mark.parametrize(("dtype", "largest"), [("f16", 2.0**14), ("f32", 2.0**90), ("bf16", 2.0**90)])
def test_scaled_numbers_are_of_all_sizes_and_rows_of_one_sign(dtype: str, largest: float) -> None:
    x = np.abs(y := extreme(f"{dtype}[64,100]", "scaled"))
    assert np.isfinite(x).all()
    assert (x.min() > 0, x.min() < 1 / 32, x.max() > largest) == (True, True, True)
    rows = [row for row in y if (row > 0).all() or (row < 0).all()]
    assert 20 < len(rows) < 44
    assert all(np.abs(row).max() <= 2.5 * np.abs(row).min() for row in rows if np.abs(row).min() > 2.0**-5)
    assert np.abs(extreme(f"{dtype}[64,100] normal(0, 1)", "scaled")).max() < 9, "what is declared stays"
    assert len({*np.sign(extreme(f"{dtype}[600]", "scaled"))}) == 2, "a single row has all sizes"


def test_float16_is_huge_within_its_range() -> None:
    x = extreme("f16[64,100]", "huge")
    assert 2**11 < x.std() < 2**13
    assert np.isfinite(x).all()


def test_zeros_of_either_sign_are_among_broad_numbers() -> None:
    x = extreme("f32[64,100]", "broad")
    assert 0.3 < np.mean(np.signbit(x[x == 0])) < 0.7


@pytest.mark.parametrize(
    ("declared", "wanted"),
    [
        ("i64[500] < 900", [{897, 898, 899}]), ("i32[500] in -7..3", [{-7, -6, -5}]), ("u8[500] < 2", [{1}]),
        ("i32[500] in 5..7", [{5, 6, 7}]), ("bool[500]", [{1}]), ("i32[500] in 4..4", [{4}]),
        ("i8[500] in -127..127", [{-127, -126, -125}, {125, 126, 127}]),
    ],
)  # fmt: skip
def test_full_numbers_are_furthest_from_zero(declared: str, wanted: list[set[int]]) -> None:
    given = tensor(declared)
    kind = np.dtype(given.dtype)
    found = [{*np.frombuffer(content_of(given, seed, "full"), kind).tolist()} for seed in range(12)]
    assert all(one in wanted for one in found)
    assert all(one in found for one in wanted)


@pytest.mark.parametrize(
    ("declared", "wanted"),
    [
        ("i64[500] < 900", {0, 1, 2}), ("i32[500] in -7..3", {-1, 0, 1}), ("bool[500]", {0}),
        ("i32[500] in -1..900", {-1, 0, 1}), ("i32[500] in 5..70", {5, 6, 7}), ("i32[500] in -9..-4", {-4, -5, -6}),
        ("u8[500] in 3..3", {3}), ("u8[500] in 3..4", {3}),
    ],
)  # fmt: skip
def test_least_numbers_are_nearest_to_zero(declared: str, wanted: set[int]) -> None:
    given = tensor(declared)
    kind = np.dtype(given.dtype)
    assert all({*np.frombuffer(content_of(given, seed, "least"), kind).tolist()} == wanted for seed in range(5))


@pytest.mark.parametrize("text", ["f32[4000]", "f16[4000] normal(3, 0.5)", "bf16[4000] uniform(0, 1)", "f64[4000]"])
def test_close_numbers_are_neighbours_in_their_dtype(text: str) -> None:
    given = tensor(text)
    for seed in range(5):
        bits = np.frombuffer(content_of(given, seed, "close"), f"u{FLOAT_FORMATS[given.dtype].width}").astype("i8")
        assert len({*bits.tolist()}) == 8
        assert bits.max() - bits.min() == 7
        assert content_of(msgspec.structs.replace(given, name="y"), seed, "close") != content_of(given, seed, "close")


@pytest.mark.parametrize(
    ("declared", "low", "high"),
    [
        ("", -40, 40),
        ("normal(3, 0.25)", 0, 6),
        ("uniform(0.1, 0.7)", 0.1, 0.7),
        ("uniform(-2, 1)", -2, 1),
    ],
)
def test_a_grid_has_whole_numbers_halves_and_zeros(declared: str, low: float, high: float) -> None:
    x, y = (extreme(f"f32[4000] {declared}", "grid", seed) for seed in (1, 2))
    assert low <= x.min() <= x.max() <= high
    assert not (x * 2**12 % 1).any(), "few bits"
    assert np.count_nonzero(x == y) > 40
    if not declared:
        assert (np.signbit(x[x == 0]).any(), np.signbit(x[x == 0]).all()) == (True, False)
        assert all(np.count_nonzero(x * 2**k % 1 == 0.5) > 40 for k in range(8))
        above, below = (extreme("f32[4000]", form) for form in ("above", "below"))
        assert above.min() > 30
        assert below.max() < -30
        assert not (above * 256 % 1).any()


@pytest.mark.parametrize(
    ("text", "form", "found"),
    [
        ("f32[900]", "ends", {0, 2.0**-100, 2.0**100, np.inf}), ("f32[900]", "specks", {0, 2.0**-100, 2.0**100}),
        ("f16[900]", "ends", {0, 2.0**-12, 2.0**12, np.inf}), ("f32[900] uniform(0, 10)", "ends", {0, 2.0**-100}),
        ("f32[900] normal(0, 1)", "ends", {0}),
    ],
)  # fmt: skip
def test_ends_are_those_that_are_declared(text: str, form: str, found: set[float]) -> None:
    numbers = extreme(text, form)
    assert {*np.abs(numbers)} == found
    assert np.signbit(numbers).any()
    assert len({*extreme("f32[900] normal(3, 1)", form)}) == 900


def test_multiples_are_of_what_other_inputs_have() -> None:
    x, y = (extreme("f32[2000]", "multiples", name=name).astype("f8") for name in "xy")
    whole = np.round(x / y)
    near = np.abs(x / y - whole) < 2.0**-23 * whole
    assert np.count_nonzero(near & (x / y < whole)) > 200
    assert len({*extreme("f32[900] normal(3, 1)", "multiples")}) == 900


def test_infinite_numbers_have_both_signs() -> None:
    x = extreme("f32[20,1000]", "infinite")
    assert np.count_nonzero(np.isinf(x)) == 20_000 // 256
    assert 20 < np.count_nonzero(x == np.inf) < 58
    assert not np.isnan(x).any()


def test_holes_are_not_a_number() -> None:
    x = extreme("f32[20,1000]", "holes")
    assert np.count_nonzero(np.isnan(x)) == 20_000 // 256
    assert not np.isinf(x).any()
    assert np.count_nonzero(np.isnan(extreme("f32[9]", "holes"))) == 1


def test_a_hole_is_one_number() -> None:
    found = [extreme("f32[9]", "hole", seed) for seed in range(60)]
    odd = [x[~np.isfinite(x)] for x in found]
    assert {len(x) for x in odd} == {1}
    assert {str(x[0]) for x in odd} == {"nan", "inf", "-inf"}
    assert len({int(np.flatnonzero(~np.isfinite(x))[0]) for x in found}) == 9


def test_of_large_inputs_two_extreme_contents_are_drawn_and_one_has_bands() -> None:
    small, large = (parse_line(f"x: f32[{n}]; y: f32[1048576]").tensors for n in (1048576, 1048577))
    assert len(extreme_forms(small, random.Random(3))) == 27
    drawn = [tuple(extreme_forms(large, random.Random(seed))) for seed in range(40)]
    assert {len({*forms}) for forms in drawn} == {3}
    assert all(forms[2] == ("banded", "banded") for forms in drawn)
    assert {form for forms in drawn for form in forms} > {("sparse", "sparse")}
    assert len({*drawn}) > 10
    declared = parse_line("x: f32[2097153] uniform(0, 1)").tensors
    assert len(extreme_forms(declared, random.Random(3))) == 2


@pytest.mark.parametrize(("text", "far"), [("f32[400,100]", 2**20), ("f32[40000]", 2**20), ("f16[400,100]", 2**7)])
def test_bands_are_far_from_zero_or_wide(text: str, far: float) -> None:
    rows = extreme(text, "banded").reshape(-1, 100 if "," in text else 64)
    assert np.isfinite(rows).all()
    middle, width = rows.mean(1), rows.std(1)
    for found in (middle > 60, middle < -60, (width > 40) & (width < 400)):
        assert np.count_nonzero(found & (width < 400)) > len(rows) / 6
    assert np.count_nonzero(width > far / 3) > len(rows) / 6
    assert np.count_nonzero((middle == 0) & (width == 0)) > 1
    assert np.count_nonzero((width > 0) & (np.abs(middle) + width < 0.2)) > 1


def test_one_of_a_few_rows_is_zeros() -> None:
    """Of large inputs no other content has such a row for sure."""
    for seed in range(20):
        assert not extreme("f32[3,900]", "banded", seed).reshape(3, 900).any(1).all()


@pytest.mark.parametrize("form", ["broad", "banded"])
def test_some_columns_and_planes_are_zeros(form: str) -> None:
    """Some along each dimension that has as many, and of those that several of the last dimensions are. Of banded ones
    others have rows of one number in place of that."""
    counts = 0
    for seed in range(24):
        x = extreme("f16[4,5,6,128]", form, seed)
        if form == "banded" and x.any((0, 1, 2)).all():
            continue
        counts += 1
        assert [int(np.count_nonzero(~x.any(axes))) for axes in ((0, 1, 2), (0, 2, 3), (0, 1, 3))] == [2, 1, 1]
        assert np.count_nonzero(~x.any((1, 2, 3))) == 1
        assert 1 < np.count_nonzero(~x.any((2, 3))) < 13
    assert counts == 24 if form == "broad" else 2 < counts < 22
    few, long = extreme("f32[100,3]", "broad"), extreme("f32[3,900]", "broad")
    assert few.any(0).all(), "too few columns"
    assert np.count_nonzero(~long.any(0)) >= 14
    assert np.count_nonzero(~long.any(1)) == 1


@pytest.mark.parametrize("form", ["round", "banded"])
def test_some_rows_are_one_number(form: str) -> None:
    numbers, counts = set[float](), 0
    for seed in range(24):
        x = extreme("bf16[64,80]", form, seed)
        alike = x[(x == x[:, :1]).all(1), 0]
        counts += len(alike[alike != 0]) == (4 if form == "round" else 1)
        numbers |= {*alike}
        assert len(alike) >= (4 if form == "round" else 1)
    assert counts == 24 if form == "round" else 4 < counts < 20
    assert {*numbers} - {0} > ({-2, -1.75, -0.25, 0.25, 1, 2} if form == "round" else {*()})
    small = extreme("f32[3,80]", form)
    assert not (small[small.any(1)] == small[small.any(1)][:, :1]).all(1).any(), "too few rows"


@pytest.mark.parametrize("form", ["sparse", "banded"])
def test_rows_are_zeros_in_all_inputs_that_have_as_many(form: str) -> None:
    """What is added of several is zeros there."""
    for seed in range(8):
        x, y, z = (extreme(text, form, seed, name) for text, name in (
            ("f16[40,90]", "x"), ("f32[2,20,7]", "y"), ("f32[40,1]", "z")))  # fmt: skip
        both = ~x.any(1) & ~y.reshape(40, 7).any(1) & ~z.any(1)
        assert np.count_nonzero(both) >= (2 if form == "sparse" else 1)
        assert np.count_nonzero(both) < 6
        assert form == "banded" or x[[0, -1]].any(1).all()
    assert extreme("f32[3,90]", "sparse").any(1).all(), "too few rows"
    assert extreme("f32[40,90] uniform(1, 2)", "sparse").all(), "zero isn't declared"


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_some_of_broad_rows_go_up_and_some_down(dtype: str) -> None:
    """But for the columns of zeros among them."""
    for seed in range(5):
        x = extreme(f"{dtype}[40,63]", "broad", seed)
        falls = [np.count_nonzero(np.diff(row) < 0) for row in x if row.any()]
        rises = [np.count_nonzero(np.diff(row) > 0) for row in x if row.any()]
        for found in (falls, rises):
            assert 4 < sum(n < 12 for n in found) <= 10
        assert sum(n > 20 for n in falls) > 12


@pytest.mark.parametrize(("shape", "by_rows"), [("[40,90]", True), ("[3600]", False), ("[4,900]", False)])
def test_huge_numbers_are_of_all_sizes_above_wide_ones(shape: str, by_rows: bool) -> None:
    """Each binade has as many: rows, or elements where rows are few."""
    x = extreme(f"f32{shape}", "huge").astype("f8")
    sizes = np.floor(np.log2(x.reshape(40, 90).std(1) if by_rows else np.abs(x[x != 0]))).astype(int)
    counts = [np.mean(sizes == k) for k in range(11, 20)]
    assert min(counts) > 0.03
    assert max(counts) < 0.15
    assert sizes.max() > 20


def test_vast_numbers_of_float64_have_no_squares() -> None:
    x = extreme("f64[900]", "vast")
    assert np.isfinite(x).all()
    with np.errstate(over="ignore"):
        assert np.mean(np.isinf(x * x)) > 0.9


@pytest.mark.parametrize("beside", [0, 1 << 20])
def test_a_content_is_of_the_forms_that_are_asked_for(beside: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether tensors are drawn beside each other or not."""
    monkeypatch.setattr(declared_inputs, "BESIDE", beside)
    tensors = parse_line("x: f32[800]; y: f32[800]").tensors
    assert contents_of(tensors, 5, ()) == tuple(content_of(t, 5) for t in tensors)
    x, y = (np.frombuffer(c, "<f4") for c in contents_of(tensors, 5, ("up", "tiny")))
    assert x.mean() > 10
    assert np.abs(y).max() < 0.01


def test_more_numbers_than_memory_holds_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object) -> bytes:
        raise MemoryError

    monkeypatch.setattr(declared_inputs, "content_of", fails)
    with pytest.raises(MeasurementError, match="the memory to draw 3,600,000,002 numbers: declare fewer"):
        declared_inputs.contents_of(parse_line("x: u8[3,1200000000] < 9; y: f32[2]").tensors, 1, ())


def test_whole_numbers_that_are_known_are_drawn_when_the_line_is_read() -> None:
    lines = "t: i64[300] in -5..9 known; m: bool[50] known"
    first, second = (parse_line(lines).tensors for _ in range(2))
    assert [t.content for t in first] == ["fixed", "fixed"]
    assert ({*first[0].values}, {*first[1].values}) == ({*range(-5, 10)}, {0, 1})
    assert first[0].values != second[0].values
    for text, told in (("f32[3] known", "no content"), ("i64[70000] < 3 known", "70,000 numbers, of which at most")):
        with pytest.raises(UsageError, match=told):
            parse_line(f"x: {text}")


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [
        ("float8_e4m3fn", [127, 127, 255, 0, 128, 56, 254, 126]),
        ("float8_e5m2", [127, 124, 252, 0, 128, 60, 223, 123]),
    ],
)
def test_eight_bits_are_as_torchs_where_that_has_no_number(dtype: str, wanted: list[int]) -> None:
    numbers = np.array([np.nan, np.inf, -np.inf, 1e-8, -1e-8, 1.0, -448.0, 60000.0])
    assert [*bytes_of(numbers, dtype)] == wanted


def test_a_float_is_what_triton_gives_a_kernel() -> None:
    """1 - 0.999 differs by 5e-5 otherwise. What 32 bits don't hold stays."""
    assert as_launched(0.999) == 1 - float(np.float32(1) - np.float32(0.999))
    assert [as_launched(x) for x in (0.5, 0.0, 1e-300, 1e300, float("inf"))] == [0.5, 0.0, 1e-300, 1e300, float("inf")]
    assert as_launched(float("nan")) != as_launched(float("nan"))
