"""The tree of errors is the one that its docstring draws."""

from __future__ import annotations

import inspect
import re

from kerntune import errors
from kerntune.errors import KerntuneError, ReferenceMismatch, StoreError, TrialError, TuningError, UsageError

CLASSES = {name: cls for name, cls in vars(errors).items() if inspect.isclass(cls) and issubclass(cls, BaseException)}


def drawn() -> dict[str, str | None]:
    """Each name in the docstring's tree with its parent: the last name drawn one level (4 columns) to the left."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^ {4}([│ ├└─]*)([A-Z]\w+)", line)
        if match:
            depth = len(match[1]) // 4
            path[depth:] = [match[2]]
            parents[match[2]] = path[depth - 1] if depth else None
    return parents


def test_tree_is_as_drawn() -> None:
    tree = drawn()
    assert set(tree) == set(CLASSES)
    for name, parent in tree.items():
        assert CLASSES[name].__bases__[0].__name__ == (parent or "Exception"), name


def test_every_error_is_ours_and_says_what_it_is() -> None:
    assert [name for name, cls in CLASSES.items() if not (issubclass(cls, KerntuneError) and cls.__doc__)] == []


def test_a_mismatch_is_an_assertion_too() -> None:
    """pytest shows assertion errors as failures of the test, not as errors in it."""
    assert issubclass(ReferenceMismatch, AssertionError)
    assert not issubclass(ReferenceMismatch, (UsageError, TrialError, StoreError))


def test_a_tuning_error_is_its_message_whatever_has_failed() -> None:
    assert str(TuningError("no candidate is left", [("BLOCK=64", "too large")])) == "no candidate is left"
    assert TuningError("no candidate is left").failures == ()
