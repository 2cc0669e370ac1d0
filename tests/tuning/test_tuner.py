"""Races on a scripted clock: winners, ties, failures, and messages about them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from fake_runs import (
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
from hypothesis import given, settings
from hypothesis import strategies as st

from kerntune.base.config import Config
from kerntune.base.policy import TuneMode
from kerntune.capture import Capture
from kerntune.capture.recorder import Recorded, record
from kerntune.errors import TuningError
from kerntune.gpu.program import Loader, Program
from kerntune.gpu.script import Rule
from kerntune.gpu.scripted import FakeBackend, FakeGpu
from kerntune.tuning import race as race_module
from kerntune.tuning.cache import TrialCache, WinnerCache
from kerntune.tuning.candidates import CandidatePool
from kerntune.tuning.stored_trials import Trials
from kerntune.tuning.stored_winners import Winners
from kerntune.tuning.tune_options import TuneOptions
from kerntune.tuning.tuner import memory_before, tune
from kerntune.tuning.tuning_result import TuningResult

DROP_FIRST = 1.5
TIE = 0.005


BLOCKS = (32, 64, 128, 256, 512)
MANY = settings(max_examples=12, deadline=None)


def race(
    backend: FakeBackend,
    *rules: Rule,
    call: Callable[[], Any] | None = None,
    index: int = 0,
    incumbent: int | None = None,
    given: dict[str, tuple[Config, ...]] | None = None,
    progress: Callable[[str], None] = lambda text: None,
    words: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[TuningResult, Capture, Recorded]:
    """Capture a call under a script and tune one of its launches."""
    gpu = script(backend, *rules, **options)
    capture = captured(backend, call or (lambda: scale(tuned(*BLOCKS))), given)
    loader = Loader(gpu)
    try:
        with capture.active():
            recorded = record(capture)
            found = tune(capture, recorded, index, loader, incumbent=incumbent, progress=progress, **words or {})
    finally:
        loader.close()
    return found, capture, recorded


def failed(found: TuningResult) -> list[Any]:
    return [f.config.kwargs["BLOCK"] for f in found.failures]


def winner_of(found: TuningResult) -> Any:
    (launch, *_) = found.recording.launches
    assert launch.config is not None
    return launch.config.kwargs["BLOCK"]


def times(*values: float) -> list[Rule]:
    return [block(b, t) for b, t in zip(BLOCKS, values, strict=False)]


# winners


@MANY
@given(order=st.permutations([10_000.0, 10_300.0, 11_000.0, 20_000.0, 90_000.0]), seed=st.integers(0, 1000))
def test_the_fastest_wins(shared: FakeBackend, order: list[float], seed: int) -> None:
    found, _, _ = race(shared, *times(*order), seed=seed)
    assert found.winner == order.index(10_000.0)
    assert found.failures == ()
    assert found.times_ns[found.winner] == pytest.approx(10_000.0, rel=0.002)


@pytest.mark.parametrize("scale_ns", [200.0, 20_000.0, 2e6])
def test_the_fastest_wins_at_any_size(backend: FakeBackend, scale_ns: float) -> None:
    """Graphs for short kernels, event pairs for long ones."""
    found, _, _ = race(backend, *times(*(scale_ns * f for f in (1.3, 1.02, 1.0, 1.04, 2.0))))
    assert found.winner == 2


@pytest.mark.slow
@MANY
@given(seed=st.integers(0, 10_000), values=st.lists(st.floats(0.9, 1.2), min_size=5, max_size=5))
def test_noise_of_a_hundredth_still_gives_a_winner_within_a_hundredth(
    shared: FakeBackend, seed: int, values: list[float]
) -> None:
    found, _, _ = race(shared, *times(*(10_000 * v for v in values)), noise=0.01, seed=seed)
    assert values[found.winner] <= min(values) * 1.01


def test_the_hopeless_are_looked_at_once(backend: FakeBackend) -> None:
    found, _, _ = race(backend, *times(10_000.0, 10_000.0 * DROP_FIRST * 1.1, 1e6, 10_200.0, 1e9), noise=0.0)
    assert set(found.times_ns) == {0, 1, 2, 3, 4}
    assert found.times_ns[4] == pytest.approx(1e9)
    assert backend.gpu._clock < 60e9, "a hopeless candidate runs six times, not a whole race"


def test_the_winners_launch_is_in_the_recording(backend: FakeBackend) -> None:
    found, capture, recorded = race(backend, *times(9.0, 8.0, 1.0, 8.0, 9.0))
    (launch,) = found.recording.launches
    assert launch.config == Config({"BLOCK": 128})
    assert launch.grid == (N // 128, 1, 1)
    assert found.recording.binary_of(launch).constexprs["BLOCK"] == "128"
    assert found.recording.binary_of(launch).sha256 in recorded.artifacts
    assert recorded.recording.launches[0].config == Config({"BLOCK": 32}), "only the outcome holds the winner"
    assert capture.launches[0].site.chosen == 0


def test_other_options_are_raced_too(backend: FakeBackend) -> None:
    kernel = triton.autotune([triton.Config({"BLOCK": 64}, num_warps=w) for w in (1, 2, 4)], key=["n"])(scale_kernel)
    rules = [Rule(num_warps=w, time_ns=t) for w, t in ((1, 300.0), (2, 100.0), (4, 200.0))]
    found, _, _ = race(backend, *rules, call=lambda: scale(kernel))
    assert found.recording.binaries[0].num_warps == 2


def test_given_candidates_of_a_bare_kernel_are_raced(backend: FakeBackend) -> None:
    given = {"scale_kernel": tuple(Config({"BLOCK": b}) for b in (64, 128, 256))}
    found, _, _ = race(
        backend, block(64, 3.0), block(128, 1.0), block(256, 2.0), given=given,
        call=lambda: scale(scale_kernel, BLOCK=1024),
    )  # fmt: skip
    assert winner_of(found) == 128


def test_progress_names_the_kernel_and_how_many(backend: FakeBackend) -> None:
    lines: list[str] = []
    race(backend, *times(1.0, 2.0, 3.0, 4.0, 5.0), block(9), progress=lines.append)
    assert lines == ["scale_kernel: compiling 5 configs", "scale_kernel: timing 5 of 5 configs"]


# ties


@MANY
@given(seed=st.integers(0, 10_000), incumbent=st.none() | st.integers(0, 4))
def test_ties_go_to_the_incumbent_else_to_config_order(shared: FakeBackend, seed: int, incumbent: int | None) -> None:
    """All equal but for a tenth of the tie's width; 0.05 % of noise a run."""
    values = [10_000.0 * (1 + random.Random(seed).uniform(0, TIE / 10)) for _ in BLOCKS]
    found, _, _ = race(shared, *times(*values), incumbent=incumbent, seed=seed)
    assert found.winner == (incumbent or 0)


