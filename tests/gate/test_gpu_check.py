"""The check of a call on a GPU: by identity, by a replay in turn with its baseline, or not possible; and its
messages."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import triton
from fake_runs import N, block, by_block, increment_kernel, scale_kernel, scaled, tuned, tuned_call, x_of
from test_beyond import FIRST, add_by_table, by_group, contents, table_of, writing
from triton.runtime.jit import JITFunction

import kerntune
from gate.project import NODE, Project
from kerntune.base.case_result import CaseResult
from kerntune.base.codec import to_json
from kerntune.base.config import Config
from kerntune.base.policy import Missing, Outcome, Policy, StaticPrune, TuneMode, Update, Verdict
from kerntune.base.recording import Normal
from kerntune.errors import CacheMissError
from kerntune.gate import static_figures
from kerntune.gate.baseline_files import BaselineStore, artifact_names
from kerntune.gate.baselines import Calibration, TimeBaseline
from kerntune.gate.call import should_write
from kerntune.gate.replay import VERSION, is_current
from kerntune.gate.static_figures import LaunchStatic
from kerntune.gpu.scripted import FakeBackend, FakeGpu
from kerntune.search import Choice, Range, Search, Space
from kerntune.timing.timers import EVENTS, GRAPH, PROTOCOL_VERSION
from kerntune.timing.worker.requests import PairReply, PairRequest
from kerntune.tuning import tuner
from kerntune.tuning.race import Estimates
from kerntune.tuning.stored_winners import Winners
from kerntune.tuning.tuning_result import LOG

SHORT_RESTS_S = (0.0, 0.05, 0.15, 0.4, 0.9)
MIN_SLOTS = 10
QUICK_SLOTS = 5


FAST, SLOW = block(64, 10_000.0), block(128, 11_000.0)


before, after = functools.partial(scaled, size=64), functools.partial(scaled, size=128)


def record(project: Project, call: Any = before, *rules: Any, **options: Any) -> TimeBaseline:
    assert project.once(*(rules or (FAST, SLOW)), **options).judge(call, x_of()).recorded
    return baseline_of(project)


@pytest.fixture
def recorded(project: Project) -> Project:
    """It has a baseline of :func:`before`."""
    record(project)
    return project


def store_of(project: Project) -> BaselineStore:
    return BaselineStore(project.baselines, project.root)


def baseline_of(project: Project) -> TimeBaseline:
    (path,) = project.files()
    found = store_of(project).read(path)
    assert found is not None
    return found


def without_binary(project: Project) -> TimeBaseline:
    """A project whose one baseline has lost its kernel's binary and TTIR."""
    made = record(project)
    folder, (binary,) = store_of(project).artifacts(made.target).folder, made.recording.binaries
    for sha in (binary.sha256, binary.ttir_sha256):
        (folder / f"{sha}.xz").unlink()
    return made


def calibration_of(project: Project) -> Calibration:
    found = baseline_of(project).calibration
    assert found is not None
    return found


def rewrite(project: Project, **changes: Any) -> None:
    """Change the one baseline on disk."""
    (path,) = project.files()
    path.write_bytes(to_json(msgspec.structs.replace(baseline_of(project), **changes)))


# what is stored


def test_a_baseline_can_be_replayed_from_its_files(project: Project) -> None:
    made = record(project)
    artifacts = store_of(project).artifacts(made.device.target)
    names = artifact_names(made.recording)
    assert len(names) >= 2
    assert all(len(artifacts[name]) for name in names)
    assert made.recording.binaries[0].sha256 in names
    assert (made.case.nodeid, made.case.call) == (NODE, "0")
    assert made.device.uuid == ""
    assert made.environment.triton == triton.__version__
    assert [(a.dtype, a.shape, a.strides) for a in made.arguments] == [("float32", (N,), (1,))]
    assert (made.sample.protocol.timer, len(made.sample.times_ns) >= 10) == ("graph", True)
    (static,) = made.static
    assert (static.kernel, static.metrics.spill_store_bytes, static.metrics.threads) == ("scale_kernel", 0, 128)


def test_a_baseline_holds_no_path_and_no_pointer(recorded: Project) -> None:
    (path,) = recorded.files()
    text = path.read_text()
    assert str(recorded.root) not in text
    assert "fake_runs" not in text
    assert str(Path(__file__).parent) not in text
    assert "0x" not in json.dumps(json.loads(text)["recording"]["storages"])


def test_recording_twice_writes_the_same_but_for_times(project: Project) -> None:
    first = record(project)
    project.once(FAST, update=Update.ALL).judge(before, x_of())
    second = baseline_of(project)
    timed = {"sample": first.sample, "recorded": first.recorded, "static": first.static}
    assert msgspec.structs.replace(second, **timed) == first
    assert [untimed(x) for x in second.static] == [untimed(x) for x in first.static]


def untimed(static: LaunchStatic) -> LaunchStatic:
    return msgspec.structs.replace(static, compile_seconds=None)


def test_contents_are_described(project: Project) -> None:
    with project.run(FAST) as run:
        x = x_of()
        run.gpu.fill(run.gpu.borrow(x), 0x3F)
        run.judge(before, x)
    storages = baseline_of(project).recording.storages
    assert isinstance(storages[0].content, Normal)
    assert storages[0].content.mean == pytest.approx(0.7470, abs=1e-3)


# replays


