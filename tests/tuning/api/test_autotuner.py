"""``@kerntune.autotune`` beside ``triton.autotune``: the same attributes, keys and calls, with another engine."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from fake_runs import COMPILER, THREE, N, block, by_block, configs, increment_kernel, scale_kernel, script, sum_kernel
from hypothesis import given, settings
from hypothesis import strategies as st
from triton.runtime.autotuner import Autotuner as TritonAutotuner

import kerntune
from kerntune.base.policy import StaticPrune
from kerntune.capture import Capture
from kerntune.errors import MeasurementError, UsageError
from kerntune.gpu.script import Rule
from kerntune.gpu.scripted import FakeBackend
from kerntune.kernels.compat import tuners
from kerntune.tuning import context
from kerntune.tuning.api.autotuner import Autotuner
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.stored_winners import Winners
from tuning.cache.made import won

TRITONS_RUN = TritonAutotuner.run
"""Triton's own, from before any stand-in."""


@pytest.fixture
def backend(this_gpu: FakeBackend) -> FakeBackend:
    """The GPU on which tuning happens."""
    return this_gpu


def ours(*blocks: int, kernel: Any = scale_kernel, **options: Any) -> Any:
    return kerntune.autotune(configs(*blocks), key=["n"], **options)(kernel)


def call(kernel: Any, n: int = N, dtype: torch.dtype = torch.float32) -> Any:
    x, y = (torch.empty(N, device="cuda", dtype=dtype) for _ in range(2))
    return kernel[by_block](x, y, n, 2.0)


# attributes

OPTIONS: list[dict[str, Any]] = [
    {},
    {"reset_to_zero": ["y_ptr"]},
    {"restore_value": ["x_ptr"]},
    {"pre_hook": print, "post_hook": repr},
    {"prune_configs_by": {"early_config_prune": lambda c, *a, **k: c, "perf_model": len, "top_k": 2}},
    {"cache_results": True},
]
SHARED = ("keys", "arg_names", "configs", "reset_to_zero", "restore_value", "perf_model", "configs_top_k",
          "early_config_prune", "user_defined_pre_hook", "user_defined_post_hook", "cache_results")  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: ",".join(o) or "none")
def test_attributes_are_tritons(options: dict[str, Any]) -> None:
    both = [make(configs(64, 128), key=["n"], **{"cache_results": False, **options})(scale_kernel)
            for make in (kerntune.autotune, triton.autotune)]  # fmt: skip
    mine, theirs = both
    for name in SHARED:
        assert getattr(mine, name) == getattr(theirs, name), name
    assert mine.fn is theirs.fn is scale_kernel
    assert mine.base_fn is theirs.base_fn
    assert set(vars(theirs)) <= set(vars(mine))


def test_the_decorators_have_one_signature() -> None:
    """Names, order and kinds; of the defaults one differs, on purpose: winners are kept on disk. Seven are our own."""
    mine, theirs = (inspect.signature(f).parameters for f in (kerntune.autotune, triton.autotune))
    *shared, verify, patience, prune, ignore, search, isolate, tune, descend = mine.values()
    assert [(p.name, p.kind) for p in shared] == [(p.name, p.kind) for p in theirs.values()]
    own = (verify, patience, prune, ignore, search, isolate, tune, descend)
    names = ["verify", "patience", "static_prune", "verify_ignore", "search", "isolate", "tune", "descend"]
    assert [p.name for p in own] == names
    assert {p.default for p in own} == {None}
    assert {n for n in theirs if mine[n].default != theirs[n].default} == {"cache_results"}


@pytest.mark.parametrize("name", ["run", "warmup", "prune_configs", "__getitem__"])
def test_methods_take_what_tritons_take(name: str) -> None:
    mine, theirs = (inspect.signature(getattr(k, name)) for k in (kerntune.Autotuner, TritonAutotuner))
    assert [(p.name, p.kind) for p in mine.parameters.values()] == [
        (p.name, p.kind) for p in theirs.parameters.values()
    ]