@pytest.mark.parametrize(("throttle", "loaded"), [("", 0), ("0x4", 1)])
def test_ties_are_decided_under_load_if_the_clock_is_limited(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, throttle: str, loaded: int
) -> None:
    real, asked = race_module._equal_under_load, []
    monkeypatch.setattr(race_module, "_equal_under_load", lambda tied: asked.append(len(tied)) or real(tied))
    monkeypatch.setattr(race_module, "LOAD_NS", 40e6)
    monkeypatch.setattr(FakeGpu, "environment", lambda self: SimpleNamespace(throttle=throttle))
    assert race(backend, *times(*[10_000.0] * 5))[0].winner == 0
    assert asked == [5] * loaded


def test_an_incumbent_that_fails_loses(backend: FakeBackend) -> None:
    found, _, _ = race(backend, block(128, fails="too much shared memory"), incumbent=2)
    assert found.winner == 0


# the same code


@triton.jit
def indifferent_kernel(x_ptr, n, BLOCK: tl.constexpr, UNUSED: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)


def indifferent(*choices: dict[str, Any], grid: Any = by_block) -> Callable[[], None]:
    kernel = triton.autotune([triton.Config(c) for c in choices], key=["n"])(indifferent_kernel)
    return lambda: kernel[grid](torch.randn(N, device="cuda"), N)


def test_identical_code_is_one_trial(backend: FakeBackend) -> None:
    choices = [*({"BLOCK": 64, "UNUSED": u} for u in range(4)), {"BLOCK": 128, "UNUSED": 0}]
    found, _, _ = race(backend, call=indifferent(*choices))
    assert set(found.times_ns) == {0, 4}
    assert found.failures == ()