def test_a_result_says_how_it_came_about(recorded: Project) -> None:
    with recorded.run(FAST, SLOW) as run:
        result = run.judge(after, x_of(), flops=1e6, bytes=8.0 * N, policy=Policy(tolerance=0.05))
    assert result.verdict is Verdict.REGRESSED
    assert (result.baseline_ns, result.current_ns) == (pytest.approx(10_000, rel=0.01), pytest.approx(11_000, rel=0.01))
    assert (result.tolerance, result.flops, result.bytes_moved) == (0.05, 1e6, 8.0 * N)
    assert (result.timer, result.device, result.target) == ("graph", "Fake GPU", "cuda:90")
    assert "99 % CI" in result.message
    assert result.causes[0] == "code unchanged"
    assert "launch options of scale_kernel: BLOCK 64 -> 128" in result.causes
    assert result.launches[0].kernel == "scale_kernel"
    assert result.launches[0].registers


@pytest.mark.parametrize(("tolerance", "floor", "verdict"), [
    (0.02, 0.0, Verdict.REGRESSED),
    (0.15, 0.0, Verdict.PASS),
    (0.02, 2000.0, Verdict.PASS),
    (0.02, 500.0, Verdict.REGRESSED),
])  # fmt: skip
def test_tolerance_and_floor_decide(recorded: Project, tolerance: float, floor: float, verdict: Verdict) -> None:
    with recorded.run(FAST, SLOW) as run:
        assert run.judge(after, x_of(), policy=Policy(tolerance=tolerance, floor_ns=floor)).verdict is verdict


def test_a_missing_binary_is_inconclusive_not_regressed(project: Project) -> None:
    without_binary(project)
    with project.run(FAST, block(128, 20_000.0)) as run:
        result = run.judge(after, x_of())
        strict = run.judge(after, x_of(), policy=Policy(strict=True))
    assert (result.verdict, result.outcome, result.rung) == (Verdict.INCONCLUSIVE, Outcome.WARN, "stored sample")
    assert strict.outcome is Outcome.FAIL
    assert "the baseline can't be replayed: kernel scale_kernel: its binary" in result.message


def test_a_missing_binary_does_not_matter_while_the_code_is_the_same(project: Project) -> None:
    made = record(project)
    artifacts = store_of(project).artifacts(made.device.target)
    (artifacts.folder / f"{made.recording.binaries[0].sha256}.xz").unlink()
    assert project.once(FAST).judge(before, x_of()).verdict is Verdict.PASS


def test_a_baseline_that_the_device_refuses_is_inconclusive(recorded: Project) -> None:
    result = recorded.once(block(64, fails="too much shared memory"), SLOW).judge(after, x_of())
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "too much shared memory" in result.message


def test_too_much_noise_is_inconclusive(recorded: Project) -> None:
    result = recorded.once(block(64, 1e6), block(128, 1.02e6), noise=0.3).judge(after, x_of())
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "not sure enough: of the interval that decides, " in result.message
    assert "a part lies beyond +2.0 %" in result.message


def passes(count: int) -> Any:
    """Through ``count`` temporaries."""

    def op(x: torch.Tensor) -> torch.Tensor:
        for _ in range(count + 1):
            x = scaled(x)
        return x

    return op


@pytest.mark.parametrize(("then", "now", "verdict"), [(1, 2, Verdict.REGRESSED), (2, 2, Verdict.PASS)])
def test_temporaries_may_change_in_number(project: Project, then: int, now: int, verdict: Verdict) -> None:
    record(project, passes(then))
    result = project.once(FAST).judge(passes(now), x_of())
    assert result.verdict is verdict
    if then != now:
        assert result.change is not None
        assert result.change.point == pytest.approx((now + 1) / (then + 1) - 1, abs=0.01)
        assert f"launches: {then + 1} -> {now + 1}" in result.causes


# configs


@pytest.mark.slow
def test_a_winner_that_is_gone_regresses_and_is_named(project: Project) -> None:
    record(project, tuned_call(64, 128))
    result = project.once(FAST, SLOW).judge(tuned_call(128, 256), x_of())
    assert result.verdict is Verdict.PASS, "256 is unscripted: 10 µs"
    result = project.once(FAST, SLOW).judge(tuned_call(128), x_of())
    assert result.verdict is Verdict.REGRESSED
    assert result.causes[0] == "code unchanged"
    assert "config of scale_kernel changed: BLOCK 64 -> 128" in result.message


def test_a_change_of_winner_alone_never_fails(project: Project) -> None:
    record(project, tuned_call(64, 128))
    result = project.once(FAST, block(128, 10_100.0)).judge(tuned_call(128), x_of())
    assert (result.verdict, result.outcome, result.rung) == (Verdict.PASS, Outcome.PASS, "paired replay")


def test_the_baselines_config_wins_ties(project: Project) -> None:
    record(project, tuned_call(64, 128), block(64, 20_000.0))
    with project.run(block(64, 10_000.0), block(128, 10_000.0), tune=TuneMode.FORCE) as run:
        result = run.judge(tuned_call(64, 128), x_of())
    assert result.launches[0].config == Config({"BLOCK": 128})


def test_trials_and_failures_are_reported(project: Project) -> None:
    rules = (FAST, SLOW, block(256, fails="too large"), block(512, 1.0, wrong=True))
    result = project.once(*rules).judge(tuned_call(128, 64, 100, 256, 512), x_of())
    assert {t.config.kwargs["BLOCK"]: round(t.time_ns / 1000) for t in result.trials} == {128: 11, 64: 10, 512: 0}
    assert {f.config.kwargs["BLOCK"] for f in result.failed_trials} == {100, 256, 512}
    assert result.launches[0].config == Config({"BLOCK": 64})
    assert result.launches[0].grid == (64, 1, 1)
    assert result.tuning_seconds > 0


