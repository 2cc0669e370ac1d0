"""Which processes time a candidate, what they are asked, and what becomes of their answers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kerntune.base.device import Target, typical_device
from kerntune.base.recording import Launch, Param, Recording, Storage, View, Zeros
from kerntune.base.stats import Estimate
from kerntune.errors import MeasurementError
from kerntune.gpu.base import binary_of_ptx
from kerntune.gpu.script import Script
from kerntune.gpu.scripted import FakeGpu
from kerntune.referee.candidate_speed import (
    RightCandidate,
    ScriptedSpeeds,
    SealedPairs,
    TimedPair,
    live_stand_in,
    side_by_side,
)
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.sealed_process import Answered, SealedEnd
from kerntune.referee.tasks import CallRefused, KeptExecution, ReplayAnswer, TimeAnswer, encoded
from kerntune.referee.verdicts import TimedLaunch
from kerntune.timing.worker.requests import PairRequest
from tests.referee.test_gpu_replay import CALL, NBYTES, candidate

TIMES = TimeAnswer((200.0,), (100.0,), foreign=(0.1, 0.2, 0.3, 4))
REQUEST = PairRequest(CALL.recording, CALL.recording, (), {}, blocks=7)


class Processes:
    """Gives these answers in turn, the last one again and again."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), list[tuple[Any, ...]]()

    def ask(self, *words: Any, gpu: bool) -> Answered:
        assert gpu
        self.asked.append(words)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer if isinstance(answer, Answered) else Answered(encoded(answer), SealedEnd(), "")


def pairs_of(*answers: Any, right: RightCandidate | None = None) -> tuple[SealedPairs, Processes]:
    processes = Processes(*answers)
    return SealedPairs(processes, right or candidate()), processes  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ns", "shares"),
    [((), (None, None)), ((1.0,), (None, None)), ((30.0, 10.0), (0.75, 0.25)), ((0.0, 0.0), (0.0, 0.0))],
)
def test_shares_are_of_all_launches(ns: tuple[float, ...], shares: tuple[float | None, ...]) -> None:
    """Where a time of each was taken."""
    launches = [TimedLaunch("a", (1, 1, 1)), TimedLaunch("b", (2, 1, 1))]
    found = TimedPair(Estimate(0.0, 0.0, 0.0, 0.9), 1.0, 1.0, launch_ns=ns).shares(launches)
    assert [x.share for x in found] == [*shares]
    assert [x.ns for x in found] == (list(ns) if len(ns) == 2 else [None, None])
    assert [x.kernel for x in found] == ["a", "b"]


@pytest.mark.parametrize(
    ("sizes", "repeatable", "keep"),
    [(0, True, 16), (8 << 20, True, 16), ((8 << 20) + 1, True, 15), (64 << 20, True, 2), (1 << 30, True, 2),
     (4 << 20, False, 16), ((4 << 20) + 1, False, 15), (32 << 20, False, 2)],
)  # fmt: skip
def test_as_many_executions_are_kept_as_memory_allows(sizes: int, repeatable: bool, keep: int) -> None:
    pairs, _ = pairs_of(TIMES)
    pairs._sizes, pairs._repeatable = sizes, repeatable
    assert pairs._keep == keep
    pairs.close()


def test_four_processes_prepare_themselves_at_once_as_far_as_they_are_expected() -> None:
    pairs, processes = pairs_of(TIMES)
    pairs.expect(6)
    asked = []
    for _ in range(7):
        pairs.run(REQUEST)
        asked.append(len(processes.asked))
    pairs.close()
    assert asked == [4, 4, 4, 4, 6, 6, 7]


def test_what_a_process_is_asked() -> None:
    """Its own seed, one that the reference has another content of; details of the first one alone."""
    pairs, processes = pairs_of(TIMES)
    replies = [pairs.run(REQUEST) for _ in range(6)]
    pairs.close()
    assert (replies[0].a_ns, replies[0].b_ns, replies[0].foreign) == ((200.0,), (100.0,), (0.1, 0.2, 0.3, 4))
    role, _, readable, seconds, most = processes.asked[0]
    assert (role, readable, seconds, most) == ("time", (), 60.0, 2 * 16 * (NBYTES + 1024) + (1 << 20))
    tasks = [words[1] for words in processes.asked]
    assert [t.known for t in tasks] == [pairs._known[i] for i in (0, 1, 2, 3, 4, 0)]
    contents = [x.contents[0] for x in candidate().expected]
    assert [t.reference.contents[0] for t in tasks] == [contents[i] for i in (1, 2, 3, 4, 0, 1)]
    assert [t.details for t in tasks] == [True, *[False] * 5]
    assert [t.seed for t in tasks] == [0, 1, 2, 3, 4, 5]
    assert {(t.wanted, t.keep, t.whole, t.blocks) for t in tasks} == {((1,), 16, False, 7)}


