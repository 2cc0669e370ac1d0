"""How a candidate's timing processes are asked, what their answers mean, and what is told of times."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.msgpack import encode as encoded
from msgspec.structs import replace

from kerntune.base.device import Target, typical_device
from kerntune.base.stats import Estimate
from kerntune.errors import MeasurementError
from kerntune.gpu.script import Rule, Script
from kerntune.gpu.scripted import FakeGpu
from kerntune.referee import candidate_speed
from kerntune.referee.candidate_speed import (
    BudgetUsed,
    GpuSpeeds,
    ScriptedSpeeds,
    SealedPairs,
    Speeds,
    TimedPair,
)
from kerntune.referee.case_inputs import UserCallable
from kerntune.referee.declared_inputs import content_of, parse_line, rolled
from kerntune.referee.hostile_recording import CheckedCall, checked
from kerntune.referee.layouts import FUNCTION
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.scripted_pair import LIVE, live_stand_in, side_by_side
from kerntune.referee.sealed_process import Answered, SealedEnd
from kerntune.referee.tasks import (
    CallRefused,
    DeviceAnswer,
    ExpectedResult,
    ExpectedSeed,
    KeptExecution,
    LiveCall,
    ReplayAnswer,
    ReplaySide,
    TimeAnswer,
)
from kerntune.referee.timed_contents import (
    RightCandidate,
    variation_of,
)
from kerntune.referee.torch_operators import TorchOperator, ViewAt
from kerntune.referee.verdicts import TimedLaunch
from kerntune.timing.worker.requests import PairReply, PairRequest
from tests.referee.recordings import CALL, CASE, EXPECTED, TARGET

FOUND: CheckedCall = checked(CALL, CASE, TARGET)
CHANGE = Estimate(-0.5, -0.52, -0.48, 0.99)
REQUEST = PairRequest(FOUND.recording, FOUND.recording, (), {}, blocks=7)
POISONS = [bytes([i]) * 8 for i in range(5)]
SOURCE = UserCallable("/a/folder/r.py", "f", FUNCTION)
LATE = Answered(None, SealedEnd(-9, late=True), "")


def right(
    changed: tuple[ExpectedResult | None, ...] = (), live: bool = False, repeatable: bool = True,
    deadline: float = float("inf"), call: CheckedCall = FOUND,
) -> RightCandidate:  # fmt: skip
    contents = [tuple(content_of(t, seed) for t in CASE.tensors) for seed in range(5)]
    expected = tuple(ExpectedSeed(c, (EXPECTED,), changed) for c in contents)
    reference = Refusal(Reason.OPERATOR) if live else FOUND
    return RightCandidate(CASE, call, SOURCE, reference, expected, (), repeatable, POISONS, deadline)


class Answers:
    """What each process answers, in turn, or the last one always; and what they were asked."""

    def __init__(self, *answers: Any) -> None:
        self._answers = [*answers]
        self.asked = list[tuple[Any, ...]]()
        self.tasks = list[Any]()

    def ask(self, role: str, task: Any, readable: Any, seconds: float, most: int, gpu: bool = False) -> Answered:
        self.asked.append((role, readable, seconds, most, gpu))
        self.tasks.append(task)
        found = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return found if isinstance(found, Answered) else Answered(encoded(found), SealedEnd(), "")


TIMES = TimeAnswer((3.0, 4.0), (1.0, 2.0), (0.5, 0.25, 0.125, 3), placements=2)


def pairs_of(processes: Any, candidate: RightCandidate | None = None) -> SealedPairs:
    return SealedPairs(processes, candidate or right())


# what is told


@pytest.mark.parametrize(
    ("launch_ns", "found"),
    [
        ((), [(None, None), (None, None)]),
        ((1.0,), [(None, None), (None, None)]),
        ((1.0, 3.0), [(1.0, 0.25), (3.0, 0.75)]),
        ((0.0, 0.0), [(0.0, 0.0), (0.0, 0.0)]),
    ],
)
def test_launches_have_their_shares_where_each_was_timed(launch_ns: tuple[float, ...], found: list[Any]) -> None:
    launches = (TimedLaunch("a", (1, 1, 1)), TimedLaunch("b", (2, 1, 1)))
    shares = TimedPair(CHANGE, 2.0, 1.0, launch_ns=launch_ns).shares(launches)
    assert [(x.kernel, x.ns, x.share) for x in shares] == [(n, *each) for n, each in zip("ab", found, strict=True)]


def test_without_a_gpu_there_are_no_speeds() -> None:
    speeds = Speeds()
    assert (speeds.origin, speeds.device, speeds.why_not) == ("none", "", "there is no GPU here")
    assert (speeds.on_gpu, speeds.target(TARGET), speeds.measure(right())) == (False, TARGET, None)
    assert (GpuSpeeds.origin, GpuSpeeds.on_gpu) == ("gpu", True)


@pytest.mark.slow
@pytest.mark.parametrize(("live", "reference_ns"), [(False, 30_000.0), (True, 20_000.0)])
def test_a_scripted_gpu_times_by_its_rules(live: bool, reference_ns: float) -> None:
    rules = [Rule(LIVE, time_ns=20_000.0), Rule("add", time_ns=30_000.0)]
    speeds = ScriptedSpeeds(FakeGpu(typical_device(TARGET), Script(rules)), 1e12)
    found = speeds.measure(right(live=live))
    assert found is not None
    assert (found.reference_ns, found.candidate_ns) == pytest.approx((reference_ns, 30_000.0), rel=0.01)
    assert (found.bandwidth, found.warm, found.launch_ns, found.wrong) == (1e12, None, (), "")
    assert speeds.device == f"{typical_device(TARGET).name} (scripted)"


@pytest.mark.parametrize("of", ["candidate", "reference"])
def test_a_scripted_gpu_has_no_times_of_operators(of: str) -> None:
    operated = replace(FOUND, operators=(TorchOperator(0, "zero_.default", (ViewAt(0),)),))
    sides = {"call": operated} if of == "candidate" else {"reference": operated}
    with pytest.raises(MeasurementError, match=r"^torch's operators run beside the kernels"):
        ScriptedSpeeds(FakeGpu(typical_device(TARGET), Script())).measure(dataclasses.replace(right(), **sides))


def test_sides_of_a_scripted_gpu_share_no_memory() -> None:
    recording = FOUND.recording
    request = side_by_side(recording, recording)
    assert request.a == replace(recording, storages=recording.storages * 2)
    assert [v.storage for v in request.b.views] == [3, 4, 5]
    assert [(x.reads, x.writes) for x in request.b.launches] == [((3, 4, 5), (3, 4, 5))]
    assert request.storages == request.b.storages == recording.storages * 2
    assert request.artifacts == {recording.binaries[0].sha256: b""}


def test_what_stands_for_a_live_reference() -> None:
    stand_in = live_stand_in(FOUND.recording)
    assert [(x.kernel, x.binary, x.grid, x.params) for x in stand_in.launches] == [(LIVE, 0, (1, 1, 1), ())]
    assert [(b.symbol, b.arch, b.num_warps) for b in stand_in.binaries] == [(LIVE, "sm_90", 4)]
    assert (stand_in.target, stand_in.storages, stand_in.views) == (TARGET, (), ())


# the GPU


def test_the_gpu_is_asked_for_once() -> None:
    spec = typical_device(Target.parse("cuda:100"))
    speeds, processes = GpuSpeeds(), Answers(DeviceAnswer(spec, 2e12))
    for _ in range(2):
        speeds.start(processes)  # type: ignore[arg-type]
    assert processes.asked == [("device", (), 60.0, 1 << 16, True)]
    assert (speeds.device, speeds.target(TARGET)) == (spec.name, spec.target)


@pytest.mark.parametrize(
    ("answer", "why"),
    [(DeviceAnswer(problem="no driver"), "no driver"), (LATE, "it was ended, being late")],
)
def test_a_gpu_that_can_not_be_used_says_why(answer: Any, why: str) -> None:
    with pytest.raises(MeasurementError) as caught:
        GpuSpeeds().start(Answers(answer))  # type: ignore[arg-type]
    assert str(caught.value) == f"the GPU can't be used: {why}; CUDA_VISIBLE_DEVICES= judges without it"


def test_a_measurement_has_the_gpu_alone_and_all_that_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[Any] = []

    class Timed(SealedPairs):
        def timed(self, request: PairRequest) -> Any:
            did.append(request)
            self.warm, self.launch_ns = -0.25, (5.0,)
            return SimpleNamespace(change=CHANGE, a_ns=(1.0, 9.0, 4.0), b_ns=(2.0, 8.0, 3.0)), "it is off"

        def close(self) -> None:
            did.append("closed")
            super().close()

    @contextlib.contextmanager
    def hold(*words: Any) -> Iterator[None]:
        did.append(words)
        yield
        did.append("left")

    monkeypatch.setattr(candidate_speed, "SealedPairs", Timed)
    monkeypatch.setattr(candidate_speed.device_lock, "hold", hold)
    spec, speeds = typical_device(TARGET), GpuSpeeds()
    speeds.start(Answers(DeviceAnswer(spec, 2e12)))  # type: ignore[arg-type]
    found = speeds.measure(right())
    assert found == TimedPair(CHANGE, 4.0, 3.0, 2e12, -0.25, (5.0,), (), "it is off")
    asked = PairRequest(FOUND.recording, FOUND.recording, (), {})
    assert did == [(spec.uuid, spec.name, 3_600.0), asked, "left", "closed"]


# what processes are asked


@pytest.mark.parametrize(
    ("nbytes", "repeatable", "kept"),
    [
        (0, True, 16), (1, True, 16), (8 << 20, True, 16), ((8 << 20) + 1, True, 15), (43 << 20, True, 2),
        (42 << 20, True, 3), (1 << 40, True, 2), (4 << 20, False, 16), ((4 << 20) + 1, False, 15), (1 << 40, False, 2),
    ],
)  # fmt: skip
def test_so_many_executions_are_kept(nbytes: int, repeatable: bool, kept: int) -> None:
    """As 128 MiB hold on the device, or 64 MiB that are sent; 2 to 16."""
    pairs = pairs_of(Answers(TIMES), right(repeatable=repeatable))
    pairs._sizes = nbytes
    assert pairs._keep == kept
    pairs.close()


@pytest.mark.parametrize(
    ("changed", "wanted"), [((), (2,)), ((None, EXPECTED), (2, 1)), ((EXPECTED, None), (2, 0)), ((EXPECTED,), (2, 0))]
)
def test_what_the_reference_computes_is_kept(
    changed: tuple[ExpectedResult | None, ...], wanted: tuple[int, ...]
) -> None:
    """Results, and inputs that it changes where a launch reaches them."""
    pairs = pairs_of(Answers(TIMES), right(changed))
    assert (pairs._wanted, pairs._sizes) == (wanted, 2400 * len(wanted))
    out_of_reach = pairs_of(Answers(TIMES), right((EXPECTED,), call=replace(FOUND, inputs=(None, 1))))
    assert out_of_reach._wanted == (2,)


@pytest.mark.parametrize("live", [False, True])
def test_each_process_has_another_seed_on_either_side(live: bool) -> None:
    """And details are asked of the first one alone. Each placement has a fourth of the blocks, or an even number less.
    The author's folder is read where the author's code runs."""
    processes, candidate = Answers(TIMES), right(live=live)
    pairs = pairs_of(processes, candidate)
    replies = [pairs._ask(number, 20) for number in range(6)]
    pairs.close()
    assert replies == [PairReply((3.0, 4.0), (1.0, 2.0), (0.5, 0.25, 0.125, 3), placements=2)] * 6
    most = 2 * 16 * (2400 + 1024) + (1 << 20)
    assert processes.asked == [("time", ("/a/folder",) if live else (), 60.0, most, True)] * 6
    for number, task in enumerate(processes.tasks):
        seed, other = number % 5, (number + 1) % 5
        (known,) = pairs._contents.known(seed)
        given = [rolled(c or b"", n) for c, n in zip(task.candidate.contents[:2], known, strict=True)]
        assert tuple(given) == candidate.expected[seed].contents
        assert task.candidate.poison == POISONS[seed]
        if live:
            assert task.reference == LiveCall(SOURCE, CASE, candidate.expected[other].contents)
        else:
            assert isinstance(task.reference, ReplaySide)
            assert task.reference.contents[:2] == candidate.expected[other].contents
            assert task.reference.poison == POISONS[other]
        assert (task.wanted, task.known, task.keep, task.whole) == ((2,), (known,), 16, False)
        assert (task.blocks, task.seed, task.details) == (4, number, number == 0)
        assert task.variation == pairs._contents.variation


def test_what_can_not_be_repeated_is_sent_whole() -> None:
    processes = Answers(TIMES)
    pairs_of(processes, right(repeatable=False))._ask(3, 7)
    assert processes.tasks[0].whole


def test_an_answer_s_times_and_executions_are_noted() -> None:
    kept = (KeptExecution((4, 8), (b"a",)), KeptExecution((8, 8), (b"b",)))
    first = replace(TIMES, kept=kept, warm_ns=(40.0, 30.0), launch_ns=(7.0,))
    pairs = pairs_of(Answers(first, replace(TIMES, kept=kept[:1])))
    for number in (1, 2):
        pairs._ask(number, 7)
    assert pairs.kept == [(1, kept[0]), (1, kept[1]), (2, kept[0])]
    assert (pairs.warm, pairs.launch_ns) == (-0.25, (7.0,))


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        (LATE, MeasurementError, "a process that times failed: it was ended, being late"),
        (TimeAnswer(refused=CallRefused("replay", "no memory")), MeasurementError, "no memory"),
        (replace(TIMES, damaged=True), Refusal, "while it is timed, first contents of tensors change"),
    ],
)
def test_answers_without_times(answer: Any, error: type[Exception], told: str) -> None:
    pairs = pairs_of(Answers(answer))
    with pytest.raises(error) as caught:
        pairs._ask(0, 7)
    assert (str(caught.value), pairs.kept) == (told, [])
    assert getattr(caught.value, "reason", Reason.OUTSIDE) is Reason.OUTSIDE


@pytest.mark.parametrize(
    ("expected", "batches"), [([3], [3, 3, 3]), ([3, 12], [3, 3, 3, 7, 7, 7, 7, 11]), ([0], [1, 2]), ([1], [1, 2, 3])]
)
def test_processes_prepare_themselves_together(expected: list[int], batches: list[int]) -> None:
    """As many as are still wanted, four at most; ``batches`` has how many were asked after each reply."""
    processes, found = Answers(TIMES), []
    pairs = pairs_of(processes)
    pairs.expect(expected[0])
    for number in range(len(batches)):
        if number == 3:
            pairs.expect(expected[-1])
        pairs.run(REQUEST)
        found.append(len(processes.asked))
    pairs.close()
    assert found == batches
    assert sorted(task.seed for task in processes.tasks) == list(range(batches[-1]))
    assert len(pairs.replies) == len(batches)


@pytest.mark.parametrize(("deadline", "used"), [(14.9, True), (15.0, False)])
def test_a_budget_ends_what_can_not_end_within_it(deadline: float, used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """After three processes; further ones take one and a half times what those before took."""
    now = [2.0]

    class Slow(Answers):
        def ask(self, *words: Any, **named: Any) -> Answered:
            now[0] = 8.0 if len(self.asked) < 3 else now[0]
            return super().ask(*words, **named)

    monkeypatch.setattr(candidate_speed, "time", SimpleNamespace(monotonic=lambda: now[0]))
    pairs = pairs_of(Slow(TIMES), right(deadline=deadline))
    pairs.expect(3)
    for _ in range(3):
        pairs.run(REQUEST)
    pairs.expect(4)
    now[0] = 6.0
    if used:
        with pytest.raises(BudgetUsed):
            pairs.run(REQUEST)
    else:
        pairs.run(REQUEST)
    assert len(pairs.replies) == 4 - used
    pairs.close()


def test_what_was_timed_before_the_budget_was_used_is_combined(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = pairs_of(Answers(replace(TIMES, reference_ns=(2.0,) * 6, candidate_ns=(1.0,) * 6)))
    pairs.expect(3)
    for _ in range(3):
        pairs.run(REQUEST)

    def used(*words: Any) -> Any:
        raise BudgetUsed

    monkeypatch.setattr(candidate_speed, "_compared", used)
    replay, wrong = pairs.timed(REQUEST)
    assert (replay.a_ns, replay.b_ns, replay.change.point, wrong) == ((2.0,) * 3, (1.0,) * 3, pytest.approx(-0.5), "")
    pairs.close()


# executions again


def test_fresh_executions_are_those_of_one_seed() -> None:
    """What is wanted of each; nothing for a storage that stays as it was given."""
    processes = Answers(ReplayAnswer((b"a", b"b", b"c", None)))
    pairs = pairs_of(processes, right((EXPECTED,)))
    rolls = [(4, 8), (8, 4)]
    assert list(pairs._fresh(3, rolls)) == [(b"a", b"b"), (b"c", b"")]
    assert processes.asked == [("replay", (), 60.0, 2 * (4800 + 1024) + (1 << 20), True)]
    (task,) = processes.tasks
    assert (task.wanted, task.seconds, task.gpu, task.whole, task.rolls) == ((2, 0), 60.0, True, False, tuple(rolls))
    assert (task.side.poison, task.variation) == (POISONS[3], pairs._contents.variation)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (LATE, "a replay failed: it was ended, being late"),
        (ReplayAnswer(refused=CallRefused("fault", "bad address")), "bad address"),
        (ReplayAnswer((b"a",)), "a replay has no whole answer"),
        (ReplayAnswer((b"a",) * 3), "a replay has no whole answer"),
    ],
)
def test_fresh_executions_that_fail_are_no_results(answer: Any, told: str) -> None:
    with pytest.raises(MeasurementError) as caught:
        list(pairs_of(Answers(answer))._fresh(0, [(4, 8), (8, 4)]))
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("line", "storages", "items"),
    [
        ("x: f32[64]; y: f16[63]", (0,), (4,)),
        ("x: f32[63]; y: i64[8,8] < 9", (1,), (8,)),
        ("x: f32[64] uniform(0, 1); y: bool[64]", (0, 1), (4, 1)),
        ("x: f32[64] zeros; y: f32[2] = [1, 2]", (), ()),
    ],
)
def test_which_contents_vary(line: str, storages: tuple[int, ...], items: tuple[int, ...]) -> None:
    """Those that are drawn, of 64 elements or more, if a launch reaches them."""
    variation = variation_of(parse_line(line), FOUND)
    assert (variation.storages, variation.items) == (storages, items)
    assert variation_of(parse_line(line), replace(FOUND, inputs=(None, None))).storages == ()


def test_contents_that_can_not_vary_are_told() -> None:
    told = "no input's content can vary from one timed execution to the next"
    for line, remarks in (("x: f32[600]; y: f32[600]", []), ("x: f32[9]; y: f32[9]", [told])):
        pairs = pairs_of(Answers(TIMES), dataclasses.replace(right(), case=parse_line(line)))
        assert list(pairs.remarks()) == remarks