def test_a_post_hook_hears_of_configs_that_can_not_be_launched(project: Project) -> None:
    """As with ``triton.autotune``: not of one whose results are wrong, which ran."""
    heard: dict[int, Exception] = {}

    def post(named: dict[str, Any], exception: Exception | None) -> None:
        if exception is not None:
            assert heard.setdefault(named["BLOCK"], exception) is exception, "once each"

    rules = (FAST, SLOW, block(256, fails="too large"), block(512, 1.0, wrong=True))
    project.once(*rules).judge(tuned_call(128, 64, 100, 256, 512, post_hook=post), x_of())
    assert sorted(heard) == [100, 256]
    assert "too large" in str(heard[256])


def test_who_is_left_out_unrun_is_the_policys_and_is_named(project: Project) -> None:
    """Blocks of more than 4096 elements leave most multiprocessors idle here."""
    policy = Policy(static_prune=StaticPrune(share=0.5))
    result = project.once(FAST, block(4096, 1.0)).judge(tuned_call(64, 4096), x_of(), policy=policy)
    ((kernel, config, reason),) = (msgspec.structs.astuple(x) for x in result.left_out)
    assert (kernel, config) == (result.launches[0].kernel, Config({"BLOCK": 4096}))
    assert reason == "predicted to be number 2 of 2, the first 1 are tried"
    assert [t.config for t in result.trials] == [Config({"BLOCK": 64})]
    assert result.failed_trials == ()
    assert result.launches[0].config == Config({"BLOCK": 64})


@pytest.mark.parametrize(("verify", "failed"), [("", set()), ("all", {128}), ("winner", set())])
def test_who_is_verified_is_the_policys(project: Project, verify: str, failed: set[int]) -> None:
    """A wrong candidate that is too slow to win is found only if all are looked at."""
    with project.run(block(64, 10_000.0), block(128, 14_000.0, wrong=True)) as run:
        result = run.judge(tuned_call(64, 128), x_of(), policy=Policy(verify=verify))
    assert {f.config.kwargs["BLOCK"] for f in result.failed_trials} == failed
    assert result.launches[0].config == Config({"BLOCK": 64})


def test_processes_that_measure_have_started_before_anything_is_tuned_or_timed(project: Project) -> None:
    """One that starts on the device meanwhile would disturb it."""
    with project.run(FAST, SLOW) as run:
        run.pairs.settle = lambda: run.lines.append("settled")  # type: ignore[method-assign]
        result = run.judge(tuned_call(64, 128), x_of(), policy=Policy(missing=Missing.WARN))
    first = next(i for i, line in enumerate(run.lines) if "2 configs" in line)
    assert "settled" in run.lines[:first]
    assert run.lines[-1] == f"{result.case}: timing"


# wrong winners


class Chosen:
    """A call that returns the block which it is launched with, and the blocks so far.

    Stand-ins run a tuned kernel's first config, so a settled one is read from its cache.
    """

    def __init__(self, *blocks: int) -> None:
        self.kernel, self.blocks = tuned(*blocks), list[int]()

    def __call__(self, x: torch.Tensor) -> int:
        settled = list(self.kernel.cache.values())
        self.kernel[by_block](x, torch.empty_like(x), N, 2.0)
        self.blocks.append((settled or [self.kernel.best_config])[0].kwargs["BLOCK"])
        return self.blocks[-1]


IGNORING = Policy(verify_ignore=("y_ptr",))


def refuting(project: Project, call: Any, reference: Callable[[], int] = lambda: 64) -> CaseResult:
    """The result of a call whose captured config is the slowest, with nothing compared but its value."""
    rules = block(64, 20_000.0), block(128, 9_000.0), block(256, 10_000.0)
    return project.once(*rules).judge(call, x_of(), policy=IGNORING, reference=reference)


def test_a_winner_whose_results_nobody_compared_has_to_stand_up_to_the_reference(project: Project) -> None:
    call = Chosen(64, 128, 256)
    with project.run(block(64, 20_000.0), block(128, 9_000.0), block(256, 10_000.0)) as run:
        checked = run.check(call, x_of(), policy=IGNORING, reference=lambda: 64)
        result = checked.commit()
    assert checked.value == 64
    assert call.blocks == [64, 128, 64, 256, 64]
    assert result.launches[0].config == Config({"BLOCK": 64})
    reasons = {f.config.kwargs["BLOCK"]: f.reason for f in result.failed_trials}
    assert set(reasons) == {128, 256}
    assert reasons[128].startswith("it wrote other values than the reference: the result disagrees with its reference")
    with project.run(block(128, 9_000.0), block(256, 10_000.0)) as run:
        assert run.judge(Chosen(64, 128, 256), x_of(), policy=IGNORING, reference=lambda: 64).failed_trials == ()


