"""What a call of a tuned kernel does and leaves, where Triton's own would: every way to call it, from any thread."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from fake_runs import THREE, N, block, by_block, configs, increment_kernel, lacking, scale_kernel, script
from triton import knobs
from triton.runtime.autotuner import Autotuner as TritonAutotuner
from triton.runtime.jit import JITFunction

import kerntune
from kerntune import capture as captures
from kerntune.errors import CacheMissError, ConfigError, GridError, MeasurementError, UsageError
from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning import tune_call, tuned_call
from kerntune.tuning.cache import TrialCache, WinnerCache
from kerntune.tuning.race import Estimates
from kerntune.tuning.stored_winners import Winners

TRITONS_RUN = TritonAutotuner.run
"""Triton's own, from before any stand-in."""


@pytest.fixture
def backend(this_gpu: FakeBackend) -> FakeBackend:
    """The GPU on which tuning happens, with three blocks' times."""
    script(this_gpu, *THREE)
    return this_gpu


def ours(*blocks: int, kernel: Any = scale_kernel, **options: Any) -> Any:
    return kerntune.autotune(configs(*(blocks or (64, 128, 256))), key=["n"], **options)(kernel)


def call(kernel: Any, n: int = N) -> Any:
    x = torch.empty(N, device="cuda")
    return kernel[by_block](x, x, n, 2.0)


def test_all_arguments_by_position(backend: FakeBackend) -> None:
    kernel = kerntune.autotune(configs(64, 128, 256), ["n"], None, ["y_ptr"], ["x_ptr"])(scale_kernel)
    call(kernel)
    assert kernel.best_config is kernel.configs[1]
    assert (kernel.reset_to_zero, kernel.restore_value) == (["y_ptr"], ["x_ptr"])


# what a tuning leaves


def test_a_run_leaves_what_tritons_leaves(backend: FakeBackend) -> None:
    bench = {64: 3e-3, 128: 1e-3, 256: 2e-3}
    asked = iter(bench.values())
    theirs = triton.autotune(configs(*bench), key=["n"], do_bench=lambda run, quantiles: [next(asked)] * 3)(
        scale_kernel
    )
    mine, x = ours(), torch.empty(N, device="cuda")
    TRITONS_RUN(theirs, x, x, N, 2.0, grid=(1,), warmup=False)
    mine.run(x, x, N, 2.0, grid=(1,), warmup=False)
    assert mine.nargs is theirs.nargs is None
    assert list(mine.cache) == list(theirs.cache)
    assert str(mine.best_config) == str(theirs.best_config)
    assert [str(c) for c in mine.configs_timings] == [str(c) for c in theirs.configs_timings]
    for config, times in theirs.configs_timings.items():
        assert mine.configs_timings[config] == [pytest.approx(t, rel=0.02) for t in times]
    assert isinstance(mine.bench_time, float)
    assert mine.bench_time > 0
    assert min(mine.configs_timings, key=mine.configs_timings.get) is mine.best_config


def test_failing_configs_have_infinite_times(backend: FakeBackend) -> None:
    script(backend, block(64, fails="too large"), *THREE)
    kernel = ours()
    call(kernel)
    assert kernel.configs_timings[kernel.configs[0]] == [float("inf")] * 3


def test_a_warm_start_has_the_winners_time(backend: FakeBackend) -> None:
    call(ours())
    again = ours()
    call(again)
    assert again.configs_timings == {again.configs[1]: [pytest.approx(1e-3, rel=0.02)] * 3}


