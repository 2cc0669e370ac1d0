"""Functions that several users replace at a time."""

from __future__ import annotations

from itertools import permutations
from typing import ClassVar

import pytest

from kerntune.capture.entry_points import FunctionLayer, ReplacedFunctions


class Named:
    def run(self) -> str:
        return "own"


def over(name: str) -> FunctionLayer:
    return lambda below: lambda self: f"{name}({below(self)})"


@pytest.mark.parametrize("leaving", list(permutations("abc")))
def test_users_may_leave_in_any_order(leaving: tuple[str, ...]) -> None:
    replaced, own = ReplacedFunctions(), Named.run
    for name in "abc":
        replaced.add(name, {(Named, "run"): over(name)})
    left = ["a", "b", "c"]
    for name in leaving:
        expected = "own"
        for user in left:
            expected = f"{user}({expected})"
        assert Named().run() == expected
        replaced.remove(name)
        left.remove(name)
    assert Named.run is own


def test_what_others_have_set_since_is_there_for_the_next_user(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced = ReplacedFunctions()
    replaced.add("a", {(Named, "run"): over("a")})
    replaced.remove("a")
    monkeypatch.setattr(Named, "run", lambda self: "another")
    replaced.add("b", {(Named, "run"): over("b")})
    assert Named().run() == "b(another)"
    replaced.remove("b")
    replaced.remove("b")
    assert Named().run() == "another"


class Watched(type):
    """Notes what its classes' functions are set to."""

    seen: list[object]

    def __setattr__(cls, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "run":
            cls.seen.append(cls().run())


def test_one_that_comes_instead_of_another_leaves_no_time_without_both() -> None:
    class Function(metaclass=Watched):
        seen: ClassVar[list[object]] = []

        def run(self) -> str:
            return "own"

        def walk(self) -> str:
            return "own"

    replaced, own, walk = ReplacedFunctions(), Function.run, Function.walk
    replaced.add("z", {(Function, "run"): over("z")})
    replaced.add("a", {(Function, "run"): over("a"), (Function, "walk"): over("a")})
    replaced.add("b", {(Function, "run"): over("b")}, instead_of="a")
    assert Function.seen == ["z(own)", "a(z(own))", "b(z(own))"]
    assert Function.walk is walk
    replaced.add("c", {(Function, "walk"): over("c")}, instead_of="b")
    assert (Function().run(), Function().walk()) == ("z(own)", "c(own)")
    replaced.remove("z")
    replaced.remove("c")
    assert (Function.run, Function.walk) == (own, walk)
