"""Plans of a launch's arguments: what a graph hands over, and what is made of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kerntune.tuning.torch_compile.launch_arguments import (
    UNKNOWN,
    ArgumentPlan,
    ExampleLayout,
    GraphValue,
    KnownValue,
    ListedValues,
    OpenTensor,
    RebuiltFunction,
    TensorDescription,
    TracingReader,
    Values,
    _known,
    is_fixed,
    parts,
    settle,
)

X, Y = torch.zeros(4, 8), torch.ones(2)
VALUES = Values((X, Y), (3, 5), (0.5,))
T0, T1, I1 = GraphValue("tensors", 0), GraphValue("tensors", 1), GraphValue("ints", 1)


def rebuilt(*cells: ArgumentPlan) -> RebuiltFunction:
    outer = 2

    def grid(meta: Any, scale: int = 1, *, step: int = 1) -> tuple[int, ...]:
        return (outer, meta, scale, step)

    return RebuiltFunction(grid.__code__, grid.__globals__, cells, (GraphValue("ints", 0),), (("step", KnownValue(7)),))


def test_values_are_made_of_what_the_graph_hands_over() -> None:
    assert [plan.of(VALUES) for plan in (KnownValue("a"), I1, GraphValue("floats", 0))] == ["a", 5, 0.5]
    assert ListedValues(list, (KnownValue(1), I1)).of(VALUES) == [1, 5]
    assert ListedValues(tuple, (I1,)).of(VALUES) == (5,)
    made = TensorDescription(T0, (2, 4)).of(VALUES)
    assert (made.base is X, (*made.shape,), (*made.strides,), made.block_shape) == (True, (4, 8), (8, 1), [2, 4])
    grid = rebuilt(I1).of(VALUES)
    assert (grid("meta"), grid("meta", 9, step=8)) == ((5, "meta", 3, 7), (5, "meta", 9, 8))


def test_a_function_without_keywords_has_none() -> None:
    made = RebuiltFunction((lambda: 1).__code__, {}, (), (), ()).of(VALUES)
    assert (made(), made.__kwdefaults__) == (1, None)


@pytest.mark.parametrize(
    ("plan", "inside", "fixed"),
    [
        (KnownValue(1), [], True),
        (T0, [], False),
        (I1, [], False),
        (ListedValues(tuple, (T1, KnownValue(1))), [T1, KnownValue(1)], False),
        (ListedValues(tuple, (KnownValue(1),)), [KnownValue(1)], True),
        (TensorDescription(T0, (2,)), [T0], False),
        (rebuilt(T1), [T1, GraphValue("ints", 0), KnownValue(7)], False),
    ],
    ids=["known", "tensor", "number", "list", "fixed list", "descriptor", "function"],
)
def test_a_plan_is_fixed_unless_the_graph_hands_a_part_over(
    plan: ArgumentPlan, inside: list[ArgumentPlan], fixed: bool
) -> None:
    assert list(parts(plan)) == [plan, *inside]
    assert is_fixed(plan) is fixed
    assert settle(plan) == (KnownValue(plan.of(VALUES)) if fixed else plan)


def test_a_traced_value_is_handed_over_once() -> None:
    reader = TracingReader()
    assert [reader.plan_of(x) for x in (X, Y, X)] == [T0, T1, T0]
    assert reader.plan_of([Y, 3]) == ListedValues(list, (T1, KnownValue(3)))
    assert reader.plan_of((2, 3)) == KnownValue((2, 3))
    described = SimpleNamespace(block_shape=[2, 4], base=X)
    assert reader.plan_of(described) == TensorDescription(T0, (2, 4))
    assert [t is x for t, x in zip(reader.tensors, (X, Y), strict=True)] == [True, True]
    assert (reader.ints, reader.floats) == ([], [])
    assert {place: example is (X, Y)[place.index] for place, example in reader.examples.items()} == {T0: True, T1: True}


def test_a_function_that_closes_over_what_is_known_stays_itself() -> None:
    n, x = 3, X

    def known() -> int:
        return n

    def over_a_tensor(scale: int = 2, *, step: Any = Y) -> Any:
        return x, scale, step

    reader = TracingReader()
    assert reader.plan_of(known) == KnownValue(known)
    assert reader.plan_of(len) == KnownValue(len)
    found = reader.plan_of(over_a_tensor)
    assert found == RebuiltFunction(
        over_a_tensor.__code__, over_a_tensor.__globals__, (T0,), (KnownValue(2),), (("step", T1),)
    )
    made = found.of(VALUES)()
    assert (made[0] is X, made[1], made[2] is Y) == (True, 2, True)


# what is known of an example


def symbol(hint: int | None, constant: bool = False) -> Any:
    """A symbolic size as far as it is asked here."""
    node = SimpleNamespace(
        expr="s0",
        hint=hint,
        has_hint=lambda: hint is not None,
        is_constant=lambda: constant,
        maybe_as_int=lambda: 7,
    )
    return SimpleNamespace(node=node)


def test_a_layout_is_that_of_the_example() -> None:
    found = ExampleLayout(torch.float32, (2, 3), (4, 1))
    assert (found.stride(), found.stride(0), found.stride(1), found.numel()) == ((4, 1), 4, 1, 6)
    assert found.data_ptr() == 0, "aligned"


@pytest.mark.parametrize(
    ("value", "hints", "known"),
    [
        (5, False, 5),
        ("a", False, "a"),
        (symbol(3), True, 3),
        (symbol(3), False, UNKNOWN),
        (symbol(None), True, UNKNOWN),
        (symbol(3, constant=True), False, 3),
        (symbol(None, constant=True), False, 7),
        (torch.empty(2, 3), False, ExampleLayout(torch.float32, (2, 3), (3, 1))),
        (SimpleNamespace(dtype=1, shape=(symbol(3),), stride=lambda: (1,)), True, ExampleLayout(1, (3,), (1,))),
        (SimpleNamespace(dtype=1, shape=(3,), stride=lambda: (symbol(2),)), False, OpenTensor(1)),
    ],
)
def test_what_is_known_of_a_value_while_the_graph_is_made(value: Any, hints: bool, known: Any) -> None:
    assert _known(value, hints) == known


@pytest.mark.parametrize(
    ("value", "settled"), [(5, 5), ("a", "a"), (True, True), (None, None), (torch.float32, torch.float32)]
)
def test_what_is_no_symbol_is_settled(value: Any, settled: Any) -> None:
    assert TracingReader().constant_of(value) is settled
