"""Where choices are decided."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kerntune.tuning.choices import choice_place
from kerntune.tuning.choices.choice_place import choices_at, current_place, decide_choice


class Operation:
    """What a place sees of a choice."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operation)

    __hash__ = object.__hash__

    def forget_prepared(self) -> None:
        self.seen.append("forgets")

    def winner_of(self, *args: Any, **kwargs: Any) -> None:
        self.seen.append((args, kwargs))


@pytest.fixture
def operation(monkeypatch: pytest.MonkeyPatch) -> Operation:
    found = Operation()
    monkeypatch.setattr(choice_place, "OPERATIONS", {found})
    return found


def test_a_choice_forgets_before_and_after_its_time_at_a_place(operation: Operation) -> None:
    outside, outer, inner = current_place(), *[cast("Any", SimpleNamespace()) for _ in range(2)]
    with contextlib.suppress(KeyError), choices_at(outer), choices_at(inner):
        assert (current_place(), operation.seen) == (inner, ["forgets"] * 2)
        raise KeyError
    assert (current_place(), operation.seen) == (outside, ["forgets"] * 4)


def test_only_a_choice_is_decided(operation: Operation) -> None:
    decide_choice(len, [1], {})
    decide_choice(SimpleNamespace(operation=None), [1], {})
    decide_choice(SimpleNamespace(operation=Operation()), [1], {})  # equal, but not one that was declared
    assert not operation.seen
    decide_choice(SimpleNamespace(operation=operation), [1, 2], {"word": 3})
    assert operation.seen == [((1, 2), {"word": 3})]