@pytest.mark.parametrize(
    "old",
    [{"warmup": 5}, {"rep": 7}, {"use_cuda_graph": True}, {"warmup": 5, "rep": 7, "use_cuda_graph": True}, {}],
    ids=str,
)
def test_old_arguments_warn_as_triton_does(old: dict[str, Any]) -> None:
    said = []
    for make in (kerntune.autotune, triton.autotune):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            tuner = make(configs(64, 128), key=["n"], **old)(scale_kernel)
        said.append([(w.category, str(w.message)) for w in seen])
        assert (tuner.num_warmups, tuner.num_reps) == (old.get("warmup"), old.get("rep"))
    assert said[0] == said[1]
    assert len(said[0]) == bool(old)


def test_it_is_an_autotuner() -> None:
    kernel = ours(64, 128)
    assert isinstance(kernel, TritonAutotuner)
    assert isinstance(kernel, kerntune.Autotuner)
    assert kernel.fn is scale_kernel


def complaint(make: Any, **names: list[str]) -> str:
    """What a decorator objects to; Triton 3.6 to 3.8 object to less than 3.9."""
    try:
        make(configs(64), **{"key": [], **names})(scale_kernel)
    except ValueError as exc:
        return str(exc)
    return ""


@pytest.mark.parametrize("name", ["key", "reset_to_zero", "restore_value"])
def test_names_that_are_no_arguments_are_refused_as_triton_does(name: str) -> None:
    assert complaint(kerntune.autotune, **{name: ["rows"]}) == complaint(triton.autotune, **{name: ["rows"]})
    assert complaint(kerntune.autotune, **{name: ["n"]}) == ""


# keys


def tritons_key(args: tuple[Any, ...], kwargs: dict[str, Any], keys: list[str]) -> tuple[Any, ...]:
    """The key that Triton's own ``run`` stores a winner under."""
    tuner = triton.autotune(configs(64, 128), key=keys, do_bench=lambda call, quantiles: [1.0, 1.0, 1.0])(scale_kernel)
    TRITONS_RUN(tuner, *args, grid=(1,), warmup=False, **kwargs)
    (key,) = tuner.cache
    return key


@settings(max_examples=30, deadline=None)
@given(
    dtypes=st.tuples(*[st.sampled_from([torch.float32, torch.float16, torch.int64, None])] * 2),
    n=st.integers(0, 2**40),
    factor=st.floats(allow_nan=False) | st.integers(-5, 5),
    keys=st.lists(st.sampled_from(["n", "factor", "BLOCK"]), unique=True),
    positional=st.integers(0, 4),
    backwards=st.booleans(),
)
def test_keys_are_tritons(
    shared: FakeBackend, dtypes: Any, n: int, factor: Any, keys: list[str], positional: int, backwards: bool
) -> None:
    tensors = [None if d is None else torch.empty(4, device="cuda", dtype=d) for d in dtypes]
    values = dict(zip(("x_ptr", "y_ptr", "n", "factor"), (*tensors, n, factor), strict=True))
    args = tuple(values.values())[:positional]
    rest = list(values.items())[positional:]
    kwargs = dict(reversed(rest) if backwards else rest)
    tuner = kerntune.autotune(configs(64, 128), key=keys)(scale_kernel)
    named = dict(zip(tuner.arg_names, args, strict=False))
    assert tuners.autotuner_key(tuner, named, kwargs) == tritons_key(args, kwargs, keys)


# tuning


def test_the_fastest_is_found_and_stays(backend: FakeBackend) -> None:
    gpu, kernel = script(backend, *THREE), ours(64, 128, 256)
    call(kernel)
    assert kernel.best_config is kernel.configs[1]
    assert kernel.cache == {(N, "torch.float32", "torch.float32"): kernel.configs[1]}
    timings = {c.kwargs["BLOCK"]: ms[0] for c, ms in kernel.configs_timings.items()}
    assert timings == {
        64: pytest.approx(3e-3, rel=0.01),
        128: pytest.approx(1e-3, rel=0.01),
        256: pytest.approx(2e-3, rel=0.01),
    }
    before = gpu.launches
    call(kernel)
    assert gpu.launches == before
    assert kernel.best_config is kernel.configs[1]


