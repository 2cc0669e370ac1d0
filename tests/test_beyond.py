"""Kernels that write where no argument points, and calls that launch nothing: what is timed, and what stays."""

from __future__ import annotations

import struct
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from doubles import raising
from fake_runs import COMPILER, N, block, by_block, captured, configs, increment_kernel, script

import kerntune
from kerntune.capture import Capture
from kerntune.compiling.compiler import Compiler
from kerntune.errors import CacheMissError
from kerntune.gpu.scripted import FakeBackend, FakeGpu
from kerntune.tuning import context, tuned_call
from kerntune.tuning import tuner as tuner_module
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.tune_call import tune_call
from kerntune.tuning.tuning_result import TuningResult

FIRST, ADDED = 7, 1


@triton.jit
def add_by_table(table, n, BLOCK: tl.constexpr):
    target = tl.load(table + tl.program_id(1)).to(tl.pointer_type(tl.float32))
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + i, tl.load(target + i, mask=i < n) + 1.0, mask=i < n)


@triton.jit
def sum_by_table(table, out, n, BLOCK: tl.constexpr):
    source = tl.load(table + tl.program_id(1)).to(tl.pointer_type(tl.float32))
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(source + i, mask=i < n), mask=i < n)


@triton.jit
def add_by_number(address, n, BLOCK: tl.constexpr):
    target = address.to(tl.pointer_type(tl.float32))
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + i, tl.load(target + i, mask=i < n) + 1.0, mask=i < n)


def by_group(meta: Mapping[str, Any]) -> tuple[int, int]:
    return triton.cdiv(N, meta["BLOCK"]), 3


def holding(gpu: FakeGpu, table: torch.Tensor, words: list[int]) -> None:
    """Let the scripted GPU's ``table``, a byte all over otherwise, hold these words."""
    read, address = gpu.read, gpu.borrow(table).address

    def answer(buffer: Any, limit: int | None = None) -> bytes:
        return struct.pack(f"<{len(words)}q", *words) if buffer.address == address else read(buffer, limit)

    gpu.read = answer  # type: ignore[method-assign]


def writing(gpu: FakeGpu, targets: list[torch.Tensor]) -> list[int]:
    """Let every launch add to the very tensors; what they hold then."""
    prepare, seen = gpu.prepare, []
    buffers = [gpu.borrow(t) for t in targets]

    def prepared(*args: Any) -> Callable[[], None]:
        call = prepare(*args)

        def launch() -> None:
            call()
            for buffer in buffers:
                seen.append((gpu.read(buffer, 1)[0] + ADDED) % 256)
                gpu.fill(buffer, seen[-1])

        return launch

    gpu.prepare = prepared  # type: ignore[method-assign]
    return seen


def contents(gpu: FakeGpu, targets: list[torch.Tensor]) -> set[int]:
    return {gpu.read(gpu.borrow(t), 1)[0] for t in targets}


def table_of(backend: FakeBackend, count: int = 3) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """A table of pointers and the tensors that they lead to."""
    targets = [torch.empty(N, device="cuda") for _ in range(count)]
    table = torch.empty(count, device="cuda", dtype=torch.int64)
    for target in targets:
        backend.gpu.fill(backend.gpu.borrow(target), FIRST)
    holding(backend.gpu, table, [backend.tensors.address(t) + 64 for t in targets])
    return table, targets


def tuned_by(kernel: Any, backend: FakeBackend, *args: Any, grid: Any = by_group) -> TuningResult:
    capture = Capture(backend, COMPILER, thread=threading.get_ident())
    return tune_call(capture, capture.site_of(kernel, args, {"grid": grid}))


def plain(kernel: Any) -> Any:
    return triton.autotune(configs(64, 128), key=["n"])(kernel)


