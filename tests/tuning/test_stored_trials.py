"""Trials of earlier runs in the tuner: what is not tried again, and what always is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import triton
import triton.language as tl
from doubles import raising
from fake_runs import COMPILER, N, block, by_block, captured, scale, scale_kernel, script, tuned

from kerntune.base.config import Config
from kerntune.base.policy import TuneMode
from kerntune.capture import Capture, Probe, Site
from kerntune.capture.recorder import record
from kerntune.errors import EnvironmentFault, TuningError
from kerntune.gpu.program import Loader
from kerntune.gpu.script import Rule
from kerntune.gpu.scripted import FakeBackend
from kerntune.kernels.specialize import Specialized
from kerntune.timing.timers import TimingProtocol
from kerntune.tuning import race, trial_set
from kerntune.tuning.cache import StoredTrial, TrialCache, WinnerCache
from kerntune.tuning.candidates import contenders
from kerntune.tuning.race import Estimates, Trial, worth_racing
from kerntune.tuning.stored_trials import PROTOCOL, Trials, specialization_of
from kerntune.tuning.stored_winners import Winners
from kerntune.tuning.tune_options import TuneOptions
from kerntune.tuning.tuner import tune
from kerntune.tuning.tuning_result import TuningResult

BLOCKS = (32, 64, 128, 256, 512)
TIMES = (9000.0, 1000.0, 1020.0, 1300.0, 5000.0)
RULES = [block(b, t) for b, t in zip(BLOCKS, TIMES, strict=True)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


class Run:
    """A tuning run, as a new process would make it: what it came to, and which blocks were timed."""

    def __init__(
        self,
        backend: FakeBackend,
        folder: Path | None,
        *rules: Rule,
        blocks: tuple[int, ...] = BLOCKS,
        call: Callable[[], Any] | None = None,
        mode: TuneMode = TuneMode.AUTO,
        incumbent: int | None = None,
        driver: str = "570",
        throttle: str = "",
        verify_ignore: tuple[str, ...] = (),
    ) -> None:
        gpu = script(backend, *rules)
        environment = msgspec.structs.replace(gpu.environment(), driver=driver, throttle=throttle)
        gpu.environment = lambda: environment  # type: ignore[method-assign]
        self.capture: Capture = captured(backend, call or (lambda: scale(tuned(*blocks))))
        self.timed: set[int] = set()
        self.estimated: set[int] = set()
        self.trials = None if folder is None else Trials(Winners(WinnerCache(folder), mode, gpu))
        loader = Loader(gpu)
        with self.capture.active(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(race, "worth_racing", self._worth_racing)
            patch.setattr(Estimates, "take", self._take(Estimates.take))
            recorded = record(self.capture)
            options = TuneOptions.now(verify_ignore=verify_ignore)
            given = {"incumbent": incumbent, "trials": self.trials}
            self.found: TuningResult = tune(self.capture, recorded, 0, loader, options, **given)
        self.gpu = gpu

    def _worth_racing(self, trials: Sequence[Trial]) -> list[Trial]:
        self.timed |= {int(t.recording.binaries[0].constexprs["BLOCK"]) for t in trials}
        return worth_racing(trials)

    def _take(self, take: Callable[[Estimates, Trial], None]) -> Callable[[Estimates, Trial], None]:
        def noting(looks: Estimates, trial: Trial) -> None:
            self.estimated.add(int(trial.recording.binaries[0].constexprs["BLOCK"]))
            take(looks, trial)

        return noting

    @property
    def winner(self) -> int:
        config = self.found.recording.launches[0].config
        assert config is not None
        return int(config.kwargs["BLOCK"])  # type: ignore[arg-type]


def stored(folder: Path) -> dict[int, StoredTrial]:
    return {int(t.config.kwargs["BLOCK"]): t for t in TrialCache(folder).entries()}  # type: ignore[arg-type]


def test_every_trial_is_stored_with_its_times(backend: FakeBackend, folder: Path) -> None:
    run = Run(backend, folder, *RULES)
    found = stored(folder)
    assert set(found) == set(BLOCKS)
    for size, time in zip(BLOCKS, TIMES, strict=True):
        assert found[size].estimate_ns == pytest.approx(time, rel=0.02)
        assert found[size].environment == msgspec.structs.replace(backend.gpu.environment(), driver="570")
        assert found[size].key.protocol == PROTOCOL
    raced = {b for b, t in found.items() if t.timing is not None}
    assert raced == {64, 128, 256}, "the others were dropped after the first look"
    assert all(found[b].time_ns == pytest.approx(run.found.times_ns[BLOCKS.index(b)]) for b in raced)
    assert run.found.remembered == frozenset()


class Killed(BaseException):
    """Nothing of the program runs after it, but what a ``finally`` would."""


@pytest.mark.parametrize("looks", range(1, len(BLOCKS)))
def test_a_killed_run_goes_on_where_it_was(
    backend: FakeBackend, folder: Path, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has been looked at is stored by then, the one that was being looked at is not."""
    take, taken = Estimates.take, []

    def until_killed(self: Estimates, trial: Trial) -> None:
        if len(taken) == looks:
            raise Killed
        taken.append(int(trial.recording.binaries[0].constexprs["BLOCK"]))
        take(self, trial)

    monkeypatch.setattr(Estimates, "take", until_killed)
    with pytest.raises(Killed):
        Run(backend, folder, *RULES)
    assert set(stored(folder)) == set(taken)
    known = {size: trial.estimate_ns or 0.0 for size, trial in stored(folder).items()}
    monkeypatch.setattr(Estimates, "take", take)
    again = Run(backend, folder, *RULES)
    assert again.winner == 64
    assert set(stored(folder)) == set(BLOCKS)
    repeated = again.estimated & known.keys()
    assert again.estimated == set(BLOCKS) - known.keys() | repeated
    assert all(known[b] <= 2 * min(known.values()) for b in repeated), "those that may win are always timed together"