def test_later_calls_launch_with_the_winner(backend: FakeBackend, launches: list[dict[str, Any]]) -> None:
    script(backend, *THREE)
    kernel = ours(64, 128, 256)
    call(kernel)
    assert len(launches) == 1, "the tuning call itself launches once"
    call(kernel)
    assert len(launches) == 2
    assert (launches[1]["BLOCK"], launches[1]["num_warps"], launches[1]["warmup"]) == (128, 4, False)


def test_a_new_key_is_tuned_anew(backend: FakeBackend) -> None:
    kernel = ours(64, 128, 256)
    script(backend, *THREE)
    call(kernel)
    script(backend, block(64, 100.0))
    call(kernel, n=N - 1)
    call(kernel, dtype=torch.float16)
    assert [c.kwargs["BLOCK"] for c in kernel.cache.values()] == [128, 64, 64]
    call(kernel)
    assert kernel.best_config.kwargs["BLOCK"] == 128


def test_winners_are_kept_on_disk(backend: FakeBackend) -> None:
    script(backend, *THREE)
    call(ours(64, 128, 256))
    gpu, again = script(backend, block(64, 1.0)), ours(64, 128, 256)
    call(again)
    assert gpu.launches == 0
    assert again.best_config is again.configs[1]


def test_what_another_process_found_while_this_one_waited_is_not_raced_again(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both had looked into the cache before either held the key's lease."""
    gpu = script(backend, *THREE)

    def idle(limit_s: float) -> bool:
        if not raced:
            raced.append(0)
            call(ours(64, 128, 256))
            raced.append(gpu.launches)
        return True

    raced: list[int] = []
    with_lock = ours(64, 128, 256)
    monkeypatch.setattr(gpu, "idle", idle)
    call(with_lock)
    assert raced == [0, gpu.launches]
    assert with_lock.best_config is with_lock.configs[1]


def test_the_first_winner_stands_for_a_process_that_raced_at_the_same_time(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another GPU of the same kind, say."""
    script(backend, *THREE)
    keep = Winners.keep
    folders: list[Path] = []

    def second(self: Winners, site: Any, winner: int, time_ns: float, **words: Any) -> int:
        folders.append(self.cache.folder)
        other = won(site.candidates[2].config, key=self.key(site), environment=self.environment())
        WinnerCache(folders[0]).add(other)
        return keep(self, site, winner, time_ns, **words)

    monkeypatch.setattr(Winners, "keep", second)
    kernel = ours(64, 128, 256)
    call(kernel)
    assert kernel.best_config is kernel.configs[2]
    assert [w.config.kwargs["BLOCK"] for w in WinnerCache(folders[0]).entries()] == [256]


def test_without_cache_results_nothing_is_kept(backend: FakeBackend, tmp_path: Path) -> None:
    script(backend, *THREE)
    call(ours(64, 128, 256, cache_results=False))
    assert list(tmp_path.iterdir()) == []
    call(ours(64, 128, 256))
    script(backend, block(64, 1.0))
    kernel = ours(64, 128, 256, cache_results=False)
    call(kernel)
    assert kernel.best_config is kernel.configs[0], "what is kept on disk isn't used either"


def test_a_single_config_needs_no_race(backend: FakeBackend, launches: list[dict[str, Any]]) -> None:
    kernel = ours(128)
    call(kernel)
    assert backend.gpu.launches == 0
    assert launches[0]["BLOCK"] == 128
    assert kernel.best_config is kernel.configs[0]


def test_pruning_to_one_needs_no_race(backend: FakeBackend) -> None:
    kernel = ours(64, 128, 256, prune_configs_by={"early_config_prune": lambda c, *a, **k: c[2:]})
    call(kernel)
    assert backend.gpu.launches == 0
    assert kernel.best_config is kernel.configs[2]


@pytest.mark.parametrize(
    ("rules", "said", "winner"),
    [
        ([block(128, 1.0, fails="too large"), block(256, 1.0, wrong=True)], "it wrote other values than the first", 0),
        ([block(128, 1.0, wrong=True)], r"kernel scale_kernel: 1 of 3 configs failed: BLOCK=128 .*other values", 2),
        ([block(128, fails="too large")], None, 2),
    ],
    ids=["one of each", "a wrong one is told in a warning", "one that lacks resources is not"],
)
def test_failing_configs_lose(backend: FakeBackend, rules: list[Rule], said: str | None, winner: int) -> None:
    script(backend, *rules, *THREE)
    kernel = ours(64, 128, 256)
    with pytest.warns(RuntimeWarning, match=said) if said else contextlib.nullcontext():  # warnings are errors here
        call(kernel)
    assert kernel.best_config is kernel.configs[winner]


def test_a_configs_hook_runs_before_every_launch(backend: FakeBackend) -> None:
    seen: list[int] = []
    kernel = kerntune.autotune(
        [triton.Config({"BLOCK": b}, pre_hook=lambda args: seen.append(args["BLOCK"])) for b in (64, 128)], key=["n"]
    )(scale_kernel)
    script(backend, block(64, 2000.0), block(128, 1000.0))
    call(kernel)
    seen.clear()
    call(kernel)
    call(kernel)
    assert seen == [128, 128]


def test_what_accumulates_is_reset(backend: FakeBackend) -> None:
    gpu = script(backend, block(64, 2000.0), block(128, 1000.0))
    kernel = ours(64, 128, kernel=sum_kernel, reset_to_zero=["total_ptr"])
    total = torch.zeros(1, device="cuda")
    gpu.fill(gpu.borrow(total), 5)
    kernel[by_block](torch.empty(N, device="cuda"), total, N)
    assert kernel.best_config is kernel.configs[1]
    assert gpu.read(gpu.borrow(total), 1) == b"\x05", "no replay writes the user's own memory"


def test_what_could_not_be_compared_is_told_in_a_warning(backend: FakeBackend) -> None:
    script(backend, *(Rule(constexprs={"BLOCK": b}, time_ns=1e3, varies=True) for b in (64, 128)))
    with pytest.warns(RuntimeWarning, match="kernel scale_kernel: y_ptr is not compared: one config writes other"):
        call(ours(64, 128))


def test_who_knows_better_may_say_so(backend: FakeBackend) -> None:
    for options in ({"verify": "off"}, {"verify_ignore": "y_ptr"}, {"verify_ignore": ["scale_kernel.y_ptr"]}):
        script(backend, block(128, 1000.0, wrong=True), *THREE)
        kernel = ours(64, 128, 256, cache_results=False, **options)
        call(kernel)
        assert kernel.best_config is kernel.configs[1]


def test_only_arguments_can_be_ignored() -> None:
    with pytest.raises(UsageError, match="verify_ignore: the kernel has no argument z_ptr"):
        ours(64, verify_ignore=["y_ptr", "z_ptr"])


def test_a_mistake_in_a_hook_is_the_callers(backend: FakeBackend) -> None:
    def hook(named: dict[str, Any]) -> None:
        raise ZeroDivisionError("in the hook")

    script(backend, *THREE)
    configs = [triton.Config({"BLOCK": 64}, pre_hook=hook), triton.Config({"BLOCK": 128})]
    with pytest.raises(ZeroDivisionError, match="in the hook"):
        call(kerntune.autotune(configs, key=["n"])(scale_kernel))


def test_it_launches_under_heuristics_and_wrappers(backend: FakeBackend, launches: list[dict[str, Any]]) -> None:
    script(backend, *THREE)
    inner = triton.heuristics({"factor": lambda args: args["BLOCK"] / 2})(scale_kernel)
    kernel = kerntune.autotune(configs(64, 128, 256), key=["n"])(inner)
    x = torch.empty(N, device="cuda")
    for _ in range(2):
        kernel[by_block](x, x, N)
    assert launches[-1]["factor"] == 64.0


def test_all_keyword_calls(backend: FakeBackend) -> None:
    script(backend, *THREE)
    kernel, x = ours(64, 128, 256), torch.empty(N, device="cuda")
    kernel[by_block](factor=2.0, n=N, y_ptr=x, x_ptr=x)
    assert kernel.best_config is kernel.configs[1]


def test_other_tuned_kernels_keep_their_own(backend: FakeBackend) -> None:
    script(backend, *THREE, Rule("increment_kernel", {"BLOCK": 64}, time_ns=10.0))
    first, second = ours(64, 128, 256), ours(128, 64, kernel=increment_kernel)
    x = torch.empty(N, device="cuda")
    call(first)
    second[by_block](x, N)
    assert (first.best_config.kwargs["BLOCK"], second.best_config.kwargs["BLOCK"]) == (128, 128)


# configs that are left out


@pytest.mark.parametrize("by", ["argument", "attribute"])
def test_who_is_not_predicted_to_win_is_left_out_if_asked(backend: FakeBackend, by: str) -> None:
    """A block of all 4096 elements is one multiprocessor's."""
    script(backend, block(64, 3000.0), block(4096, 1000.0))
    kernel = ours(64, 4096, **({"static_prune": 0.5} if by == "argument" else {}))
    if by == "attribute":
        kernel.static_prune = StaticPrune(share=0.5)
    call(kernel)
    assert kernel.best_config is kernel.configs[0]
    assert kernel.left_out == {kernel.configs[1]: "predicted to be number 2 of 2, the first 1 are tried"}
    assert list(kernel.configs_timings) == [kernel.configs[0]]


@pytest.mark.parametrize("given", [{}, {"static_prune": "off"}], ids=["default", "off"])
def test_nobody_is_left_out_unasked(backend: FakeBackend, given: dict[str, str]) -> None:
    script(backend, block(64, 3000.0), block(4096, 1000.0))
    kernel = ours(64, 4096, **given)
    call(kernel)
    assert (kernel.best_config, kernel.left_out) == (kernel.configs[1], {})


def test_a_wrong_word_is_refused_where_the_decorator_stands() -> None:
    with pytest.raises(UsageError, match=r"kerntune\.autotune, static_prune: 'spill' is none of spills"):
        ours(64, static_prune="spill")


# where it can't tune


def test_inside_a_capture_it_offers_its_candidates(backend: FakeBackend) -> None:
    kernel, capture = ours(64, 128), Capture(backend, COMPILER)
    with capture.active():
        call(kernel)
    site = capture.launches[0].site
    assert site is not None
    assert [c.config.kwargs["BLOCK"] for c in site.candidates] == [64, 128]
    assert backend.gpu.launches == 0
    site.settle(1)
    assert kernel.best_config is kernel.configs[1]


def test_while_a_graph_is_captured_it_refuses_to_tune(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = ours(64, 128)
    call(kernel)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    call(kernel)
    with pytest.raises(MeasurementError, match=r"kernel scale_kernel has no winner yet.*before the capture"):
        call(kernel, n=N - 1)


def test_without_a_gpu_triton_does_what_it_does(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "this_gpu", lambda: None)
    kernel = ours(64, 128)
    call(kernel)
    assert kernel.best_config is kernel.configs[0]
    assert backend.gpu.launches == 0


def test_under_stand_ins_it_launches_like_tritons_own(shared: FakeBackend, launches: list[dict[str, Any]]) -> None:
    """A test of a project without a GPU may call such a kernel outside of ``autotune(...)`` too."""
    call(triton.autotune(configs(64, 128), key=["n"])(scale_kernel))
    call(ours(64, 128))
    assert len(launches) == 2
    assert isinstance(ours(64), Autotuner)
