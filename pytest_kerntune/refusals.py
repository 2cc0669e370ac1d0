"""Tests that can't use ``autotune`` as they are: said by name, with what to write instead."""

from __future__ import annotations

import inspect
import os
import sys
from typing import Any

import pytest

from kerntune.errors import UsageError
from pytest_kerntune.marker import NAME
from pytest_kerntune.stash import concerns, nodeid_of

FORKED = (
    "CUDA, once initialised, does not work in a fork of its process. Leave out --forked and the marker forked for "
    "tests that use autotune; pytest -n1 (pytest-xdist) runs tests in a process of their own, and replaces it if one "
    "of them ends it"
)


def why_not_forked(item: pytest.Item) -> str:
    """Why pytest-forked must not run this test under ``--kerntune``; empty if it won't."""
    forked = getattr(item.config.option, "forked", None)
    if forked is None or not concerns(item):
        return ""
    how = "--forked" if forked else "marker forked" if item.get_closest_marker("forked") else ""
    return f"{nodeid_of(item)}: {how}: {FORKED}" if how else ""


def refuse_fork(process: int) -> None:
    """:class:`UsageError` unless this is still the process ``process``, whose id it is, that opened the session."""
    if os.getpid() != process:
        raise UsageError(f"autotune was called in a fork of pytest's process {process}. {FORKED}")


def refuse_async(fn: object) -> None:
    """:class:`UsageError` for an ``async def``: called, its body has not run, so no kernel was launched."""
    if inspect.iscoroutinefunction(fn):
        raise UsageError(_coroutine(fn))


def refuse_coroutine(value: object, fn: object) -> None:
    """The same for what returns a coroutine."""
    if inspect.iscoroutine(value):
        value.close()
        raise UsageError(_coroutine(fn))


def _coroutine(fn: object) -> str:
    return (
        f"{getattr(fn, '__qualname__', None) or repr(fn)} gives a coroutine, which launches nothing before it is "
        "awaited; hand autotune an ordinary function that launches the kernels. An async test may call autotune like "
        "any other"
    )


def refuse_argument(item: pytest.Item) -> None:
    """Fail a method of a ``unittest.TestCase`` that takes the fixture as an argument: unittest gives it none."""
    unittest, cls = sys.modules.get("unittest"), getattr(item, "cls", None)
    if unittest is None or not isinstance(cls, type) or not issubclass(cls, unittest.TestCase):
        return
    if NAME in _parameters(getattr(item, "obj", None)):
        pytest.fail(
            f"{nodeid_of(item)}: unittest calls its methods without fixtures. Give the class one that keeps autotune:\n"
            "    @pytest.fixture(autouse=True)\n"
            "    def _autotune(self, autotune):\n"
            "        self.autotune = autotune",
            pytrace=False,
        )


def _parameters(method: Any) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(method).parameters)
    except (TypeError, ValueError):
        return ()
