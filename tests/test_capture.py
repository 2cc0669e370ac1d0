"""Every way to launch a kernel is seen, tuned ones with their candidates, and Triton is left as it was."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from fake_runs import (
    COMPILER,
    N,
    block,
    by_block,
    captured,
    configs,
    increment_kernel,
    scale,
    scale_kernel,
    script,
    sum_kernel,
    tuned,
)
from triton.compiler.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from kerntune import capture as captures
from kerntune.base.config import Config
from kerntune.capture import Capture
from kerntune.capture.entry_points import EntryPoints
from kerntune.capture.recorder import record
from kerntune.compiling.compiler import Compiler
from kerntune.errors import CaptureError, ConfigError, GridError, KerntuneError, TuningError
from kerntune.gpu.scripted import FakeBackend


def names(capture: Capture) -> list[str]:
    return [p.jit.fn.__name__ for p in capture.launches]


def blocks(capture: Capture, index: int = 0) -> list[Any]:
    site = capture.launches[index].site
    assert site is not None
    return [c.config.kwargs["BLOCK"] for c in site.candidates]


def test_a_bare_kernel_is_one_launch_without_a_site(backend: FakeBackend) -> None:
    capture = captured(backend, lambda: scale(scale_kernel, BLOCK=64))
    (launch,) = capture.launches
    assert launch.jit is scale_kernel
    assert launch.grid == (64, 1, 1)
    assert launch.site is None
    assert launch.specialized.target == backend.spec.target


def test_the_value_of_the_call_passes_through(backend: FakeBackend) -> None:
    capture, out = Capture(backend, COMPILER), []
    with capture.active():
        out.append(scale(scale_kernel, BLOCK=64))
    assert out[0].shape == (N,)


def test_several_kernels_in_their_order_with_torch_between(backend: FakeBackend) -> None:
    def op() -> None:
        y = scale(scale_kernel, BLOCK=64)
        z = torch.relu(y + 1).contiguous()
        increment_kernel[(64,)](z, N, BLOCK=64)
        total = torch.zeros(1, device="cuda")
        sum_kernel[by_block](z * 2, total, N, BLOCK=128)

    capture = captured(backend, op)
    assert names(capture) == ["scale_kernel", "increment_kernel", "sum_kernel"]
    assert [p.grid for p in capture.launches] == [(64, 1, 1), (64, 1, 1), (32, 1, 1)]


@pytest.mark.parametrize("grid", [(7,), (7, 2), (7, 2, 3), [7], torch.Size([7, 2])], ids=str)
def test_grids_as_tuples(backend: FakeBackend, grid: Any) -> None:
    x = torch.randn(N, device="cuda")
    capture = captured(backend, lambda: increment_kernel[grid](x, N, BLOCK=64))
    assert capture.launches[0].grid == (*grid, 1, 1)[:3]


def test_a_grid_function_sees_arguments_constants_and_defaults(backend: FakeBackend) -> None:
    seen: list[dict[str, Any]] = []

    def grid(meta: dict[str, Any]) -> tuple[int, int]:
        seen.append(dict(meta))
        return meta["n"] // meta["BLOCK"], 2

    x = torch.randn(N, device="cuda")
    capture = captured(backend, lambda: increment_kernel[grid](x, N, BLOCK=64))
    assert capture.launches[0].grid == (64, 2, 1)
    assert seen[0]["x_ptr"] is x


def test_all_keyword_calls(backend: FakeBackend) -> None:
    x, y = torch.randn(N, device="cuda"), torch.empty(N, device="cuda")

    def op() -> None:
        scale_kernel[by_block](BLOCK=64, factor=2.0, n=N, y_ptr=y, x_ptr=x)
        tuned(128, 64)[by_block](factor=2.0, n=N, y_ptr=y, x_ptr=x)

    capture = captured(backend, op)
    assert [p.grid for p in capture.launches] == [(64, 1, 1), (32, 1, 1)]
    first, second = record(capture).recording.launches
    assert first.params == second.params


def test_a_zero_axis_is_recorded_and_launches_nothing(backend: FakeBackend) -> None:
    x = torch.randn(N, device="cuda")
    capture = captured(backend, lambda: increment_kernel[(4, 0)](x, N, BLOCK=64))
    assert capture.launches[0].grid == (4, 0, 1)


def rows(meta: dict[str, Any]) -> tuple[int, int]:
    """Too many along y for the smallest block."""
    return (1, 70_000 if meta["BLOCK"] == 32 else 8)


def test_a_candidate_whose_grid_is_too_large_gives_way_to_the_next(backend: FakeBackend) -> None:
    x, kernel = torch.randn(N, device="cuda"), tuned(32, 64)
    capture = captured(backend, lambda: kernel[rows](x, x, N, 2.0))
    assert capture.launches[0].site.chosen == 1  # type: ignore[union-attr]


def test_a_call_that_launches_nothing(backend: FakeBackend) -> None:
    capture = captured(backend, lambda: torch.randn(8, device="cuda") + 1)
    assert capture.launches == []


def test_warm_ups_are_not_launches(backend: FakeBackend) -> None:
    x = torch.randn(N, device="cuda")

    def op() -> None:
        scale_kernel.warmup(x, x, N, 2.0, BLOCK=64, grid=(1,))
        tuned(64, 128).warmup(x, x, N, 2.0, grid=(1,))

    assert captured(backend, op).launches == []


# tuned kernels


def test_a_tuned_kernel_offers_its_configs_in_order(backend: FakeBackend) -> None:
    kernel = triton.autotune(configs(128, 64, num_warps=2), key=["n"])(scale_kernel)
    capture = captured(backend, lambda: scale(kernel))
    site = capture.launches[0].site
    assert site is not None
    assert [c.config for c in site.candidates] == [Config({"BLOCK": b}, num_warps=2) for b in (128, 64)]
    assert (site.kernel, site.jit, site.chosen, site.tuner) == ("scale_kernel", scale_kernel, 0, kernel)
    assert capture.launches[0].grid == (32, 1, 1)
    assert site.arguments["n"] == N


def test_a_subclass_of_autotuner(backend: FakeBackend) -> None:
    class Logged(Autotuner):
        runs = 0

        def run(self, *args: Any, **kwargs: Any) -> Any:
            self.runs += 1
            return super().run(*args, **kwargs)

    kernel = Logged(scale_kernel, scale_kernel.arg_names, configs(64, 128), ["n"], None, None)
    capture = captured(backend, lambda: scale(kernel))
    assert (blocks(capture), kernel.runs) == ([64, 128], 1)


def test_heuristics_inside_autotune(backend: FakeBackend) -> None:
    inner = triton.heuristics({"factor": lambda args: args["BLOCK"] * 1.0})(scale_kernel)
    kernel = triton.autotune(configs(64, 128), key=["n"])(inner)
    x = torch.randn(N, device="cuda")
    capture = captured(backend, lambda: kernel[by_block](x, x, N))
    assert blocks(capture) == [64, 128]
    assert record(capture).recording.launches[0].params[-1].value == 64.0
    with capture.active():
        assert capture.probe(capture.launches[0].site, 1).specialized.bound["factor"] == 128.0


def test_heuristics_outside_autotune(backend: FakeBackend) -> None:
    kernel = triton.heuristics({"factor": lambda args: args["n"] / 2})(tuned(64, 128))
    x = torch.randn(N, device="cuda")
    capture = captured(backend, lambda: kernel[by_block](x, x, N))
    assert blocks(capture) == [64, 128]
    assert record(capture).recording.launches[0].params[-1].value == N / 2


class Wrapped:
    """What projects put around kernels: an object with ``fn``."""

    def __init__(self, fn: Any) -> None:
        self.fn, self.arg_names, self.calls = fn, fn.arg_names, 0

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.fn.run(*args, **kwargs)

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)


def test_wrappers_around_a_kernel(backend: FakeBackend) -> None:
    bare, over_tuned = Wrapped(scale_kernel), Wrapped(tuned(64, 128))
    under_tuned = triton.autotune(configs(64, 128), key=["n"])(Wrapped(scale_kernel))

    def op() -> None:
        scale(bare, BLOCK=64)
        scale(over_tuned)
        scale(under_tuned)

    capture = captured(backend, op)
    assert names(capture) == ["scale_kernel"] * 3
    assert capture.launches[0].site is None
    assert blocks(capture, 1) == blocks(capture, 2) == [64, 128]
    assert (bare.calls, over_tuned.calls, under_tuned.fn.calls) == (1, 1, 1)


def test_reset_to_zero_happens_once_before_the_captured_launch(backend: FakeBackend) -> None:
    kernel = triton.autotune(configs(64, 128), key=["n"], reset_to_zero=["y_ptr"])(scale_kernel)
    resets: list[tuple[Any, bool]] = []
    original = kernel.pre_hook
    kernel.pre_hook = lambda args, reset_only=False: (
        resets.append((args["y_ptr"], reset_only)),
        original(args, reset_only),
    )
    y = scale_captured(backend, kernel)
    assert len(resets) == 1
    assert resets[0][0] is y
    assert resets[0][1] is True


def scale_captured(backend: FakeBackend, kernel: Any) -> Any:
    kept: list[Any] = []
    captured(backend, lambda: kept.append(scale(kernel)))
    return kept[0]


def test_restore_value_copies_nothing_in_the_captured_launch(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Any] = []
    monkeypatch.setattr(torch.Tensor, "copy_", lambda *args: copies.append(args))
    kernel = triton.autotune(configs(64, 128), key=["n"], restore_value=["x_ptr"])(scale_kernel)
    scale_captured(backend, kernel)
    assert copies == []


def test_a_users_pre_hook_runs_as_before_tritons_last_launch(backend: FakeBackend) -> None:
    calls: list[tuple[bool, Any]] = []

    def hook(args: dict[str, Any], reset_only: bool = False) -> None:
        calls.append((reset_only, args["BLOCK"]))

    kernel = triton.autotune(configs(64, 128), key=["n"], pre_hook=hook)(scale_kernel)
    capture = captured(backend, lambda: scale(kernel))
    assert calls == [(True, 64)]
    assert capture.launches[0].site is not None
    assert capture.launches[0].site.writes_arguments


def test_a_configs_pre_hook_gets_arguments_and_config(backend: FakeBackend) -> None:
    seen: list[dict[str, Any]] = []
    config = triton.Config({"BLOCK": 64}, num_warps=2, pre_hook=lambda args: seen.append(dict(args)))
    kernel = triton.autotune([config], key=["n"])(scale_kernel)
    captured(backend, lambda: scale(kernel))
    assert len(seen) == 1
    assert (seen[0]["BLOCK"], seen[0]["num_warps"], seen[0]["n"], seen[0]["factor"]) == (64, 2, N, 2.0)


def test_probing_undoes_what_a_hook_does_to_arguments(backend: FakeBackend) -> None:
    def hook(args: dict[str, Any]) -> None:
        backend.gpu.fill(backend.gpu.borrow(args["y_ptr"]), args["BLOCK"])

    kernel = triton.autotune([triton.Config({"BLOCK": b}, pre_hook=hook) for b in (64, 128)], key=["n"])(scale_kernel)
    out: list[Any] = []
    capture = captured(backend, lambda: out.append(scale(kernel)))
    buffer = backend.gpu.borrow(out[0])
    assert set(backend.gpu.read(buffer)) == {64}
    with capture.active():
        probe = capture.probe(capture.launches[0].site, 1)
    assert set(backend.gpu.read(buffer)) == {64}
    assert probe.grid == (32, 1, 1)
    assert probe.specialized.bound["BLOCK"] == 128


def test_probing_records_nothing(backend: FakeBackend) -> None:
    capture = captured(backend, lambda: scale(tuned(64, 128)))
    site = capture.launches[0].site
    with capture.active():
        grids = [capture.probe(site, i).grid for i in (1, 0)]
    assert grids == [(32, 1, 1), (64, 1, 1)]
    assert len(capture.launches) == 1
    assert site.chosen == 0


def test_early_pruning_is_the_users_own(backend: FakeBackend) -> None:
    seen: list[Any] = []

    def prune(all_configs: Any, named: Any, **kwargs: Any) -> Any:
        seen.append((named["n"], kwargs.get("factor")))
        return [c for c in all_configs if c.kwargs["BLOCK"] != 64]

    kernel = tuned(64, 128, 256, prune_configs_by={"early_config_prune": prune})
    x = torch.randn(N, device="cuda")
    capture = captured(backend, lambda: kernel[by_block](x, x, N, factor=3.0))
    assert blocks(capture) == [128, 256]
    assert seen == [(N, 3.0)]
    assert capture.launches[0].grid == (32, 1, 1)


def test_a_performance_model_keeps_its_best(backend: FakeBackend) -> None:
    kernel = tuned(64, 128, 256, prune_configs_by={"perf_model": lambda BLOCK, **rest: abs(BLOCK - 200), "top_k": 2})
    assert blocks(captured(backend, lambda: scale(kernel))) == [256, 128]


def test_pruning_everything_names_the_kernel(backend: FakeBackend) -> None:
    kernel = tuned(64, 128, prune_configs_by={"early_config_prune": lambda *args, **kwargs: []})
    with pytest.raises(ConfigError, match=r"scale_kernel \(.*fake_runs\.py\)"):
        captured(backend, lambda: scale(kernel))


def test_code_that_reads_the_config_after_its_launch_finds_it(backend: FakeBackend) -> None:
    kernel = tuned(64, 128)
    seen = []

    def call() -> None:
        scale(kernel)
        seen.append(kernel.best_config)

    captured(backend, call, prefer=lambda site: [1, 0])
    assert seen == [kernel.configs[1]]
    assert not kernel.cache, "nothing has won yet"


def test_settling_tells_the_users_tuner(backend: FakeBackend) -> None:
    kernel = tuned(64, 128)
    capture = captured(backend, lambda: scale(kernel))
    site = capture.launches[0].site
    site.settle(1)
    assert kernel.best_config is kernel.configs[1]
    assert list(kernel.cache.values()) == [kernel.configs[1]]
    assert list(kernel.cache) == [(N, "torch.float32", "torch.float32")]


def test_settling_after_pruning_gives_the_config_that_was_meant(backend: FakeBackend) -> None:
    kernel = tuned(64, 128, 256, prune_configs_by={"early_config_prune": lambda c, *a, **k: c[1:]})
    capture = captured(backend, lambda: scale(kernel))
    capture.launches[0].site.settle(1)
    assert kernel.best_config.kwargs["BLOCK"] == 256


def test_an_unknown_parameter_in_a_config_names_kernel_file_and_parameters(backend: FakeBackend) -> None:
    kernel = triton.autotune([triton.Config({"BLOK": 64})], key=["n"])(scale_kernel)
    with pytest.raises(
        ConfigError, match=r"scale_kernel \(.*fake_runs\.py\).*sets BLOK.*x_ptr, y_ptr, n, factor, BLOCK"
    ):
        captured(backend, lambda: scale(kernel))


def test_backend_options_are_no_unknown_parameters(backend: FakeBackend) -> None:
    kernel = triton.autotune([triton.Config({"BLOCK": 64, "enable_fp_fusion": False})], key=["n"])(scale_kernel)
    capture = captured(backend, lambda: scale(kernel))
    assert record(capture).recording.binaries[0].options["enable_fp_fusion"] is False


def test_a_candidate_that_does_not_compile_falls_through_to_the_next(backend: FakeBackend) -> None:
    capture = captured(backend, lambda: scale(tuned(100, 60, 128)))
    assert len(capture.launches) == 1
    assert capture.launches[0].site.chosen == 2
    assert capture.launches[0].grid == (32, 1, 1)


def test_if_no_candidate_compiles_every_reason_is_listed(backend: FakeBackend) -> None:
    with pytest.raises(TuningError) as caught:
        captured(backend, lambda: scale(tuned(100, 60)))
    text = str(caught.value)
    assert "scale_kernel" in text
    for size in (100, 60):
        assert f"BLOCK={size} num_warps=4" in text


def test_preference_decides_which_candidate_runs(backend: FakeBackend) -> None:
    capture = captured(backend, lambda: scale(tuned(64, 128, 256)), prefer=lambda site: [2, 0, 1])
    assert capture.launches[0].site.chosen == 2
    assert capture.launches[0].grid == (16, 1, 1)


def test_out_of_resources_at_a_launch_falls_through(backend: FakeBackend) -> None:
    from triton.runtime.errors import OutOfResources

    def hook(args: dict[str, Any]) -> None:
        if args["BLOCK"] == 64:
            raise OutOfResources(300_000, 232_448, "shared memory")

    inner = triton.heuristics({"factor": lambda args: hook(args) or 2.0})(scale_kernel)
    kernel = triton.autotune(configs(64, 128), key=["n"])(inner)
    x = torch.randn(N, device="cuda")
    capture = captured(backend, lambda: kernel[by_block](x, x, N))
    assert capture.launches[0].site.chosen == 1


def test_errors_of_the_users_own_are_not_candidates_failures(backend: FakeBackend) -> None:
    inner = triton.heuristics({"factor": lambda args: args["no_such"]})(scale_kernel)
    x = torch.randn(N, device="cuda")
    with pytest.raises(KeyError, match="no_such"):
        captured(backend, lambda: triton.autotune(configs(64, 128), key=["n"])(inner)[by_block](x, x, N))


# candidates from a marker

GIVEN = {"scale_kernel": (Config({"BLOCK": 64}), Config({"BLOCK": 128}, num_warps=2))}


def test_given_candidates_open_a_bare_kernel(backend: FakeBackend) -> None:
    capture = captured(backend, lambda: scale(scale_kernel, BLOCK=1024), GIVEN)
    assert blocks(capture) == [64, 128]
    assert capture.launches[0].grid == (64, 1, 1)
    with capture.active():
        probe = capture.probe(capture.launches[0].site, 1)
    assert (probe.grid, probe.specialized.options.num_warps) == ((32, 1, 1), 2)


def test_given_candidates_leave_other_kernels_alone(backend: FakeBackend) -> None:
    x = torch.randn(N, device="cuda")
    capture = captured(backend, lambda: increment_kernel[by_block](x, N, BLOCK=64), GIVEN)
    assert capture.launches[0].site is None


def test_given_candidates_fill_in_what_the_call_left_out(backend: FakeBackend) -> None:
    capture = captured(backend, lambda: scale(scale_kernel), GIVEN)
    assert capture.launches[0].grid == (64, 1, 1)


def test_given_candidates_leave_a_decorated_kernel_its_own(backend: FakeBackend) -> None:
    assert blocks(captured(backend, lambda: scale(tuned(256, 512)), GIVEN)) == [256, 512]


def test_a_tuple_grid_goes_with_tuned_warps(backend: FakeBackend) -> None:
    given = {"scale_kernel": tuple(Config({"BLOCK": 64}, num_warps=w) for w in (1, 2))}
    x = torch.randn(N, device="cuda")
    capture = captured(backend, lambda: scale_kernel[(64,)](x, x, N, 2.0, BLOCK=64), given)
    assert capture.launches[0].grid == (64, 1, 1)


# calls that are refused


def vector(device: str = "cuda") -> torch.Tensor:
    return torch.randn(N, device=device)


@pytest.mark.parametrize(
    ("call", "given", "error", "said"),
    [
        pytest.param(lambda: increment_kernel[(1, 65536)](vector(), N, BLOCK=64), {}, GridError,
                     r"increment_kernel \(.*fake_runs\.py\).*axis y is 65536", id="an axis over its limit"),
        pytest.param(lambda: tuned(32, 64)[(1, 70_000)](vector(), vector(), N, 2.0), {}, GridError,
                     "axis y is 70000", id="over its limit with each candidate"),
        pytest.param(lambda: scale(scale_kernel, BLOCK=64, BLOK=3), {}, ConfigError,
                     r"scale_kernel .*no parameter BLOK.*x_ptr, y_ptr, n, factor, BLOCK", id="an unknown keyword"),
        pytest.param(lambda: scale_kernel[(1,)](vector(), None, 4, BLOCK=64), {}, ConfigError,
                     r"scale_kernel .*can't be called like this.*factor", id="a missing argument"),
        pytest.param(lambda: increment_kernel[(1,)](vector("cpu"), N, BLOCK=64), {}, CaptureError,
                     "a tensor on cpu", id="a tensor on the CPU"),
        pytest.param(lambda: scale(tuned(64, 128), BLOCK=32), {}, ConfigError,
                     r"scale_kernel .*BLOCK is given by the call and tuned by config", id="a parameter by both sides"),
        pytest.param(lambda: scale(tuned(64, 128), num_warps=2), {}, ConfigError,
                     r"scale_kernel .*num_warps is given by the call and tuned", id="an option by both sides"),
        pytest.param(lambda: scale_kernel[(64,)](vector(), vector(), N, 2.0, BLOCK=64), GIVEN, ConfigError,
                     r"scale_kernel \(.*fake_runs.py\).*plain tuple \(64,\).*BLOCK.*grid function",
                     id="a tuple as the grid of a tuned block"),
        pytest.param(lambda: scale(scale_kernel, BLOCK=64), {"scale_kernel": ()}, ConfigError,
                     r"scale_kernel .*empty; give at least one", id="an empty list of candidates"),
        pytest.param(lambda: scale(scale_kernel, BLOCK=64), {"scale_kernel": (Config({"BLOK": 64}),)}, ConfigError,
                     "sets BLOK", id="a given candidate with an unknown parameter"),
    ],
)  # fmt: skip
def test_what_is_refused_names_the_kernel(
    backend: FakeBackend, call: Callable[[], Any], given: Any, error: type[KerntuneError], said: str
) -> None:
    with pytest.raises(error, match=said):
        captured(backend, call, given)


# autograd, custom operators, threads


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        scale_kernel[by_block](x, y, N, 2.0, BLOCK=64)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(gradient)
        tuned(128, 64)[by_block](gradient.contiguous(), out, N, 2.0)
        return out


def test_forward_and_backward(backend: FakeBackend) -> None:
    x = torch.randn(N, device="cuda", requires_grad=True)
    capture = captured(backend, lambda: Scaled.apply(x).sum().backward())
    assert [p.grid for p in capture.launches] == [(64, 1, 1), (32, 1, 1)]
    assert blocks(capture, 1) == [128, 64]
    assert x.grad.shape == x.shape


@torch.library.custom_op("kerntune_test::scaled", mutates_args=())
def scaled_op(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    scale_kernel[by_block](x, y, N, 2.0, BLOCK=64)
    return y


@torch.library.triton_op("kerntune_test::scaled_triton", mutates_args=())
def scaled_triton_op(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    torch.library.wrap_triton(scale_kernel)[by_block](x, y, N, 2.0, BLOCK=128)
    return y


def test_custom_operators_run_their_real_code(backend: FakeBackend) -> None:
    x = torch.randn(N, device="cuda")
    capture = captured(backend, lambda: scaled_triton_op(scaled_op(x)))
    assert [p.grid for p in capture.launches] == [(64, 1, 1), (32, 1, 1)]


def test_launches_on_other_threads(backend: FakeBackend) -> None:
    x = torch.randn(N, device="cuda")

    def op() -> None:
        thread = threading.Thread(target=lambda: tuned(128, 64)[by_block](x, x, N, 2.0))
        thread.start()
        thread.join()

    assert blocks(captured(backend, op)) == [128, 64]


# putting back


def entry_points() -> tuple[Any, Any, Any]:
    return JITFunction.run, Autotuner.run, CompiledKernel.__getitem__


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, None])
def test_entry_points_are_put_back_whatever_happens(backend: FakeBackend, error: type[BaseException] | None) -> None:
    before = entry_points()

    def op() -> None:
        assert entry_points() != before
        assert captures.current() is not None
        scale(tuned(64, 128))
        if error is not None:
            raise error("from the user's function")

    if error is None:
        captured(backend, op)
    else:
        with pytest.raises(error, match="from the user's function"):
            captured(backend, op)
    assert entry_points() == before
    assert captures.current() is None
    assert len(captured(backend, lambda: scale(scale_kernel, BLOCK=64)).launches) == 1


def test_a_failed_candidate_leaves_later_launches_without_its_site(backend: FakeBackend) -> None:
    def op() -> None:
        with pytest.raises(TuningError):
            scale(tuned(100, 60))
        scale(scale_kernel, BLOCK=64)

    capture = captured(backend, op)
    assert [p.site for p in capture.launches] == [None]


def test_a_failed_probe_leaves_the_capture_usable(backend: FakeBackend) -> None:
    capture = captured(backend, lambda: scale(tuned(64, 128)))
    site = capture.launches[0].site
    capture.launches[0].site.run = lambda words, trial: (_ for _ in ()).throw(RuntimeError("no launch"))
    with capture.active(), pytest.raises(RuntimeError, match="no launch"):
        capture.probe(site, 1)
    with capture.active():
        scale(scale_kernel, BLOCK=64)
    assert len(capture.launches) == 2


def test_a_call_inside_a_call_is_an_error_and_the_outer_goes_on(backend: FakeBackend) -> None:
    outer = Capture(backend, COMPILER)
    with outer.active():
        with pytest.raises(CaptureError, match="inside the function that another"), Capture(backend, COMPILER).active():
            pass
        scale(scale_kernel, BLOCK=64)
    assert len(outer.launches) == 1
    assert captures.current() is None


def test_an_interrupt_just_when_it_begins_leaves_tritons_functions(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, real = JITFunction.run, EntryPoints.begin

    def interrupted(entries: EntryPoints, instead_of: object | None = None) -> None:
        real(entries, instead_of)
        assert JITFunction.run is not run
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr(EntryPoints, "begin", interrupted)
        with pytest.raises(KeyboardInterrupt), Capture(backend, Compiler()).active():
            pass
    assert JITFunction.run is run
    assert captures.current() is None
    with Capture(backend, COMPILER).active():  # another one may begin
        pass


def test_the_scripted_gpu_is_untouched_by_a_capture(backend: FakeBackend) -> None:
    """Stand-ins launch nothing; what runs on the script's clock is replays only."""
    script(backend, block(64, fails="never loaded here"))
    captured(backend, lambda: scale(tuned(64, 128)))
    assert backend.gpu.launches == 0


