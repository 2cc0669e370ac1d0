"""Copies of a call's tensors: same values, strides, alignment and sharing, and apart from the user's."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from types import MappingProxyType
from typing import Any

import pytest
import torch

from kerntune.tuning.choices.call_copies import CallCopies, tensor_places

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
