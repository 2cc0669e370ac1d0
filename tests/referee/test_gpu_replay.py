"""Replays and times of a candidate on a GPU: on a device whose kernels are functions of the test."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import encode as encoded

from kerntune.base.device import Target, typical_device
from kerntune.errors import MeasurementError
from kerntune.gpu.memory import Memory
from kerntune.gpu.program import Loader
from kerntune.gpu.script import Script
from kerntune.gpu.scripted import FakeGpu
from kerntune.referee import candidate_speed, gpu_replay, gpu_times, timed_contents
from kerntune.referee.candidate_speed import (
    MOST_KEPT,
    BudgetUsed,
    NotRepeatable,
    SealedPairs,
)
from kerntune.referee.case_inputs import UserCallable
from kerntune.referee.declared_inputs import drawn_distance, parse_line, rolled
from kerntune.referee.layouts import FUNCTION
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.sealed_process import Answered, SealedEnd
from kerntune.referee.tasks import (
    DeviceAnswer,
    KeptExecution,
    LiveCall,
    ReplaySide,
    ReplayTask,
    TimeAnswer,
    TimeTask,
    Variation,
)
from kerntune.referee.timed_contents import (
    RightCandidate,
    drawn_rolls,
    variation_of,
)
from kerntune.referee.torch_operators import TorchOperator, ViewAt
from kerntune.timing.worker.requests import PairRequest
from tests.referee.computing_gpu import (
    CALL,
    CASE,
    NBYTES,
    POISON,
    TARGET,
    VARIATION,
    Compute,
    ComputingGpu,
    Processes,
    candidate,
    right,
    side,
    varied,
)

pytestmark = pytest.mark.usefixtures("turn_file")


# contents


@given(st.sampled_from([1, 2, 4, 8]), st.integers(64, 5_000), st.integers())
def test_a_distance_moves_whole_elements_and_never_none(item: int, count: int, seed: int) -> None:
    distance = drawn_distance(item, item * count, random.Random(seed))
    assert 0 < distance < item * count
    assert distance % item == 0


def test_no_distance_exchanges_rows_of_a_matrix() -> None:
    """Of 16 rows or a divisor of that."""
    chance = random.Random(1)
    for _ in range(2_000):
        assert drawn_distance(4, 4 * 1024, chance) // 4 % 64


def test_a_rolled_content_is_undone_by_the_rest_of_the_way() -> None:
    content = os.urandom(100)
    assert rolled(content, 30) == content[30:] + content[:30]
    assert rolled(rolled(content, 30), 70) == content


@pytest.mark.parametrize(
    ("line", "varied"),
    [("x: f32[1024]", True), ("x: f32[63]", False), ("x: f32[1024] zeros", False), ("x: i64[512] < 9", True),
     (f"x: i32[64] = {[1] * 64}", False)],
)  # fmt: skip
def test_what_is_drawn_and_large_enough_varies(line: str, varied: bool) -> None:
    case = parse_line(line)
    assert variation_of(case, CALL).storages == ((0,) if varied else ())


@pytest.mark.parametrize(
    ("dtype", "shape", "storages"), [("float32", (1024,), (0,)), ("int64", (1,), (0,)), ("float32", (0, 4), ())]
)
def test_the_authors_inputs_vary_as_a_whole(dtype: str, shape: tuple[int, ...], storages: tuple[int, ...]) -> None:
    """However small they are: what belongs together stays together."""
    (given,) = CASE.tensors
    author = msgspec.structs.replace(given, content="author", dtype=dtype, shape=shape)
    found = variation_of(msgspec.structs.replace(CASE, tensors=(author,)), CALL)
    assert (found.storages, found.whole) == (storages, bool(storages))


# replays


def test_each_execution_has_its_content_and_poisoned_results() -> None:
    content, seen = os.urandom(NBYTES), list[bytes]()

    def compute(number: int, x: bytes) -> bytes:
        seen.append(x)
        return right(number, x)

    task = ReplayTask(side(content), (1, 0), 1.0, True, True, VARIATION, ((8,), (40,)))
    answer = gpu_replay._replayed(ComputingGpu(compute), task)
    assert seen == [rolled(content, 8), rolled(content, 40), rolled(content, 8)]
    assert answer.contents[::2] == (right(0, rolled(content, 8)), right(0, rolled(content, 40)))
    assert answer.contents[1] == rolled(content, 8)
    assert (answer.outside, answer.repeatable) == (0, True)


def test_what_nothing_writes_is_poison_and_what_stays_is_not_sent() -> None:
    answer = gpu_replay._replayed(ComputingGpu(lambda n, x: None), ReplayTask(side(b"\1" * NBYTES), (1, 0), 1.0, True))
    assert answer.contents == ((POISON * NBYTES)[:NBYTES], None)


@pytest.mark.parametrize("nbytes", [1, 4, 12])
def test_poison_is_no_longer_than_what_it_fills(nbytes: int) -> None:
    """A result may be one number: the driver writes nothing beyond its memory."""
    storages = (CALL.recording.storages[0], msgspec.structs.replace(CALL.recording.storages[1], nbytes=nbytes))
    given = side(b"\1" * NBYTES)
    small = msgspec.structs.replace(given, recording=msgspec.structs.replace(given.recording, storages=storages))
    answer = gpu_replay._replayed(ComputingGpu(lambda n, x: None), ReplayTask(small, (1,), 1.0, True))
    assert answer.contents == ((POISON * 2)[:nbytes],)


def test_results_that_change_from_one_execution_to_the_next_are_told() -> None:
    task = ReplayTask(side(b"\1" * NBYTES), (1,), 1.0, True)
    answer = gpu_replay._replayed(ComputingGpu(lambda n, x: bytes([n]) * NBYTES), task)
    assert not answer.repeatable


def test_a_write_beside_a_storage_is_counted() -> None:
    task = ReplayTask(side(b"\1" * NBYTES), (1,), 1.0, True)
    assert gpu_replay._replayed(ComputingGpu(beside=True), task).outside > 0


def test_digests_where_the_whole_is_not_asked_for() -> None:
    content = os.urandom(NBYTES)
    task = ReplayTask(side(content), (1,), 1.0, True, False, VARIATION, ((8,),))
    (digest,) = gpu_replay._replayed(ComputingGpu(), task).contents
    assert digest == hashlib.sha256(right(0, rolled(content, 8))).digest()


# times


def timed(compute: Compute, monkeypatch: pytest.MonkeyPatch, **words: Any) -> tuple[SealedPairs, str]:
    processes = Processes(compute, monkeypatch)
    pairs = SealedPairs(processes, candidate(**words))  # type: ignore[arg-type]
    _, wrong = pairs.timed(PairRequest(CALL.recording, CALL.recording, (), {}))
    pairs.close()
    return pairs, wrong


def test_a_right_candidate_is_right_while_it_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, wrong = timed(right, monkeypatch)
    assert wrong == ""
    assert len(pairs.replies) >= 3
    known = [one for seed, one in pairs.kept if one.rolls in pairs._contents.known(seed)]
    others = [one.rolls for seed, one in pairs.kept if one.rolls not in pairs._contents.known(seed)]
    assert 0 < len(known) <= MOST_KEPT * len(pairs.replies)
    assert len(others) == MOST_KEPT * len(pairs.replies)
    assert len(set(others)) > 0.5 * len(others), "contents come again"


@pytest.mark.slow
@pytest.mark.parametrize("first", [5, 40])
def test_work_that_is_left_out_from_some_execution_on_is_wrong(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _, wrong = timed(lambda n, x: right(n, x) if n < first else None, monkeypatch)
    assert wrong.startswith("while it is timed")


@pytest.mark.slow
def test_work_that_is_left_out_by_chance_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(3)
    _, wrong = timed(lambda n, x: right(n, x) if chance.random() > 0.15 else None, monkeypatch)
    assert wrong.startswith("while it is timed")


def test_work_that_is_left_out_of_contents_that_come_once_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a kernel that does its work in the first execution of a process, and for contents that it has seen: when it is
    timed, the known one."""
    seen: set[bytes] = set()

    def compute(number: int, x: bytes) -> bytes:
        known = number == 1 or x in seen
        seen.add(x)
        return right(number, x) if known else bytes(NBYTES)

    pairs = SealedPairs(Processes(compute, monkeypatch), candidate())  # type: ignore[arg-type]
    left = (hashlib.sha256(right(0, candidate().expected[0].contents[0])).digest(),)
    nothing = (hashlib.sha256(bytes(NBYTES)).digest(),)
    others = [KeptExecution((4 * n,), nothing) for n in (1, 2)]
    pairs.kept = [(0, KeptExecution(*pairs._contents.known(0), left)), *((0, one) for one in others)]
    monkeypatch.setattr(pairs, "_repeatable", True)
    first = gpu_replay._replayed
    monkeypatch.setattr(gpu_replay, "_replayed", lambda gpu, task: _with_first(first, gpu, task, nothing))
    with pytest.raises(NotRepeatable):
        pairs.wrong()
    pairs.close()