@pytest.fixture
def backend(shared: FakeBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeBackend:
    script(shared, block(64, 20_000.0), block(128, 10_000.0))
    monkeypatch.setattr(context, "this_gpu", lambda: shared)
    monkeypatch.setattr(tuned_call, "WinnerCache", lambda: WinnerCache(tmp_path))
    return shared


# what addresses lead to


@pytest.mark.slow
def test_what_a_table_leads_to_is_timed_in_place_and_put_back(backend: FakeBackend) -> None:
    table, targets = table_of(backend)
    seen = writing(backend.gpu, targets)
    found = tuned_by(plain(add_by_table), backend, table, N)
    assert (found.winner, found.unraced) == (1, "")
    assert len(seen) > 30, "raced"
    assert contents(backend.gpu, targets) == {FIRST}
    assert found.recording.hidden_pointers
    assert found.recording.launches[0].writes == (0, 1, 2, 3)
    assert [s.nbytes for s in found.recording.storages] == [24, 4 * N, 4 * N, 4 * N]


@pytest.mark.slow
def test_a_number_that_is_an_address_counts_as_well(backend: FakeBackend) -> None:
    target = torch.empty(N, device="cuda")
    backend.gpu.fill(backend.gpu.borrow(target), FIRST)
    seen = writing(backend.gpu, [target])
    found = tuned_by(plain(add_by_number), backend, backend.tensors.address(target), N, grid=by_block)
    assert found.winner == 1
    assert seen
    assert contents(backend.gpu, [target]) == {FIRST}


@pytest.mark.slow
def test_a_table_of_tables_is_followed(backend: FakeBackend) -> None:
    inner, targets = table_of(backend)
    outer = torch.empty(1, device="cuda", dtype=torch.int64)
    holding(backend.gpu, outer, [backend.tensors.address(inner)])
    found = tuned_by(plain(add_by_table), backend, outer, N)
    assert len(found.recording.storages) == 2 + len(targets)


@pytest.mark.slow
def test_every_run_of_a_race_finds_the_first_content(backend: FakeBackend) -> None:
    table, targets = table_of(backend)
    looks: list[int] = []
    seen = writing(backend.gpu, targets)
    event = backend.gpu.event

    def note() -> Any:
        looks.extend(seen[-1:])
        return event()

    backend.gpu.event = note  # type: ignore[method-assign]
    tuned_by(plain(add_by_table), backend, table, N)
    assert set(looks) == {FIRST + ADDED}, "one launch after a restore, whenever a time is taken"


def test_memory_is_put_back_after_an_error_too(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    table, targets = table_of(backend)
    seen = writing(backend.gpu, targets)

    monkeypatch.setattr(tuner_module, "decided", raising(ValueError("oops")))
    with pytest.raises(ValueError, match="oops"):
        tuned_by(plain(add_by_table), backend, table, N)
    assert seen
    assert contents(backend.gpu, targets) == {FIRST}


def test_who_only_reads_there_needs_nothing_kept(backend: FakeBackend) -> None:
    table, _targets = table_of(backend)
    found = tuned_by(plain(sum_by_table), backend, table, torch.empty(N, device="cuda"), N)
    assert found.winner == 1
    assert found.recording.hidden_pointers
    assert len(found.recording.storages) == 2


def test_no_other_kernel_makes_anybody_look(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(*args: Any) -> Any:
        pytest.fail("nobody follows addresses here")

    monkeypatch.setattr(FakeGpu, "reaches", looked)
    monkeypatch.setattr("kerntune.capture.memory_plan.holders", looked)
    monkeypatch.setattr("kerntune.capture.memory_plan.possible_addresses", looked)
    x = torch.empty(N, device="cuda", dtype=torch.int64)
    assert not tuned_by(plain(increment_kernel), backend, x, N, grid=by_block).recording.hidden_pointers


# what can't be kept


def dead(backend: FakeBackend) -> torch.Tensor:
    """A table with addresses of memory that is freed."""
    table, targets = table_of(backend)
    assert targets
    return table


def empty_table(backend: FakeBackend) -> torch.Tensor:
    return torch.zeros(3, device="cuda", dtype=torch.int64)


def too_large(backend: FakeBackend) -> torch.Tensor:
    return torch.empty(1 << 24, device="cuda", dtype=torch.int64)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        pytest.param(dead, r"the address 0x\w+ lies in memory of no tensor", marks=pytest.mark.slow),
        (empty_table, "none of its arguments holds the address of a tensor"),
        (too_large, "128 MiB of 64-bit integers is too large to search"),
    ],
)
def test_nothing_is_raced_on_memory_that_cant_be_put_back(
    backend: FakeBackend, tmp_path: Path, made: Callable[[FakeBackend], torch.Tensor], why: str
) -> None:
    table, kernel = made(backend), kerntune.autotune(configs(64, 128), key=["n"])(add_by_table)
    with pytest.warns(RuntimeWarning, match=f"add_by_table is not tuned, and launched with BLOCK=64.*{why}"):
        kernel[by_group](table, N)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel[by_group](table, N)
    assert backend.gpu.launches == 0, "the user's own launch is Triton's"
    assert kernel.best_config.kwargs == {"BLOCK": 64}
    assert not list(tmp_path.rglob("*.json")), "the next process may be able to tune"


@pytest.mark.slow
def test_what_can_t_be_raced_needs_no_winner_under_frozen(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is ever stored of it. Only its first config is compiled."""
    monkeypatch.setenv("KERNTUNE_TUNE", "frozen")
    asked: list[int] = []
    below = Compiler.compile_aside
    monkeypatch.setattr(
        Compiler, "compile_aside", lambda self, given, *a: asked.append(len(given)) or below(self, given, *a)
    )
    kernel = kerntune.autotune(configs(64, 128), key=["n"])(add_by_table)
    with pytest.warns(RuntimeWarning, match="add_by_table is not tuned, and launched with BLOCK=64.*the address 0x"):
        kernel[by_group](dead(backend), N)
    kernel[by_group](dead(backend), N)
    assert kernel.best_config.kwargs == {"BLOCK": 64}
    assert asked == [1]
    usual = kerntune.autotune(configs(64, 128), key=["n"])(increment_kernel)
    with pytest.raises(CacheMissError):
        usual[by_block](torch.empty(N, device="cuda"), N)


def test_under_frozen_a_kernel_that_does_not_compile_is_a_miss(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNTUNE_TUNE", "frozen")
    kernel = kerntune.autotune([triton.Config({"BLOCK": 3}), *configs(64)], key=["n"])(increment_kernel)
    with pytest.raises(CacheMissError):
        kernel[by_block](torch.empty(N, device="cuda"), N)


@pytest.mark.slow
def test_without_room_to_keep_it_nothing_is_raced(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    table, _targets = table_of(backend)
    full = kerntune.errors.MeasurementError("no room here")
    monkeypatch.setattr("kerntune.capture.memory_plan.keep_at_home", lambda *a: (_ for _ in ()).throw(full))
    found = tuned_by(plain(add_by_table), backend, table, N)
    assert (found.winner, found.times_ns) == (0, {})
    assert found.unraced.endswith("no room here")


# empty grids


def test_an_empty_grid_is_neither_timed_nor_remembered(backend: FakeBackend, tmp_path: Path) -> None:
    kernel = kerntune.autotune(configs(64, 128), key=["n"])(increment_kernel)
    x = torch.empty(N, device="cuda")
    kernel[(0,)](x, N)
    assert (backend.gpu.launches, kernel.cache, list(tmp_path.rglob("*.json"))) == (0, {}, [])
    kernel[by_block](x, N)
    assert backend.gpu.launches > 0
    assert kernel.best_config.kwargs == {"BLOCK": 128}


def test_an_empty_grid_needs_no_winner_under_frozen(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNTUNE_TUNE", "frozen")
    kernel = kerntune.autotune(configs(64, 128), key=["n"])(increment_kernel)
    x = torch.empty(N, device="cuda")
    kernel[(0,)](x, N)
    with pytest.raises(CacheMissError):
        kernel[by_block](x, N)


@pytest.mark.slow
def test_a_call_that_is_run_again_finds_what_the_first_run_found(backend: FakeBackend) -> None:
    table, targets = table_of(backend)
    capture = captured(backend, lambda: add_by_table[by_group({"BLOCK": 64})](table, N, BLOCK=64))
    for target in targets:
        backend.gpu.fill(backend.gpu.borrow(target), FIRST + ADDED)
    with capture.plan.homes_preserved():
        capture.plan.rewind()
        assert contents(backend.gpu, targets) == {FIRST}
    assert contents(backend.gpu, targets) == {FIRST + ADDED}
