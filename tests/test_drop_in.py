"""What ``triton.autotune`` promises beside a winner holds under ``kerntune.install()``: hooks, errors, listeners."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from fake_runs import N, block, by_block, configs, scale_kernel, script
from triton.runtime.errors import AutotunerError, OutOfResources

import kerntune
from kerntune.errors import ConfigError, TrialError, TuningError
from kerntune.gpu.scripted import FakeBackend
from kerntune.kernels.compat import tuners
from kerntune.static.occupancy import Violation
from kerntune.tuning.tuning_result import launch_error

TOO_MANY_WARPS = 64
"""2,048 threads a block; a device has 1,024."""


@pytest.fixture
def backend(this_gpu: FakeBackend) -> Iterator[FakeBackend]:
    """The GPU on which tuning happens; kerntune is installed."""
    script(this_gpu, block(64, 3000.0), block(128, 1000.0))
    with kerntune.install():
        yield this_gpu


def call(kernel: Any, grid: Any = by_block) -> None:
    x, y = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    kernel[grid](x, y, N, 2.0)


class Hooks:
    """A user's pair of hooks: what they were called with, in order."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any, Any]] = []
        self.kept: dict[str, Any] | None = None

    def pre(self, named: dict[str, Any], reset_only: bool = False) -> None:
        self.heard.append(("reset" if reset_only else "pre", named["BLOCK"], None))
        self.kept = None if reset_only else named

    def post(self, named: dict[str, Any], exception: Exception | None) -> None:
        assert self.kept is not None, "what the first hook keeps is there for the second"
        assert self.kept["BLOCK"] == named["BLOCK"]
        self.heard.append(("post", named["BLOCK"], exception))

    def exceptions(self) -> list[tuple[Any, Any]]:
        return [(size, exception) for _, size, exception in self.heard if exception is not None]

    def options(self) -> dict[str, Any]:
        return {"pre_hook": self.pre, "post_hook": self.post}


def mixed(*good: int) -> list[triton.Config]:
    return [triton.Config({"BLOCK": 256}, num_warps=TOO_MANY_WARPS), *configs(*good)]


# hooks around a config that is tried


@pytest.mark.parametrize("decorate", [kerntune.autotune, triton.autotune], ids=["ours", "tritons"])
def test_a_post_hook_hears_why_a_config_can_not_be_launched(backend: FakeBackend, decorate: Any) -> None:
    hooks = Hooks()
    call(decorate(mixed(64, 128), key=["n"], **hooks.options())(scale_kernel))
    ((size, error),) = hooks.exceptions()
    assert size == 256
    assert isinstance(error, OutOfResources)
    assert (error.required, error.limit, error.name) == (32 * TOO_MANY_WARPS, 1024, "threads")


