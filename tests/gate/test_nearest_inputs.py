"""What tells a call's tensors from those of its nearest stored case."""

from __future__ import annotations

import pytest

from kerntune.gate.baselines import Argument
from kerntune.gate.case_identity import nearest_difference, nearest_of_run


def tensor(*shape: int, dtype: str = "float32", strides: tuple[int, ...] = (1,)) -> Argument:
    return Argument(dtype, shape, strides)


X, Y, Z = tensor(37), tensor(64), tensor(8, 8, strides=(8, 1))


@pytest.mark.parametrize(
    ("today", "told"),
    [
        ((X, Y), ""),
        ((tensor(41), Y), "tensor 0 has shape (37,) stored and (41,) today"),
        ((X, tensor(64, dtype="int8")), "tensor 1 has dtype float32 stored and int8 today"),
        ((X, tensor(64, strides=(2,))), "tensor 1 has strides (1,) stored and (2,) today"),
        (
            (X, tensor(3, dtype="int8", strides=(2,))),
            "tensor 1 has dtype float32 stored and int8 today and shape (64,) stored and (3,) today",
        ),
        ((X,), ""),
        ((X, Y, Z), ""),
    ],
)
def test_what_differs(today: tuple[Argument, ...], told: str) -> None:
    assert nearest_difference(today, [(X, Y)]) == told


def test_the_nearest_is_the_one_with_the_fewest_tensors_that_differ() -> None:
    stored = [(Y, Y, Y), (X, Y, Y), (X, X, Y, Z)]
    assert nearest_difference((X, X, Y), stored) == "tensor 1 has shape (64,) stored and (37,) today"
    assert nearest_difference((X, X, Y), []) == ""


def test_of_what_a_run_has_met_the_nearest_is_the_same_one() -> None:
    """Not the one of the shortest text: of three tensors that differ two are named."""
    far, near = (X, X, X), (Y, Y, tensor(*[1000000] * 4, dtype="bfloat16"))
    met = [far, near, (Y, Y, Y), (X,)]
    assert nearest_of_run((Y, Y, Y), met) == nearest_difference(near, [(Y, Y, Y)])
    assert nearest_of_run((Y, Y, Y), [(Y, Y, Y), (X,)]) == ""


@pytest.mark.parametrize(("count", "more"), [(2, ""), (3, ", 1 more differ"), (5, ", 3 more differ")])
def test_two_are_named(count: int, more: str) -> None:
    found = nearest_difference((X,) * count, [(Y,) * count])
    two = "tensor {} has shape (64,) stored and (37,) today"
    assert found == f"{two.format(0)}, {two.format(1)}{more}"
