"""Winners of earlier runs: found again for the same question only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import triton
import triton.language as tl
from fake_runs import N, by_block, captured, configs, scale_kernel, tuned
from triton.tools.tensor_descriptor import TensorDescriptor

from kerntune.base.config import Config
from kerntune.base.policy import TuneMode
from kerntune.capture import Site
from kerntune.errors import CacheMissError
from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.stored_winners import Winners
from tuning.cache.made import won


@pytest.fixture
def winners(backend: FakeBackend, tmp_path: Path) -> Winners:
    return Winners(WinnerCache(tmp_path), TuneMode.AUTO, backend.gpu)


def other_mode(winners: Winners, mode: TuneMode) -> Winners:
    return Winners(winners.cache, mode, winners._gpu)


def site(
    backend: FakeBackend,
    kernel: Any = None,
    shape: tuple[int, ...] = (N,),
    dtype: torch.dtype = torch.float32,
    n: int = N,
    factor: float = 2.0,
    transposed: bool = False,
) -> Site:
    x = torch.empty(*shape, device="cuda", dtype=dtype)
    x = x.t() if transposed else x
    y = torch.empty(N, device="cuda")
    capture = captured(backend, lambda: (kernel or tuned(64, 128, 256))[by_block](x, y, n, factor))
    found = capture.launches[0].site
    assert found is not None
    return found


def test_a_kept_winner_is_found(backend: FakeBackend, winners: Winners) -> None:
    assert winners.find(site(backend)) is None
    winners.keep(site(backend), 1, 1234.5)
    assert winners.find(site(backend)) == 1
    entry = winners.cache.entries()[0]
    assert (entry.config, entry.time_ns) == (Config({"BLOCK": 128}), 1234.5)
    assert entry.environment == backend.gpu.environment()


@pytest.mark.parametrize(
    "other",
    [
        {"shape": (2 * N,)},
        {"shape": (64, 64)},
        {"dtype": torch.float16},
        {"n": N - 1},
        {"factor": 3.0},
        {"factor": 2},
    ],
    ids=str,
)
def test_another_question_has_no_answer_yet(backend: FakeBackend, winners: Winners, other: dict[str, Any]) -> None:
    winners.keep(site(backend), 1, 1.0)
    assert winners.find(site(backend, **other)) is None


def test_strides_are_part_of_the_question(backend: FakeBackend, winners: Winners) -> None:
    winners.keep(site(backend, shape=(64, 64)), 1, 1.0)
    assert winners.find(site(backend, shape=(64, 64), transposed=True)) is None


def test_other_candidates_are_another_question(backend: FakeBackend, winners: Winners) -> None:
    winners.keep(site(backend), 1, 1.0)
    for blocks in ((64, 128), (64, 128, 512), (128, 64, 256)):
        assert winners.find(site(backend, tuned(*blocks))) is None


def test_settings_of_the_compiler_are_part_of_the_question(
    backend: FakeBackend, winners: Winners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machines with other settings may share a store."""
    winners.keep(site(backend), 1, 1.0)
    assert winners.find(site(backend)) == 1
    monkeypatch.setenv("DISABLE_PTXAS_OPT", "1")
    assert winners.find(site(backend)) is None


def test_another_device_or_kernel_is_another_question(backend: FakeBackend, winners: Winners) -> None:
    @triton.jit
    def other_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)

    winners.keep(site(backend), 1, 1.0)
    assert winners.find(site(backend, triton.autotune(configs(64, 128, 256), key=["n"])(other_kernel))) is None
    backend.gpu.spec = msgspec.structs.replace(backend.spec, name="Other GPU")
    assert winners.find(site(backend)) is None


def test_keywords_and_positions_are_the_same_question(backend: FakeBackend, winners: Winners) -> None:
    x, y = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    winners.keep(site(backend), 1, 1.0)
    kernel = tuned(64, 128, 256)
    capture = captured(backend, lambda: kernel[by_block](factor=2.0, n=N, y_ptr=y, x_ptr=x))
    assert winners.find(capture.launches[0].site) == 1


def test_the_grid_is_no_part_of_the_question(backend: FakeBackend, winners: Winners) -> None:
    """It is a new function object at every call."""
    keys = [winners.key(site(backend)) for _ in range(2)]
    assert keys[0] == keys[1]
    assert "grid" not in keys[0].arguments


# what arguments say of themselves