def test_hooks_of_a_config_that_is_tried_come_in_pairs(backend: FakeBackend) -> None:
    """Each with the whole first hook, not with what only resets; the last one, before the launch itself, is alone."""
    hooks = Hooks()
    call(triton.autotune(mixed(64, 128), key=["n"], **hooks.options())(scale_kernel))
    *tried, last = [what for what, _, _ in hooks.heard]
    assert tried == ["pre", "post"] * (len(tried) // 2)
    assert last == "reset"
    assert {size for _, size, _ in hooks.heard} == {64, 128, 256}


def test_all_that_fail_are_told_before_the_error(backend: FakeBackend) -> None:
    hooks = Hooks()
    kernel = triton.autotune(
        [triton.Config({"BLOCK": b}, num_warps=TOO_MANY_WARPS) for b in (64, 128)], key=["n"], **hooks.options()
    )(scale_kernel)
    with pytest.raises(TuningError):
        call(kernel)
    assert [size for size, _ in hooks.exceptions()] == [64, 128]


def test_what_a_post_hook_writes_is_undone(backend: FakeBackend) -> None:
    x, gpu = torch.empty(N, device="cuda"), backend.gpu
    gpu.fill(gpu.borrow(x), 9)

    def post(named: dict[str, Any], exception: Exception | None) -> None:
        gpu.fill(gpu.borrow(named["x_ptr"]), 1)

    kernel = triton.autotune(mixed(64, 128), key=["n"], post_hook=post)(scale_kernel)
    kernel[by_block](x, torch.empty(N, device="cuda"), N, 2.0)
    assert gpu.read(gpu.borrow(x), 1) == b"\x09"


def test_without_a_post_hook_a_first_hook_only_resets(backend: FakeBackend) -> None:
    """As in Triton: what it would keep for a second hook, a copy for example, isn't needed."""
    hooks = Hooks()
    call(triton.autotune(configs(64, 128), key=["n"], pre_hook=hooks.pre)(scale_kernel))
    assert {what for what, _, _ in hooks.heard} == {"reset"}


@pytest.mark.parametrize("resource", ["shared memory", "threads", "tensor memory", "registers"])
def test_a_lack_is_tritons_error(resource: str) -> None:
    lack = Violation(resource, 1_234_567, 232_448, "bytes a block")
    assert Violation.from_text(f"{lack}; {lack}") == lack
    error = launch_error(f"{lack}; registers: ...")
    assert str(error) == str(OutOfResources(1_234_567, 232_448, resource))


def test_another_reason_is_ours() -> None:
    assert type(launch_error("kernel k (k.py) for cuda:90: error: threads")) is TrialError


# pruning


def prune_all(configs: list[Any], named: dict[str, Any], **words: Any) -> list[Any]:
    return []


def test_pruning_all_configs_raises_what_triton_raises(backend: FakeBackend) -> None:
    options = {"key": ["n"], "prune_configs_by": {"early_config_prune": prune_all}}
    kernel = triton.autotune(configs(64, 128), **options)(scale_kernel)
    with pytest.raises(AutotunerError) as caught:
        call(kernel)
    assert str(caught.value) == (
        "Autotuner error: No valid autotuner configs after pruning. `early_config_prune` should return at least one "
        "config."
    )
    assert any("kernel scale_kernel" in note for note in caught.value.__notes__)


def test_our_error_of_it_is_tritons_too() -> None:
    kernel = triton.autotune(configs(64, 128), key=["n"], prune_configs_by={"early_config_prune": prune_all})(
        scale_kernel
    )
    with pytest.raises(
        ConfigError, match=r"^kernel scale_kernel \(.*fake_runs.py\): Autotuner error: No valid"
    ) as caught:
        tuners.prune_configs(kernel, (), {})
    assert isinstance(caught.value, AutotunerError)
    assert isinstance(caught.value, triton.TritonError)


class Model:
    """A perf model that is an object."""

    def __call__(self, **words: Any) -> float:
        return fails()


def fails(*args: Any, **words: Any) -> Any:
    raise ZeroDivisionError("no bandwidth")


def early(configs: Any, named: Any, **words: Any) -> Any:
    return fails()


def through_partial(extra: int, configs: Any, named: Any, **words: Any) -> Any:
    return fails()


PRUNINGS: list[tuple[dict[str, Any], str]] = [
    ({"early_config_prune": early}, "early_config_prune early"),
    ({"perf_model": lambda **words: fails(), "top_k": 1}, "perf_model <lambda>"),
    ({"perf_model": Model(), "top_k": 1}, "perf_model Model"),
    ({"early_config_prune": functools.partial(through_partial, 1)}, "early_config_prune partial"),
    ({"early_config_prune": lambda c, n, **w: c, "perf_model": Model(), "top_k": 1}, "perf_model Model"),
]


@pytest.mark.parametrize(("pruning", "said"), PRUNINGS, ids=lambda p: p if isinstance(p, str) else "")
def test_an_error_of_a_users_pruning_names_kernel_and_function(
    backend: FakeBackend, pruning: dict[str, Any], said: str
) -> None:
    kernel = triton.autotune(configs(64, 128), key=["n"], prune_configs_by=pruning)(scale_kernel)
    with pytest.raises(ZeroDivisionError, match=r"^no bandwidth(\n|$)") as caught:
        call(kernel)
    (note,) = caught.value.__notes__
    assert note.startswith(f"raised by {said} ({__file__}:")
    assert "kernel scale_kernel (" in note
    assert " or " not in note
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "fails", "the user's own traceback"


def test_one_that_is_called_wrongly_is_named_too(backend: FakeBackend) -> None:
    def prune(configs: Any) -> Any:
        return configs

    kernel = triton.autotune(configs(64, 128), key=["n"], prune_configs_by={"early_config_prune": prune})(scale_kernel)
    with pytest.raises(TypeError) as caught:
        call(kernel)
    assert "raised by early_config_prune prune (" in caught.value.__notes__[0]


# listeners, and the place of stored winners


def test_a_fresh_cache_of_tritons_is_a_fresh_one_of_ours(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from kerntune.tuning.cache import WinnerCache

    monkeypatch.delenv("KERNTUNE_CACHE_DIR")
    usual = WinnerCache().folder
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(tmp_path)
        assert WinnerCache().folder == tmp_path / "kerntune"
        monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path / "asked"))
        assert WinnerCache().folder == tmp_path / "asked"
        monkeypatch.delenv("KERNTUNE_CACHE_DIR")
    assert WinnerCache().folder == usual
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "other"))
    assert WinnerCache().folder == usual, "of many processes, each with a folder for its compilations"


