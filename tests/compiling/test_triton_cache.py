"""What the farm compiles is a hit in Triton's cache, and what Triton compiles is one for the farm."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest
import triton
from triton import knobs

from kerntune.compiling import triton_cache
from kerntune.compiling.compiler import Compiled, Compiler
from kerntune.compiling.frontend import request_of
from kerntune.compiling.triton_cache import Store, is_stored
from kerntune.errors import CompileError

from . import kernels


@contextlib.contextmanager
def listening(monkeypatch):
    """``cache_hit`` of each compilation that Triton's listener is called for."""
    heard: list[bool] = []
    monkeypatch.setattr(knobs.compilation, "listener", lambda **told: heard.append(told["cache_hit"]))
    yield heard


def plain(launch):
    """As ``JITFunction.run`` compiles: the source, the target, the options."""
    request = request_of(launch)
    return triton.compile(request.source, target=request.target, options=dict(vars(launch.options)))


@pytest.mark.slow
@pytest.mark.parametrize("target", kernels.TARGETS, ids=str)
def test_triton_finds_what_the_farm_has_compiled(farm, monkeypatch, target):
    launch = kernels.matmul_launch(target)
    assert not is_stored(request_of(launch))
    compiled = Compiler(farm()).compile(launch)
    assert is_stored(request_of(launch))
    with listening(monkeypatch) as heard:
        found = plain(launch)
    assert heard == [True]
    assert found.kernel == compiled.data
    assert found.metadata._asdict() == {**compiled.metadata, "hash": request_of(launch).hash}


def test_the_farm_finds_what_triton_has_compiled(farm, monkeypatch):
    launch = kernels.add_launch()
    expected = plain(launch).kernel
    one = farm()
    with listening(monkeypatch) as heard:
        assert Compiler(one).compile(launch).data == expected
    assert heard == [True]
    assert one.pids == []


@pytest.mark.parametrize("target", kernels.TARGETS, ids=str)
def test_the_files_are_those_that_triton_writes(farm, cache, monkeypatch, tmp_path, target):
    launch = kernels.launch(kernels.softmax, kernels.FLOATS, target, B=512)
    Compiler(farm()).compile(launch)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "other"))
    plain(launch)
    assert _files(cache) == _files(tmp_path / "other")


def _files(folder: Path) -> dict[str, bytes]:
    """Contents by path; a group's file lists absolute paths, of which the last part counts."""
    out = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        data = path.read_bytes()
        if path.name.startswith("__grp__"):
            data = repr(sorted(json.loads(data)["child_paths"])).encode()
        out[str(path.relative_to(folder))] = data
    return out


@pytest.mark.slow
def test_always_compile_is_obeyed(farm, monkeypatch):
    launch = kernels.add_launch()
    Compiler(farm()).compile(launch)
    monkeypatch.setattr(knobs.compilation, "always_compile", True)
    with listening(monkeypatch) as heard:
        Compiler(farm()).compile(launch)
    assert heard == [False]


@pytest.mark.slow
def test_what_cannot_be_written_is_told_and_compiled_all_the_same(farm, monkeypatch):
    compiler = Compiler(farm())
    stream = compiler.compile_stream([kernels.add_launch(block=b) for b in (64, 128)])
    monkeypatch.setattr("kerntune.compiling.triton_cache.store", _no_room)
    assert {type(found) for _, found in stream} == {Compiled}
    with pytest.warns(RuntimeWarning, match="can't be kept in Triton's cache: no space"):
        compiler.flush()
    compiler.flush()


def _no_room(lowered, done):
    raise OSError("no space")


def test_a_failure_leaves_nothing_in_the_cache(farm):
    launch = kernels.launch(kernels.abort, kernels.FLOATS, kernels.CUDA90, B=128)
    with pytest.raises(CompileError, match="SIGABRT"):
        Compiler(farm()).compile(launch)
    assert not is_stored(request_of(launch))


def test_two_who_flush_both_wait(monkeypatch):
    gate, entered = threading.Event(), threading.Event()

    def slow(*args):
        entered.set()
        gate.wait(60)
        return {}

    monkeypatch.setattr("kerntune.compiling.triton_cache.store", slow)
    one = Store()
    one.put(None, None)
    entered.wait(60)
    waiting = [threading.Thread(target=one.flush) for _ in range(2)]
    for thread in waiting:
        thread.start()
    waiting[1].join(0.1)
    assert all(thread.is_alive() for thread in waiting)
    gate.set()
    for thread in waiting:
        thread.join(60)
    assert (one._open, one._pool) == ([], None)