def test_one_config_more_is_one_trial_more(
    backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call(ours())
    looked: list[Any] = []
    take = Estimates.take
    monkeypatch.setattr(Estimates, "take", lambda looks, trial: (looked.append(trial.program), take(looks, trial))[1])
    script(backend, *THREE, block(512, 900.0))
    kernel = ours(64, 128, 256, 512)
    call(kernel)
    assert kernel.best_config is kernel.configs[3]
    assert {p.recording.binaries[0].constexprs["BLOCK"] for p in looked} == {"128", "512"}, "those that may win"
    assert {t.config.kwargs["BLOCK"] for t in TrialCache(tmp_path).entries()} == {64, 128, 256, 512}


def test_a_config_more_that_ties_changes_nothing(backend: FakeBackend) -> None:
    rules = (block(64, 2000.0), block(128, 1000.0), block(32, 1000.0))
    script(backend, *rules)
    call(ours(64, 128))
    script(backend, *rules)
    kernel = ours(32, 64, 128)
    call(kernel)
    assert kernel.best_config is kernel.configs[2]


def test_pruning_is_asked_once(backend: FakeBackend) -> None:
    seen: list[dict[str, Any]] = []

    def prune(found: list[Any], named: dict[str, Any], **kwargs: Any) -> list[Any]:
        seen.append({**named, **kwargs})
        return found[:2]

    kernel = ours(prune_configs_by={"early_config_prune": prune})
    call(kernel)
    call(kernel)
    assert len(seen) == 1
    assert (seen[0]["n"], seen[0]["factor"]) == (N, 2.0)


# listeners


@pytest.mark.skipif(not hasattr(knobs.autotuning, "listener"), reason="this Triton has no listener")
def test_the_listener_hears_what_tritons_own_would_tell(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[dict[str, Any]] = []
    monkeypatch.setattr(knobs.autotuning, "listener", lambda **words: heard.append(words))
    theirs = triton.autotune(configs(64, 128), key=["n"], do_bench=lambda run, quantiles: [1.0] * 3)(scale_kernel)
    x = torch.empty(N, device="cuda")
    TRITONS_RUN(theirs, x, x, N, 2.0, grid=(1,), warmup=False)
    kernel = ours()
    call(kernel)
    call(kernel)
    call(ours())
    call(ours(64))
    told, cold, warm = heard
    assert set(told) == set(cold) == set(warm)
    assert told["fn"] is cold["fn"] is warm["fn"] is scale_kernel
    assert told["key"] == cold["key"] == warm["key"]
    assert (cold["best_config"], cold["configs_timings"]) == (kernel.best_config, kernel.configs_timings)
    assert [(h["cache_hit"], h["duration"] is None) for h in heard] == [(False, False), (False, False), (True, True)]


def test_tuning_is_printed_if_triton_is_told_to(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call(ours(cache_results=False))
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(knobs.autotuning, "print", True)
    call(ours(cache_results=False))
    out = capsys.readouterr().out
    assert "scale_kernel" in out
    assert "BLOCK: 128" in out


# arguments


@triton.jit
def biased_kernel(x_ptr, bias_ptr, total_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    if bias_ptr is not None:
        x += tl.load(bias_ptr + i, mask=i < n)
    if total_ptr is not None:
        tl.atomic_add(total_ptr, tl.sum(x, 0))
    tl.store(x_ptr + i, x, mask=i < n)


@pytest.mark.parametrize("options", [{}, {"reset_to_zero": ["total_ptr"]}, {"restore_value": ["bias_ptr"]}], ids=str)
def test_pointers_may_be_none(backend: FakeBackend, options: dict[str, Any]) -> None:
    kernel = ours(kernel=biased_kernel, **options)
    x = torch.empty(N, device="cuda")
    kernel[by_block](x, None, None, N)
    kernel[by_block](x, x.clone(), None, N)
    assert [c.kwargs["BLOCK"] for c in kernel.cache.values()] == [128, 128]


def test_the_default_hook_leaves_none_alone() -> None:
    kernel = ours(kernel=biased_kernel, reset_to_zero=["total_ptr", "bias_ptr"], restore_value=["x_ptr", "bias_ptr"])
    x, total = torch.ones(4), torch.ones(1)
    kernel.pre_hook({"x_ptr": x, "bias_ptr": None, "total_ptr": total})
    assert total.item() == 0
    x.zero_()
    kernel.post_hook({"x_ptr": x, "bias_ptr": None, "total_ptr": total}, exception=None)
    assert x.tolist() == [1.0] * 4


@pytest.mark.parametrize("positional", range(5))
def test_any_share_of_keywords(backend: FakeBackend, positional: int) -> None:
    x = torch.empty(N, device="cuda")
    values = {"x_ptr": x, "y_ptr": x, "n": N, "factor": 2.0}
    kernel = ours()
    for _ in range(2):
        kernel[by_block](*list(values.values())[:positional], **dict(list(values.items())[positional:]))
    assert kernel.best_config is kernel.configs[1]
    assert len(kernel.cache) == 1


def test_a_configs_hook_gets_all_arguments_and_its_config(backend: FakeBackend) -> None:
    seen: list[dict[str, Any]] = []
    made = [triton.Config({"BLOCK": b}, num_warps=w, pre_hook=seen.append) for b, w in ((64, 2), (128, 4))]
    kernel = kerntune.autotune(made, key=["n"])(scale_kernel)
    call(kernel)
    seen.clear()
    call(kernel)
    (words,) = seen
    assert {k: words[k] for k in ("n", "factor", "BLOCK", "num_warps")} == {
        "n": N, "factor": 2.0, "BLOCK": 128, "num_warps": 4,
    }  # fmt: skip
    assert {"x_ptr", "y_ptr", "grid"} <= set(words)


def test_warmup_compiles_every_config(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(JITFunction, "warmup", lambda self, *args, **words: seen.append(words["BLOCK"]))
    kernel = ours()
    kernel.warmup(torch.float32, torch.float32, N, 2.0, grid=(1,))
    assert seen == [64, 128, 256]
    assert kernel.cache == {}


# graphs


def test_while_a_graph_is_captured_a_winner_on_disk_is_used(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    call(ours())
    launches = backend.gpu.launches
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    kernel = ours()
    call(kernel)
    assert kernel.best_config is kernel.configs[1]
    assert backend.gpu.launches == launches
    with pytest.raises(MeasurementError, match="before the capture"):
        call(kernel, N - 1)


# modes and the cache


def test_the_environment_sets_the_mode(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNTUNE_TUNE", "frozen")
    with pytest.raises(CacheMissError, match=r"KERNTUNE_TUNE=frozen.*\n.*no winner of kernel scale_kernel is stored"):
        call(ours())
    monkeypatch.delenv("KERNTUNE_TUNE")
    call(ours())
    script(backend, block(64, 1.0), *THREE[1:])
    for mode, best in (("frozen", 1), ("force", 0), ("auto", 0)):
        monkeypatch.setenv("KERNTUNE_TUNE", mode)
        kernel = ours()
        call(kernel)
        assert kernel.best_config is kernel.configs[best]
    monkeypatch.setenv("KERNTUNE_TUNE", "never")
    with pytest.raises(UsageError, match="'never'; it can be auto, frozen, force or nearest"):
        call(ours())


def test_a_cache_that_can_not_be_written_is_a_warning(
    backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("a file where the folder should be")
    monkeypatch.setattr(tuned_call, "WinnerCache", lambda: WinnerCache(tmp_path / "file"))
    monkeypatch.setattr(Winners, "_warned", False)
    kernel = ours()
    with pytest.warns(RuntimeWarning, match="winners can't be kept for the next run: .*can't be written"):
        call(kernel)
    assert kernel.best_config is kernel.configs[1]


def test_who_won_without_pipelining_is_not_tuned_again(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    script(backend, *lacking())
    first, second = ours(), ours()
    call(first)
    monkeypatch.setattr(tuned_call, "tune_call", None)
    call(second)
    for kernel in (first, second):
        assert (kernel.best_config.kwargs, kernel.best_config.num_stages) == ({"BLOCK": 256}, 1)
        assert len(kernel.configs) == 3
        assert kernel.configs[2].num_stages == 3


# threads


def together(*works: Callable[[], Any]) -> None:
    """All at once, each in a thread; the first error is raised here."""
    errors: list[BaseException] = []
    gate = threading.Barrier(len(works))

    def guarded(work: Callable[[], Any]) -> None:
        try:
            gate.wait(10)
            work()
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def test_one_kernel_in_many_threads_is_tuned_once(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, x, tunings = ours(), torch.empty(N, device="cuda"), []
    tune = tune_call.tune
    monkeypatch.setattr(tune_call, "tune", lambda *args, **words: (tunings.append(args), tune(*args, **words))[1])
    together(*[lambda: kernel[by_block](x, x, N, 2.0)] * 4)
    assert len(tunings) == 1
    assert kernel.best_config is kernel.configs[1]


def test_several_kernels_and_keys_in_threads_are_all_tuned(backend: FakeBackend) -> None:
    first, second, x = ours(), ours(kernel=increment_kernel), torch.empty(N, device="cuda")
    together(
        lambda: first[by_block](x, x, N, 2.0),
        lambda: first[by_block](x, x, N - 1, 2.0),
        lambda: second[by_block](x, N),
    )
    assert [c.kwargs["BLOCK"] for c in first.cache.values()] == [128, 128]
    assert [c.kwargs["BLOCK"] for c in second.cache.values()] == [128]


def test_another_threads_launches_are_not_captured(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """While this thread tunes, another one's bare and tuned launches go straight to Triton."""
    x, known, seen = torch.empty(N, device="cuda"), ours(), []
    call(known)
    tune = tune_call.tune

    def meanwhile(capture: Any, *args: Any, **words: Any) -> Any:
        def other() -> None:
            seen.append(captures.current())
            increment_kernel[by_block](x, N, BLOCK=64)
            known[by_block](x, x, N, 2.0)

        before = list(capture.launches)
        together(other)
        assert capture.launches == before
        assert captures.current() is capture
        return tune(capture, *args, **words)

    monkeypatch.setattr(tune_call, "tune", meanwhile)
    kernel = ours(64, 128)
    call(kernel)
    assert seen == [None]
    assert kernel.best_config is kernel.configs[1]


# configs that can't be launched


def test_a_config_whose_grid_is_too_large_costs_itself(backend: FakeBackend) -> None:
    x, kernel = torch.empty(N, device="cuda"), ours()
    kernel[lambda meta: (1, 70_000 if meta["BLOCK"] == 64 else 8)](x, x, N, 2.0)
    times = {config.kwargs["BLOCK"]: found[0] for config, found in kernel.configs_timings.items()}
    assert kernel.best_config.kwargs["BLOCK"] == 128
    assert times[64] == math.inf > times[256]


def test_a_grid_that_fits_with_no_config_is_said_once(backend: FakeBackend) -> None:
    x = torch.empty(N, device="cuda")
    with pytest.raises(GridError, match="axis y is 70000"):
        ours()[(1, 70_000)](x, x, N, 2.0)


# configs that hold more than numbers and texts


@triton.jit
def halved(x):
    return x * 0.5


@triton.jit
def shaped_kernel(x_ptr, y_ptr, n, OUT: tl.constexpr, F: tl.constexpr, FILL: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, F(tl.load(x_ptr + i, mask=i < n, other=FILL)).to(OUT), mask=i < n)


def shaped(*blocks: int, out: Any = tl.float16) -> Any:
    made = [triton.Config({"OUT": out, "F": halved, "FILL": -math.inf, "BLOCK": b}) for b in blocks]
    return kerntune.autotune(made, key=["n"])(shaped_kernel)


def test_configs_may_hold_dtypes_functions_and_infinities(backend: FakeBackend, launches: list[dict[str, Any]]) -> None:
    kernel, x = shaped(64, 128, 256), torch.empty(N, device="cuda")
    kernel[by_block](x, x, N)
    assert kernel.best_config.kwargs["BLOCK"] == 128
    last = launches[-1]
    assert (last["OUT"], last["F"], last["FILL"]) == (tl.float16, halved, -math.inf)


def test_winners_of_such_configs_are_found_again(backend: FakeBackend) -> None:
    """By what the values are: another dtype is another question."""
    x = torch.empty(N, device="cuda")
    shaped(64, 128, 256)[by_block](x, x, N)
    before = backend.gpu.launches
    again = shaped(64, 128, 256)
    again[by_block](x, x, N)
    assert (again.best_config.kwargs["BLOCK"], backend.gpu.launches) == (128, before)
    shaped(64, 128, 256, out=tl.bfloat16)[by_block](x, x, N)
    assert backend.gpu.launches > before


# arguments whose memory can't be kept


class Foreign:
    """Another library's array: Triton takes any object with an address and a dtype."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor, self.dtype = tensor, tensor.dtype

    def data_ptr(self) -> int:
        return self._tensor.data_ptr()


@pytest.mark.parametrize("kind", ["of another library", "on the host"])
def test_a_call_with_memory_that_only_triton_knows_is_launched_untuned(
    backend: FakeBackend, launches: list[dict[str, Any]], kind: str
) -> None:
    kernel, y = ours(), torch.empty(N, device="cuda")
    x = Foreign(torch.empty(N, device="cuda")) if kind == "of another library" else torch.empty(N, device="cpu")
    with pytest.warns(RuntimeWarning, match="scale_kernel is not tuned.*only keep and restore torch's tensors"):
        kernel[by_block](x, y, N, 2.0)
    assert launches[-1]["BLOCK"] == 64
    kernel[by_block](x, y, N, 2.0)  # reported once
    assert len(launches) == 2


# what is no kernel


def test_a_function_without_triton_s_decorator_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"is no Triton kernel: put kerntune.autotune above @triton.jit"):
        kerntune.autotune(configs(64), key=["n"])(scale_kernel.fn)


# Triton's interpreter

INTERPRETED = """
import torch, triton, triton.language as tl, kerntune
from kerntune.search import Range, Search, Space

@kerntune.autotune([triton.Config({"BLOCK": b}) for b in (64, 128, 256)], key=["n"], reset_to_zero=["y_ptr"],
                   prune_configs_by={"early_config_prune": lambda configs, named, **words: configs[1:]})
@triton.jit
def add(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)

x, y = torch.arange(500.0), torch.ones(500)
add[lambda meta: (triton.cdiv(500, meta["BLOCK"]),)](x, y, 500)
assert torch.equal(y, x)
assert add.best_config.kwargs == {"BLOCK": 128}
add[lambda meta: (triton.cdiv(500, meta["BLOCK"]),)](x, y, 500)
assert torch.equal(y, 2 * x)

search = Search(Space((Range("BLOCK", 64, 1024),)), trials=3)
searched = kerntune.autotune([triton.Config({"BLOCK": 256})], key=["n"], search=search)(add.fn)
searched[lambda meta: (triton.cdiv(500, meta["BLOCK"]),)](x, y, 500)
assert torch.equal(y, 3 * x)
assert searched.best_config.kwargs == {"BLOCK": 256}
"""


@pytest.mark.slow
def test_in_tritons_interpreter_the_first_config_runs() -> None:
    """Without a GPU: there is nothing to time, and Triton's own engine would ask for a driver."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", INTERPRETED], check=True, env=environment, timeout=300)