def test_after_a_refuted_winner_the_captured_run_is_the_trusted_one_again(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each race holds its candidates against what the captured run launches, never against a refuted winner."""
    below, trusted = tuner.tune, list[Any]()

    def tune(capture: Any, recorded: Any, index: int, *args: Any, **words: Any) -> Any:
        trusted.append(recorded.recording.launches[index].config)
        assert words["trusted"]
        return below(capture, recorded, index, *args, **words)

    monkeypatch.setattr(tuner, "tune", tune)
    result = refuting(project, Chosen(64, 128, 256))
    assert trusted == [Config({"BLOCK": 64})] * 3
    assert result.launches[0].config == Config({"BLOCK": 64})


def test_the_captured_config_is_timed_if_somebody_stored_it_meanwhile(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may end its tuning between a winner's refutation and the next race: there is none then."""
    call = Chosen(64, 128)
    monkeypatch.setattr(Winners, "find", lambda winners, site: 0 if len(call.blocks) > 2 else None)
    result = refuting(project, call)
    assert call.blocks == [64, 128, 64], "captured, refuted, and the captured one again"
    assert result.launches[0].config == Config({"BLOCK": 64})
    assert result.current_ns == pytest.approx(20_000.0, rel=0.01)


def test_the_reference_is_asked_once_and_a_right_winner_stays(project: Project) -> None:
    call, asked = Chosen(64, 128), list[int]()

    def reference() -> int:
        asked.append(1)
        return 64

    result = refuting(project, lambda x: call(x) * 0 + 64, reference)
    assert (call.blocks, len(asked)) == ([64, 128], 1)
    assert result.launches[0].config == Config({"BLOCK": 128})
    assert (result.failed_trials, result.warnings) == ((), ())


def test_a_call_that_never_returns_the_same_refutes_nobody(project: Project) -> None:
    call = Chosen(64, 128)
    result = refuting(project, lambda x: (call(x), len(call.blocks))[1], lambda: 1)
    assert call.blocks == [64, 128, 64]
    assert result.launches[0].config == Config({"BLOCK": 128})
    (warning,) = result.warnings
    assert warning.startswith("a second run of the call fails its reference, whatever the configs: the result")


def test_where_everything_was_compared_the_call_runs_once(project: Project) -> None:
    """What the winner writes is what the captured run wrote, whose result agrees."""
    call = Chosen(64, 128)
    result = project.once(block(64, 20_000.0), block(128, 9_000.0)).judge(call, x_of(), reference=lambda: 64)
    assert call.blocks == [64]
    assert result.launches[0].config == Config({"BLOCK": 128})


def test_with_a_reference_one_is_right_against_many(project: Project) -> None:
    wrong = [block(b, 5_000.0, wrong=True) for b in (128, 256, 512)]
    for given, winner in ((lambda: None, 64), (None, 128)):
        with project.run(block(64, 20_000.0), *wrong, tune=TuneMode.FORCE) as run:
            result = run.judge(tuned_call(64, 128, 256, 512), x_of(), reference=given)
        assert result.launches[0].config == Config({"BLOCK": winner})


def test_memory_is_left_as_the_captured_run_left_it(project: Project) -> None:
    kernel, blocks = tuned(64, 128), list[int]()

    def op(x: torch.Tensor) -> int:
        kernel[by_block](x, x, N, 2.0)
        gpu = run.gpu
        blocks.append(gpu.read(gpu.borrow(x), 1)[0])
        gpu.fill(gpu.borrow(x), 7 + len(blocks))
        return 1

    policy = Policy(verify_ignore=("x_ptr",))
    with project.run(block(64, 20_000.0), block(128, 9_000.0)) as run:
        x = x_of()
        run.gpu.fill(run.gpu.borrow(x), 3)
        run.judge(op, x, policy=policy, reference=lambda: 1)
        assert blocks == [3, 3], "each run starts from the first content"
        assert run.gpu.read(run.gpu.borrow(x), 1) == b"\x08"


def test_the_users_tuner_is_told(project: Project) -> None:
    kernel = tuned(128, 64)
    for _ in range(2):
        kernel.cache.clear()
        project.once(FAST, SLOW).judge(lambda x: kernel[by_block](x, torch.empty_like(x), N, 2.0), x_of())
        assert kernel.best_config is kernel.configs[1]
        assert list(kernel.cache.values()) == [kernel.configs[1]]


def test_candidates_from_a_marker_are_tuned(project: Project) -> None:
    given = {"scale_kernel": (Config({"BLOCK": 128}), Config({"BLOCK": 64}))}
    result = project.once(FAST, SLOW).judge(before, x_of(), candidates=given)
    assert result.launches[0].config == Config({"BLOCK": 64})
    assert len(result.trials) == 2


@pytest.mark.slow
def test_several_sites_of_one_call_are_each_tuned(project: Project) -> None:
    first, second = tuned(128, 64), tuned(64, 128)

    def op(x: torch.Tensor) -> None:
        y = torch.empty_like(x)
        first[by_block](x, y, N, 2.0)
        increment_kernel[by_block](y, N, BLOCK=64)
        second[by_block](y, x, N, 3.0)

    result = project.once(FAST, SLOW).judge(op, x_of())
    assert [x.config and x.config.kwargs["BLOCK"] for x in result.launches] == [64, None, 64]
    assert result.current_ns == pytest.approx(30_000, rel=0.01)


# environment


def test_the_same_code_at_another_speed_says_what_else_moved(project: Project) -> None:
    made = record(project)
    rewrite(project, environment=msgspec.structs.replace(made.environment, driver="570.1"))
    result = project.once(FAST, shift=1.2).judge(before, x_of())
    assert result.verdict is Verdict.DRIFTED
    assert "driver: 570.1 -> " in result.message
    assert result.change is None


def test_a_passing_look_is_taken_twice_before_it_is_drift(recorded: Project) -> None:
    """A busy moment isn't drift: the second sample decides."""
    with recorded.run(FAST, shift=1.2) as run:
        run.gpu.rest = lambda seconds: setattr(run.gpu.script, "shift", 1.0)  # type: ignore[method-assign]
        assert run.judge(before, x_of()).verdict is Verdict.PASS


@pytest.mark.parametrize(("missing", "rests"), [(Missing.RECORD, 1), (Missing.WARN, 0)])
def test_after_tuning_the_device_rests_where_the_time_is_kept(project: Project, missing: Missing, rests: int) -> None:
    """Not where it is only shown."""
    taken = []
    with project.run(FAST, SLOW) as run:
        run.gpu.rest = lambda *seconds: taken.append(seconds)  # type: ignore[method-assign]
        result = run.judge(tuned_call(64, 128), x_of(), policy=Policy(missing=missing))
    assert result.trials
    assert len(taken) == rests


# scopes and edges


@pytest.mark.parametrize("graphs", [True, False])
def test_scope_op_times_the_whole_call(project: Project, monkeypatch: pytest.MonkeyPatch, graphs: bool) -> None:
    if graphs:
        monkeypatch.setattr(FakeGpu, "call_graph", FakeGpu.graph)
    calls = []

    def op(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return scaled(x)

    result = project.once(FAST).judge(op, x_of(), scope="op")
    assert result.timer == (GRAPH if graphs else EVENTS)
    assert (len(calls) == 3) == graphs, "captured, warmed up and recorded; or called in every slot"


@pytest.mark.slow
def test_scope_op_times_the_winner_of_given_candidates(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks: list[int] = []
    with project.run(FAST, SLOW) as run:
        below = JITFunction.run
        monkeypatch.setattr(JITFunction, "run", lambda k, *a, **kw: (blocks.append(kw["BLOCK"]), below(k, *a, **kw))[1])
        given = {"scale_kernel": (Config({"BLOCK": 128}), Config({"BLOCK": 64}))}
        result = run.judge(functools.partial(scaled, size=256), x_of(), candidates=given, scope="op")
        monkeypatch.undo()
    assert result.launches[0].config == Config({"BLOCK": 64})
    assert blocks[0] == 128, "the captured candidate"
    assert set(blocks[1:]) == {64}


def test_scope_op_times_the_winner_of_a_decorated_kernel(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, winners = tuned(128, 64), []

    def op(x: torch.Tensor) -> None:
        winners.extend(c.kwargs["BLOCK"] for c in kernel.cache.values())
        kernel[by_block](x, torch.empty_like(x), N, 2.0)

    project.once(FAST, SLOW).judge(op, x_of(), scope="op")
    assert len(winners) > 1
    assert set(winners) == {64}


@pytest.mark.parametrize(("call", "kept"), [(before, True), (after, False)])
def test_a_calibration_is_kept_for_the_same_work_alone(recorded: Project, call: Any, kept: bool) -> None:
    """What equal binaries differ by is another number for other code."""
    marked = msgspec.structs.replace(calibration_of(recorded), state_range=0.4321, floor=0.1234)
    rewrite(recorded, calibration=marked)
    assert recorded.once(FAST, SLOW, update=Update.ALL).judge(call, x_of()).recorded
    found = calibration_of(recorded)
    assert (found == marked) is kept
    assert ((found.state_range, found.floor) == (0.4321, 0.1234)) is kept


def earlier(project: Project, **changes: Any) -> Calibration:
    """The one baseline's calibration as the rule of 12 blocks left it."""
    found = msgspec.structs.replace(calibration_of(project), blocks=12, version=msgspec.UNSET, floor=0.0123, **changes)
    rewrite(project, calibration=found)
    return found


def test_a_new_calibration_says_its_rule(recorded: Project) -> None:
    assert (calibration_of(recorded).version, is_current(calibration_of(recorded))) == (VERSION, True)


def test_an_earlier_rules_calibration_is_made_anew_with_its_baseline(recorded: Project) -> None:
    earlier(recorded)
    result = recorded.once(FAST, SLOW, update=Update.ALL).judge(before, x_of())
    found = calibration_of(recorded)
    assert is_current(found)
    assert found.floor != 0.0123
    assert EARLIER not in result.message


def test_an_earlier_rules_calibration_stays_where_none_can_be_made(recorded: Project) -> None:
    known = earlier(recorded)
    assert recorded.once(FAST, SLOW, update=Update.ALL, calibrate=False).judge(before, x_of()).recorded
    assert baseline_of(recorded).calibration == known


EARLIER = "calibrated by an earlier rule (12 blocks a process, now 24)"


def test_an_earlier_rules_calibration_is_told_where_it_decides(recorded: Project) -> None:
    known = earlier(recorded, state_range=0.01)
    same, other = (recorded.once(FAST, SLOW).judge(call, x_of()) for call in (before, after))
    assert (EARLIER in same.message, EARLIER in other.message) == (False, True)
    assert any(EARLIER in text for text in other.warnings)
    assert baseline_of(recorded).calibration == known, "nothing is written"


def test_a_calibration_of_before_drift_was_kept_is_read(recorded: Project) -> None:
    (path,) = recorded.files()
    stored = json.loads(path.read_bytes())
    stored["calibration"].pop("drift", None)
    path.write_text(json.dumps(stored))
    assert calibration_of(recorded).state_range == 0.0


def test_who_won_among_other_candidates_wins_ties_where_the_baseline_has_none(project: Project) -> None:
    """As ``@kerntune.autotune`` does it: a config more or less doesn't change the winner."""
    with project.run(block(64, 20_000.0), block(128, 10_000.0)) as run:
        run.judge(tuned_call(64, 128), x_of(), policy=Policy(missing=Missing.WARN))
    with project.run(block(64, 10_000.0), block(128, 10_000.0), block(256, 20_000.0)) as run:
        result = run.judge(tuned_call(64, 128, 256), x_of(), policy=Policy(missing=Missing.WARN))
    assert result.launches[0].config == Config({"BLOCK": 128})


@pytest.mark.slow
def test_in_place_calls_are_judged_from_their_first_content(project: Project) -> None:
    def op(x: torch.Tensor) -> torch.Tensor:
        increment_kernel[by_block](x, N, BLOCK=64)
        return x

    made = record(project, op)
    assert made.recording.storages[0].read
    assert made.recording.storages[0].written
    assert made.sample.protocol.runs_per_slot == made.sample.protocol.replicas
    assert project.once(FAST).judge(op, x_of()).verdict is Verdict.PASS


def test_memory_that_is_used_in_place_is_left_as_the_captured_run_left_it(project: Project) -> None:
    """What a kernel reaches by a table of pointers has no copies: it is timed in the user's own memory."""
    left = FIRST + 40
    with project.run(FAST) as run:
        backend = run.session.backend
        assert isinstance(backend, FakeBackend)
        table, targets = table_of(backend)
        seen = writing(run.gpu, targets)

        def op() -> None:
            add_by_table[by_group({"BLOCK": 64})](table, N, BLOCK=64)
            for target in targets:
                run.gpu.fill(run.gpu.borrow(target), left)

        run.judge(op)
        assert len(seen) > 30, "it was timed"
        assert contents(run.gpu, targets) == {left}


def test_functions_are_unloaded_whatever_happens(project: Project) -> None:
    unloaded: list[str] = []
    with project.run(FAST, block(100, 1.0)) as run:
        run.gpu.unload = lambda function: unloaded.append(function.binary.symbol)  # type: ignore[method-assign]
        run.judge(before, x_of(), policy=Policy(missing=Missing.WARN))
        assert unloaded == ["kerntune_watch", "scale_kernel"], "what is timed becomes a baseline"


@pytest.mark.parametrize("verdict", list(Verdict))
@pytest.mark.parametrize("update", list(Update))
def test_what_is_written_is_what_was_asked_for(verdict: Verdict, update: Update) -> None:
    wanted = {
        Update.NONE: set(),
        Update.NEW: {Verdict.NEW},
        Update.IMPROVED: {Verdict.IMPROVED},
        Update.REGRESSED: {Verdict.REGRESSED},
        Update.RENAMED: set(),  # what moves is written by the move
        Update.ALL: set(Verdict),
    }[update]
    assert should_write(verdict, update, Policy(missing=Missing.FAIL)) == (verdict in wanted)
    unasked = {Verdict.NEW} if update is Update.NONE else set()
    assert should_write(verdict, update, Policy(missing=Missing.RECORD)) == (verdict in wanted | unasked)
    doubtful = should_write(verdict, update, Policy(missing=Missing.RECORD), known_otherwise=True)
    assert doubtful == (verdict in wanted)


def test_a_call_that_can_be_made_only_once_refutes_nobody(project: Project) -> None:
    """A backward pass frees its graph."""
    call = Chosen(64, 128)

    def once(x: torch.Tensor) -> int:
        if call.blocks:
            raise RuntimeError("Trying to backward through the graph a second time")
        return call(x)

    result = refuting(project, once)
    assert result.launches[0].config == Config({"BLOCK": 128})
    (warning,) = result.warnings
    assert "a second time" in warning


# ``scope="op"``: a whole call is timed; of a baseline, its kernels alone can be replayed


def judged(project: Project, rest_ns: float, size: int = 64, **policy: Any) -> CaseResult:
    """A whole call in which all but its kernel takes ``rest_ns``. The scripted GPU runs no launch of a user's call, so
    that is what the call takes."""
    with project.run(block(64, 10_000.0), block(128, 11_000.0)) as run:

        def op(x: torch.Tensor) -> torch.Tensor:
            y = torch.empty_like(x)
            scale_kernel[by_block](x, y, N, 2.0, BLOCK=size)
            run.gpu._clock += rest_ns
            return y

        return run.judge(op, torch.randn(N, device="cuda"), scope="op", policy=Policy(**policy))


@pytest.mark.parametrize(("rest", "verdict"), [
    (10_000.0, Verdict.PASS),
    (10_300.0, Verdict.PASS),
    (20_000.0, Verdict.DRIFTED),
    (1_000.0, Verdict.DRIFTED),
])  # fmt: skip
def test_scope_op_with_the_same_kernels_drifts_beyond_five_percent(
    project: Project, rest: float, verdict: Verdict
) -> None:
    """Session by session, equal code moves by up to 4 %; nothing of a whole call can be replayed to tell."""
    judged(project, 10_000.0)
    result = judged(project, rest)
    assert (result.verdict, result.rung) == (verdict, "identity")
    if verdict is Verdict.DRIFTED:
        assert result.attribution
        assert result.attribution.environment.why == "all of the call but its kernels' code"
        assert judged(project, rest, outcomes={Verdict.DRIFTED: Outcome.FAIL}).outcome is Outcome.FAIL


def test_scope_op_with_slower_kernels_regresses_by_their_replay(project: Project) -> None:
    judged(project, 10_000.0)
    result = judged(project, 10_000.0, 128)
    assert (result.verdict, result.rung) == (Verdict.REGRESSED, "paired replay")
    assert (result.baseline_ns, result.current_ns) == (pytest.approx(10_000, rel=0.01), pytest.approx(11_000, rel=0.01))
    assert "these are its kernels; the whole call: 10.0 µs -> 10.0 µs" in result.message
    assert result.attribution
    assert result.attribution.environment.change is None, "the kernels alone were timed today"


def test_scope_op_whose_kernels_pass_does_not_hide_a_slower_call(project: Project) -> None:
    judged(project, 10_000.0)
    result = judged(project, 30_000.0, 128, tolerance=0.15)
    assert (result.verdict, result.outcome) == (Verdict.DRIFTED, Outcome.WARN)
    assert "the whole call: 10.0 µs -> 30.0 µs" in result.message


def test_scope_op_with_faster_kernels_is_improved_and_tells_the_whole_call(project: Project) -> None:
    """The kernels' times decide; the time of the rest can't be replayed, and is reported."""
    judged(project, 10_000.0, 128)
    result = judged(project, 30_000.0, 64)
    assert result.verdict is Verdict.IMPROVED
    assert "the whole call: 10.0 µs -> 30.0 µs" in result.message


# the same work costs little: few slots, nothing disassembled again; and what a result derives from its time


def two_launches(x: torch.Tensor) -> torch.Tensor:
    y = scaled(x)
    increment_kernel[by_block](y, N, BLOCK=64)
    return y


def slots(project: Project, call: object = scaled, **options: object) -> int:
    """Slots of a run's sample."""
    with project.run(block(64, 10_000.0), block(128, 10_000.0), **options) as run:
        return len(run.judge(call, torch.randn(N, device="cuda")).times_ns)  # type: ignore[arg-type]


def test_the_same_work_is_sampled_quickly(project: Project) -> None:
    assert slots(project) == MIN_SLOTS, "a first baseline"
    assert slots(project) == QUICK_SLOTS
    assert slots(project, functools.partial(scaled, size=128)) == MIN_SLOTS, "other code"
    assert slots(project, update=Update.ALL) == MIN_SLOTS, "what will be stored is measured in full"


def test_times_of_another_protocol_are_no_reason_for_second_looks(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots(project)
    (path,) = project.files()
    rested: list[float] = []
    monkeypatch.setattr(FakeGpu, "rest", lambda gpu, seconds=0.5: rested.append(seconds))

    def twice_as_slow() -> CaseResult:
        rested.clear()
        with project.run(block(64, 20_000.0)) as run:
            return run.judge(scaled, torch.randn(N, device="cuda"))

    drifted = twice_as_slow()
    assert drifted.verdict is Verdict.DRIFTED
    assert rested == list(SHORT_RESTS_S)
    assert "not held against" not in drifted.message
    path.write_text(path.read_text().replace(f'"version": {PROTOCOL_VERSION}', '"version": 1'))
    passed = twice_as_slow()
    assert passed.verdict is Verdict.PASS
    assert not rested
    assert f"stored time, which was taken otherwise: timing protocol 1 -> {PROTOCOL_VERSION}" in passed.message


def test_known_code_is_not_disassembled_again(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    slots(project)
    (path,) = project.files()
    looked: list[int] = []
    real = static_figures.metrics_of

    def counting(binaries: list[object], spec: object) -> list[object]:
        looked.append(len(binaries))
        return real(binaries, spec)  # type: ignore[arg-type,return-value]

    monkeypatch.setattr(static_figures, "metrics_of", counting)
    result = project.once(block(64, 10_000.0)).judge(scaled, torch.randn(N, device="cuda"))
    assert result.launches[0].registers
    assert looked == [0]
    slots(project, update=Update.ALL)
    assert looked == [0, 1]
    assert path.exists()


def test_a_result_knows_its_rates_and_shares(project: Project) -> None:
    with project.run(block(64, 10_000.0)) as run:
        result = run.judge(two_launches, torch.randn(N, device="cuda"))
        said = run.judge(two_launches, torch.randn(N, device="cuda"), name="1", bytes=10.0, flops=1e6)
    assert result.bytes_moved == 16 * N
    assert result.roofline.bytes_per_second == pytest.approx(16 * N / 20e-6, rel=0.01)
    assert [s.share for s in result.shares] == pytest.approx([0.5, 0.5], abs=0.01)
    assert said.bytes_moved == 10.0
    assert said.roofline.flops_per_second == pytest.approx(1e6 / 20e-6, rel=0.01)
    assert result.outliers == ()
    assert result.modes is None


def test_calibration_is_told_the_samples_time(project: Project) -> None:
    """A device that slows down between sample and calibration shows two states."""
    with project.run(block(64, 10_000.0), noise=0.0) as run:
        pairs = run.pairs
        real = pairs.run

        def slower(request: object) -> object:
            run.gpu.script.shift = 1.1
            return real(request)  # type: ignore[arg-type]

        pairs.run = slower  # type: ignore[method-assign,assignment]
        assert run.judge(scaled, torch.randn(N, device="cuda")).recorded
    result = project.once(block(64, 11_200.0)).judge(scaled, torch.randn(N, device="cuda"))
    assert result.verdict is Verdict.PASS, "12 % more than the fastest state, 2 % more than the other: no drift"


@pytest.mark.parametrize(("timer", "used"), [("auto", "graph"), ("events", "events")])
def test_the_timer_is_the_policys(project: Project, timer: str, used: str) -> None:
    with project.run(block(64, 10_000.0), block(128, 10_000.0)) as run:
        asked: list[str] = []
        pairs = run.pairs
        real = pairs.run

        def noting(request: PairRequest) -> PairReply:
            asked.append(request.timer)
            return real(request)

        pairs.run = noting  # type: ignore[method-assign]
        result = run.judge(scaled, torch.randn(N, device="cuda"), policy=Policy(timer=timer))
    assert result.timer == used
    assert set(asked) == {timer}, "the calibration's too"


# the gate on kernels whose configs are searched: what is stored for a case, and when nothing is searched again


SPACE = Space((Range("BLOCK", 16, 1024), Choice("num_warps", (1, 2, 4, 8))))
SIZES = [16 << i for i in range(7)]
SLOPE = [block(size, 10_000.0 + 4_000.0 * abs(i - 5)) for i, size in enumerate(SIZES)]
"""512 is the best block."""


def searched(search: Search) -> Callable[[torch.Tensor], None]:
    kernel = kerntune.autotune([], key=["n"], search=search)(scale_kernel)

    def call(x: torch.Tensor) -> None:
        kernel[by_block](x, torch.empty_like(x), N, 2.0)

    return call


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A word for each first look."""
    seen: list[Any] = []
    take = Estimates.take
    monkeypatch.setattr(Estimates, "take", lambda self, trial: (seen.append(trial), take(self, trial))[1])
    return seen


@pytest.mark.slow
def test_the_winner_is_recorded_and_the_next_run_searches_nothing(project: Project, looks: list[Any]) -> None:
    first = project.once(*SLOPE).judge(searched(Search(SPACE)), x_of())
    assert (first.verdict, first.current_ns) == (Verdict.NEW, pytest.approx(10_000.0, rel=0.01))
    assert len(first.trials) == len(looks) == 28
    looks.clear()
    assert project.once(*SLOPE).judge(searched(Search(SPACE)), x_of()).verdict is Verdict.PASS
    assert looks == []


@pytest.mark.slow
def test_a_stored_winner_is_in_the_log(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    log = project.root / "log.jsonl"
    project.once(*SLOPE).judge(searched(Search(SPACE)), x_of())
    monkeypatch.setenv(LOG, str(log))
    project.once(*SLOPE).judge(searched(Search(SPACE)), x_of())
    (line,) = map(json.loads, log.read_text().splitlines())
    assert (line["event"], line["config"]["kwargs"]["BLOCK"]) == ("stored winner", 512)
    assert line["time_ns"] == pytest.approx(10_000.0, rel=0.01)


@pytest.mark.slow
def test_without_the_cache_the_baselines_config_is_tried_whatever_the_search_comes_by(
    project: Project, looks: list[Any]
) -> None:
    project.once(*SLOPE).judge(searched(Search(SPACE)), x_of())
    for path in (project.root / "cache").rglob("*.json"):
        path.unlink()
    looks.clear()
    found = project.once(*SLOPE).judge(searched(Search(SPACE, trials=2, seed=3)), x_of())
    assert found.verdict is Verdict.PASS
    assert len(looks) == 3


def test_frozen_searches_nothing(project: Project) -> None:
    with project.run(*SLOPE, tune=TuneMode.FROZEN) as run, pytest.raises(CacheMissError, match="no stored winner"):
        run.judge(searched(Search(SPACE)), x_of())


@pytest.mark.slow
def test_nearest_tunes_nothing_and_keeps_nothing(project: Project, looks: list[Any]) -> None:
    """The winner of the nearest call; without any call that has one, the first config."""
    first = project.once(*SLOPE, tune=TuneMode.NEAREST).judge(searched(Search(SPACE)), x_of())
    assert "no call near it has one, so the first config runs" in " ".join(first.warnings)
    assert list((project.root / "cache").rglob("winners/*.json")) == []
    project.once(*SLOPE).judge(searched(Search(SPACE)), x_of())
    stored = sorted((project.root / "cache").rglob("winners/*.json"))
    looks.clear()
    near = project.once(*SLOPE, tune=TuneMode.NEAREST).judge(searched(Search(SPACE)), x_of().repeat(2))
    assert [x.config.kwargs for x in near.launches if x.config] == [{"BLOCK": 512}]
    assert "it runs with BLOCK=512" in " ".join(near.warnings)
    assert len(looks) <= 1, "nothing else is tried"
    assert sorted((project.root / "cache").rglob("winners/*.json")) == stored


@pytest.mark.slow
def test_without_a_gpu_the_config_that_won_on_one_is_compiled(project: Project) -> None:
    project.once(*SLOPE).judge(searched(Search(SPACE)), x_of())
    found = project.static_once("cuda:90").judge(searched(Search(SPACE, trials=2, seed=3)), x_of())
    assert [launch.config.kwargs for launch in found.launches] == [{"BLOCK": 512}]


def test_without_anything_known_the_first_of_the_search_is_compiled(project: Project) -> None:
    search = Search(SPACE, trials=5)
    found = project.static_once("cuda:90").judge(searched(search), x_of())
    assert [launch.config for launch in found.launches] == search.begins_with(())[:1]
