"""Copies of a call's tensors: same values, strides, alignment and sharing, and apart from the user's."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from types import MappingProxyType
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from kerntune.tuning.choices.call_copies import (
    CallCopies,
    CallOutcome,
    is_plain,
    outcome_of,
    random_state_kept,
    tensor_places,
)

ALIGNED = 256


def test_views_of_one_memory_share_the_copy() -> None:
    memory = torch.arange(12.0)
    copies = CallCopies({"x": memory[2:8], "y": [memory[4:].view(2, 4).t()], "n": 3}, grad=False)
    x, (y,) = copies.values["x"], copies.values["y"]
    assert (x.tolist(), y.tolist(), y.stride()) == (memory[2:8].tolist(), memory[4:].view(2, 4).t().tolist(), (1, 4))
    x[2] = 99.0
    assert y[0, 0] == 99.0
    assert memory.tolist() == list(range(12))
    assert list(copies.note_written()) == ["x", "y[0]"]
    copies.restore()
    assert y[0, 0] == 4.0
    assert copies.values["n"] == 3


def test_what_triton_reinterprets_is_copied_and_not_compared() -> None:
    memory = torch.arange(6, dtype=torch.int8)
    given = [triton.reinterpret(memory[2:], tl.float8e5), memory]
    copies = CallCopies({"x": given}, grad=False)
    x, y = copies.values["x"]
    assert (x.dtype, list(copies.copies), copies.copies["x[1]"] is y) == (tl.float8e5, ["x[1]"], True)
    x.base.zero_()
    assert (y.tolist(), memory.tolist()) == ([0, 1, 0, 0, 0, 0], [0, 1, 2, 3, 4, 5])
    assert list(copies.note_written()) == ["x[1]"]
    assert copies.counts_on
    copies.restore()
    assert (y.tolist(), x.base.tolist()) == (memory.tolist(), memory[2:].tolist())


def test_what_triton_reinterprets_is_restored_and_counts_nothing() -> None:
    given = triton.reinterpret(torch.ones(4, dtype=torch.int8), tl.float8e5)
    copies = CallCopies({"x": given}, grad=False)
    copies.values["x"].base.zero_()
    assert (copies.note_written(), copies.counts_on) == ({}, False)
    copies.restore()
    assert copies.values["x"].base.tolist() == given.base.tolist() == [1] * 4


def test_an_address_keeps_its_alignment() -> None:
    memory = torch.zeros(1024, dtype=torch.float16)
    for start in (0, 1, 8, 33):
        part = memory[start:]
        copy = CallCopies({"x": part}, grad=False).values["x"]
        assert (copy.data_ptr() - part.data_ptr()) % ALIGNED == 0


def test_what_nobody_writes_is_not_restored() -> None:
    x, y = torch.ones(4), torch.ones(4)
    copies = CallCopies({"x": x, "y": y}, grad=False)
    copies.values["x"].zero_()
    assert list(copies.note_written()) == ["x"]
    copies.values["y"].zero_()
    copies.restore()
    assert (copies.values["x"].tolist(), copies.values["y"].tolist()) == ([1.0] * 4, [0.0] * 4)


def test_gradients_are_wanted_of_the_copies() -> None:
    x, w = torch.ones(4, requires_grad=True), torch.ones(4)
    assert [t.requires_grad for t in CallCopies({"x": x, "w": w}, grad=True).copies.values()] == [True, False]
    assert CallCopies({"x": x, "w": w}, grad=False).leaves == []


class Rows(list[Any]):
    """A list of one's own."""


Both = namedtuple("Both", "first second")


@pytest.mark.parametrize(
    "made",
    [
        lambda x: OrderedDict(x=x),
        lambda x: defaultdict(list, x=x),
        lambda x: MappingProxyType({"x": x}),
        lambda x: Rows([x]),
        lambda x: Both(x, 1),
        lambda x: (x, [{"x": x}]),
        lambda x: torch.return_types.max((x, torch.tensor(0))),
    ],
)
def test_tensors_in_containers_of_any_class_are_copied(made: Any) -> None:
    x = torch.ones(3)
    given = made(x)
    copies = CallCopies({"given": given}, grad=False)
    assert type(copies.values["given"]) is type(given)
    for _, tensor in tensor_places(copies.values):
        tensor.add_(1)
    assert x.tolist() == [1.0, 1.0, 1.0]
    assert next(tensor_places(given))[1] is x, "the user's own container is as it was"


# what two calls left


def outcome(value: Any = None, changed: Any = (), gradients: Any = (), before: Any = ()) -> CallOutcome:
    return outcome_of(value, dict(changed), dict(gradients), dict(before))


def difference(one: CallOutcome, other: CallOutcome, *ignored: str, bitwise: bool = False) -> str | None:
    gpu: Any = None  # of the host's tensors bytes are compared
    return one.differs(other, gpu, ignored.__contains__, bitwise)


ONES, TWOS = torch.ones(2), torch.full((2,), 2.0)