def test_the_next_run_times_only_those_that_may_win(backend: FakeBackend, folder: Path) -> None:
    first = Run(backend, folder, *RULES)
    again = Run(backend, folder, *RULES)
    assert again.winner == first.winner == 64
    assert again.timed == {64, 128}
    assert again.found.remembered == {0, 3, 4}
    assert set(again.found.times_ns) == {0, 1, 2, 3, 4}
    assert again.found.times_ns[4] == pytest.approx(5000.0, rel=0.02)


def test_one_config_more_is_one_trial_more(backend: FakeBackend, folder: Path) -> None:
    Run(backend, folder, *RULES)
    more = Run(backend, folder, *RULES, block(1024, 900.0), blocks=(*BLOCKS, 1024))
    assert more.winner == 1024
    assert more.timed == {64, 128, 1024}
    assert set(stored(folder)) == {*BLOCKS, 1024}


def test_finalists_are_timed_again_side_by_side(backend: FakeBackend, folder: Path) -> None:
    """Today's times decide which config wins, not stored ones."""
    Run(backend, folder, *RULES)
    changed = [block(64, 1050.0), *(r for r in RULES if r.constexprs["BLOCK"] != 64)]
    again = Run(backend, folder, *changed)
    assert again.winner == 128
    assert stored(folder)[64].time_ns == pytest.approx(1050.0, rel=0.01)


def test_ties_still_go_to_the_incumbent(backend: FakeBackend, folder: Path) -> None:
    rules = [block(b, 1000.0) for b in BLOCKS]
    Run(backend, folder, *rules)
    for incumbent in (None, 3):
        again = Run(backend, folder, *rules, incumbent=incumbent)
        assert again.winner == BLOCKS[incumbent or 0]


def test_failures_are_remembered_with_their_reasons(backend: FakeBackend, folder: Path) -> None:
    failing = block(512, fails="needs 300000 B shared memory")
    first = Run(backend, folder, *RULES[:4], failing)
    assert stored(folder)[512].failure == "needs 300000 B shared memory"
    again = Run(backend, folder, *RULES)
    assert 512 not in again.timed, "it would run today, but isn't tried"
    assert again.found.failures == first.found.failures
    assert 4 in again.found.remembered


