"""Functions that several users replace at a time."""

from __future__ import annotations

from itertools import permutations

import pytest

from kerntune.capture.replaced_functions import FunctionLayer, ReplacedFunctions


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
