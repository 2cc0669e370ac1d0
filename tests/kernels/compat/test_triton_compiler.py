"""Triton's compiler: its stages and languages, and what holds while kerntune compiles."""

from __future__ import annotations

import ast
import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from triton import knobs

from kerntune.kernels.compat import triton_compiler
from kerntune.kernels.compat.triton_compiler import front_end_stage, is_gluon, language_of, stages_after

STAGES = {"ttir": 1, "ttgir": 2, "ptx": 3}


@pytest.mark.parametrize(
    ("stage", "left"),
    [("ttir", ["ttgir", "ptx"]), ("ttgir", ["ptx"]), ("ptx", []), ("glir", ["ttir", "ttgir", "ptx"])],
)
def test_stages_after_one(stage: str, left: list[str]) -> None:
    assert stages_after(STAGES, stage) == [(name, STAGES[name]) for name in left]


@pytest.mark.parametrize(
    ("language", "ext", "stage"), [("TRITON", "ttir", "ttir"), ("GLUON", "ttgir", "glir"), ("GLUON", "glir", "glir")]
)
def test_the_stage_that_a_front_end_makes(language: str, ext: str, stage: str) -> None:
    source = SimpleNamespace(language=SimpleNamespace(name=language), ext=ext)
    assert front_end_stage(source) == stage
    assert language_of(stage) == language


@pytest.mark.parametrize(
    ("jit", "gluon"),
    [(SimpleNamespace(), False), (SimpleNamespace(is_gluon=True), False), (SimpleNamespace(is_gluon=lambda: 1), True),
     (SimpleNamespace(is_gluon=lambda: False), False)],
)  # fmt: skip
def test_which_kernels_are_gluons(jit: Any, gluon: bool) -> None:
    assert is_gluon(jit) is gluon


@pytest.mark.parametrize("knob", [None, False, True])
@pytest.mark.parametrize("variable", [None, "0"])
def test_line_tables_are_left_out_meanwhile(
    monkeypatch: pytest.MonkeyPatch, knob: bool | None, variable: str | None
) -> None:
    held, name = vars(knobs.compilation), "TRITON_DISABLE_LINE_INFO"
    monkeypatch.delitem(held, "disable_line_info", raising=False)
    monkeypatch.delenv(name, raising=False)
    if knob is not None:
        monkeypatch.setitem(held, "disable_line_info", knob)
    if variable is not None:
        monkeypatch.setenv(name, variable)
    before = dict(held)
    with triton_compiler.without_line_info():
        assert knobs.compilation.disable_line_info
    assert (dict(held), os.environ.get(name)) == (before, variable)


def test_in_which_pythons_threads_parse_in_turn() -> None:
    """gh-106905 is of 3.11.0 to 3.11.7."""
    assert (sys.version_info[:2] == (3, 11) and sys.version_info.micro < 8) == triton_compiler.IN_TURN
    assert ast.dump(triton_compiler.parsed("x = 1")) == ast.dump(ast.parse("x = 1"))


def test_a_key_that_a_fork_has_computed_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.runtime import autotuner, cache

    own = SimpleNamespace()
    for module in (cache, autotuner):
        monkeypatch.setattr(module, "triton_key", own, raising=False)
    monkeypatch.setattr(triton_compiler, "triton_key_is_known", lambda: False)
    triton_compiler.know_triton_key(None)
    assert cache.triton_key is own
    triton_compiler.know_triton_key("abc")
    assert (triton_compiler.triton_key(), cache.triton_key.cache_info().currsize) == ("abc", 1)
    assert autotuner.triton_key is cache.triton_key
    monkeypatch.setattr(triton_compiler, "triton_key_is_known", lambda: True)
    triton_compiler.know_triton_key("another")
    assert triton_compiler.triton_key() == "abc"