def test_a_compile_failure_is_remembered(backend: FakeBackend, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Run(backend, folder, *RULES, blocks=(64, 100, 128))
    assert "power of 2" in stored(folder)[100].failure
    asked: list[Specialized] = []
    compile_all = COMPILER.compile_all
    monkeypatch.setattr(COMPILER, "compile_all", lambda xs: (asked.extend(xs), compile_all(xs))[1])
    again = Run(backend, folder, *RULES, blocks=(64, 100, 128))
    assert [f.config for f in again.found.failures] == [Config({"BLOCK": 100})]
    assert "100" not in {x.constexpr_texts()["BLOCK"] for x in asked}


def test_a_full_disk_is_not_remembered(backend: FakeBackend, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It doesn't count for the candidate."""
    with_candidate = trial_set.with_candidate

    def full(recorded: Any, capture: Any, index: int, probe: Probe, candidate: int, compiled: Any) -> Any:
        if candidate == 1:
            raise EnvironmentFault("no space left on device")
        return with_candidate(recorded, capture, index, probe, candidate, compiled)

    monkeypatch.setattr(trial_set, "with_candidate", full)
    first = Run(backend, folder, *RULES)
    assert [f.reason for f in first.found.failures] == ["no space left on device"]
    monkeypatch.undo()
    assert Run(backend, folder, *RULES).winner == 64


def test_a_wrong_candidate_is_remembered_if_that_is_clear(backend: FakeBackend, folder: Path) -> None:
    """With two against one, the two may have the same fault."""
    wrong = block(64, 100.0, wrong=True)
    few = tuned(64, 128, 256)
    first = Run(backend, folder, wrong, *RULES, call=lambda: scale(few))
    assert first.winner == 128
    assert [f.wrong for f in first.found.failures] == [True]
    assert 64 not in stored(folder)


def test_who_was_wrong_is_tried_again_where_not_everything_is_compared(backend: FakeBackend, folder: Path) -> None:
    wrong = block(64, 100.0, wrong=True)
    assert Run(backend, folder, wrong, *RULES).winner == 128
    assert Run(backend, folder, wrong, *RULES, verify_ignore=("y_ptr",)).winner == 64


def test_a_wrong_candidate_is_remembered(backend: FakeBackend, folder: Path) -> None:
    wrong = block(64, 100.0, wrong=True)
    first = Run(backend, folder, wrong, *RULES)
    assert first.winner == 128
    assert "wrote other values" in stored(folder)[64].failure
    again = Run(backend, folder, wrong, *RULES)
    assert again.winner == 128
    assert 64 not in again.timed


@triton.jit
def twice_kernel(x_ptr, n, BLOCK: tl.constexpr, UNUSED: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)


def twice(*choices: tuple[int, int]) -> Callable[[], None]:
    kernel = triton.autotune([triton.Config({"BLOCK": b, "UNUSED": u}) for b, u in choices], key=["n"])(twice_kernel)
    return lambda: kernel[by_block](torch.empty(N, device="cuda"), N)


def test_a_failed_binary_is_not_retried_under_another_config(backend: FakeBackend, folder: Path) -> None:
    rules = (block(64, 1000.0), block(128, fails="refused"))
    Run(backend, folder, *rules, call=twice((64, 0), (128, 0)))
    again = Run(backend, folder, *rules, call=twice((64, 0), (128, 0), (128, 1)))
    assert 128 not in again.timed
    assert [f.reason for f in again.found.failures] == ["refused", "refused"]


def test_one_config_with_two_hooks_has_no_trials(backend: FakeBackend, folder: Path) -> None:
    """They are stored by config, which doesn't say which of the two it was."""
    hooks = (lambda named: None, lambda named: None)
    made = [*(triton.Config({"BLOCK": 64}, pre_hook=hook) for hook in hooks), triton.Config({"BLOCK": 128})]
    kernel = triton.autotune(made, key=["n"])(scale_kernel)
    for _ in range(2):
        run = Run(backend, folder, call=lambda: scale(kernel))
        assert {t.config.kwargs["BLOCK"] for t in TrialCache(folder).entries()} == {128}
        assert 64 in run.timed


def test_configs_with_one_code_share_their_times(backend: FakeBackend, folder: Path) -> None:
    Run(backend, folder, block(64, 1000.0), block(128, 9000.0), call=twice((64, 0), (128, 0), (128, 1)))
    again = Run(backend, folder, block(64, 1000.0), block(128, 9000.0), call=twice((64, 0), (128, 0), (128, 1)))
    assert 128 not in again.timed
    assert again.found.remembered == {1, 2}


def test_remembered_failures_are_tried_again_if_nothing_else_is_left(backend: FakeBackend, folder: Path) -> None:
    failing = [block(b, fails=f"refused {b}") for b in BLOCKS]
    with pytest.raises(TuningError, match="refused 512"):
        Run(backend, folder, *failing)
    healed = Run(backend, folder, *RULES)
    assert healed.winner == 64
    assert healed.found.failures == ()
    failed = [t.config for t in TrialCache(folder).entries() if t.failure]
    assert failed == [Config({"BLOCK": 512}, num_stages=1)], "the last was tried without pipelining too"


def test_slower_known_candidates_are_the_next_best_when_the_fast_turn_out_wrong(
    backend: FakeBackend, folder: Path
) -> None:
    Run(backend, folder, *RULES)
    wrong = [block(64, 1000.0, wrong=True), block(128, 1020.0, fails="refused")]
    again = Run(backend, folder, *wrong, *(RULES[0], *RULES[3:]))
    assert again.winner == 256
    assert {f.config.kwargs["BLOCK"] for f in again.found.failures} == {64, 128}


def site_of(backend: FakeBackend) -> Site:
    x = torch.empty(N, device="cuda")
    tuner = triton.autotune([triton.Config({"BLOCK": b}) for b in BLOCKS], key=["n"])(scale_kernel)
    return Capture(backend, COMPILER).site_of(tuner, (x, x, N, 2.0), {"grid": by_block, "warmup": False})


def test_looking_a_site_up_does_not_wait_for_nvml(
    backend: FakeBackend, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, asked = threading.Event(), threading.Event()
    environment = backend.gpu.environment

    def slowly() -> Any:
        asked.set()
        assert answer.wait(20)
        return environment()

    monkeypatch.setattr(backend.gpu, "environment", slowly)
    trials = Trials(Winners(WinnerCache(folder), TuneMode.AUTO, backend.gpu))
    site = site_of(backend)
    found = trials.at(site)
    assert asked.wait(20), "asked from the beginning: later the device is throttled"
    assert not found.known({}).ran
    answer.set()
    assert found.today() == environment()


def test_what_nvml_raises_is_raised(backend: FakeBackend, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend.gpu, "environment", raising(OSError("no NVML")))
    found = Trials(Winners(WinnerCache(folder), TuneMode.AUTO, backend.gpu)).at(site_of(backend))
    with pytest.raises(OSError, match="no NVML"):
        found.today()


def test_another_driver_is_another_time(backend: FakeBackend, folder: Path) -> None:
    failing = block(512, fails="refused")
    Run(backend, folder, *RULES[:4], failing, driver="570")
    again = Run(backend, folder, *RULES, driver="580")
    assert again.timed == set(BLOCKS)
    assert again.found.remembered == frozenset()


def test_times_of_a_throttled_device_are_not_taken_for_others(backend: FakeBackend, folder: Path) -> None:
    """Failures are: whether a config can be launched doesn't depend on clocks."""
    Run(backend, folder, *RULES[:4], block(512, fails="refused"), throttle="SW Power Cap")
    again = Run(backend, folder, *RULES)
    assert again.timed == {32, 64, 128, 256}
    assert again.found.remembered == {4}


def test_force_tries_all_and_stores(backend: FakeBackend, folder: Path) -> None:
    Run(backend, folder, *RULES[:4], block(512, fails="refused"))
    forced = Run(backend, folder, *RULES, mode=TuneMode.FORCE)
    assert forced.timed == set(BLOCKS)
    assert stored(folder)[512].failure == ""


@pytest.mark.parametrize("n", [N - 1, N - 16])
def test_another_shape_is_another_question(backend: FakeBackend, folder: Path, n: int) -> None:
    def call(size: int) -> Callable[[], Any]:
        x = torch.empty(N, device="cuda")
        return lambda: tuned(*BLOCKS)[by_block](x, x, size, 2.0)

    Run(backend, folder, *RULES, call=call(N))
    again = Run(backend, folder, *RULES, call=call(n))
    assert again.timed == set(BLOCKS)


def test_tuners_that_round_their_winners_keys_have_exact_trials(backend: FakeBackend, folder: Path) -> None:
    keys = []
    for n in (N, N - 16):
        kernel, x = tuned(*BLOCKS), torch.empty(N, device="cuda")
        kernel.tuning_key = lambda arguments: ("rounded up to", N)
        site = captured(backend, lambda k=kernel, x=x, n=n: k[by_block](x, x, n, 2.0)).launches[0].site
        assert site is not None
        winners = Winners(WinnerCache(folder), TuneMode.AUTO, backend.gpu)
        keys.append((winners.key(site), Trials(winners).key(site)))
    (winner, trial), (same_winner, other_trial) = keys
    assert winner == same_winner
    assert trial != other_trial


def test_without_a_store_nothing_is_written(backend: FakeBackend, folder: Path) -> None:
    Run(backend, None, *RULES)
    assert not folder.exists()


def probe_of(run: Run, index: int = 1) -> tuple[Site, Probe]:
    site = run.capture.launches[0].site
    assert site is not None
    with run.capture.active():
        return site, run.capture.probe(site, index)


@pytest.mark.slow
def test_specializations_are_told_apart_and_stable(backend: FakeBackend) -> None:
    def of(offset: int = 0, n: int = N, grid: Any = by_block, index: int = 1) -> str:
        x = torch.empty(N + 16, device="cuda")[offset:]
        run = Run(backend, None, call=lambda: tuned(64, 128)[grid](x, x, n, 2.0))
        return specialization_of(probe_of(run, index)[1])

    assert of() == of()
    others = [of(offset=1), of(n=N - 1), of(n=1), of(grid=lambda meta: (3,)), of(index=0)]
    assert len({of(), *others}) == 6


def known(estimate: float, time: float | None = None, timer: str = "graph") -> StoredTrial:
    timing = TimingProtocol(timer, 200, 3) if time is not None else None
    fields = dict.fromkeys(StoredTrial.__struct_fields__, "")
    return StoredTrial(**{**fields, "estimate_ns": estimate, "time_ns": time, "timing": timing})  # type: ignore[arg-type]


def test_contenders() -> None:
    assert contenders({}) == set()
    assert contenders({0: known(100.0), 1: known(150.0), 2: known(160.0)}) == {0, 1}
    raced = {0: known(100.0, 100.0), 1: known(100.0, 110.0), 2: known(100.0, 111.0), 3: known(100.0)}
    assert contenders(raced) == {0, 1, 3}
    other = {0: known(100.0, 100.0), 1: known(100.0, 130.0, "events")}
    assert contenders(other) == {0, 1}, "times of two timers aren't compared"


def test_forced_tuning_knows_nothing_of_earlier_runs(backend: FakeBackend, folder: Path) -> None:
    Run(backend, folder, *RULES)
    for mode, known in ((TuneMode.AUTO, True), (TuneMode.FORCE, False)):
        trials = Trials(Winners(WinnerCache(folder), mode, backend.gpu))
        assert trials.any(site_of(backend)) == known
