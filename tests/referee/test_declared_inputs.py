"""Lines of inputs: what they mean, what is refused, and the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from kerntune.errors import UsageError
from kerntune.gpu.compare import decode_floats
from kerntune.gpu.number_formats import FLOAT_FORMATS, values
from kerntune.referee.declared_inputs import content_of, name_number, parse_line
from kerntune.referee.tasks import PlainArgument, TensorAt, TensorInput


def tensor(text: str) -> TensorInput:
    return parse_line(f"x: {text}").tensors[0]


def test_a_line_is_a_case() -> None:
    case = parse_line("x: f16[4096, 128] normal; idx: i64[7] < 32000;  eps = 1e-5; flag = True; how = 'sum'")
    assert case.label == "x: f16[4096, 128] normal; idx: i64[7] < 32000; eps = 1e-5; flag = True; how = 'sum'"
    assert [(t.name, t.dtype, t.shape, t.strides) for t in case.tensors] == [
        ("x", "float16", (4096, 128), (128, 1)),
        ("idx", "int64", (7,), (1,)),
    ]
    plain = (PlainArgument(1e-5), PlainArgument(True), PlainArgument("sum"))
    assert case.arguments == (TensorAt(0), TensorAt(1), *plain)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "has no tensor"),
        ("eps = 1", "has no tensor"),
        ("x: f17[3]", "f17 is no dtype"),
        ("x: f16[3,a]", "no whole numbers"),
        ("x: f16[0]", "can't be"),
        ("x: f16[99999999999,99999]", "can't be"),
        ("x: i64[3]", "integers need"),
        ("x: f16[3] < 7", "says no content"),
        ("x: i64[3] < 0", "says no content"),
        ("x: i64[3] in 5..2", "says no content"),
        ("x: i64[3] = [1, 2]", "2 numbers for 3 elements"),
        ("x: i64[1] = [open('/etc/passwd')]", "no list of numbers"),
        ("x: f16[3]; x: f16[3]", "a name twice"),
        ("x: f16[3]; y = __import__('os')", "no number"),
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
    assert len(np.unique(floats(x, 1))) > 4090
    one, other = parse_line("projection_weight_a: f32[64]; projection_weight_b: f32[64]").tensors
    assert content_of(one, 1) != content_of(other, 1)


@pytest.mark.parametrize("dtype", ["f8e4m3", "f8e5m2"])
def test_eight_bit_floats_are_to_the_nearest(dtype: str) -> None:
    given = tensor(f"{dtype}[4000] uniform(-2, 2)")
    wide = np.random.default_rng([3, name_number("x")]).uniform(-2, 2, 4000)
    found = values(np.frombuffer(content_of(given, 3), "u1").astype("u8"), FLOAT_FORMATS[given.dtype])
    assert np.abs(found - wide).max() <= 2 * (2**-4 if "4m3" in dtype else 2**-3) / 2 + 1e-9
    assert np.isfinite(found).all()
