"""``descend=True`` and ``kerntune.descend``: from the best of a list through its neighbours."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from doubles import raising
from fake_runs import block, configs, scale, scale_kernel, script

import kerntune
from kerntune.base.config import Config
from kerntune.base.device import typical_device
from kerntune.errors import ConfigError, UsageError
from kerntune.gpu.script import Rule
from kerntune.gpu.scripted import FakeBackend
from kerntune.heuristics import Neighbourhood
from kerntune.heuristics.hints import Modes
from kerntune.search import Descent, Measured
from kerntune.search.descent import with_neighbour

TARGET = kerntune.Target("cuda", "90")


@pytest.fixture
def valley(this_gpu: FakeBackend) -> FakeBackend:
    """The optimum is BLOCK=1024 with 8 warps; the list has blocks of 64 and 128 with 4."""
    times = {32: 9000.0, 64: 5000.0, 128: 4000.0, 256: 3000.0, 512: 2500.0, 1024: 2000.0, 2048: 2600.0}
    warps = {1: 1.6, 2: 1.3, 4: 1.0, 8: 0.8, 16: 0.9, 32: 1.5}
    rules = [
        Rule(constexprs={"BLOCK": b}, num_warps=w, time_ns=t * f) for b, t in times.items() for w, f in warps.items()
    ]
    script(this_gpu, *rules)
    return this_gpu


def tuned(**options: Any) -> Any:
    return kerntune.autotune(configs(64, 128), key=["n"], **options)(scale_kernel)


def won(kernel: Any) -> tuple[int, int]:
    (config,) = kernel.cache.values()
    return config.kwargs["BLOCK"], config.num_warps


def test_without_it_the_list_is_all(valley: FakeBackend) -> None:
    kernel = tuned()
    scale(kernel)
    assert won(kernel) == (128, 4)


@pytest.mark.slow
def test_it_goes_on_beyond_the_list(valley: FakeBackend) -> None:
    kernel = tuned(descend=True)
    scale(kernel)
    assert won(kernel) == (1024, 8)
    scale(kernel)
    assert kernel.best_config is next(iter(kernel.cache.values()))


@pytest.mark.slow
def test_the_winner_is_kept_for_the_next_process(valley: FakeBackend) -> None:
    scale(tuned(descend=True))
    gpu = script(valley)
    again = tuned(descend=True)
    scale(again)
    assert gpu.launches == 0
    assert won(again) == (1024, 8)
    plain = tuned()
    scale(plain)
    assert won(plain)[0] in (64, 128), "another question: a list alone"


def test_a_descent_that_was_broken_off_goes_on(valley: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    from kerntune.tuning import tuner

    prepare, rounds = tuner.Searching._prepare, []

    def stop(self: Any, found: Any) -> None:
        if len(rounds) == 3:
            raise KeyboardInterrupt
        rounds.append(list(found))
        prepare(self, found)

    monkeypatch.setattr(tuner.Searching, "_prepare", stop)
    with pytest.raises(KeyboardInterrupt):
        scale(tuned(descend=True))
    tried = {c.key() for found in rounds for c in found}
    again: list[Any] = []
    estimate = tuner.Searching._estimate

    def count(self: Any, candidates: Any) -> None:
        again.extend(self._trial_set.site.candidates[i].config for i in candidates)
        estimate(self, candidates)

    monkeypatch.setattr(tuner.Searching, "_prepare", prepare)
    monkeypatch.setattr(tuner.Searching, "_estimate", count)
    kernel = tuned(descend=True)
    scale(kernel)
    assert won(kernel) == (1024, 8)
    early = [c for c in again[:-4] if c.key() in tried]
    assert len(early) < len(tried), "what is known is not tried again before the race"


def test_trials_are_limited(valley: FakeBackend) -> None:
    kernel = tuned(descend=2)
    scale(kernel)
    assert won(kernel)[0] < 1024


def test_a_wrong_neighbour_does_not_win(this_gpu: FakeBackend) -> None:
    script(this_gpu, block(64, 3000.0), block(128, 2000.0), block(256, 1000.0, wrong=True), block(512, 5000.0))
    kernel = tuned(descend={"frozen": ["num_warps", "num_stages"]})
    with pytest.warns(RuntimeWarning, match="it wrote other values"):
        scale(kernel)
    assert won(kernel) == (128, 4)


def test_limits_and_frozen_fields_hold(valley: FakeBackend) -> None:
    kernel = tuned(descend={"limits": {"BLOCK": 512}, "frozen": ("num_warps",)})
    scale(kernel)
    assert won(kernel) == (512, 4)


@pytest.mark.slow
def test_pruning_holds_for_each_neighbour(valley: FakeBackend) -> None:
    def small(found: list[Any], named: dict[str, Any], **kwargs: Any) -> list[Any]:
        return [c for c in found if c.kwargs["BLOCK"] <= 256]

    kernel = tuned(descend=True, prune_configs_by={"early_config_prune": small})
    scale(kernel)
    assert won(kernel) == (256, 8)


def test_a_list_of_one_is_enough(valley: FakeBackend) -> None:
    kernel = kerntune.autotune(configs(128), key=["n"], descend=True)(scale_kernel)
    assert [c.num_warps for c in kernel.configs] == [4, 8]
    scale(kernel)
    assert won(kernel) == (1024, 8)


@pytest.mark.slow
def test_a_heuristics_proposal_is_gone_beyond(valley: FakeBackend) -> None:
    words = {"sizes": {"x": "n"}, "blocks": {"x": "BLOCK"}}
    plain, further = (kerntune.pointwise(**words, **more)(scale_kernel) for more in ({}, {"descend": True}))
    for kernel in (plain, further):
        scale(kernel)
    times = [kernel.configs_timings[next(iter(kernel.cache.values()))][0] for kernel in (plain, further)]
    assert times[1] <= times[0] * 1.01
    assert won(further) == (1024, 8)


def descent_of(kernel: Any) -> Descent:
    """What a call of 4096 elements would descend by."""
    arguments = {"x_ptr": torch.zeros(4096), "y_ptr": torch.zeros(4096), "n": 4096, "factor": 2.0}
    found = kernel.search_for({}, arguments)
    assert isinstance(found, Descent)
    return found


def test_a_proposed_kernel_descends_within_its_hints(valley: FakeBackend) -> None:
    words: dict[str, Any] = {"sizes": {"x": "n"}, "blocks": {"x": "BLOCK"}, "descend": True}
    told = kerntune.pointwise(**words, tma_minimums={"x": 64})(scale_kernel)
    descent = descent_of(told)
    (block_field,) = (f for f in descent.steps_from(descent.listed[0]).fields if f.name == "BLOCK")
    assert (block_field.least, block_field.most) == (64, 4096)
    start = descent.listed[0]
    assert descent.has(start.replace(BLOCK=4096))
    assert not descent.has(start.replace(BLOCK=8192))
    assert not descent.has(start.replace(BLOCK=32))


def test_modes_say_how_a_descent_looks_around(valley: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    words: dict[str, Any] = {"sizes": {"x": "n"}, "blocks": {"x": "BLOCK"}, "descend": True}
    plain = descent_of(kerntune.pointwise(**words)(scale_kernel))
    far = Modes(descent_all_directions=True, descent_radius=2)
    found = descent_of(kerntune.pointwise(**words, modes=far)(scale_kernel))
    assert (plain.all_directions, plain.radius, str(plain)) == (False, 1, "descent")
    assert (found.all_directions, found.radius, str(found)) == (True, 2, "descent in all directions, 2 steps")
    radii, everywhere = set(), Neighbourhood.all_directions

    def noted(self: Neighbourhood, config: Config, radius: int = 1) -> Any:
        radii.add(radius)
        return everywhere(self, config, radius)

    monkeypatch.setattr(Neighbourhood, "all_directions", noted)
    start = Config(kwargs={"BLOCK": 256}, num_warps=4)
    for descent in (plain, found):
        descent.run(lambda config: Measured(100.0), lambda _: None, [start], 0.0)
    assert radii == {2}


def test_stages_that_change_no_code_are_one_trial(valley: FakeBackend) -> None:
    """Without a loop to pipeline the machine code is the same: timed anew, it would win or lose by chance."""
    kernel = kerntune.autotune(configs(64, 128, 128, 128), key=["n"])(scale_kernel)
    for stages, config in enumerate(kernel.configs[1:], 1):
        config.num_stages = stages
    gpu = script(valley)
    scale(kernel)
    alone = script(valley)
    scale(tuned())
    assert gpu.launches == alone.launches


def test_a_descent_takes_one_step_along_stages_that_change_no_code(valley: FakeBackend) -> None:
    kernel = tuned(descend=True)
    scale(kernel)
    stages = [c.num_stages for c in kernel.configs_timings]
    assert len([n for n in stages if n != 3]) <= 2, "up and down"


def test_a_descent_begins_at_other_rules_proposals_too(this_gpu: FakeBackend) -> None:
    """One rule's preset has blocks that are many steps away from the other's."""
    words: dict[str, Any] = {"sizes": {"x": "n"}, "blocks": {"x": "BLOCK"}}
    x = torch.empty(1 << 20, device="cuda")
    given = (x, torch.empty_like(x), x.numel(), 2.0)
    presets = ("inductor-2.13", "measured-2026")
    own, other = (kerntune.pointwise(**words, preset=preset)(scale_kernel) for preset in presets)
    search = kerntune.pointwise(**words, preset=presets[0], descend=True)(scale_kernel).search_for(
        dict(zip(scale_kernel.arg_names, given, strict=False)), {}
    )
    assert isinstance(search, Descent)
    assert set(search.listed) == set(own.candidates(*given))
    assert set(search.further) == set(other.candidates(*given)) != set(search.listed)


# kerntune.descend


def test_now_from_a_winner(valley: FakeBackend) -> None:
    kernel = tuned()
    scale(kernel)
    (found,) = kerntune.descend(kernel, lambda: scale(kernel))
    assert (found.before, found.after) == (Config({"BLOCK": 128}), Config({"BLOCK": 1024}, num_warps=8))
    assert won(kernel) == (1024, 8)
    scale(kernel)
    assert won(kernel) == (1024, 8), "the kernel goes on with it"
    assert kernel.descent is None


def test_other_calls_keep_their_winners(valley: FakeBackend) -> None:
    kernel = tuned()
    scale(kernel)
    kernel.cache["another call"] = kernel.configs[0]
    kerntune.descend(kernel, lambda: scale(kernel))
    assert kernel.cache["another call"] is kernel.configs[0]
    assert len(kernel.cache) == 2


def test_a_failing_call_leaves_the_kernel_as_it_was(valley: FakeBackend) -> None:
    kernel = tuned()
    scale(kernel)
    before = dict(kernel.cache)

    with pytest.raises(ZeroDivisionError):
        kerntune.descend(kernel, raising(ZeroDivisionError))
    assert (kernel.cache, kernel.descent) == (before, None)


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (scale_kernel, "is not tuned by kerntune"),
        (triton.autotune(configs(64, 128), key=["n"])(scale_kernel), "is not tuned by kerntune"),
        (kerntune.autotune(configs(64), key=["n"])(scale_kernel), "has one config only"),
    ],
)
def test_what_has_no_list_is_refused(kernel: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        kerntune.descend(kernel, lambda: None)


def test_a_call_of_something_else_is_refused(valley: FakeBackend) -> None:
    with pytest.raises(UsageError, match="the call doesn't launch kernel scale_kernel"):
        kerntune.descend(tuned(), lambda: None)


@pytest.mark.parametrize("value", ["yes", 0, -1, {"steps": 3}])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="descend: "):
        tuned(descend=value)


def test_what_does_not_go_together_is_refused() -> None:
    from kerntune.search import Choice, Search, Space

    space = Space((Choice("BLOCK", (64, 128)),))
    for more in ({"search": Search(space)}, {"static_prune": "spills"}, {"prune_configs_by": {"perf_model": len}}):
        with pytest.raises(ConfigError):
            tuned(descend=True, **more)
    with pytest.raises(ConfigError, match="at least one"):
        Descent((Config(),), typical_device(TARGET), trials=0)


# the pure descent


def test_what_it_may_come_to() -> None:
    descent = Descent((Config({"BLOCK": 64, "MODE": "fast"}),), typical_device(TARGET), frozen=("num_stages",))
    assert descent.has(Config({"BLOCK": 1024, "MODE": "fast"}, num_warps=16))
    assert not descent.has(Config({"BLOCK": 1024, "MODE": "slow"}))
    assert not descent.has(Config({"BLOCK": 64, "MODE": "fast"}, num_stages=5))
    assert not descent.has(Config({"BLOCK": 64, "MODE": "fast"}, num_warps=64))
    assert not descent.has(Config({"BLOCK": 64}))


def test_two_fields_may_change_at_once() -> None:
    """Neither alone helps: a block twice as large needs twice the warps."""

    def measure(config: Config) -> Measured:
        block = config.kwargs["BLOCK"]
        assert isinstance(block, int)
        return Measured(1e6 / block * (1 if block / config.num_warps == 64 else 5))

    start = Config({"BLOCK": 64}, num_warps=1)
    descent = Descent((start,), typical_device(TARGET), frozen=("num_stages",), limits=(("BLOCK", 1024),))
    prepared: list[Config] = []
    found = descent.run(measure, prepared.extend, [start], 0.0)
    assert found.best.config == Config({"BLOCK": 1024}, num_warps=16)
    assert {t.config for t in found.trials} == {start, *prepared}, "each is prepared before it is measured"
    assert len(found.trials) <= 1 + descent.trials


def test_nothing_is_tried_where_no_start_can_be_used() -> None:
    descent = Descent((Config(),), typical_device(TARGET))
    found = descent.run(lambda config: Measured(None, "no"), lambda configs: None, [Config()], 0.0)
    assert [t.reason for t in found.trials] == ["no"]


def test_a_lone_config_has_a_neighbour() -> None:
    assert [with_neighbour(Config(num_warps=w)).num_warps for w in (1, 4, 8, 32)] == [2, 8, 4, 16]


@triton.jit
def row_sum(x_ptr, out_ptr, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    row, col = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None], tl.arange(0, COLS)[None, :]
    x = tl.load(x_ptr + row * cols + col, mask=(row < rows) & (col < cols), other=0.0)
    tl.store(out_ptr + row, tl.sum(x, 1)[:, None], mask=row < rows)


@pytest.mark.slow
def test_a_block_that_holds_the_row_stays(this_gpu: FakeBackend) -> None:
    """Half of it would be half of the sum, and twice of it no more than twice the work."""
    words: dict[str, Any] = {"sizes": {"x": "rows", "r0": "cols"}, "blocks": {"x": "ROWS", "r0": "COLS"}}
    kernel = kerntune.persistent_reduction(**words, descend=6)(row_sum)
    x = torch.empty(4096, 500, device="cuda")
    kernel[lambda meta: (triton.cdiv(4096, meta["ROWS"]),)](x, torch.empty(4096, device="cuda"), 4096, 500)
    assert {c.kwargs["COLS"] for c in kernel.configs_timings} == {512}
    assert len({c.kwargs["ROWS"] for c in kernel.configs_timings}) > 1