@pytest.mark.parametrize(
    ("one", "other", "ignored", "told"),
    [
        (ONES, ONES.clone(), (), None),
        (ONES, ONES * 1.0005, (), None),
        (ONES, TWOS, (), "wrote other values into result (2 of 2 elements"),
        (ONES, TWOS, ("result",), None),
        ([ONES, ONES], [ONES, TWOS], (), "wrote other values into result[1] ("),
        (ONES, ONES.double(), (), "result is float64(2,), not float32(2,)"),
        (ONES, torch.ones(3), (), "result is float32(3,), not float32(2,)"),
        (ONES, torch.ones(3), ("result",), None),
        ([ONES], [ONES, 1], (), "result[1] is 1, not missing"),
        ({"a": ONES}, {"b": ONES}, (), "result['a'] is missing, not float32(2,)"),
        (1, 2, (), "result is 2, not 1"),
        (True, 1, (), "result is 1, not True"),
        (None, None, (), None),
        ("a", "b", (), "result is 'b', not 'a'"),
        (1.0, 1.0005, (), None),
        (1.0, 1.01, (), "wrote other values into result (1 of 1 elements"),
        (1.0, 1, (), "result is 1, not float"),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), (), "wrote other values into result (1 of 16 bytes"),
        (torch.ones(0), torch.ones(0), (), None),
    ],
)
def test_where_results_differ(one: Any, other: Any, ignored: tuple[str, ...], told: str | None) -> None:
    found = difference(outcome(one), outcome(other), *ignored)
    assert found is None if told is None else found is not None and found.startswith(told)


def test_to_the_bit_any_other_one_counts() -> None:
    assert difference(outcome(ONES), outcome(ONES.clone()), bitwise=True) is None
    found = difference(outcome(ONES), outcome(ONES * 1.0005), bitwise=True)
    assert found is not None
    assert found.startswith("wrote other bits into result (")
    assert found.endswith(", dtype float32)")
    assert difference(outcome(torch.zeros(1)), outcome(-torch.zeros(1)), bitwise=True) is not None


def test_what_one_call_has_changed_is_held_against_what_was_there() -> None:
    before = {"x": ONES, "y": ONES}
    changed, same = outcome(changed={"x": TWOS}, before=before), outcome(before=before)
    for one, other in ((changed, same), (same, changed)):
        assert str(difference(one, other)).startswith("wrote other values into x (2 of 2 elements")
        assert difference(one, other, "x") is None
    assert difference(changed, outcome(changed={"x": TWOS.clone()}, before=before)) is None
    both = outcome(changed={"x": TWOS, "y": TWOS}, before=before)
    assert str(difference(both, same, "x")).startswith("wrote other values into y ("), "after one that is ignored"
    assert str(difference(outcome(ONES), outcome(ONES, gradients={"x": ONES}))) == (
        "gradient of x is float32(2,), not missing"
    )
    assert difference(outcome(gradients={"x": None}), outcome()) is None
    assert difference(outcome(gradients={"x": ONES}), outcome(gradients={"x": TWOS})) is not None


def test_what_a_call_has_left_is_kept_apart() -> None:
    x = torch.arange(6.0).view(2, 3).t()
    found = outcome([x, {"n": 2.5}], changed={"y": x}, before={"y": x})
    x.zero_()
    assert found.tensors["result[0]"].tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert found.tensors["result[1]['n']"].tolist() == 2.5
    assert found.shapes == {"result[0]": ("float32", 3, 2), "result[1]['n']": ("float",)}
    assert found.changed["y"].is_contiguous()
    assert found.changed["y"][0, 1] == 3.0


def test_after_a_failure_all_is_restored() -> None:
    x, y = torch.ones(4), torch.ones(4, dtype=torch.int32)
    copies = CallCopies({"x": x, "y": y}, grad=False)
    copies.doubt()
    for copy in copies.copies.values():
        copy.zero_()
    copies.restore()
    assert [t.tolist() for t in copies.copies.values()] == [[1.0] * 4, [1] * 4]


def test_an_implementation_that_writes_integers_may_count_on() -> None:
    copies = CallCopies({"x": torch.ones(4), "y": torch.ones(4, dtype=torch.int32)}, grad=False)
    assert not copies.counts_on
    copies.copies["x"].zero_()
    copies.note_written()
    assert not copies.counts_on
    copies.copies["y"].zero_()
    copies.note_written()
    assert copies.counts_on


def test_places_name_the_way_to_a_tensor() -> None:
    x = torch.ones(1)
    found = dict(tensor_places({"a": x, "b": (1, [x, {"c": x, 3: x}])}))
    assert list(found) == ["a", "b[1][0]", "b[1][1]['c']", "b[1][1][3]"]
    assert list(dict(tensor_places(x))) == [""]
    assert list(dict(tensor_places([x], "result"))) == ["result[0]"]


def test_random_numbers_go_on_from_where_they_were() -> None:
    before = torch.get_rng_state()
    with random_state_kept() as back:
        first = torch.rand(3)
        back()
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("tensor", "plain"),
    [(torch.ones(2), True), (torch.nn.Parameter(torch.ones(2)), True), (torch.ones(2, device="meta"), False),
     (torch.ones(2, 2).to_sparse(), False), (torch.ones(2, dtype=torch.complex64).conj(), False)],
)  # fmt: skip
def test_a_plain_tensor_has_memory_of_its_own(tensor: torch.Tensor, plain: bool) -> None:
    assert is_plain(tensor) is plain