def _with_first(replayed: Any, gpu: Any, task: ReplayTask, nothing: tuple[bytes, ...]) -> Any:
    """The answer, its first execution as a kernel's that has run before."""
    answer = replayed(gpu, task)
    return msgspec.structs.replace(answer, contents=(*nothing, *answer.contents[1:]))


@pytest.mark.slow
def test_a_result_of_the_execution_before_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    last = [b""]

    def compute(number: int, x: bytes) -> bytes:
        found, last[0] = last[0], right(number, x)
        return found if number % 9 == 0 else last[0]

    _, wrong = timed(compute, monkeypatch)
    assert wrong.startswith("while it is timed")


@pytest.mark.slow
def test_what_is_found_not_to_be_repeatable_is_timed_again_and_compared_by_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last bit of one element changes: rounding of a sum in another order."""

    def compute(number: int, x: bytes) -> bytes:
        found = bytearray(right(number, x))
        found[0] ^= number & 1
        return bytes(found)

    pairs, wrong = timed(compute, monkeypatch)
    assert (wrong, pairs._repeatable) == ("", False)


def test_the_budget_ends_further_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = SealedPairs(Processes(right, monkeypatch), candidate(deadline=0.0))  # type: ignore[arg-type]
    request = PairRequest(CALL.recording, CALL.recording, (), {}, blocks=2)
    pairs.expect(3)
    for _ in range(3):
        pairs.run(request)
    pairs.expect(12)
    with pytest.raises(BudgetUsed):
        pairs.run(request)
    pairs.close()


def test_first_contents_that_change_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Damaged(Processes):
        def ask(self, role: str, task: Any, *args: Any, **words: Any) -> Answered:
            return Answered(encoded(TimeAnswer((1.0,), (1.0,), damaged=True)), SealedEnd(), "")

    pairs = SealedPairs(Damaged(right, monkeypatch), candidate())  # type: ignore[arg-type]
    with pytest.raises(Refusal) as caught:
        pairs.run(PairRequest(CALL.recording, CALL.recording, (), {}))
    assert caught.value.reason is Reason.OUTSIDE
    pairs.close()


def test_changed_first_contents_are_seen() -> None:
    gpu, content = ComputingGpu(), os.urandom(NBYTES)
    sources = gpu_replay.VariedSources(gpu, side(content), VARIATION)
    assert not sources.damaged()
    gpu.write(sources._buffers[0], b"\0\1", 5)
    assert sources.damaged()


@pytest.mark.parametrize("side_of_two", [0, 1])
def test_first_contents_of_either_side_are_checked(side_of_two: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[gpu_replay.VariedSources] = []

    class Noted(gpu_replay.VariedSources):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    def compute(number: int, x: bytes) -> bytes:
        if number == 9:
            gpu.write(made[side_of_two]._buffers[0], b"\0\1\2", 7)
        return right(number, x)

    gpu = ComputingGpu(compute)
    monkeypatch.setattr(gpu_times, "VariedSources", Noted)
    monkeypatch.setattr(gpu_times, "gpu_of", lambda with_torch: gpu)
    task = TimeTask(side(os.urandom(NBYTES)), side(os.urandom(NBYTES)), (1,), VARIATION, ((8,),), 2, True, 2, 1)
    assert gpu_times.timed(encoded(task)).damaged
    assert len(made) == 2


@pytest.mark.parametrize("ns", [20_000.0, 300_000.0])
def test_a_slot_of_either_side_begins_with_no_persisting_lines(ns: float) -> None:
    gpu, content = ComputingGpu(ns=ns), os.urandom(NBYTES)
    task = TimeTask(side(content), side(content), (1,), VARIATION, ((8,),), 2, True, 2, 1)
    sources = gpu_replay.VariedSources(gpu, task.candidate, VARIATION)
    candidate = varied(gpu, task, sources)
    first = gpu_replay.VariedSources(gpu, task.candidate, Variation())
    reference = gpu_times.ReplayedReference(Loader(gpu), side(content), first)
    for slot in reference.slots(candidate):
        del gpu.did[:]
        slot.enqueue()()
        assert gpu.did[0] == "reset"
        assert gpu.did.count("reset") == (1 if ns < 200_000.0 else slot.protocol.runs_per_slot)


@pytest.mark.parametrize("before", [0, 1])
def test_operators_run_between_launches_on_each_copys_memory(before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those before a launch first, on the memory that it has; a graph of them is recorded through torch."""
    gpu, ran = ComputingGpu(), list[tuple[str, int]]()
    row = TorchOperator(before, "zero_.default", (ViewAt(1),))

    def run(one: TorchOperator, tensor_of: Any) -> None:
        ran.append((one.name, gpu.executions))
        assert tensor_of(1) is tensor_of(1)
        gpu.write(gpu._containing(tensor_of(1)), bytes(NBYTES))

    monkeypatch.setattr(gpu_replay, "run_operator", run)
    monkeypatch.setattr(gpu_replay, "tensor_at", lambda view, memory: memory.__cuda_array_interface__["data"][0])
    content = os.urandom(NBYTES)
    one = msgspec.structs.replace(side(content), operators=(row,))
    sources = gpu_replay.VariedSources(gpu, one, Variation())
    program = gpu_replay.ReplayedProgram(Loader(gpu), one, Memory(gpu, one.recording.storages, sources.plain()))
    for replica in (0, 3):
        program.enqueue(replica)
        left = gpu.read(program.memory.buffer(replica, 1), NBYTES)
        assert left == (bytes(NBYTES) if before else right(0, content))
    assert ran == [("zero_.default", before), ("zero_.default", before + 1)]
    program.graph(6, 2).replay()
    assert gpu.did[-1] == "calls of 6"
    gpu_replay.ReplayedProgram(Loader(gpu), side(content), program.memory).graph(6, 2).replay()
    assert gpu.did[-1] == "graph of 6"


