"""Tests that can't use autotune as they are: what is said of each."""

from __future__ import annotations

import functools
import os
import unittest
from types import SimpleNamespace
from typing import Any

import pytest
import triton

from kerntune.errors import UsageError
from pytest_kerntune import marker
from pytest_kerntune.marker import (
    ASKED,
    FORKED,
    meant,
    never_called,
    refuse_argument,
    refuse_async,
    refuse_coroutine,
    refuse_fork,
    refuse_kernel,
    why_not_forked,
)


@pytest.mark.parametrize(
    ("option", "marked", "ours", "how"),
    [(None, True, True, ""), (False, False, True, ""), (True, False, False, ""), (True, False, True, "--forked"),
     (False, True, True, "marker forked"), (True, True, True, "--forked")],
)  # fmt: skip
def test_tests_that_would_run_in_a_fork(
    monkeypatch: pytest.MonkeyPatch, option: bool | None, marked: bool, ours: bool, how: str
) -> None:
    options = SimpleNamespace() if option is None else SimpleNamespace(forked=option)
    item: Any = SimpleNamespace(
        nodeid="t.py::test_a",
        stash={},
        config=SimpleNamespace(option=options),
        get_closest_marker=lambda name: marked or None,
    )
    monkeypatch.setattr(marker, "concerns", lambda item: ours)
    assert why_not_forked(item) == (f"t.py::test_a: {how}: {FORKED}" if how else "")


def test_a_call_in_a_fork() -> None:
    refuse_fork(os.getpid())
    with pytest.raises(UsageError, match=f"in a fork of pytest's process {os.getpid() + 1}"):
        refuse_fork(os.getpid() + 1)


@pytest.mark.parametrize(
    ("names", "asked", "write"),
    [(["autotune"], False, "; write autotune(fn, *args), or take"), ([], True, "; write autotune(fn, *args), or take"),
     (["x"], False, "it has no parameter autotune: write def test_a(autotune, ...), and autotune(fn, *args) in it")],
)  # fmt: skip
def test_a_marked_test_that_never_called_it(names: list[str], asked: bool, write: str) -> None:
    item: Any = SimpleNamespace(fixturenames=names, stash={ASKED: asked}, originalname="test_a", name="test_a[1]")
    assert write in never_called(item)
    item.stash = {} if not asked else item.stash
    assert write in never_called(item)
    item.originalname = None
    assert ("test_a[1](" in never_called(item)) == ("def" in write)


@triton.jit
def a_kernel(x):
    pass


def test_a_kernel_without_its_grid_is_told_by_its_name() -> None:
    tuned = triton.autotune([triton.Config({})], key=[])(a_kernel)
    for fn in (a_kernel, tuned, functools.partial(functools.partial(a_kernel, 1), 2)):
        with pytest.raises(
            UsageError, match=r"kernel a_kernel has no grid.*write autotune\(a_kernel\[grid\], \*args\)"
        ):
            refuse_kernel(fn)
    half = type("Half", (), {"run": None})()
    for fn in (half, a_kernel[(1,)], len, SimpleNamespace(fn=1), functools.partial(len)):
        refuse_kernel(fn)


@pytest.mark.parametrize(
    ("text", "given", "found"),
    [
        ("f() got an unexpected keyword argument 'tolerence'", ["tolerence"],
         "did you mean autotune's tolerance= where you wrote tolerence=?"),
        ("Keyword argument toleranc was specified but unrecognised", ["n", "toleranc"],
         "did you mean autotune's tolerance= where you wrote toleranc=?"),
        ("kernel k has no parameter scop", ["scop"], "did you mean autotune's scope= where you wrote scop=?"),
        ("f() got an unexpected keyword argument 'block'", ["block"], ""),
        ("f() got an unexpected keyword argument 'my_scop'", ["scop"], ""),
        ("no such scop", ["scop"], ""),
    ],
)  # fmt: skip
def test_what_was_meant_by_a_keyword(text: str, given: list[str], found: str) -> None:
    assert meant(TypeError(text), given, ["tolerance", "scope"]) == found


async def waits() -> None:
    pass


def test_coroutines_launch_nothing() -> None:
    refuse_async(len)
    with pytest.raises(UsageError, match=r"^waits gives a coroutine, which launches nothing"):
        refuse_async(waits)
    refuse_coroutine(1, len)
    started = waits()
    with pytest.raises(UsageError, match=r"^functools\.partial.* gives a coroutine"):
        refuse_coroutine(started, functools.partial(waits))
    with pytest.raises(RuntimeError, match="cannot reuse already awaited"):
        started.send(None)


class Case(unittest.TestCase):
    def takes(self, autotune: object) -> None: ...

    def plain(self) -> None: ...


@pytest.mark.parametrize(
    ("cls", "method", "refused"),
    [(Case, Case.takes, True), (Case, Case.plain, False), (object, Case.takes, False), (None, Case.takes, False),
     (Case, None, False), (Case, 3, False)],
)  # fmt: skip
def test_a_unittest_that_takes_it_as_an_argument(cls: Any, method: Any, refused: bool) -> None:
    item: Any = SimpleNamespace(nodeid="t.py::Case::takes", stash={}, cls=cls, obj=method)
    if not refused:
        refuse_argument(item)
        return
    with pytest.raises(pytest.fail.Exception, match=r"t.py::Case::takes: unittest calls its methods without fixtures"):
        refuse_argument(item)
