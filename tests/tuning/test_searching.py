"""Kernels whose configs are searched: what is tried, what wins, what is stored, when nothing is searched again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from fake_runs import N, block, by_block, configs, increment_kernel, lacking, scale_kernel, script

import kerntune
from kerntune.base.config import Config
from kerntune.errors import CacheMissError, ConfigError
from kerntune.gpu.fake_cuda.launches import run_first
from kerntune.gpu.script import Rule
from kerntune.gpu.scripted import FakeBackend
from kerntune.search import Choice, Range, Search, Space
from kerntune.tuning.cache import TrialCache, WinnerCache
from kerntune.tuning.race import Estimates

SPACE = Space((Range("BLOCK", 16, 1024), Choice("num_warps", (1, 2, 4, 8))))
"""28 configs."""

BEST = 512


def slope() -> list[Rule]:
    """The further from the best block, the slower."""
    sizes = [16 << i for i in range(7)]
    return [block(size, 10_000.0 + 4_000.0 * abs(sizes.index(size) - sizes.index(BEST))) for size in sizes]


@pytest.fixture
def backend(this_gpu: FakeBackend) -> FakeBackend:
    """The GPU on which tuning happens."""
    script(this_gpu, *slope())
    return this_gpu


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """Configs that were looked at, in order."""
    seen: list[Config] = []
    take = Estimates.take

    def noted(self: Estimates, trial: Any) -> None:
        seen.append(trial.recording.launches[0].config)
        take(self, trial)

    monkeypatch.setattr(Estimates, "take", noted)
    return seen


def ours(search: Search | None = None, given: Any = (), kernel: Any = scale_kernel, **options: Any) -> Any:
    found = Search(SPACE, trials=20) if search is None else search
    return kerntune.autotune(list(given), key=["n"], search=found, **options)(kernel)


def call(kernel: Any, n: int = N) -> Any:
    x = torch.empty(N, device="cuda")
    return kernel[by_block](x, x, n, 2.0)


def blocks(looked: list[Config]) -> set[Any]:
    return {c.kwargs["BLOCK"] for c in looked}


# what is tried, and what wins


@pytest.mark.slow
def test_a_space_is_searched_for_as_many_trials_and_the_best_wins(backend: FakeBackend, looked: list[Config]) -> None:
    kernel = ours()
    call(kernel)
    assert kernel.best_config.kwargs == {"BLOCK": BEST}
    assert len(looked) == len(set(looked)) == 20
    assert len(kernel.configs_timings) == 20
    assert all(SPACE.point_of(c) is not None for c in looked)


def test_configs_that_are_given_are_tried_first(backend: FakeBackend, looked: list[Config]) -> None:
    given = configs(1024, num_warps=8)
    kernel = ours(Search(SPACE, trials=14), given)
    assert kernel.configs[0] == given[0]
    call(kernel)
    assert Config({"BLOCK": 1024}, num_warps=8) in looked
    assert len(looked) == 14


@pytest.mark.slow
def test_later_calls_are_launched_with_the_winner(
    backend: FakeBackend, looked: list[Config], launches: list[dict[str, Any]]
) -> None:
    kernel = ours()
    for _ in range(3):
        call(kernel)
    assert len(looked) == 20
    assert {seen["BLOCK"] for seen in launches} == {BEST}
    call(kernel, N - 1)
    assert len(looked) > 20, "another key is searched anew"


def test_without_a_budget_all_is_tried(backend: FakeBackend, looked: list[Config]) -> None:
    call(ours(Search(SPACE)))
    assert set(looked) == set(SPACE.configs())


def test_seconds_end_it(backend: FakeBackend, looked: list[Config]) -> None:
    kernel = ours(Search(SPACE, seconds=1e-6))
    call(kernel)
    assert set(looked) <= set(SPACE.configs())
    assert len(looked) == len(kernel.configs) == 12, "what it begins with"


@pytest.mark.slow
def test_configs_that_fail_cost_their_trial_alone(backend: FakeBackend) -> None:
    script(backend, block(BEST, fails="needs more shared memory"), *slope())
    kernel = ours(Search(SPACE))
    call(kernel)
    assert kernel.best_config.kwargs["BLOCK"] in (256, 1024)
    failed = [c for c, times in kernel.configs_timings.items() if times[0] == float("inf")]
    assert {c.kwargs["BLOCK"] for c in failed} == {BEST}


def test_a_wrong_config_never_wins(backend: FakeBackend) -> None:
    script(backend, block(BEST, 1_000.0, wrong=True), *slope())
    kernel = ours(Search(SPACE))
    with pytest.warns(RuntimeWarning, match="4 of 28 configs failed: BLOCK=512 .*it wrote other values"):
        call(kernel)
    assert kernel.best_config.kwargs["BLOCK"] in (256, 1024)


@pytest.mark.slow
def test_the_users_tensors_stay_as_one_launch_leaves_them(backend: FakeBackend) -> None:
    x = torch.empty(N, device="cuda")
    backend.gpu.fill(backend.gpu.borrow(x), 5)
    kernel = ours(kernel=increment_kernel)
    kernel[by_block](x, N)
    assert backend.gpu.read(backend.gpu.borrow(x), 1) == b"\x05", "the scripted launch itself writes nothing"


def test_who_won_without_pipelining_is_found_again(backend: FakeBackend, looked: list[Config]) -> None:
    """Where nothing of the space fits, the last of the list is tried with a single stage."""
    script(backend, *lacking())
    kernel, again = ours(), ours()
    call(kernel)
    looked.clear()
    call(again)
    assert looked == []
    assert kernel.best_config.num_stages == again.best_config.num_stages == 1
    assert kernel.best_config.kwargs == again.best_config.kwargs


# pruning and hooks


def test_pruning_is_asked_of_every_config(backend: FakeBackend, looked: list[Config]) -> None:
    """It may depend on the call's arguments, and what it drops is never run."""
    seen = []

    def prune(found: list[triton.Config], named: dict[str, Any], **kwargs: Any) -> list[triton.Config]:
        seen.append(named["n"])
        return [c for c in found if c.kwargs["BLOCK"] <= named["n"] // 64]

    kernel = ours(Search(SPACE), prune_configs_by={"early_config_prune": prune})
    call(kernel)
    assert blocks(looked) == {16, 32, 64}
    assert set(seen) == {N}
    assert kernel.best_config.kwargs["BLOCK"] == 64


def test_pruning_that_leaves_nothing_is_named(backend: FakeBackend) -> None:
    kernel = ours(Search(SPACE), prune_configs_by={"early_config_prune": lambda found, named, **kwargs: []})
    message = "kernel scale_kernel: no configs are left to try: early_config_prune"
    with pytest.raises(ConfigError, match=message):
        call(kernel)
    with pytest.raises(ConfigError, match=message):
        kernel.prune_configs({})  # Triton's own engine would look for the best of none
    with pytest.raises(ConfigError, match=message):
        run_first(kernel, torch.empty(N), torch.empty(N), N, 2.0, grid=by_block)  # as without a GPU


def test_constraints_hold(backend: FakeBackend, looked: list[Config]) -> None:
    call(ours(Search(Space(SPACE.axes, (lambda c: c.kwargs["BLOCK"] * c.num_warps == 512,)))))
    assert {(c.kwargs["BLOCK"], c.num_warps) for c in looked} == {(512, 1), (256, 2), (128, 4), (64, 8)}


def test_a_hook_of_the_given_configs_is_everybodys(backend: FakeBackend) -> None:
    seen: list[int] = []
    kernel = ours(given=configs(64, pre_hook=lambda words: seen.append(words["BLOCK"])))
    call(kernel)
    assert len(set(seen)) > 3
    seen.clear()
    call(kernel)
    assert seen == [BEST]


def test_hooks_that_leave_each_config_another_memory_are_refused(backend: FakeBackend) -> None:
    """The contents that a later config would find could not be determined."""

    gpu = backend.gpu
    x, y = (torch.empty(N, device="cuda") for _ in range(2))

    def hook(words: dict[str, Any]) -> None:
        if words["BLOCK"] > 64:
            gpu.fill(gpu.borrow(y), 7)

    kernel = ours(given=configs(64, 128, pre_hook=hook))
    with pytest.raises(
        ConfigError, match="what hooks leave in memory depends on the config, so configs can't be searched"
    ):
        kernel[by_block](x, y, N, 2.0)


def test_grids_that_can_not_be_launched_cost_their_trial_alone(backend: FakeBackend) -> None:
    """Also where all of a round have such a grid."""
    x = torch.empty(N, device="cuda")

    def grid(meta: dict[str, Any]) -> tuple[int, int]:
        return (1, 1 if meta["BLOCK"] >= 256 else 1 << 20)

    kernel = ours(Search(SPACE))
    kernel[grid](x, x, N, 2.0)
    assert kernel.best_config.kwargs == {"BLOCK": BEST}
    failed = {c.kwargs["BLOCK"] for c, times in kernel.configs_timings.items() if times[0] == float("inf")}
    assert failed == {16, 32, 64, 128}


# what is stored


def test_a_later_process_takes_the_winner(backend: FakeBackend, looked: list[Config]) -> None:
    call(ours())
    looked.clear()
    kernel = ours()
    call(kernel)
    assert looked == []
    assert kernel.best_config.kwargs == {"BLOCK": BEST}


@pytest.mark.slow
def test_a_winner_outside_of_todays_constraints_is_not_believed(backend: FakeBackend) -> None:
    call(ours(Search(SPACE)))
    kernel = ours(Search(Space(SPACE.axes, (lambda c: c.kwargs["BLOCK"] != BEST,))))
    call(kernel)
    assert kernel.best_config.kwargs["BLOCK"] in (256, 1024)


@pytest.mark.slow
def test_a_search_that_was_broken_off_goes_on_where_it_was(
    backend: FakeBackend, looked: list[Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Estimates.take

    def breaks(self: Estimates, trial: Any) -> None:
        if len(looked) == 21:
            raise KeyboardInterrupt
        take(self, trial)

    with monkeypatch.context() as patch:
        patch.setattr(Estimates, "take", breaks)
        with pytest.raises(KeyboardInterrupt):
            call(ours(Search(SPACE, trials=24)))
    before = set(looked[:21])  # each is stored as it comes: 12 to begin with, eight, and one
    looked.clear()
    kernel = ours(Search(SPACE, trials=24))
    call(kernel)
    assert len(set(looked) - before) == 3
    assert len(kernel.configs_timings) == 24
    assert kernel.best_config.kwargs == {"BLOCK": BEST}


def test_more_trials_go_on_from_those_of_before(backend: FakeBackend, looked: list[Config]) -> None:
    call(ours(Search(SPACE, trials=16)))
    looked.clear()
    kernel = ours(Search(SPACE, trials=22))
    call(kernel)
    slow = {c for c in looked if c.kwargs["BLOCK"] in (16, 32, 64)}
    assert len(looked) < 22
    assert len(slow) <= 6, "of those that were tried only who may win is looked at again"
    assert len(kernel.configs_timings) == 22


def test_frozen_is_an_error_that_says_what_differs(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    call(ours())
    monkeypatch.setenv("KERNTUNE_TUNE", "frozen")
    call(ours())
    with pytest.raises(
        CacheMissError, match=r"search: BLOCK 16\.\.1024.*20 trials, seed 0 -> BLOCK.*30 trials, seed 0"
    ):
        call(ours(Search(SPACE, trials=30)))
    with pytest.raises(CacheMissError, match=r"search: BLOCK.* -> none"):
        call(kerntune.autotune(configs(64, 128), key=["n"])(scale_kernel))


def test_force_searches_anew(backend: FakeBackend, looked: list[Config], monkeypatch: pytest.MonkeyPatch) -> None:
    call(ours())
    looked.clear()
    monkeypatch.setenv("KERNTUNE_TUNE", "force")
    call(ours())
    assert len(looked) == 20


def test_who_won_another_search_of_the_kernel_is_tried_too(backend: FakeBackend, looked: list[Config]) -> None:
    call(ours(Search(SPACE)))
    looked.clear()
    kernel = ours(Search(SPACE, trials=2, seed=3))
    call(kernel)
    assert kernel.best_config.kwargs == {"BLOCK": BEST}
    assert BEST in blocks(looked)


def test_nothing_is_kept_without_cache_results(backend: FakeBackend, looked: list[Config], tmp_path: Path) -> None:
    call(ours(cache_results=False))
    call(ours(cache_results=False))
    assert len(looked) == 40
    assert WinnerCache(tmp_path).entries() == []
    assert TrialCache(tmp_path).entries() == []


# mistakes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"given": configs(48)}, r"kernel scale_kernel: config \(BLOCK=48 .*\) isn't of the search's space \(BLOCK 16"),
        ({"prune_configs_by": {"perf_model": len, "top_k": 1}}, "a perf_model chooses from a list"),
        ({"search": SPACE}, r"search is a Space; give a kerntune.search.Search\(space, seconds=30\)"),
        ({"static_prune": "spills"}, "static_prune leaves out configs of a list"),
        ({"search": Search(Space(SPACE.axes, (lambda c: False,)))}, "no config of the search's space satisfies"),
        (
            {"given": [*configs(64, pre_hook=print), *configs(128, pre_hook=repr)]},
            "kernel scale_kernel: its configs have different hooks",
        ),
        (
            {
                "given": [triton.Config({"BLOCK": 64, "KIND": tl.float16})],
                "search": Search(Space(SPACE.axes, base=Config({"KIND": "fp16"})), trials=2),
            },
            r"kernel scale_kernel: config .* sets KIND to what a search can't vary",
        ),
    ],
)
def test_what_can_not_be_is_refused_where_the_decorator_stands(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ours(**options)


def test_a_field_that_the_kernel_does_not_have_is_named(backend: FakeBackend) -> None:
    with pytest.raises(ConfigError, match=r"kernel scale_kernel .*sets BLOK, which the kernel doesn't have"):
        call(ours(Search(Space((Range("BLOK", 16, 64),)))))