@pytest.mark.parametrize("of", ["candidate", "reference", "neither"])
def test_a_process_that_runs_operators_opens_the_device_with_torch(of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[bool] = []
    row, content = TorchOperator(0, "zero_.default", (ViewAt(1),)), os.urandom(NBYTES)
    monkeypatch.setattr(gpu_replay, "run_operator", lambda *words: None)
    for module in (gpu_replay, gpu_times):
        monkeypatch.setattr(module, "gpu_of", lambda with_torch: opened.append(with_torch) or ComputingGpu())
    both = [msgspec.structs.replace(side(content), operators=(row,) * (of == x)) for x in ("candidate", "reference")]
    task = TimeTask(both[0], both[1], (1,), VARIATION, ((8,),), 2, True, 2, 1, details=True)
    answer = gpu_times.timed(encoded(task))
    assert answer.refused is None
    gpu_replay.replayed_on_gpu(ReplayTask(both[0], (1,), 1.0, True))
    assert opened == [of != "neither", of == "candidate"]


def test_both_sides_have_other_contents(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no result of the reference's is one of the candidate's."""
    asked: list[TimeTask] = []

    class Noting(Processes):
        def ask(self, role: str, task: Any, *args: Any, **words: Any) -> Answered:
            asked.append(task)
            return super().ask(role, task, *args, **words)

    pairs = SealedPairs(Noting(right, monkeypatch), candidate())  # type: ignore[arg-type]
    pairs.run(PairRequest(CALL.recording, CALL.recording, (), {}, blocks=2))
    pairs.close()
    (task,) = asked
    assert isinstance(task.reference, ReplaySide)
    mine, other = task.candidate.contents[0] or b"", task.reference.contents[0]
    assert rolled(mine, *task.known[0]) == candidate().expected[0].contents[0]
    assert other == candidate().expected[1].contents[0]


def authors(**words: Any) -> RightCandidate:
    """The same candidate, on inputs that the task's own code makes."""
    one = candidate(**words)
    (given,) = one.case.tensors
    author = msgspec.structs.replace(given, content="author")
    return dataclasses.replace(one, case=msgspec.structs.replace(one.case, tensors=(author,)))


def timed_authors(compute: Compute, monkeypatch: pytest.MonkeyPatch) -> str:
    pairs = SealedPairs(Processes(compute, monkeypatch), authors())  # type: ignore[arg-type]
    _, wrong = pairs.timed(PairRequest(CALL.recording, CALL.recording, (), {}))
    pairs.close()
    return wrong


def test_contents_of_the_author_are_never_rolled(monkeypatch: pytest.MonkeyPatch) -> None:
    """So no kernel knows by their structure that nothing is checked."""
    whole = {x.contents[0] for x in authors().expected}
    others: list[bytes] = []

    def compute(number: int, x: bytes) -> bytes:
        others.extend([x] * (x not in whole))
        return right(number, x)

    assert timed_authors(compute, monkeypatch) == ""
    assert others == []


@pytest.mark.parametrize("each", [5, 40])
def test_work_that_is_left_out_of_the_authors_contents_is_wrong(each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = timed_authors(lambda n, x: None if n > 100 and n % each < 3 else right(n, x), monkeypatch)
    assert wrong.startswith("while it is timed")


def test_another_contents_result_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each execution is held against the results of the content that it had."""
    other = authors().expected[2].contents[0]
    assert timed_authors(lambda n, x: right(n, other), monkeypatch).startswith("while it is timed")


def test_neighbouring_copies_have_other_contents_and_none_has_the_references(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = SealedPairs(Processes(right, monkeypatch), authors())  # type: ignore[arg-type]
    known = pairs._contents.known(3)
    assert set(known.values()) == {0, 1, 2, 3}
    assert known == {(0,): 3, (NBYTES,): 2, (2 * NBYTES,): 1, (3 * NBYTES,): 0}
    seen: list[bytes] = []
    gpu = ComputingGpu(lambda n, x: seen.append(x))
    side = pairs._contents.side(3)
    task = TimeTask(side, side, (1,), pairs._contents.variation, tuple(known), 2, True, 2, 1)
    sources = gpu_replay.VariedSources(gpu, task.candidate, task.variation)
    program = varied(gpu, task, sources)
    orders = set()
    for _ in range(20):
        del seen[:]
        program.rotate(4, 4)
        for replica in range(4):
            program.restore(replica)
        for replica in range(4):
            program.enqueue(replica)
        assert {*seen} == {x.contents[0] for x in authors().expected[:4]}
        orders.add(tuple(seen))
    assert len(orders) > 5
    assert not sources.damaged()
    gpu.write(sources._buffers[0], b"\0\1", 3 * NBYTES + 5)
    assert sources.damaged()
    pairs.close()


def test_contents_of_the_author_are_as_many_as_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = SealedPairs(Processes(right, monkeypatch), authors())  # type: ignore[arg-type]
    for most, count in ((NBYTES, 2), (3 * NBYTES, 3), (1 << 30, 4)):
        monkeypatch.setattr(timed_contents, "WHOLE_BYTES", most)
        assert len(pairs._contents.known(0)) == count
        assert len(pairs._contents.side(0).contents[0] or b"") == count * NBYTES
    pairs.close()


def test_messages_survive_the_way() -> None:
    live = LiveCall(UserCallable("r.py", "f", FUNCTION), CASE, (b"1",))
    for reference in (live, side(b"\1" * NBYTES)):
        task = TimeTask(side(b""), reference, (1,), Variation((0,), (4,)), ((8,),), 2, True, 3, 4)
        assert msgspec.msgpack.decode(encoded(task), type=TimeTask) == task


def test_a_reservoir_keeps_every_execution_with_the_same_probability() -> None:
    chance, counts = random.Random(5), [0] * 40
    for _ in range(2_000):
        kept = gpu_times.Reservoir(FakeGpu(typical_device(TARGET), Script()), [], 4, chance)
        for number in range(40):
            kept.offer((number,), list)
        for one in kept.all(True):
            counts[one.rolls[0]] += 1
    assert sum(counts) == 4 * 2_000
    assert max(counts) < 1.4 * 200
    assert min(counts) > 0.6 * 200


def test_drawn_rolls_have_one_distance_for_each_varied_storage() -> None:
    (distance,) = drawn_rolls(VARIATION, CALL, random.Random(2))
    assert 0 < distance < NBYTES


# which GPU


@pytest.mark.parametrize(
    ("visible", "devices", "on_gpu"),
    [(None, ["/dev/nvidia0"], True), ("0", ["/dev/nvidia0"], True), ("", ["/dev/nvidia0"], False),
     ("-1", ["/dev/nvidia0"], False), (None, [], False)],
)  # fmt: skip
def test_speeds_are_a_gpus_where_one_may_be_seen(
    visible: str | None, devices: list[str], on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidate_speed, "nvidia_devices", lambda: devices)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert candidate_speed.default_speeds().on_gpu == on_gpu


@pytest.mark.parametrize("found", [DeviceAnswer(problem="no driver"), None])
def test_a_gpu_that_can_not_be_used_is_an_error_and_says_how_to_judge_without(found: DeviceAnswer | None) -> None:
    class Broken:
        def ask(self, *args: Any, **words: Any) -> Answered:
            return Answered(None if found is None else encoded(found), SealedEnd(code=1), "")

    with pytest.raises(MeasurementError, match="CUDA_VISIBLE_DEVICES= judges without it") as caught:
        candidate_speed.GpuSpeeds().start(Broken())  # type: ignore[arg-type]
    assert ("no driver" if found else "status 1") in str(caught.value)


def test_what_is_compiled_for_is_the_gpus() -> None:
    class Here:
        def ask(self, role: str, *args: Any, gpu: bool = False) -> Answered:
            assert (role, gpu) == ("device", True)
            return Answered(encoded(DeviceAnswer(typical_device(Target.parse("cuda:100")), 1e12)), SealedEnd(), "")

    speeds = candidate_speed.GpuSpeeds()
    speeds.start(Here())  # type: ignore[arg-type]
    assert speeds.target(TARGET) == Target.parse("cuda:100")
    assert speeds.device == typical_device(Target.parse("cuda:100")).name
