"""The function by which a choice is called: its signature, and whom it calls."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from kerntune.kernels.dispatch.choice_function import ChoiceFunction, find_by, in_order


def by_name(a: Any, *, b: Any = 1, c: Any) -> None: ...
def by_place(a: Any, b: Any = 2, /) -> None: ...
def all_ways(a: Any, /, b: Any = 3, *, c: Any = 4, d: Any) -> None: ...
def plain(a: Any, b: Any = 5) -> None: ...


def parameters(function: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


@pytest.mark.parametrize(
    ("function", "signature", "arguments", "values"),
    [
        (plain, "a, b=kt_d1", "a, b", "a, b"),
        (by_name, "a, *, b=kt_d1, c", "a, b=b, c=c", "a, b, c"),
        (by_place, "a, b=kt_d1, /", "a, b", "a, b"),
        (all_ways, "a, /, b=kt_d1, *, c=kt_d2, d", "a, b, c=c, d=d", "a, b, c, d"),
    ],
)
def test_the_functions_source(function: Any, signature: str, arguments: str, values: str) -> None:
    text = ChoiceFunction(parameters(function)).text()
    assert text == (
        f"def kt_front({signature}):\n"
        "    if kt_compiling():\n"
        f"        return kt_traced({arguments})\n"
        f"    kt_found = kt_find({values})\n"
        "    if kt_found is not None:\n"
        f"        return kt_found({arguments})\n"
        f"    return kt_miss({arguments})\n"
    )


def test_parameters_by_position_come_first() -> None:
    a, b, c = parameters(by_name)
    assert in_order([b, a, c]) == [a, b, c]


def test_whom_it_calls() -> None:
    """The traced one while torch compiles, else what is found, else the miss."""
    calls: list[Any] = []
    compiling = [True]

    def named(name: str) -> Any:
        return lambda *args, **words: calls.append((name, args, words))

    made = ChoiceFunction(parameters(all_ways)).make(named("miss"), named("traced"), lambda: compiling[0])
    made(1, d=2)
    compiling[0] = False
    made(1, 9, d=2)
    find_by(made, lambda *values: named("found") if values == (1, 3, 4, 2) else None)
    made(1, d=2)
    made(0, d=2)
    assert calls == [
        ("traced", (1, 3), {"c": 4, "d": 2}), ("miss", (1, 9), {"c": 4, "d": 2}), ("found", (1, 3), {"c": 4, "d": 2}),
        ("miss", (0, 3), {"c": 4, "d": 2}),
    ]  # fmt: skip
    with pytest.raises(TypeError):
        made(a=1, d=2)
    with pytest.raises(TypeError):
        made(1, 2, 3)
