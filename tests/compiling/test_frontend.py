"""The parent's half of a compilation: sizes that times are estimated from, and who reads Triton's files."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from doubles import raising
from triton import knobs

from kerntune.compiling import frontend
from kerntune.compiling.frontend import Shape, lower, request_of, shape_of, why_in_process

from . import kernels


def asked(constants: dict[Any, Any], **options: Any) -> Any:
    return SimpleNamespace(constexprs=constants, options=SimpleNamespace(**options))


def test_sizes_come_from_the_constants_until_there_is_a_text() -> None:
    launch = asked({(0,): 64, (1,): SimpleNamespace(value=32), (2,): 7}, num_stages=3, num_warps=8)
    assert shape_of(launch) == Shape(1, 64 * 32, 3, 8)
    text = "%0 : tensor<16x8xf32>, %1 : tensor<4xi32>"
    assert shape_of(launch, text) == Shape(len(text), 16 * 8 + 4, 3, 8)


@pytest.mark.parametrize("options", [{}, {"num_stages": None, "num_warps": 0}])
def test_options_that_a_backend_does_not_have_count_as_one(options: dict[str, Any]) -> None:
    assert shape_of(asked({}, **options)) == Shape(1, 1, 1, 1)


@pytest.mark.parametrize("done", [False, True])
def test_a_fork_forgets_a_thread_that_is_not_its_own(monkeypatch: pytest.MonkeyPatch, done: bool) -> None:
    reading: Future[None] = Future()
    if done:
        reading.set_result(None)
    held = threading.Lock()
    held.acquire()
    monkeypatch.setattr(frontend, "_hashing", reading)
    monkeypatch.setattr(frontend, "_hashing_lock", held)
    frontend._forget_hashing()
    assert frontend._hashing is (reading if done else None)
    assert not frontend._hashing_lock.locked()


def test_nothing_is_forgotten_where_nothing_was_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontend, "_hashing", None)
    monkeypatch.setattr(frontend, "_hashing_lock", threading.Lock())
    frontend._forget_hashing()
    assert frontend._hashing is None


def test_files_are_read_by_one_thread_for_all_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Future[None]] = []
    monkeypatch.setattr(frontend, "_hashing", None)
    read = threading.Event()

    def reading(future: Future[None]) -> None:
        assert threading.current_thread().daemon, "it holds up no end of the process"
        begun.append(future)
        read.set()

    monkeypatch.setattr(frontend, "_read_triton", reading)
    first = frontend.prepare_hashes()
    assert frontend.prepare_hashes() is first
    assert read.wait(60)
    assert begun == [first]
    assert not frontend.hashes_are_ready()
    first.set_result(None)
    assert frontend.hashes_are_ready()


@pytest.mark.parametrize(("known", "may", "forked"), [(False, True, True), (True, True, False), (False, False, False)])
def test_a_fork_reads_them_where_one_may_and_they_are_not_known(
    monkeypatch: pytest.MonkeyPatch, known: bool, may: bool, forked: bool
) -> None:
    seen: list[Any] = []
    names = {
        "triton_key_is_known": lambda: known,
        "know_triton_key": lambda text: seen.append(text),
        "triton_key": lambda: seen.append("read"),
    }
    for name, value in names.items():
        monkeypatch.setattr(frontend.triton_compiler, name, value)
    monkeypatch.setattr(frontend, "may_fork", lambda: may)
    monkeypatch.setattr(frontend, "text_of_fork", lambda work, seconds: "of a fork")
    future: Future[None] = Future()
    frontend._read_triton(future)
    assert future.done()
    assert seen == (["of a fork"] if forked else []) + ["read"]


def test_what_can_not_be_read_is_told_by_the_next_who_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontend.triton_compiler, "triton_key_is_known", lambda: True)
    monkeypatch.setattr(frontend.triton_compiler, "triton_key", raising(PermissionError("Triton's own files")))
    future: Future[None] = Future()
    with pytest.raises(PermissionError):
        frontend._read_triton(future)
    assert future.done()


def test_names_of_files_end_where_tritons_do() -> None:
    request = request_of(kernels.add_launch())
    assert request.file_name == "add"
    request.source.name = "k" * 200
    assert request.file_name == "k" * 150


def test_jobs_are_equal_if_all_that_answers_depend_on_is() -> None:
    lowered = lower(request_of(kernels.add_launch()))
    assert lowered.identity() == lower(request_of(kernels.add_launch())).identity()
    parts = ("ir", "ext", "language", "backend", "arch", "warp_size", "options_hash")
    job = {name: getattr(lowered.job, name) for name in parts}
    seen = {lowered.identity()}
    for name in parts:
        other = SimpleNamespace(**{**job, name: "another"})
        seen.add(frontend.Lowered(lowered.request, "", other).identity())  # type: ignore[arg-type]
    assert len(seen) == 1 + len(parts)
    assert all(len(one) == hashlib.sha256().digest_size * 2 for one in seen)


@pytest.mark.parametrize("name", ["override", "dump_ir", "use_ir_loc", "store_binary_only"])
def test_settings_that_look_into_the_stages_are_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert why_in_process(kernels.add_launch()) == ""
    monkeypatch.setattr(knobs.compilation, name, "ttgir" if name == "use_ir_loc" else True)
    assert why_in_process(kernels.add_launch()) == f"triton.knobs.compilation.{name} is set"


def test_options_that_look_into_the_stages_are_named() -> None:
    for name in ("ir_override", "instrumentation_mode"):
        launch = asked({}, **{name: "x"})
        assert why_in_process(launch) == f"the compile option {name} is set"
        assert why_in_process(asked({}, **{name: ""})) == ""