def test_every_error_of_a_capture_is_kerntunes_own() -> None:
    assert issubclass(ConfigError, KerntuneError)
    assert issubclass(TuningError, KerntuneError)


@triton.jit
def descriptor_kernel(source, target, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK
    target.store([row, 0], source.load([row, 0]))


def test_a_pre_hook_may_set_a_descriptors_block(backend: FakeBackend) -> None:
    """The usual way to tune a kernel with host-side descriptors: the hook fits ``block_shape`` to the config."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    def fit(args: dict[str, Any]) -> None:
        for name in ("source", "target"):
            args[name].block_shape = [args["BLOCK"], 64]

    kernel = triton.autotune([triton.Config({"BLOCK": b}, pre_hook=fit) for b in (32, 64)], key=["BLOCK"])(
        descriptor_kernel
    )
    x, y = (torch.randn(256, 64, device="cuda", dtype=torch.float16) for _ in range(2))
    source, target = (TensorDescriptor.from_tensor(t, [1, 64]) for t in (x, y))

    capture = captured(backend, lambda: kernel[lambda meta: (256 // meta["BLOCK"],)](source, target))
    (launch,) = record(capture).recording.launches
    assert launch.params[0].tensor_map.block == (32, 64)
    with capture.active():
        probe = capture.probe(capture.launches[0].site, 1)
    assert probe.grid == (4, 1, 1)
    assert "64, 64" in str(probe.specialized.signature["source"])
