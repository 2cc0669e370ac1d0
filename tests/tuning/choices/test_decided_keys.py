"""What is known of keys in this process, and arguments of a call while Dynamo traces it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kerntune.base.policy import TuneMode
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.choices.choice_place import ChoicePlace, choices_at
from kerntune.tuning.choices.decided_keys import (
    DEVICE,
    DecidedKeys,
    KindOnly,
    _described,
    _undescribed,
    device_number,
    device_type,
    kind_of,
    traced_call,
)
from kerntune.tuning.choices.deciding import Decision

GPU = ("cuda:90", "One")


def test_what_is_decided_in_one_place_is_not_known_in_another() -> None:
    known = DecidedKeys()
    backend: Any = SimpleNamespace()
    places = [ChoicePlace(backend, WinnerCache(), mode) for mode in (TuneMode.AUTO, TuneMode.FORCE)]
    known.keep(GPU, "n=1", 2)
    known.tell(GPU, Decision("mm", "n=1", "outside"))
    for number, place in enumerate(places):
        with choices_at(place):
            assert (known.find(GPU, "n=1"), known.decision(GPU, "n=1")) == (None, None)
            assert known.find_outside(GPU, "n=1") == 2
            known.keep(GPU, "n=1", number)
            known.tell(GPU, Decision("mm", "n=1", f"place {number}"))
    assert known.find(GPU, "n=1") == 2
    assert str(known.decision(GPU, "n=1")) == "choice mm went to outside (raced)"
    for gpu, text in ((("cuda:90", "Other"), "n=1"), (GPU, "n=2"), (None, "n=1")):
        assert known.find(gpu, text) is known.find_outside(gpu, text) is None
    with choices_at(places[1]):
        assert known.find(GPU, "n=1") == 1


def test_a_gpu_s_kind_is_its_target_and_its_model() -> None:
    spec = SimpleNamespace(target="cuda:90", name="One")
    backends: list[Any] = [None, SimpleNamespace(gpu=None, spec=spec), SimpleNamespace(gpu=1, spec=spec)]
    assert list(map(kind_of, backends)) == [None, None, GPU]


X = torch.zeros(2, 3, dtype=torch.float16)[:, 1:]
NO_LAYOUT = ("tensor", torch.float16, ("cpu", None), False, [], [])


@pytest.mark.parametrize(
    ("value", "keyed", "described"),
    [
        (X, True, ("tensor", torch.float16, ("cpu", None), False, [2, 2], [3, 1])),
        (X, False, NO_LAYOUT),
        ([X, 3], False, ("values", NO_LAYOUT, ("kind", "int"))),
        ((True, 3), True, ("values", ("value", True), ("value", 3))),
        (None, False, ("value", None)),
        ("a", False, ("kind", "str")),
        ("a", True, ("value", "a")),
        (2.5, True, ("value", 2.5)),
    ],
)
def test_an_argument_is_described_by_constants(value: Any, keyed: bool, described: Any) -> None:
    found = _described(value, keyed)
    assert found == described
    assert list(map(type, found)) == list(map(type, described))


def test_a_described_tensor_has_no_memory_and_stands_for_its_device() -> None:
    found = _undescribed(("tensor", torch.float16, ("cuda", 1), True, [2, 2], [3, 1]))
    assert (found.shape, found.stride(), found.dtype) == ((2, 2), (3, 1), torch.float16)
    assert (found.device.type, found.requires_grad, getattr(found, DEVICE)) == ("meta", True, ("cuda", 1))
    assert (device_type(found), device_number(found)) == ("cuda", 1)
    host = _undescribed(NO_LAYOUT)
    assert (device_type(host), device_number(host), host.requires_grad, host.dim()) == ("cpu", None, False, 0)
    assert (device_type(X), device_number(X)) == ("cpu", None)
    kind, value = _undescribed(("values", ("kind", "int"), ("value", 7)))
    assert (isinstance(kind, KindOnly), kind.kind, value) == (True, "int", 7)


def test_a_traced_call_goes_to_the_implementation_that_is_found() -> None:
    asked: list[Any] = []

    def find(values: Any) -> int:
        asked.append({name: getattr(value, "kind", value) for name, value in values.items()})
        return len(asked) - 1

    functions = [lambda n, *, word: ("first", n, word), lambda n, *, word: ("second", n, word)]
    traced = traced_call({"n": True, "word": False}, functions, find)
    assert [traced(5, word="a"), traced(6, word=2)] == [("first", 5, "a"), ("second", 6, 2)]
    assert asked == [{"n": 5, "word": "str"}, {"n": 6, "word": "int"}]
