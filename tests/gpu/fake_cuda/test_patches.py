"""Replaced attributes come back as they were."""

from __future__ import annotations

import contextlib

import pytest

from kerntune.gpu.fake_cuda.patches import Replacements, replace, replace_known


class Base:
    def inherited(self) -> str:
        return "inherited"


class Owner(Base):
    value = 1

    @staticmethod
    def static() -> str:
        return "static"

    @classmethod
    def named(cls) -> str:
        return cls.__name__


@pytest.mark.parametrize("name", ["inherited", "value", "static", "named", "new"])
def test_comes_back_exactly(name: str) -> None:
    before = dict(vars(Owner))
    with contextlib.ExitStack() as stack:
        replace(stack, Owner, name, 7)
        assert getattr(Owner, name) == 7
    assert dict(vars(Owner)) == before


def test_last_in_is_first_out() -> None:
    with contextlib.ExitStack() as stack:
        replace(stack, Owner, "value", 2)
        replace(stack, Owner, "value", 3)
        assert Owner.value == 3
    assert Owner.value == 1


def test_comes_back_after_an_exception() -> None:
    def fail() -> None:
        with contextlib.ExitStack() as stack:
            replace(stack, Owner, "value", 2)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert Owner.value == 1


def test_unknown_names_are_not_added() -> None:
    with contextlib.ExitStack() as stack:
        replace_known(stack, Owner, "nowhere", 2)
        replace_known(stack, Owner, "value", 2)
        assert not hasattr(Owner, "nowhere")
        assert Owner.value == 2


def test_all_that_was_replaced_can_be_put_back_for_a_while() -> None:
    class Owner:
        kept, twice = 1, 1

    with Replacements() as stack:
        replace(stack, Owner, "kept", 2)
        replace(stack, Owner, "added", 3)
        replace(stack, Owner, "twice", 4)
        replace(stack, Owner, "twice", 5)
        with stack.lifted():
            assert (Owner.kept, Owner.twice, hasattr(Owner, "added")) == (1, 1, False)
        assert (Owner.kept, Owner.twice, Owner.added) == (2, 5, 3)  # type: ignore[attr-defined]
    assert (Owner.kept, Owner.twice, hasattr(Owner, "added")) == (1, 1, False)