@pytest.mark.skipif(not hasattr(triton.knobs.autotuning, "listener"), reason="this Triton has no listener")
def test_a_listener_hears_of_a_tuning_then_of_a_winner_from_disk(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[dict[str, Any]] = []
    monkeypatch.setattr(triton.knobs.autotuning, "listener", lambda **told: heard.append(told))
    kernel = triton.autotune(configs(64, 128), key=["n"], cache_results=True)(scale_kernel)
    for _ in range(2):
        call(kernel)
        kernel.cache.clear()
    assert [told["cache_hit"] for told in heard] == [False, True]
    assert heard[0]["duration"] > 0
    assert heard[1]["duration"] is None


@pytest.mark.skipif(not hasattr(triton.knobs.autotuning, "listener"), reason="this Triton has no listener")
def test_nobody_hears_of_a_list_that_pruning_cuts_to_one(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.knobs.autotuning, "listener", lambda **told: pytest.fail("nothing was tuned"))
    kernel = triton.autotune(
        configs(64, 128), key=["n"], prune_configs_by={"early_config_prune": lambda c, n, **w: c[:1]}
    )(scale_kernel)
    call(kernel)
    assert kernel.best_config is kernel.configs[0]


def test_a_tuner_of_something_that_is_no_kernel_stays_tritons(backend: FakeBackend) -> None:
    launched: list[int] = []

    class Launcher:
        def __init__(self) -> None:
            self.fn = lambda: None

        def run(self, **words: Any) -> None:
            launched.append(words["BLOCK"])

    def bench(kernel_call: Callable[[], None], quantiles: Any) -> list[float]:
        kernel_call()
        return [float(launched[-1])] * 3

    tuner = triton.runtime.Autotuner(Launcher(), [], configs(64, 128), [], None, None, do_bench=bench)
    tuner.run()
    assert tuner.best_config is tuner.configs[0]
    assert launched[-1] == 64


# a grid that doesn't follow the config


@pytest.mark.parametrize(("grid", "said"), [((1,), True), (by_block, False)], ids=["fixed", "by config"])
def test_where_configs_disagree_over_one_grid_the_grid_is_what_to_look_at(
    backend: FakeBackend, grid: Any, said: bool
) -> None:
    script(backend, block(64, 3000.0), block(128, 1000.0, wrong=True))
    with pytest.warns(RuntimeWarning, match="it wrote other values than the first candidate") as caught:
        call(triton.autotune(configs(64, 128), key=["n"])(scale_kernel), grid)
    text = str(caught[0].message)
    assert ("the grid (1, 1, 1) does not depend on the config: look there" in text) is said


@triton.jit
def cast_kernel(x_ptr, y_ptr, n, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n).to(DTYPE), mask=i < n)


def test_a_dtype_may_be_part_of_the_key_of_a_winner_on_disk(backend: FakeBackend) -> None:
    kernel = triton.autotune(configs(64, 128), key=["DTYPE"], cache_results=True)(cast_kernel)
    for dtype in (tl.float32, tl.float32, tl.float16):
        x = torch.empty(N, device="cuda")
        kernel[by_block](x, x, N, dtype)
        assert kernel.best_config is kernel.configs[1]
    assert len(kernel.cache) == 2
