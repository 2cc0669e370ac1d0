"""Configs that a first call did not wait for: none is dropped, a later call tries them, and launches never wait."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from fake_runs import COMPILER, N, block, by_block, configs, increment_kernel, scale_kernel, script

import kerntune
from kerntune.base.policy import StaticPrune
from kerntune.compiling.compiler import Compiler
from kerntune.gpu.scripted import FakeBackend
from kerntune.kernels.compat import torch_private
from kerntune.tuning import candidates, context, tuned_call
from kerntune.tuning import tune_call as lates
from kerntune.tuning.cache import TrialCache, WinnerCache, leases

BLOCKS = (64, 128, 256)
TIMES = (block(64, 9000.0), block(128, 1000.0), block(256, 2000.0))


class World:
    """The scripted GPU as this process's, a cache, and a compiler that holds some blocks back until it is let go."""

    def __init__(self, backend: FakeBackend, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.backend, self.folder, self._patch = backend, folder, monkeypatch
        self.held: set[int] = set()
        self.process()

    def process(self) -> None:
        """What a new process begins with."""
        self.gate, self.compiled = threading.Event(), list[int]()
        compiler = Compiler(COMPILER.farm)
        stream, gate = compiler.compile_stream, self.gate

        def slowly(*args: Any) -> Iterator[Any]:
            last = []
            for launch, found in stream(*args):
                size = int(launch.constexpr_texts()["BLOCK"])
                self.compiled.append(size)
                if size in self.held:
                    last.append((launch, found))
                else:
                    yield launch, found
            if last:
                gate.wait(60)
            yield from last

        self._patch.setattr(compiler, "compile_stream", slowly)
        self._patch.setattr(context, "COMPILER", compiler)

    def let_go(self, kernel: Any) -> None:
        """Let the held ones be done, and wait until they are."""
        self.gate.set()
        for late in kernel.untried.values():
            late.stragglers.coming.done.result(60)

    def stored(self) -> Any:
        (winner,) = WinnerCache(self.folder).entries()
        return winner


@pytest.fixture
def world(shared: FakeBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    script(shared, *TIMES)
    monkeypatch.setattr(context, "this_gpu", lambda: shared)
    monkeypatch.setattr(tuned_call, "WinnerCache", lambda: WinnerCache(tmp_path))
    monkeypatch.setattr(candidates, "QUIET_SECONDS", 0.01)
    monkeypatch.setattr(candidates, "LATE_SHARE", 0.5)  # of two or three, the held one alone
    monkeypatch.setenv("KERNTUNE_PATIENCE", "0")
    found = World(shared, tmp_path, monkeypatch)
    yield found
    found.gate.set()


def ours(*blocks: int, kernel: Any = scale_kernel, **options: Any) -> Any:
    return kerntune.autotune(configs(*(blocks or BLOCKS)), key=["n"], **options)(kernel)


def call(kernel: Any) -> int:
    """A launch; the block that it was made with."""
    x = torch.empty(N, device="cuda")
    kernel[by_block](x, x, N, 2.0)
    return int(kernel.best_config.kwargs["BLOCK"])


def late_blocks(kernel: Any) -> list[int]:
    return [c.kwargs["BLOCK"] for late in kernel.untried.values() for c in late.configs]


def timed_blocks(kernel: Any) -> dict[int, float]:
    return {c.kwargs["BLOCK"]: times[0] for c, times in kernel.configs_timings.items()}


def ready(world: World, held: int = 128, **options: Any) -> Any:
    """A kernel whose late config, the fastest if it isn't said, is compiled after its first call."""
    world.held, kernel = {held}, ours(**options)
    assert call(kernel) == (256 if held == 128 else 128)
    world.let_go(kernel)
    return kernel


def test_a_faster_late_config_takes_over(world: World) -> None:
    world.held, kernel = {128}, ours()
    assert [call(kernel), call(kernel)] == [256, 256]
    assert late_blocks(kernel) == [128]
    assert kernel.untried[next(iter(kernel.cache))].configs[0] is kernel.configs[1]
    assert set(timed_blocks(kernel)) == {64, 256}
    assert [c.kwargs["BLOCK"] for c in world.stored().untried] == [128]
    world.let_go(kernel)
    assert [call(kernel), call(kernel)] == [128, 128]
    assert kernel.best_config is kernel.configs[1]
    assert list(kernel.cache.values()) == [kernel.configs[1]]
    assert kernel.untried == {}
    found = timed_blocks(kernel)
    assert min(found, key=found.__getitem__) == 128
    assert found[256] / found[128] == pytest.approx(2.0, rel=0.05)
    assert (world.stored().config.kwargs, world.stored().untried) == ({"BLOCK": 128}, ())
    assert len(TrialCache(world.folder).entries()) == 3


def test_a_much_slower_one_costs_a_look_and_no_race(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = ready(world, 64)
    monkeypatch.setattr("kerntune.tuning.race._warm_up", None)
    monkeypatch.setattr("kerntune.tuning.race._rounds", None)
    monkeypatch.setattr("kerntune.tuning.race._by_small_graphs", lambda trials: trials if len(trials) == 1 else 1 / 0)
    assert call(kernel) == 128
    assert kernel.untried == {}
    assert list(kernel.cache.values()) == [kernel.configs[1]]
    assert set(timed_blocks(kernel)) == set(BLOCKS)
    assert world.stored().untried == ()


def test_times_are_brought_to_the_clocks_of_the_first_call(world: World) -> None:
    kernel = ready(world, 64)
    script(world.backend, *TIMES, shift=3.0)
    call(kernel)
    found = timed_blocks(kernel)
    assert found[64] / found[128] == pytest.approx(9.0, rel=0.3)


@pytest.mark.parametrize("option", [{}, {"patience": "all"}, {"patience": 60}, {"static_prune": "spills"}], ids=str)
def test_most_are_waited_for_and_all_by_who_is_patient_or_prunes_by_the_figures_of_all(
    world: World, monkeypatch: pytest.MonkeyPatch, option: dict[str, Any]
) -> None:
    monkeypatch.setattr(candidates, "LATE_SHARE", 0.5 if option else 0.25)
    world.held, kernel = {128}, ours(**option)
    threading.Timer(0.2, world.gate.set).start()
    assert call(kernel) == 128
    assert kernel.untried == {}


def test_late_ones_are_waited_for_if_nothing_else_can_be_used(world: World) -> None:
    script(world.backend, block(64, 9000.0, wrong=True), block(256, fails="needs too much"), TIMES[1])
    world.held, kernel = {128}, ours(128, 256)
    threading.Timer(0.2, world.gate.set).start()
    assert call(kernel) == 128
    assert kernel.untried == {}


def test_a_late_config_that_fails_is_a_failure(world: World) -> None:
    world.held, kernel = {100}, ours(64, 100, 128)
    assert call(kernel) == 128
    world.let_go(kernel)
    assert call(kernel) == 128
    assert kernel.untried == {}
    assert timed_blocks(kernel)[100] == float("inf")
    assert sum(bool(t.failure) for t in TrialCache(world.folder).entries()) == 1


def test_a_wrong_late_config_never_wins(world: World) -> None:
    script(world.backend, block(128, 1000.0, wrong=True), TIMES[0], TIMES[2])
    kernel = ready(world)
    with pytest.warns(RuntimeWarning, match="it wrote other values than the winner"):
        assert call(kernel) == 256
    assert timed_blocks(kernel)[128] == float("inf")
    assert world.stored().config.kwargs == {"BLOCK": 256}


def test_the_winner_is_the_reference_not_the_late_one(world: World) -> None:
    """In the order of configs, the wrong one would be the reference of all others."""
    script(world.backend, block(64, 1000.0, wrong=True), block(128, 1010.0), TIMES[2])
    kernel = ready(world, 64)
    with pytest.warns(RuntimeWarning, match="it wrote other values than the winner"):
        assert call(kernel) == 128
    assert timed_blocks(kernel)[64] == float("inf")


# another process


def test_the_next_process_goes_on(world: World) -> None:
    world.held = {128}
    assert call(ours()) == 256
    world.gate.set()
    world.process()
    kernel = ours()
    assert call(kernel) == 256
    assert world.compiled == []
    assert late_blocks(kernel) == [128]
    assert call(kernel) == 256
    world.let_go(kernel)
    assert 64 not in world.compiled
    assert call(kernel) == 128
    assert (world.stored().config.kwargs, world.stored().untried) == ({"BLOCK": 128}, ())
    world.process()
    last = ours()
    assert [call(last), late_blocks(last), world.compiled] == [128, [], []]


def test_ranks_settle_late_ones_at_the_next_start(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same run others go on with the first winner already."""
    for name in leases.SIZES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    world.held, kernel = {128}, ours()
    assert call(kernel) == 256
    world.gate.set()
    assert [call(kernel), getattr(kernel, "untried", {})] == [256, {}]
    world.process()
    assert call(ours()) == 256
    assert world.compiled == []
    assert [c.kwargs["BLOCK"] for c in world.stored().untried] == [128]
    monkeypatch.setattr(leases, "BEGUN", time.time() + 10 * 60.0)
    world.process()
    world.gate.set()
    assert call(ours()) == 128
    assert world.stored().untried == ()
    world.process()
    assert call(ours()) == 128
    assert world.compiled == []


def test_a_patient_process_tries_all_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.held = {128}
    call(ours())
    world.gate.set()
    world.held = set()
    world.process()
    monkeypatch.setenv("KERNTUNE_PATIENCE", "all")
    kernel = ours()
    assert call(kernel) == 128
    assert 64 not in world.compiled
    assert world.stored().untried == ()


# when it is no time for it


def test_a_graphs_pool_gets_nothing_of_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch gives what this thread allocates to the graph that it warms up."""
    kernel, settle, threads = ready(world), lates.settle_call, list[int]()
    monkeypatch.setattr(
        lates, "settle_call", lambda *a, **k: (threads.append(threading.get_ident()), settle(*a, **k))[1]
    )
    monkeypatch.setattr(torch_private, "warms_up_for_graph", lambda device: True)
    monkeypatch.setattr(tuned_call, "device_in_use", lambda: 0)
    monkeypatch.setattr(tuned_call, "current_thread_state", lambda: torch.no_grad)
    assert call(kernel) == 128
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_many_threads_try_it_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, settle, tried, gate = ready(world), lates.settle_call, list[int](), threading.Barrier(4)
    x = torch.empty(N, device="cuda")
    monkeypatch.setattr(lates, "settle_call", lambda *a, **k: (tried.append(1), settle(*a, **k))[1])

    def one() -> None:
        gate.wait(60)
        kernel[by_block](x, x, N, 2.0)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert tried == [1]
    assert call(kernel) == 128


def test_a_call_for_which_nothing_is_compiled_does_not_wait(world: World) -> None:
    """Another alignment is another binary: it is compiled behind, too."""
    kernel, x = ready(world), torch.empty(2 * N, device="cuda")
    world.gate.clear()
    for _ in range(2):
        kernel[by_block](x[1:], x[1:], N, 2.0)
        assert kernel.best_config.kwargs == {"BLOCK": 256}
    assert late_blocks(kernel) == [128]
    world.let_go(kernel)
    kernel[by_block](x[1:], x[1:], N, 2.0)
    assert kernel.best_config.kwargs == {"BLOCK": 128}


def test_a_winner_that_its_config_does_not_name_stays(world: World) -> None:
    """The list has it with another hook, too: it isn't known which of the two is the reference of the late ones."""
    world.held = {128}
    made = [triton.Config({"BLOCK": 256}, pre_hook=hook) for hook in (None, lambda named: None)]
    kernel = kerntune.autotune([*made, *configs(64, 128)], key=["n"])(scale_kernel)
    assert call(kernel) == 256
    winner = kernel.best_config
    world.let_go(kernel)
    assert [call(kernel), call(kernel)] == [256, 256]
    assert (kernel.best_config, kernel.untried) == (winner, {})


def test_what_a_users_pruning_raises_costs_no_call(world: World) -> None:
    def prune(found: list[Any], named: dict[str, Any], **kwargs: Any) -> list[Any]:
        asked.append(1)
        return found if len(asked) == 1 else [][0]

    asked: list[int] = []
    kernel = ready(world, prune_configs_by={"early_config_prune": prune})
    with pytest.warns(RuntimeWarning, match="1 configs could not be tried later: list index out of range"):
        assert call(kernel) == 256


# what launches and tensors see of it


def long_way(kernel: Any) -> Any:
    x = torch.empty(N, device="cuda")
    return tuned_call.run_tuned(kernel, (x, x, N, 2.0), {"grid": by_block, "warmup": False}, keep=True, plain=Callable)


def test_prepared_launches_are_in_use_until_the_late_ones_are_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch is prepared for the config that the long way returns, and is valid while the tuner's cache holds that
    one."""
    world.held, kernel = {128}, ours()
    call(kernel)
    config = long_way(kernel).config
    assert config is kernel.configs[2]
    world.let_go(kernel)
    assert next(iter(kernel.cache.values())) is not config
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert long_way(kernel).config is None
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert long_way(kernel).config is kernel.configs[1]


def test_a_tuner_whose_cache_was_emptied_meanwhile_begins_anew(world: World) -> None:
    world.held, kernel = {128}, ours()
    call(kernel)
    late = dict(kernel.untried)
    kernel.cache.clear()
    world.gate.set()
    for one in late.values():
        one.stragglers.coming.done.result(60)
    assert kernel.cache == {}
    assert [call(kernel), call(kernel)] == [256, 256]
    assert kernel.untried.keys() == late.keys()
    world.let_go(kernel)
    assert call(kernel) == 128


@pytest.mark.slow
def test_nobody_keeps_the_users_tensors_meanwhile(world: World) -> None:
    world.held, kernel = {128}, ours()
    x = torch.empty(N, device="cuda")
    kernel[by_block](x, x, N, 2.0)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None
    assert late_blocks(kernel) == [128]


@pytest.mark.slow
def test_a_tuner_can_go_meanwhile(world: World) -> None:
    world.held, kernel = {128}, ours()
    call(kernel)
    (late,), gone = list(kernel.untried.values()), weakref.ref(kernel)
    del kernel
    gc.collect()
    assert gone() is None
    world.gate.set()
    late.stragglers.coming.done.result(60)


def test_trying_leaves_what_it_found_in_memory(world: World) -> None:
    world.held, kernel = {128}, ours(kernel=increment_kernel)
    x, gpu = torch.empty(N, device="cuda"), world.backend.gpu
    kernel[by_block](x, N)
    world.let_go(kernel)
    gpu.fill(gpu.borrow(x), 9)
    assert tuned_call._Call(kernel, (x, N), {"grid": by_block}, keep=True).try_late() is kernel.configs[1]
    assert gpu.read(gpu.borrow(x), 1) == b"\x09"


def test_who_asked_to_be_told_is_told_twice(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kerntune.kernels.compat.tuners.prints_tuning", lambda: True)
    kernel = ready(world)
    call(kernel)
    first, second = capsys.readouterr().out.splitlines()
    assert "BLOCK: 256" in first
    assert first.endswith(", 1 configs are still being compiled")
    assert "BLOCK: 128" in second
    assert "still" not in second


@pytest.mark.parametrize("rules", [{"verify": "off"}, {"verify_ignore": ["x_ptr", "y_ptr"]}], ids=["off", "ignored"])
def test_who_compares_does_not_believe_who_did_not(
    world: World, monkeypatch: pytest.MonkeyPatch, rules: dict[str, Any]
) -> None:
    monkeypatch.setenv("KERNTUNE_PATIENCE", "all")  # a busy machine must not leave two that disagree
    script(world.backend, block(64, 9000.0), block(128, 1000.0, wrong=True), block(256, 2000.0))
    assert call(ours(**rules)) == 128
    world.process()
    with pytest.warns(RuntimeWarning, match="BLOCK=128"):
        assert call(ours()) == 256
    world.process()
    lax = ours(**rules)
    assert call(lax) == 128, "its own winner"
    assert world.compiled == [], "nothing was tuned again"


def test_who_compares_nothing_believes_who_did(world: World) -> None:
    assert call(ours()) == 128
    world.process()
    assert call(ours(verify="off")) == 128
    assert world.compiled == []


def test_late_times_stay_where_the_first_winner_fails_later() -> None:
    late = {"winner": [float("inf")] * 3, "late": [0.5] * 3}
    assert lates.merged_timings({"winner": [1.0] * 3}, late, "winner")["late"] == [0.5] * 3


def test_a_late_config_is_pruned_as_the_tuner_says(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def the_late_one(figures: Any, rules: StaticPrune, protected: Any) -> dict[int, str]:
        asked.append(rules)
        return {1: "as a test says"} if rules else {}

    world.held, kernel = {128}, ours()
    monkeypatch.setattr("kerntune.static.resource_model.left_out", the_late_one)
    assert call(kernel) == 256
    world.let_go(kernel)
    kernel.static_prune = StaticPrune(model=True)
    assert call(kernel) == 256
    assert asked == [StaticPrune(model=True)]
    assert kernel.left_out == {kernel.configs[1]: "as a test says"}
    assert kernel.untried == {}


def test_a_winner_of_another_rule_may_have_other_bits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither serves the other; and what lost for its bits may win by the usual rule."""
    monkeypatch.setenv("KERNTUNE_PATIENCE", "all")
    script(world.backend, block(64, 9000.0), block(128, 1000.0, flips=((4, 1),)), block(256, 2000.0))
    assert call(ours()) == 128
    world.process()
    assert call(ours(verify="bitwise")) == 256
    world.process()
    assert call(ours(verify="bitwise")) == 256
    assert world.compiled == [], "its own winner is stored"
    world.process()
    assert call(ours()) == 128