@triton.jit
def copy_kernel(source, target, FN: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK
    target.store([row, 0], source.load([row, 0]))


@triton.jit
def pair_kernel(pair, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(pair[1] + i, tl.load(pair[0] + i, mask=i < n), mask=i < n)


def key_of_descriptors(backend: FakeBackend, winners: Winners, rows: int, dtype: torch.dtype, fn: Any = 0) -> str:
    source, target = (
        TensorDescriptor.from_tensor(torch.empty(rows, 64, device="cuda", dtype=dtype), [64, 64]) for _ in range(2)
    )
    kernel = triton.autotune(configs(64), key=[])(copy_kernel)
    capture = captured(backend, lambda: kernel[(rows // 64,)](source, target, fn))
    return winners.key(capture.launches[0].site).arguments


@pytest.mark.parametrize(("rows", "dtype"), [(8192, torch.float16), (256, torch.bfloat16)])
def test_descriptors_say_their_layout(backend: FakeBackend, winners: Winners, rows: int, dtype: torch.dtype) -> None:
    first = key_of_descriptors(backend, winners, 256, torch.float16)
    assert first != key_of_descriptors(backend, winners, rows, dtype)


def test_tuples_say_what_is_in_them(backend: FakeBackend, winners: Winners) -> None:
    kernel = triton.autotune(configs(64, 128), key=["n"])(pair_kernel)

    def key(size: int) -> str:
        pair = tuple(torch.empty(size, device="cuda") for _ in range(2))
        capture = captured(backend, lambda: kernel[by_block](pair, 64))
        return winners.key(capture.launches[0].site).arguments

    assert key(64) != key(1 << 20)


def test_types_among_constants_say_which(backend: FakeBackend, winners: Winners) -> None:
    keys = {key_of_descriptors(backend, winners, 256, torch.float16, fn) for fn in (tl.float32, tl.float16)}
    assert len(keys) == 2


# modes


def test_frozen_tuning_uses_what_is_stored_and_refuses_the_rest(backend: FakeBackend, winners: Winners) -> None:
    frozen = other_mode(winners, TuneMode.FROZEN)
    with pytest.raises(CacheMissError, match=r"scale_kernel: no stored winner.*--kerntune-tune=frozen.*=auto"):
        frozen.find(site(backend))
    winners.keep(site(backend), 1, 1.0)
    assert frozen.find(site(backend)) == 1
    with pytest.raises(CacheMissError, match=f"argument n: {N} -> {N - 1}"):
        frozen.find(site(backend, n=N - 1))


def test_a_damaged_entry_is_a_miss_and_set_aside(backend: FakeBackend, winners: Winners, tmp_path: Path) -> None:
    winners.keep(site(backend), 1, 1.0)
    (path,) = tmp_path.glob("winners/??/*/*.json")
    path.write_bytes(path.read_bytes()[:50])
    with pytest.warns(RuntimeWarning, match="what it held is found anew"):
        assert winners.find(site(backend)) is None
    assert len(winners.cache.damaged) == 1
    assert not path.exists()
    assert path.with_suffix(".damaged").exists()


def another(winners: Winners) -> Winners:
    """Those of another process on the same folder."""
    return other_mode(winners, winners.mode)


def test_the_first_of_two_processes_stands_for_both(backend: FakeBackend, winners: Winners) -> None:
    other = another(winners)
    assert (winners.find(site(backend)), other.find(site(backend))) == (None, None)
    assert winners.keep(site(backend), 1, 1.0) == 1
    assert other.keep(site(backend), 2, 0.5) == 1
    assert another(winners).find(site(backend)) == 1
    assert len(winners.cache.entries()) == 1


def test_an_unfinished_winner_of_another_process_is_replaced_by_a_finished_one(
    backend: FakeBackend, winners: Winners
) -> None:
    winners.keep(site(backend), 1, 1.0, untried=[2])
    other = another(winners)
    assert other.keep(site(backend), 0, 1.0, untried=[2]) == 1
    assert other.keep(site(backend), 2, 0.5) == 2
    assert winners.find(site(backend)) == 2


def test_a_winner_of_others_that_is_no_candidate_is_replaced(backend: FakeBackend, winners: Winners) -> None:
    one = site(backend)
    key = winners.key(one)
    winners.cache.add(won(Config({"BLOCK": 7}), key=key))
    assert winners.find(one) is None
    assert another(winners).keep(one, 1, 1.0) == 1
    assert winners.find(one) == 1


def test_damage_is_told_once(backend: FakeBackend, winners: Winners, tmp_path: Path) -> None:
    winners.keep(site(backend), 1, 1.0)
    (path,) = tmp_path.glob("winners/??/*/*.json")
    path.write_bytes(b"{")
    with pytest.warns(RuntimeWarning, match=re.escape(f"kerntune's cache: {path}: not readable as JSON")) as told:
        assert [w.find(site(backend)) for w in (winners, another(winners))] == [None, None]
    assert len(told) == 1


def test_damage_ends_no_run_whose_warnings_are_errors(
    backend: FakeBackend, winners: Winners, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    winners.keep(site(backend), 1, 1.0)
    (path,) = tmp_path.glob("winners/??/*/*.json")
    path.write_bytes(b"{")
    assert winners.find(site(backend)) is None
    assert str(path) in capsys.readouterr().err


def test_the_winner_among_fewer_candidates_is_the_incumbent_among_more(backend: FakeBackend, winners: Winners) -> None:
    more = site(backend, tuned(32, 64, 128, 256))
    assert winners.incumbent(more) is None
    winners.keep(site(backend), 1, 1.0)
    assert winners.incumbent(more) == 2
    assert winners.incumbent(site(backend)) is None, "that one is stored, not an incumbent"
    assert winners.incumbent(site(backend, tuned(32, 64))) is None, "the winner is no candidate any more"
    assert winners.incumbent(site(backend, tuned(32, 64, 128), n=N - 1)) is None
    assert other_mode(winners, TuneMode.FORCE).incumbent(more) is None


def test_an_unfinished_winner_is_found_on_demand_else_the_incumbent(backend: FakeBackend, winners: Winners) -> None:
    one = site(backend, tuned(32, 64, 128))
    winners.keep(one, 1, 1.0, untried=[2])
    assert winners.stored(one).untried == (one.candidates[2].config,)  # type: ignore[union-attr]
    assert (winners.find(one), winners.find(one, unfinished=True), winners.incumbent(one)) == (None, 1, 1)
    assert other_mode(winners, TuneMode.FROZEN).find(one) == 1
    assert other_mode(winners, TuneMode.FORCE).find(one, unfinished=True) is None
    winners.keep(one, 2, 1.0)
    assert (winners.find(one), winners.incumbent(one)) == (2, None)


def under_heuristics(even: Any, first: bool = True) -> Any:
    """A tuner over ``@triton.heuristics``, or the other way round."""
    layer = triton.heuristics({"EVEN": even})
    tune = triton.autotune(configs(64, 128), key=["n"])
    return tune(layer(evenly)) if first else layer(tune(evenly))


@triton.jit
def evenly(x_ptr, y_ptr, n, factor, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=(i < n) | EVEN) * factor, mask=i < n)


@pytest.mark.parametrize("first", [True, False], ids=["tuner first", "heuristics first"])
def test_a_winner_depends_on_what_heuristics_set(backend: FakeBackend, winners: Winners, first: bool) -> None:
    winners.keep(site(backend, under_heuristics(lambda args: args["n"] % args["x_ptr"].numel() == 0, first)), 1, 10.0)
    assert winners.find(site(backend, under_heuristics(lambda args: True, first))) == 1
    other = site(backend, under_heuristics(lambda args: False, first))
    assert winners.find(other) is None
    assert "argument EVEN: True -> False" in winners.why_missed(other)


def test_a_winner_depends_on_what_heuristics_make_of_each_config(backend: FakeBackend, winners: Winners) -> None:
    winners.keep(site(backend, under_heuristics(lambda args: args["BLOCK"] == 64)), 1, 10.0)
    assert winners.find(site(backend, under_heuristics(lambda args: not args["BLOCK"] > 64))) == 1
    assert winners.find(site(backend, under_heuristics(lambda args: args["BLOCK"] == 128))) is None


def test_of_one_config_with_two_hooks_nothing_is_found(backend: FakeBackend, winners: Winners) -> None:
    """A winner is stored by its config, which doesn't say which of the two it was."""

    def hooked(*hooks: Any) -> Site:
        made = [triton.Config({"BLOCK": 64}, pre_hook=hook) for hook in hooks] + configs(128)
        return site(backend, triton.autotune(made, key=["n"])(scale_kernel))

    one, two = (lambda named: None), (lambda named: None)
    winners.keep(hooked(one, two), 0, 10.0)
    assert winners.find(hooked(one, two)) is None
    assert winners.find(hooked(None, two)) is None
    winners.keep(hooked(one, one), 2, 10.0)
    assert winners.find(hooked(one, two)) == 2
    winners.keep(hooked(one, one), 0, 10.0)
    assert winners.find(hooked(one, one)) == 0
