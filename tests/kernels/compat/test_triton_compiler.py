"""Triton's compiler: its stages and languages, and what holds while kerntune compiles."""

from __future__ import annotations

import ast
import contextlib
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
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
    versions = [(3, 10, 14), (3, 11, 0), (3, 11, 7, "final", 0), (3, 11, 8, "final", 0), (3, 12, 0)]
    assert [triton_compiler.fails_in_threads(v) for v in versions] == [False, True, True, False, False]
    assert triton_compiler.fails_in_threads(sys.version_info) == triton_compiler.IN_TURN
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


def test_what_triton_announces_once_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def announce(target: object) -> None:
        asked.append(target)
        warnings.warn("the next default", UserWarning, stacklevel=2)

    monkeypatch.setattr(knobs, "language", SimpleNamespace(fp_fusion_enabled=announce), raising=False)
    triton_compiler.take_announcements()
    assert asked == [None]
    monkeypatch.setattr(knobs, "language", SimpleNamespace())
    triton_compiler.take_announcements()
    monkeypatch.delattr(knobs, "language")
    triton_compiler.take_announcements()


@pytest.mark.parametrize("in_turn", [False, True])
def test_triton_parses_under_the_lock_where_that_is_needed(monkeypatch: pytest.MonkeyPatch, in_turn: bool) -> None:
    from triton.runtime import jit

    steps: list[object] = []

    @contextlib.contextmanager
    def turn() -> Iterator[None]:
        steps.append("begin")
        yield
        steps.append("end")

    class Base:
        def parse(self) -> str:
            steps.append(self)
            return "tree"

    class Function(Base):
        pass

    own = Base.parse
    monkeypatch.setattr(jit, "JITFunction", Function)
    monkeypatch.setattr(triton_compiler, "IN_TURN", in_turn)
    for _ in range(2):
        triton_compiler.parse_in_turn()
    monkeypatch.setattr(triton_compiler, "_TURN", turn())
    kernel = Function()
    assert kernel.parse() == "tree"
    assert steps == (["begin", kernel, "end"] if in_turn else [kernel])
    assert (Base.parse is own, "parse" in vars(Function)) == (not in_turn, False)


@pytest.mark.parametrize(
    ("folders", "found"),
    [(None, False), ([], False), (["empty"], False), (["empty", "own"], True), (["inductor"], True)],
)
def test_whether_torch_has_a_ptxas(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folders: list[str] | None, found: bool
) -> None:
    for path in ("empty", "own/bin", "inductor/_inductor/bin"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "own/bin/ptxas").touch()
    (tmp_path / "inductor/_inductor/bin/ptxas").touch()
    spec = SimpleNamespace(submodule_search_locations=folders and [str(tmp_path / name) for name in folders])
    monkeypatch.setattr(triton_compiler.importlib.util, "find_spec", lambda name: spec if name == "torch" else None)
    assert triton_compiler._torch_has_ptxas() is found
    monkeypatch.setattr(triton_compiler.importlib.util, "find_spec", lambda name: None)
    assert not triton_compiler._torch_has_ptxas()


@pytest.mark.skipif(not triton_compiler.IN_TURN, reason="this Python's threads parse at the same time")
def test_a_fork_has_the_lock_also_where_a_thread_of_its_parent_held_it() -> None:
    lock, held = triton_compiler._LOCK, threading.Event()

    def parse_for_long() -> None:
        with lock:
            held.set()
            time.sleep(0.1)

    thread = threading.Thread(target=parse_for_long)
    thread.start()
    held.wait()
    pid = os.fork()
    if not pid:
        os._exit(0 if lock.acquire(blocking=False) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    thread.join()
    assert lock.acquire(blocking=False)
    lock.release()