def test_a_full_disk_is_told_once(monkeypatch):
    monkeypatch.setattr("kerntune.compiling.triton_cache.store", _no_room)
    one = Store()
    one.put(None, None)
    one.put(None, None)
    with pytest.warns(RuntimeWarning, match="no space") as told:
        one.flush()
    assert len(told) == 1
    one.put(None, None)
    one.flush()
    assert (one._open, one._pool) == ([], None)


def test_one_kernel_that_can_not_be_kept_is_told_with_the_reason(monkeypatch):
    monkeypatch.setattr("kerntune.compiling.triton_cache.store", _no_room)
    one = Store()
    one.put(None, None)
    with pytest.warns(RuntimeWarning, match="^compiled kernels can't be kept in Triton's cache: .*no space"):
        one.flush()


def test_what_is_put_while_one_flushes_keeps_the_threads(monkeypatch):
    monkeypatch.setattr("kerntune.compiling.triton_cache.store", lambda *given: {})
    one, later = Store(), Future()

    def wait(futures):
        one._open.append(later)
        return real(futures)

    real = triton_cache.wait
    monkeypatch.setattr(triton_cache, "wait", wait)
    one.put(None, None)
    one.flush()
    assert one._open == [later]
    assert one._pool is not None
    monkeypatch.setattr(triton_cache, "wait", real)
    later.set_result({})
    one.flush()
    assert one._pool is None


def test_a_thread_that_ctrl_c_interrupts_the_start_of_ends(monkeypatch):
    """A pool doesn't know a thread in whose start it was interrupted. It is no daemon: Python would wait for it at its
    end, for ever."""
    real, started, written = threading.Thread.start, [], []

    def start(thread):
        real(thread)
        started.append(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(triton_cache, "store", lambda lowered, done: written.append(lowered))
    one = Store()
    with monkeypatch.context() as interrupted:
        interrupted.setattr(threading.Thread, "start", start)
        with pytest.raises(KeyboardInterrupt):
            one.put("first", None)
    (thread,) = started
    thread.join(20)
    assert not thread.is_alive()
    assert one.put("second", None).result() is None
    one.flush()
    assert written == ["first", "second"], "what was put is written, and so is what comes later"


def test_the_paths_of_a_kernel_s_files_are_asked_for_once():
    asked = []
    stored = SimpleNamespace(result=lambda: asked.append(1) or {"k.json": "/k.json"})
    made = triton_cache.Made(None, {}, {}, None, stored, 0.0)
    assert made.metadata_group is made.metadata_group
    assert asked == [1]


def test_who_flushes_last_ends_the_threads(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "kerntune.compiling.triton_cache.store", lambda *args: seen.append(threading.current_thread()) or {}
    )
    one = Store()
    one.put(None, None)
    one.flush()
    assert [thread.is_alive() for thread in seen] == [False]


@pytest.mark.parametrize(("answer", "device"), [(3, 3), (RuntimeError("0 active drivers"), 0)])
def test_the_device_that_a_hook_is_told(answer, device, monkeypatch):
    """The first where there is no driver: it compiles for a GPU of another machine."""

    class Driver:
        @property
        def active(self):
            if isinstance(answer, RuntimeError):
                raise answer
            return SimpleNamespace(get_current_device=lambda: answer)

    monkeypatch.setattr(sys.modules["triton.runtime.driver"], "driver", Driver())
    assert triton_cache._device() == device


def test_a_pool_whose_thread_was_interrupted_is_given_up_without_a_wait(monkeypatch):
    did = []

    class Pool:
        def __init__(self, threads, name):
            did.append((threads, name))

        def submit(self, *words):
            raise KeyboardInterrupt

        def shutdown(self, wait):
            did.append(wait)

    monkeypatch.setattr(triton_cache, "ThreadPoolExecutor", Pool)
    one = Store()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            one.put(None, None)
    assert did == [(triton_cache.THREADS, "kerntune-store"), False] * 2
    assert one._open == []
