"""Tests that can't use ``autotune`` as they are: said by name, with what to write instead.

A test may have pytest-benchmark's fixture, too. Nothing of pytest-benchmark is imported.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Iterable
from typing import Any

import pytest

from kerntune.base.formatting import nearest_word
from kerntune.errors import UsageError
from pytest_kerntune.marker import ASKED, NAME, concerns, nodeid_of

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


def never_called(item: pytest.Item) -> str:
    """What is wrong with a marked test that never called the fixture, and what to write."""
    write = "write autotune(fn, *args)"
    if not (NAME in getattr(item, "fixturenames", ()) or item.stash.get(ASKED, False)):
        name = getattr(item, "originalname", None) or item.name
        write = f"it has no parameter autotune: write def {name}({NAME}, ...), and autotune(fn, *args) in it"
    said = "marked autotune, but it never called the autotune fixture, so nothing was checked"
    return f"{said}; {write}, or take the marker off"


def refuse_kernel(fn: object) -> None:
    """:class:`UsageError` for a kernel without its grid, also below tuners and partial functions."""
    from kerntune.kernels.source import function_of, is_kernel

    while isinstance(fn, functools.partial):
        fn = fn.func
    if "triton" not in sys.modules or not hasattr(type(fn), "run") or not hasattr(fn, "fn") or not is_kernel(fn):
        return
    name = function_of(fn).__name__
    raise UsageError(
        f"kernel {name} has no grid, and can't be called without one; write autotune({name}[grid], *args), or "
        f"autotune(lambda: {name}[grid](...))"
    )


def meant(error: BaseException, given: Iterable[str], options: Iterable[str]) -> str:
    """The hint for a keyword that the callable refuses and that is close to an option of autotune's; else empty."""
    text = str(error)
    if not any(sign in text for sign in REFUSES_KEYWORD):
        return ""
    near = {name: nearest_word(name, options) for name in given if re.search(rf"\b{name}\b", text)}
    hints = [f"did you mean autotune's {found}= where you wrote {name}=?" for name, found in near.items() if found]
    return hints[0] if hints else ""


REFUSES_KEYWORD = ("unexpected keyword argument", "unrecognised", "has no parameter")
"""What Python says, what Triton says of a kernel's launch, and what kerntune says of it while it captures."""


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


FIXTURE = "benchmark"


def run_once(fixture: object) -> None:
    """Have ``benchmark`` call its function once and keep no time: where nothing launches, it would time stand-ins."""
    if hasattr(fixture, "disabled"):
        fixture.disabled = True


def refuse_inside() -> None:
    """:class:`UsageError` if pytest-benchmark's loop is what calls: each round would be a case of its own."""
    frame: Any = sys._getframe()
    while frame is not None:
        runner = frame.f_globals.get("__name__") == "pytest_benchmark.fixture" and frame.f_locals.get("self")
        if getattr(runner, "disabled", True) is False:
            raise UsageError(
                "autotune is called by benchmark(), again and again: write autotune(fn, ...) and benchmark(fn, ...)"
            )
        frame = frame.f_back
