"""Functions and tests that stand in for others, and how a wrapper of pytest's is gone through."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest


def raising(error: BaseException | type[BaseException]) -> Callable[..., Any]:
    """A function that raises this, whatever it is given."""

    def fail(*args: Any, **words: Any) -> Any:
        raise error

    return fail


def through(hook: Generator[Any, Any, Any], value: object = None) -> Any:
    """What a wrapper gives where what it wraps gives ``value``, or raises it."""
    next(hook)
    try:
        hook.throw(value) if isinstance(value, BaseException) else hook.send(value)
    except StopIteration as end:
        return end.value
    raise AssertionError("it goes on")


class Item:
    """A test, as far as a plugin asks it. With ``marks`` it has the marker with these, and takes the fixture."""

    nodeid, originalname, fspath = "t.py::test_a", "test_a", None

    def __init__(self, marks: dict[str, Any] | None = None, **more: Any) -> None:
        self.stash: dict[Any, Any] = {}
        self.user_properties, self.warned, self.sections = list[Any](), list[str](), list[Any]()
        self.fixturenames = [] if marks is None else ["autotune"]
        self.own_markers = [] if marks is None else [pytest.mark.autotune(**marks).mark]
        vars(self).update(more)

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [mark for mark in self.own_markers if mark.name == name]

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next(iter(self.iter_markers(name)), None)

    def warn(self, warning: Warning) -> None:
        self.warned.append(str(warning))

    def add_report_section(self, *section: str) -> None:
        self.sections.append(section)