def test_identical_code_on_another_grid_is_another_trial(backend: FakeBackend) -> None:
    choices = [{"BLOCK": 64, "UNUSED": u} for u in (1, 2)]
    found, _, _ = race(backend, call=indifferent(*choices, grid=lambda meta: (N // 64, meta["UNUSED"])))
    assert set(found.times_ns) == {0, 1}


@triton.jit
def chunked_kernel(x_ptr, n, chunk, BLOCK: tl.constexpr, UNUSED: tl.constexpr):
    for k in range(chunk):
        i = (tl.program_id(0) * chunk + k) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)


def chunked(*chunks: int) -> Callable[[], None]:
    choices = [triton.Config({"BLOCK": 64, "chunk": c, "UNUSED": 0}) for c in chunks]
    kernel = triton.autotune(choices, key=["n"])(chunked_kernel)
    return lambda: kernel[(N // 128,)](torch.randn(N, device="cuda"), N)


def test_identical_code_with_another_argument_is_another_trial(backend: FakeBackend, tmp_path: Path) -> None:
    """A config may choose what is no constexpr. What is stored of one isn't true of another."""
    trials = Trials(Winners(WinnerCache(tmp_path), TuneMode.AUTO, backend.gpu))
    found, _, _ = race(backend, call=chunked(2, 3, 5), words={"trials": trials})
    assert set(found.times_ns) == {0, 1, 2}
    assert len({trial.code for trial in TrialCache(tmp_path).entries()}) == 3


def test_what_heuristics_make_of_a_config_is_an_argument_too(backend: FakeBackend) -> None:
    configs = [triton.Config({"BLOCK": 64, "UNUSED": u}) for u in (2, 3, 3)]
    configs[2].num_stages = 1
    made = triton.heuristics({"chunk": lambda words: words["UNUSED"]})(chunked_kernel)
    kernel = triton.autotune(configs, key=["n"])(made)
    found, _, _ = race(backend, call=lambda: kernel[(N // 128,)](torch.randn(N, device="cuda"), N))
    assert set(found.times_ns) == {0, 1}


def test_an_incumbent_with_the_code_of_another_config_stays(backend: FakeBackend) -> None:
    """Else the stored config flips between two names of one code, and with it the baseline's."""
    found, _, _ = race(backend, call=indifferent(*({"BLOCK": 64, "UNUSED": u} for u in range(3))), incumbent=2)
    assert found.winner == 2


# failures


def test_failed_candidates_are_named_with_their_reasons(backend: FakeBackend) -> None:
    kernel = tuned(100, 64, 128, 256, 512)
    found, _, _ = race(
        backend,
        block(64, 2.0),
        block(128, 1.0, fails="needs 300000 B shared memory"),
        block(256, 1.0, wrong=True),
        block(512, 3.0),
        call=lambda: scale(kernel),
    )
    assert winner_of(found) == 64
    reasons = {f.config.kwargs["BLOCK"]: f.reason for f in found.failures}
    assert set(reasons) == {100, 128, 256}
    assert all(f.kernel == "scale_kernel" for f in found.failures)
    assert "scale_kernel" in reasons[100]
    assert "power of 2" in reasons[100]
    assert reasons[128] == "needs 300000 B shared memory"
    assert "wrote other values than 2 of 3 configs into y_ptr (1024 of 1024 elements" in reasons[256]


@MANY
@given(roles=st.lists(st.sampled_from(["ok", "fails", "wrong"]), min_size=4, max_size=4), seed=st.integers(0, 99))
def test_failing_and_wrong_candidates_never_win(shared: FakeBackend, roles: list[str], seed: int) -> None:
    """However fast and many: a reference has shown that the captured run is right, each later one is as drawn, and the
    wrong ones are the fastest."""
    kinds = {"ok": {"time_ns": 8000.0}, "fails": {"fails": "refused"}, "wrong": {"time_ns": 5000.0, "wrong": True}}
    rules = [block(32, 10_000.0), *(block(b, **kinds[role]) for b, role in zip(BLOCKS[1:], roles, strict=True))]
    found, _, _ = race(shared, *rules, seed=seed, words={"trusted": True})
    bad = {BLOCKS[i + 1] for i, role in enumerate(roles) if role != "ok"}
    assert set(failed(found)) == bad
    assert winner_of(found) not in bad
    assert (winner_of(found) == 32) == ("ok" not in roles)


def test_a_wrong_winner_does_not_rob_the_others_of_their_race(backend: FakeBackend) -> None:
    found, _, _ = race(
        backend, *times(8000.0, 5000.0, 8000.0, 8000.0, 9000.0)[2:], block(32, 8000.0), block(64, 5000.0, wrong=True),
        incumbent=3, noise=0.0,
    )  # fmt: skip
    assert failed(found) == [64]
    assert found.winner == 3


def test_a_wrong_candidate_that_would_not_have_won_is_not_looked_at(backend: FakeBackend) -> None:
    found, _, _ = race(backend, block(32, 1.0), block(64, 9.0, wrong=True), block(128, 8.0))
    assert found.winner == 0
    assert found.failures == ()


@pytest.mark.slow
@MANY
@given(wrong=st.permutations(BLOCKS).map(lambda order: order[:2]), fast=st.booleans())
def test_two_wrong_ones_of_five_never_win_whatever_their_place(
    shared: FakeBackend, wrong: list[int], fast: bool
) -> None:
    """The captured run may be one of them, and it wasn't compared with anything."""
    rules = [
        block(b, 5000.0 if fast == (b in wrong) else 8000.0, leaves=40 + i if b in wrong else None)
        for i, b in enumerate(BLOCKS)
    ]
    found, _, _ = race(shared, *rules)
    assert winner_of(found) not in wrong
    assert set(failed(found)) <= set(wrong)
    assert found.notes == ()


def test_candidates_that_a_reference_refutes_have_failed_with_its_reason(backend: FakeBackend) -> None:
    found, _, _ = race(backend, *times(5.0, 4.0, 3.0, 2.0, 9.0), words={"refuted": {3: "far off"}})
    assert found.winner == 2
    assert [(f.config.kwargs["BLOCK"], f.reason) for f in found.failures] == [(256, "far off")]


def test_if_all_fail_every_reason_is_listed(backend: FakeBackend) -> None:
    with pytest.raises(TuningError) as caught:
        race(backend, *(block(b, fails=f"refused {b}") for b in BLOCKS))
    text = str(caught.value)
    assert "scale_kernel: none of its 6 configs can be used" in text
    for b in BLOCKS[:-1]:
        assert f"BLOCK={b} num_warps=4 num_stages=3: refused {b}" in text
    both = "BLOCK=512 num_warps=4 num_stages=3 and BLOCK=512 num_warps=4 num_stages=1: refused 512"
    assert both in text, "the last is tried once more without pipelining, and one reason stands once"


def test_the_captured_candidate_failing_alone_is_survived(backend: FakeBackend) -> None:
    """The first config was captured without a launch (stand-ins), and the device refuses it."""
    found, _, _ = race(backend, block(32, fails="refused"), block(64, 2.0), block(128, 1.0), block(256, 3.0))
    assert found.winner == 2


def test_a_config_with_an_option_that_the_target_refuses_is_a_failed_trial(backend: FakeBackend) -> None:
    kernel = triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 64}, num_warps=3)], key=["n"])(
        scale_kernel
    )
    found, _, _ = race(backend, call=lambda: scale(kernel))
    assert [f.config.num_warps for f in found.failures] == [3]
    assert found.failures[0].reason


# several launches


def chain() -> None:
    x, y = torch.randn(N, device="cuda"), torch.empty(N, device="cuda")
    increment_kernel[by_block](x, N, BLOCK=64)
    tuned(*BLOCKS)[by_block](x, y, N, 2.0)
    tuned(64, 128)[by_block](y, x, N, 3.0)


def test_one_launch_of_several_is_varied(backend: FakeBackend) -> None:
    found, _, recorded = race(backend, *times(5.0, 4.0, 3.0, 2.0, 9.0), call=chain, index=1)
    before, after = recorded.recording, found.recording
    assert after.launches[1].config == Config({"BLOCK": 256})
    assert [x.config for x in (after.launches[0], after.launches[2])] == [None, Config({"BLOCK": 64})]
    assert [after.binary_of(after.launches[i]) for i in (0, 2)] == [
        before.binary_of(before.launches[i]) for i in (0, 2)
    ]
    assert after.storages == before.storages


def test_a_later_launch_starts_from_what_earlier_ones_left(backend: FakeBackend) -> None:
    gpu = script(backend)
    capture = captured(backend, chain)
    recorded = record(capture)
    loader = Loader(gpu)
    first, later = (memory_before(recorded, i, loader) for i in (0, 1))
    found = [gpu.read(source.pristine) for source in recorded.sources]
    assert gpu.read(first.buffer(0, 0)) == found[0]
    assert gpu.read(later.buffer(0, 0)) != found[0], "the increment ran"
    assert gpu.read(later.buffer(0, 1)) == found[1]
    assert gpu.read(recorded.sources[0].pristine) == found[0], "what the call found stays"
    program = Program(loader, recorded.recording.only(1).pruned(), later, recorded.artifacts)
    program.enqueue()
    assert gpu.read(later.buffer(0, 1)) != found[1]
    program.reset()
    assert gpu.read(later.buffer(0, 1)) == found[1]


def test_atomics_that_start_from_zero_can_be_tuned(backend: FakeBackend) -> None:
    kernel = triton.autotune(configs(64, 128), key=["n"], reset_to_zero=["total_ptr"])(sum_kernel)

    def op() -> None:
        kernel[by_block](torch.randn(N, device="cuda"), torch.zeros(1, device="cuda"), N)

    found, _, _ = race(backend, block(64, 2.0), block(128, 1.0), call=op)
    assert winner_of(found) == 128
    assert found.recording.launches[0].float_atomics


def test_what_the_call_wrote_stays(backend: FakeBackend) -> None:
    gpu, kept = script(backend, *times(3.0, 2.0, 1.0, 4.0, 5.0)), []

    def op() -> None:
        kept.append(scale(tuned(*BLOCKS)))
        gpu.fill(gpu.borrow(kept[0]), 12)

    capture = captured(backend, op)
    with capture.active():
        tune(capture, record(capture), 0, Loader(gpu))
    assert gpu.read(gpu.borrow(kept[0]), 1) == bytes([12])


def test_a_launch_of_nothing_is_tuned_to_the_first(backend: FakeBackend) -> None:
    kernel = tuned(64, 128)
    x = torch.randn(N, device="cuda")
    found, _, _ = race(backend, call=lambda: kernel[lambda meta: (0,)](x, x, N, 2.0))
    assert found.winner == 0


@pytest.mark.slow
@pytest.mark.parametrize("verify", ["winner", "finalists", "all"])
@pytest.mark.parametrize("fastest", BLOCKS)
def test_a_race_while_stragglers_are_compiled_decides_nothing_else(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, fastest: int, verify: str
) -> None:
    """A turn after each result: every candidate is a late one once, and a wrong one that is faster leaves no trace."""
    compiled, turns = CandidatePool.compiled, []

    def with_pauses(self: CandidatePool, indices: Sequence[int], pause: Callable[[], float]) -> Iterator[Any]:
        for result in compiled(self, indices, pause):
            yield result
            turns.append(result[0])
            pause()

    monkeypatch.setattr(CandidatePool, "compiled", with_pauses)
    wrong = max(b for b in BLOCKS if b != fastest)
    rules = [block(b, {fastest: 10_000.0, wrong: 9_000.0}.get(b, 10_300.0)) for b in BLOCKS if b != wrong]
    found, _, _ = race(
        backend, *rules, block(wrong, 9_000.0, wrong=True), words={"options": TuneOptions.now(verify=verify)}
    )
    assert BLOCKS[found.winner] == fastest
    assert len(turns) == len(BLOCKS)


# to the bit


def test_to_the_bit_only_who_has_the_reference_s_bits_wins(backend: FakeBackend) -> None:
    """Two faster configs are off by a unit in the last place, which other rules allow."""
    off = block(64, 8_000.0, flips=((4, 1),)), block(256, 7_000.0, flips=((8, 1),))
    rules = [*off, *times(10_000.0, 8_000.0, 9_000.0, 7_000.0, 12_000.0)]
    plain, _, _ = race(backend, *rules)
    assert BLOCKS[plain.winner] == 256
    found, _, _ = race(backend, *rules, words={"options": TuneOptions.now(verify="bitwise")})
    assert BLOCKS[found.winner] == 128
    failed = {f.config.kwargs["BLOCK"]: f for f in found.failures}
    assert set(failed) == {64, 256}
    for failure in failed.values():
        assert failure.reason.startswith("it wrote other bits than ")
        assert " into y_ptr (1 of " in failure.reason
        assert not failure.wrong, "nothing is wrong with it"


def test_to_the_bit_no_majority_replaces_the_reference(backend: FakeBackend) -> None:
    rules = [block(32, 10_000.0), *(block(b, 8_000.0, flips=((4, 1),)) for b in BLOCKS[1:])]
    found, _, _ = race(backend, *rules, words={"options": TuneOptions.now(verify="bitwise")})
    assert BLOCKS[found.winner] == 32
    assert len(found.failures) == 4
