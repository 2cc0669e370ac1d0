"""Triton's listeners get the same events for the farm's compilations as for plain ones."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from triton import knobs

from kerntune.compiling.compiler import Compiler
from kerntune.compiling.frontend import request_of
from kerntune.compiling.protocol import Done
from kerntune.compiling.stream import Compilations
from kerntune.compiling.triton_cache import notify_listeners
from kerntune.errors import CompileError

from . import kernels
from .test_triton_cache import plain


@pytest.mark.slow
def test_the_listener_hears_what_a_plain_compilation_tells(farm, monkeypatch, tmp_path):
    heard = []
    monkeypatch.setattr(knobs.compilation, "listener", lambda **told: heard.append(told))
    launch = kernels.matmul_launch(kernels.CUDA90)
    Compiler(farm()).compile(launch)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "plain"))
    plain(launch)
    ours, theirs = heard
    assert ours.keys() == theirs.keys()
    assert ours["src"].hash() == theirs["src"].hash()
    assert sorted(ours["metadata_group"]) == sorted(theirs["metadata_group"])
    assert ours["metadata"].keys() == theirs["metadata"].keys()
    assert ours["metadata"]["hash"] == theirs["metadata"]["hash"]
    assert ours["metadata"]["target"] == theirs["metadata"]["target"]
    assert ours["cache_hit"] is theirs["cache_hit"] is False
    later = [name for name, _ in ours["times"].lowering_stages]
    assert later == [name for name, _ in theirs["times"].lowering_stages][1:]
    assert ours["times"].total > 0


@pytest.mark.slow
def test_the_post_compile_hook_hears_of_each_launch_once(farm, monkeypatch):
    heard = []
    monkeypatch.setattr(knobs.runtime, "jit_post_compile_hook", lambda **told: heard.append(told))
    compiler = Compiler(farm())
    launches = [kernels.add_launch(block=b, num_warps=w) for b, w in ((64, 1), (128, 2), (256, 8))]
    for _ in range(2):
        compiler.compile_all(launches)
    assert sorted(told["compile"]["num_warps"] for told in heard) == [1, 2, 8]
    assert {told["fn"].jit_function for told in heard} == {kernels.add}
    assert {told["fn"].name for told in heard} == {"add"}
    assert not any(told["is_manual_warmup"] or told["already_compiled"] for told in heard)
    assert len({told["key"] for told in heard}) == 3
    assert {told["compile"]["device"] for told in heard} == {0}


def test_the_post_compile_hook_hears_of_what_this_process_compiles(monkeypatch):
    """As it would of ``triton.compile`` in a launch, whether Triton's cache has the kernel or not."""
    heard, compiled = [], []
    monkeypatch.setattr(knobs.runtime, "jit_post_compile_hook", lambda **told: heard.append(told["compile"]))
    monkeypatch.setattr("triton.compile", lambda source, **words: compiled.append(len(heard)) or "kernel")
    one = Compilations(SimpleNamespace())
    for number, known in enumerate((True, False), 1):
        one._is_stored = lambda request, known=known: known
        launch = kernels.add_launch(num_warps=2 * number)
        assert one._here(request_of(launch)) == (launch, "kernel")
        assert [told["num_warps"] for told in heard] == [2, 4][:number]
    assert compiled == [0, 1], "each before it is told"


def test_nothing_is_said_of_a_failure(farm, monkeypatch):
    heard = []
    monkeypatch.setattr(knobs.runtime, "jit_post_compile_hook", lambda **told: heard.append(told))
    monkeypatch.setattr(knobs.compilation, "listener", lambda **told: heard.append(told))
    with pytest.raises(CompileError):
        Compiler(farm()).compile(kernels.launch(kernels.abort, kernels.FLOATS, kernels.CUDA90, B=128))
    assert heard == []


def test_the_listener_is_told_the_time_of_the_stages_alone(monkeypatch):
    """Neither reading a kernel nor storing it is timed."""
    heard = []
    monkeypatch.setattr(knobs.compilation, "listener", lambda **told: heard.append(told))
    monkeypatch.setattr(knobs.runtime, "jit_post_compile_hook", None)
    made = SimpleNamespace(metadata={"name": "add"}, hash="abc", metadata_group={}, request=SimpleNamespace(source="s"))
    made.request.launch = None
    notify_listeners(made, Done({}, b"", [("ttgir", 200), ("ptx", 50)]))
    (told,) = heard
    assert told["metadata"] == {"name": "add", "hash": "abc"}
    assert (told["times"].ir_initialization, told["times"].store_results) == (0, 0)
    assert told["times"].total == 250
