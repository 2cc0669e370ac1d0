"""Contents that are made of a task's own: which inputs are others, and how."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from kerntune.referee.case_inputs import CaseInputs
from kerntune.referee.declared_inputs import bytes_of, contents_of, parse_line
from kerntune.referee.further_contents import made_in_another_order, made_otherwise, made_sparse, nearly_alike
from kerntune.referee.hostile_recording import ITEM_BYTES


def case_of(line: str, *learned: int, parameters: tuple[int, ...] = ()) -> CaseInputs:
    case = parse_line(line)
    tensors = tuple(replace(t, content="author") for t in case.tensors)
    return replace(case, tensors=tensors, parameters={str(i): i for i in (*learned, *parameters)}, learned=learned)


def made(case: CaseInputs, kind: str, *given: Any) -> tuple[list[np.ndarray], tuple[str, ...]]:
    known = [bytes_of(np.asarray(x), t.dtype) for x, t in zip(given, case.tensors, strict=True)]
    found, forms = made_otherwise(case, known, 5, kind)
    return [np.frombuffer(x, "<f4") for x in found], forms


@pytest.mark.parametrize(("kind", "times"), [("stretched", 1), ("negated", -1), ("enlarged", 16)])
def test_all_inputs_are_scaled_by_one_number(kind: str, times: int) -> None:
    """A model's own aren't."""
    x, y, w = np.array([0.5, -0.25, 0.0]), np.array([1.5, 2.5]), np.array([0.5])
    (a, b, c), forms = made(case_of("x: f32[3]; y: f32[2]; w: f32[1]", 2), kind, x, y, w)
    assert forms == (kind, kind, "")
    assert 4 <= a[0] / x[0] / times <= 8
    assert np.allclose(b / y, a[0] / x[0], rtol=1e-6)
    assert (a[2], *c) == (0, 0.5)


@pytest.mark.parametrize(
    "given", [[1.0, 0.0, 2.0], [-1.0, 1.0, 1.0], [0.25, 0.25, 0.5], [0.5, np.inf, 1.0], [0.5, np.nan, 0.0]]
)
def test_what_may_be_flags_or_shares_stays(given: list[float]) -> None:
    for kind in ("stretched", "negated", "zeroed", "signed"):
        (found,), forms = made(case_of("x: f32[3]"), kind, given)
        assert forms == ("",)
        assert np.array_equal(found, np.float32(given), equal_nan=True)


def test_one_input_is_zeros() -> None:
    (a, b), forms = made(case_of("x: f32[2]; y: f32[2]"), "zeroed", [0.5, 0.25], [0.5, 1.5])
    assert sorted(forms) == ["", "zeroed"]
    assert [not x.any() for x in (a, b)] == [form == "zeroed" for form in forms]


def test_what_training_changes_has_other_signs_and_sizes() -> None:
    """The first of one sign has the other. Matrices of both signs stay, and so do buffers."""
    scale, matrix, variance = np.full(100, 0.75), np.array([0.5, -1.5, 0.25, 1.0]), np.full(4, 0.5)
    case = case_of("s: f32[100]; m: f32[2,2]; v: f32[4]", 0, 1, parameters=(2,))
    (s, m, v), forms = made(case, "signed", scale, matrix, variance)
    assert forms == ("signed", "", "")
    assert s[0] < 0
    assert {*np.sign(s)} == {-1, 1}
    sizes = np.abs(s / scale)
    assert (sizes.min() >= 4, sizes.max() <= 32, sizes.max() > 24) == (True, True, True)
    assert (*m, *v) == (*matrix, *variance)


ROWS, CAUSAL = np.arange(15).reshape(3, 5), np.tril(np.ones((8, 8), "f4"))


@pytest.mark.parametrize(
    ("line", "x", "order"),
    [
        ("i: i32[6]", [5, 0, 3, 3, 9, 1], "any"), ("i: i64[5]", [0, 4, 5, 5, 9], "steps"),
        ("i: i8[4]", [9, 8, 5, 0], "steps"),
        ("i: i64[3,5]", ROWS, "columns"), ("m: f32[8,8]", CAUSAL, "columns"), ("m: bool[8,8]", CAUSAL, "columns"),
        ("m: f32[8,8]", np.where(CAUSAL, 0, -np.inf), "columns"), ("i: i32[3]", [3, 3, 3], ""), ("i: i64[1]", [7], ""),
        ("i: i32[4]", [5, -1, 3, 2], ""), ("x: f32[4]", [0.5, 0.25, 1.0, 3.0], ""),
        ("x: f32[4]", [0.0, 1.0, 2.0, 4.0], ""),
        ("i: i64[3,2]", ROWS[:, :2], ""),
    ],
)  # fmt: skip
def test_what_a_task_makes_alike_each_time_has_another_order(line: str, x: Any, order: str) -> None:
    """Steps of offsets stay above zero, and rows of a mask keep their first and last."""
    case = case_of(f"{line}{' < 99' * (line[0] == 'i')}; y: f32[1]")
    known = (bytes_of(np.asarray(x), case.tensors[0].dtype), bytes(4))
    found = list(made_in_another_order(case, [known] * 2, 5))
    assert [forms for _, forms in found] == [("moved", "")] * bool(order)
    assert list(made_in_another_order(case, [known, (bytes(len(known[0])), bytes(4))], 5)) == []
    for (data, y), _ in found:
        a, b = (np.frombuffer(each, f"<i{ITEM_BYTES[case.tensors[0].dtype]}") for each in (known[0], data))
        assert (y, a.tobytes() != b.tobytes(), sorted(a) == sorted(b)) == (bytes(4), True, order != "steps")
        if order == "steps":
            assert sorted(np.diff(a)) == sorted(np.diff(b))
        if order == "columns":
            a, b = (each.reshape(case.tensors[0].shape).T for each in (a, b))
            assert (sorted(map(tuple, a)), *a[[0, -1]].flat) == (sorted(map(tuple, b)), *b[[0, -1]].flat)


def test_whole_numbers_and_eight_bits_stay() -> None:
    case = case_of("i: i32[3]; q: f8e4m3[3]".replace("i32[3]", "i32[3] < 9"), 1)
    known = [bytes_of(np.array([1, 2, 3]), "int32"), bytes_of(np.array([0.5, 0.25, 1.5]), "float8_e4m3fn")]
    for kind in ("stretched", "signed"):
        assert made_otherwise(case, known, 5, kind) == (known, ("", ""))


SYMMETRIC = np.arange(16, dtype="f4").reshape(4, 4) + np.arange(16, dtype="f4").reshape(4, 4).T + 0.5


@pytest.mark.parametrize(
    ("x", "form"),
    [
        (SYMMETRIC, ""), (SYMMETRIC * np.arange(4, dtype="f4"), "sparse"), (np.eye(4, dtype="f4"), ""),
        (np.triu(SYMMETRIC), "sparse"), (SYMMETRIC.reshape(2, 8), "sparse"), (SYMMETRIC.reshape(16, 1, 1), "sparse"),
    ],
)  # fmt: skip
def test_sparse_numbers_of_a_task_leave_flags_and_symmetric_matrices(x: np.ndarray, form: str) -> None:
    """A kernel may ask whether a target is above a half, and read one half of a matrix."""
    case = parse_line(f"x: f32[{','.join(map(str, x.shape))}]")
    (found,), forms = made_sparse(case, [x.tobytes()], 3)
    assert (forms, found == x.tobytes()) == ((form,), not form)


def test_contents_are_nearly_those_of_the_call_before() -> None:
    """An element, a piece and all of an input are another content's; what a task makes of flags or places stays."""
    case = parse_line("x: f32[8,40]; i: i32[64] < 1000; n: i32[2] = [5, 7]")
    known, other = (contents_of(case.tensors, seed, ()) for seed in (3, 4))
    for seed in range(20):
        counts = list[int]()
        for near in nearly_alike(case, known, other, seed):
            (changed,) = (i for i, data in enumerate(near) if data != known[i])
            was, is_now, else_there = (np.frombuffer(x[changed], "<u4") for x in (known, near, other))
            assert np.isin(is_now, [was, else_there]).all()
            counts.append(np.count_nonzero(was != is_now))
        assert counts[0] == 1
        assert 1 <= counts[1] <= 40 < counts[2]
    made_by_author = case_of("x: f32[8,40]; i: i32[64] < 1000; n: i32[2] = [5, 7]")
    assert all(near[1:] == (*known[1:],) for near in nearly_alike(made_by_author, known, other, 3))
    assert [*nearly_alike(case_of("x: f32[8,40]"), known[:1], known[:1], 3)] == []