def test_a_live_references_folder_may_be_read() -> None:
    right = candidate()
    live = RightCandidate(**{**vars(right), "reference": Refusal(Reason.OPERATOR)})
    pairs, processes = pairs_of(TIMES, right=live)
    pairs.run(REQUEST)
    pairs.close()
    _, task, readable, *_ = processes.asked[0]
    assert [*readable] == [str(Path.cwd())]
    assert (task.reference.source, task.reference.contents) == (right.source, right.expected[1].contents)


def test_warm_times_and_those_of_launches_are_kept() -> None:
    kept = KeptExecution((8,), (b"1",))
    details = msgspec.structs.replace(TIMES, warm_ns=(100.0, 125.0), launch_ns=(30.0, 10.0), kept=(kept,))
    pairs, _ = pairs_of(details, TIMES)
    for _ in range(2):
        pairs.run(REQUEST)
    pairs.close()
    assert (pairs.warm, pairs.launch_ns, pairs.kept) == (0.25, (30.0, 10.0), [(0, kept)])


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        (Answered(None, SealedEnd(code=3), ""), MeasurementError,
         "a process that times failed: it ended with status 3 and gave no whole answer"),
        (TimeAnswer(refused=CallRefused("fault", "no driver")), MeasurementError, "no driver"),
        (TimeAnswer(damaged=True), Refusal, "while it is timed, first contents of tensors change"),
    ],
)  # fmt: skip
def test_a_process_that_gives_no_times_is_an_error(answer: Any, error: type[Exception], told: str) -> None:
    pairs, _ = pairs_of(answer)
    with pytest.raises(error) as caught:
        pairs.run(REQUEST)
    pairs.close()
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answered(None, SealedEnd(code=3), ""), "a replay failed: it ended with status 3 and gave no whole answer"),
        (ReplayAnswer(refused=CallRefused("fault", "no driver")), "no driver"),
        (ReplayAnswer((b"1",)), "a replay has no whole answer"),
    ],
)
def test_a_fresh_execution_that_fails_is_an_error(answer: Any, told: str) -> None:
    pairs, processes = pairs_of(answer)
    with pytest.raises(MeasurementError) as caught:
        list(pairs._fresh(0, [(4,), (8,)]))
    pairs.close()
    assert str(caught.value) == told
    role, task, readable, seconds, most = processes.asked[0]
    assert (role, readable, seconds, most) == ("replay", (), 60.0, 2 * (NBYTES + 1024) + (1 << 20))
    assert (task.wanted, task.whole, task.rolls) == ((1,), False, ((4,), (8,)))


def test_fresh_executions_are_given_one_by_one() -> None:
    pairs, _ = pairs_of(ReplayAnswer((b"1", None)))
    assert list(pairs._fresh(0, [(4,), (8,)])) == [(b"1",), (b"",)]
    pairs.close()


def test_inputs_that_the_reference_changes_are_compared_too() -> None:
    right = candidate()
    changed = msgspec.structs.replace(right.expected[0], changed=(SimpleNamespace(),))
    pairs, _ = pairs_of(TIMES, right=RightCandidate(**{**vars(right), "expected": (changed, *right.expected[1:])}))
    assert (pairs._wanted, pairs._sizes) == ((1, 0), 2 * NBYTES)
    pairs.close()


# a scripted GPU


def test_two_sides_share_no_memory() -> None:
    target = Target.parse("cuda:90")
    live = live_stand_in(CALL.recording)
    assert live == Recording(target, (Launch("live_reference", "", 0, (1, 1, 1), ()),), live.binaries, (), ())
    assert live.binaries == (msgspec.structs.replace(binary_of_ptx("live_reference", 4), arch="sm_90"),)
    found = side_by_side(CALL.recording, CALL.recording)
    storage = Storage(NBYTES, "float32", Zeros(), read=True, written=True)
    assert found.storages == found.a.storages == found.b.storages == (storage,) * 4
    assert found.a.views == CALL.recording.views
    assert found.b.views == tuple(View(i, "float32", (1024,), (1,)) for i in (2, 3))
    params = (Param("x", "*fp32", 0), Param("o", "*fp32", 1))
    assert found.b.launches == (Launch("k", "", 0, (1, 1, 1), params, (2, 3), (2, 3)),)
    assert found.artifacts == {CALL.recording.binaries[0].sha256: b""}


def test_a_scripted_gpu_says_what_it_is() -> None:
    gpu = FakeGpu(typical_device(Target.parse("cuda:90")), Script())
    speeds = ScriptedSpeeds(gpu, 1e12)
    assert (speeds.device, speeds.origin, speeds.on_gpu) == (f"{gpu.spec.name} (scripted)", "scripted", False)
