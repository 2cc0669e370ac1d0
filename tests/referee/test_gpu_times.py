"""First contents on a device, times of checked executions, turns, and failures as answers, on a scripted GPU."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.msgpack import encode as encoded

from kerntune.base.device import typical_device
from kerntune.base.recording import Storage, Zeros
from kerntune.errors import BackendError, MeasurementError, OutOfResourcesError
from kerntune.gpu.guards import GuardDamage
from kerntune.gpu.program import Loader
from kerntune.gpu.script import Rule, Script
from kerntune.gpu.scripted import FakeGpu
from kerntune.referee import gpu_replay, gpu_times, sealing
from kerntune.referee.gpu_replay import VariedSources
from kerntune.referee.gpu_times import KeptExecutions, Reservoir, VariedProgram
from kerntune.referee.hostile_recording import checked
from kerntune.referee.tasks import (
    CallRefused,
    DeviceAnswer,
    Fill,
    KeptExecution,
    ReplaySide,
    ReplayTask,
    TimeAnswer,
    TimeTask,
    Variation,
)
from tests.referee.computing_gpu import varied
from tests.referee.recordings import BINARY, CALL, CASE, TARGET

POISON = b"\xf1\x7f" * 4
X, Y = os.urandom(2400), os.urandom(2400)
VARIATION = Variation((0, 1), (4, 4))


def scripted_gpu() -> FakeGpu:
    return FakeGpu(typical_device(TARGET), Script([Rule("add", time_ns=30_000.0)]))


CHECKED = checked(CALL, CASE, TARGET).recording


def side(*more: Storage, fills: tuple[Fill, ...] = (), launches: int = 1) -> ReplaySide:
    """Of ``o = x + y``, with more storages that no launch uses; so many launches, of other grids."""
    (launch,) = CHECKED.launches
    recording = msgspec.structs.replace(
        CHECKED,
        storages=(*CHECKED.storages, *more),
        launches=tuple(msgspec.structs.replace(launch, grid=(3 + i, 1, 1)) for i in range(launches)),
    )
    contents = (X, Y, None, *[None for _ in more])
    return ReplaySide(recording, {BINARY.sha256: b"\x7fELF"}, contents, fills, POISON)


def time_task(**parts: Any) -> TimeTask:
    task = TimeTask(side(), side(), (2, 0), VARIATION, ((8, 12),), 2, True, 3, 1)
    return msgspec.structs.replace(task, **parts)


class Chance:
    """Draws these numbers in turn."""

    def __init__(self, *numbers: int) -> None:
        self.numbers, self.asked = [*numbers], list[tuple[int, ...]]()

    def sample(self, numbers: Sequence[Any], count: int) -> list[Any]:
        return [*numbers][:count]

    def randrange(self, *ends: int) -> int:
        self.asked.append(ends)
        return self.numbers.pop(0)


# first contents


def test_first_contents_are_on_the_device_and_twice_where_they_vary() -> None:
    """So that a rolled one is one piece. What isn't given is a fill or poison; a storage may have no bytes."""
    gpu = scripted_gpu()
    replayed = side(Storage(0, "float32", Zeros()), Storage(10, "int16", Zeros()), fills=(Fill(4, "int16", 513),))
    sources = VariedSources(gpu, replayed, Variation((1,), (4,)))
    whole = [gpu.read(b) for b in sources._buffers]
    assert whole == [X, Y + Y, POISON * 300, b"", b"\1\2" * 5]
    assert [gpu.read(source.pristine) for source in sources.plain()] == [X, Y, POISON * 300, b"", b"\1\2" * 5]
    assert not any(source.shared for source in sources.plain())
    assert [gpu.read(sources.content(i, (40,))) for i in range(3)] == [X, Y[40:] + Y[:40], POISON * 300]


@pytest.mark.parametrize("storage", [0, 1, 2, 4])
@pytest.mark.parametrize("end", [False, True])
def test_a_changed_byte_of_any_first_content_is_seen(storage: int, end: bool) -> None:
    gpu = scripted_gpu()
    replayed = side(Storage(0, "float32", Zeros()), Storage(10, "int8", Zeros()))
    sources = VariedSources(gpu, replayed, Variation((1,), (4,)))
    assert not sources.damaged()
    at = sources.sizes[storage] - 1 if end else 0
    content = gpu.read(sources._buffers[storage])
    gpu.write(sources._buffers[storage], bytes([content[at] ^ 1]), at)
    assert sources.damaged()


@pytest.mark.parametrize(("storages", "rolls", "on_device"), [(4, 16, False), (5, 13, True)])
def test_many_guard_zones_are_compared_on_the_device(
    storages: int, rolls: int, on_device: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 65 on, in all executions. Their damages are counted together."""
    asked: list[bool] = []

    class Reader:
        def __init__(self, gpu: Any, on_device: bool) -> None:
            asked.append(on_device)

        def damages(self, guarded: Any) -> list[Any]:
            assert len(guarded) == storages
            return [GuardDamage(0, -1, -1, count) for count in (2, 3)]

    monkeypatch.setattr(gpu_replay, "GuardReader", Reader)
    more = [Storage(8, "int8", Zeros())] * (storages - 3)
    task = ReplayTask(side(*more), (2,), 1.0, True, False, VARIATION, ((4, 8),) * rolls)
    answer = gpu_replay._replayed(scripted_gpu(), task)
    assert (asked, answer.outside, len(answer.contents)) == ([on_device], 5 * rolls, rolls)


# what is kept


def test_a_reservoir_keeps_what_executions_left_in_places_of_its_own() -> None:
    """The first ones; a later one at the place that is drawn, if it is one."""
    gpu, chance = scripted_gpu(), Chance(2, 0, 1)
    left = [gpu.allocate(4), gpu.allocate(0)]
    reservoir = Reservoir(gpu, [4, 0], 2, chance)  # type: ignore[arg-type]
    for name in (b"aaaa", b"bbbb", b"cccc", b"dddd"):
        gpu.write(left[0], name)
        reservoir.offer((name[0],), lambda: left)
    kept = [KeptExecution((ord(name),), (name.encode() * 4, b"")) for name in "db"]
    assert reservoir.all(True) == kept
    digests = [tuple(hashlib.sha256(c).digest() for c in one.contents) for one in kept]
    assert [one.contents for one in reservoir.all(False)] == digests
    gpu.write(left[0], b"eeee")
    reservoir.offer((5,), lambda: left)
    assert [one.rolls for one in reservoir.all(True)] == [(ord("d"),), (5,)]
    assert chance.asked == [(3,), (4,), (5,)]


def test_a_reservoir_that_is_not_full_has_what_was_offered() -> None:
    gpu = scripted_gpu()
    reservoir = Reservoir(gpu, [], 3, Chance())  # type: ignore[arg-type]
    reservoir.offer((1,), list)
    assert reservoir.all(True) == [KeptExecution((1,), ())]


def test_an_execution_s_content_is_known_or_drawn() -> None:
    """One in eight is known. What an execution left is kept before the next one's content comes; at last, once."""
    gpu, chance = scripted_gpu(), Chance(0, 7, 5, 6, 1, 9, 3)
    task = time_task()
    sources = VariedSources(gpu, task.candidate, VARIATION)
    kept = KeptExecutions(gpu, task, [2400, 2400], chance)  # type: ignore[arg-type]
    program = VariedProgram(Loader(gpu), task, sources, kept, chance)  # type: ignore[arg-type]

    def content() -> list[bytes]:
        return [gpu.read(program.memory.buffer(0, i)) for i in range(3)]

    def left(x: int, y: int) -> list[bytes]:
        return [X[x:] + X[:x], Y[y:] + Y[:y], POISON * 300]

    program.restore()
    assert content() == left(8, 12)
    program.restore()
    assert content() == left(20, 24)
    program.restore()
    assert content() == left(36, 12)
    assert [k.rolls for k in kept.all(True)] == [(8, 12), (20, 24)]
    program.settle()
    program.settle()
    assert [(k.rolls, k.contents[1]) for k in kept.all(True)] == [
        ((8, 12), left(8, 0)[0]), ((20, 24), left(20, 0)[0]), ((36, 12), left(36, 0)[0])
    ]  # fmt: skip
    chance.numbers = [0]
    program.restore()
    program._offer(0)
    assert len(kept.all(True)) == 3, "nothing is kept after that"
    assert chance.asked[:4] == [(8,), (8,), (1, 600), (1, 600)]


@pytest.mark.parametrize(
    ("fill", "byte"),
    [
        (Fill(2, "float32", 0.0), 0), (Fill(2, "uint8", 7), 7), (Fill(2, "int32", -1), 255),
        (Fill(2, "float32", 1.0), None), (Fill(2, "float32", 0.0, before=True), None), (Fill(3, "float32", 0.0), None),
    ],
)  # fmt: skip
def test_what_the_call_fills_with_one_byte_is_filled_in_each_execution(fill: Fill, byte: int | None) -> None:
    """In memory that launches reach, before they run; in graphs, too, for these enqueue executions."""
    gpu, did = scripted_gpu(), list[object]()
    task = time_task(candidate=side(Storage(64, "float32", Zeros()), fills=(fill,)))
    program = varied(gpu, task, VariedSources(gpu, task.candidate, VARIATION))
    program.restore()
    gpu.fill = lambda buffer, value: did.append((buffer, value))  # type: ignore[method-assign]
    gpu.prepare = lambda *words: lambda: did.append("launch")  # type: ignore[method-assign]
    program.enqueue()
    assert did == [*([] if byte is None else [(program.memory.buffer(0, 2), byte)]), "launch"]


def test_a_kernel_s_scratch_memory_is_zero_before_each_execution() -> None:
    gpu, task = scripted_gpu(), time_task()
    program = varied(gpu, task, VariedSources(gpu, task.candidate, VARIATION))
    program._scratch = [gpu.allocate(8)]
    gpu.write(program._scratch[0], b"12345678")
    program.restore()
    assert gpu.read(program._scratch[0]) == bytes(8)


def test_a_warm_execution_follows_others() -> None:
    """Eight of them, seven times, each time after one on restored memory."""
    gpu, did = scripted_gpu(), list[str]()

    def work() -> None:
        did.append("work")
        gpu._clock += 1_000.0 * (1 + (did.count("restore") == 3))

    assert gpu_times._warm(gpu, lambda: did.append("restore"), work) == pytest.approx(1_000.0, rel=0.02)
    assert did == ["restore", *["work"] * 9] * 7


# times


@pytest.fixture(autouse=True)
def lock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    descriptor = os.open(tmp_path / "turn", os.O_RDWR | os.O_CREAT)
    monkeypatch.setattr(sealing, "turn_file", descriptor)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize(("alone", "kind"), [(True, fcntl.LOCK_EX), (False, fcntl.LOCK_SH)])
def test_processes_take_turns(alone: bool, kind: int, lock_file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    locked: list[tuple[int, ...]] = []
    monkeypatch.setattr(gpu_times.fcntl, "lockf", lambda *words: locked.append(words))
    held = gpu_times.turn(alone)
    held.__enter__()
    assert locked == [(lock_file, kind, 1, 0)]
    assert not held.__exit__(KeyError, KeyError(), None)
    assert locked == [(lock_file, kind, 1, 0), (lock_file, fcntl.LOCK_UN, 1, 0)]


HOLDING = """
import sys
from kerntune.referee import gpu_times, sealing
sealing.turn_file = int(sys.argv[1])
with gpu_times.to_be_timed(), gpu_times.turn(alone=False):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_what_was_timed_is_read_after_all_others_were(lock_file: int) -> None:
    """Which may be timed meanwhile."""
    command = [sys.executable, "-c", HOLDING, str(lock_file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[lock_file]) as other:
        assert other.stdin
        assert other.stdout
        assert other.stdout.readline() == b"held\n"
        with gpu_times.to_be_timed():
            pass
        waiting = threading.Thread(target=gpu_times.after_all_timings)
        waiting.start()
        waiting.join(0.1)
        assert waiting.is_alive()
        other.stdin.close()
        waiting.join(60)
        assert not waiting.is_alive()


@pytest.mark.parametrize("details", [False, True])
def test_a_timing_process_answers_as_many_blocks_of_each_placement_as_it_was_asked_for(
    details: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And times with a warm cache, and of each launch, where details are asked for, of the first placement."""
    monkeypatch.setattr(gpu_times, "gpu_of", lambda with_torch: scripted_gpu())
    monkeypatch.setattr(gpu_times, "PLACEMENTS", 2)
    monkeypatch.setattr(gpu_times, "PLACING_SECONDS", 600.0)
    answer = gpu_times.timed(encoded(time_task(details=details, candidate=side(launches=2))))
    assert (answer.refused, answer.damaged) == (None, False)
    assert answer.reference_ns == pytest.approx([30_000.0] * 6, rel=0.02)
    assert answer.candidate_ns == pytest.approx([60_000.0] * 6, rel=0.02)
    assert answer.placements == 2
    assert answer.warm_ns == pytest.approx([30_000.0, 60_000.0][: 2 * details], rel=0.02)
    assert answer.launch_ns == pytest.approx([30_000.0] * 2 * details, rel=0.02)
    assert 2 <= len(answer.kept) <= 4
    assert {len(k.rolls) for k in answer.kept} == {2}


@pytest.mark.parametrize(
    ("seconds", "placements"),
    [([1.0], 1), ([0.6, 0.5, 0.5], 2), ([0.25] * 6, 6), ([0.1] * 10, 8), ([0.7, 0.7, 0.7], 2), ([0.1, 0.8], 2)],
)
def test_there_are_as_many_placements_as_there_is_time_for(
    seconds: list[float], placements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight at most. One is begun if it ends within 1.5 s, though it takes as long as the longest before."""
    sides, clock, taken = gpu_times.TimedSides(scripted_gpu(), time_task()), [7.0], [*seconds, *[9.0] * 5]

    def placed(number: int) -> int:
        clock[0] += taken[number]
        return number

    monkeypatch.setattr(sides, "_placed", placed)
    monkeypatch.setattr(gpu_times.time, "monotonic", lambda: clock[0])
    assert list(sides.timed()) == list(range(placements))


@pytest.mark.parametrize(("seconds", "blocks"), [(600.0, [4, 4]), (0.0, [8])])
def test_where_one_placement_fits_it_has_twice_the_blocks(
    seconds: float, blocks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_times, "PLACEMENTS", 2)
    monkeypatch.setattr(gpu_times, "PLACING_SECONDS", seconds)
    sides = gpu_times.TimedSides(scripted_gpu(), time_task(blocks=4))
    assert [len(pair.a_ns) for pair in sides.timed()] == blocks
    sides.release()


def test_each_placement_has_memory_of_its_own_and_what_is_kept_is_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, task = scripted_gpu(), time_task(keep=400)  # of some 25 known executions in a placement
    sides, made = gpu_times.TimedSides(gpu, task), list[tuple[VariedProgram, int]]()

    class Noted(VariedProgram):
        def settle(self) -> None:
            super().settle()
            made.append((self, len(sides.kept.known.all(True))))

    monkeypatch.setattr(gpu_times, "VariedProgram", Noted)
    for number in range(2):
        sides._placed(number)
    (one, before), (other, after) = made
    assert one.memory is not other.memory
    assert 0 < before < after
    assert not sides.damaged()


@pytest.mark.slow
@pytest.mark.parametrize(("room", "released"), [(None, []), (2.5, [1, 2, 3, 4]), (4.5, [3])])
def test_placements_are_held_while_there_is_room_for_two_more(
    room: float | None, released: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that none has memory that another one had. All of it is free afterwards."""
    monkeypatch.setattr(gpu_times, "PLACEMENTS", 5)
    monkeypatch.setattr(gpu_times, "PLACING_SECONDS", 600.0)
    gpu = scripted_gpu()
    sides = gpu_times.TimedSides(gpu, time_task())
    monkeypatch.setattr(gpu_times.Scatter, "memory", lambda _: None)
    before = gpu.free_bytes()
    sides._placed(0)
    each = before - gpu.free_bytes()
    assert each > 0
    sides.release()
    assert gpu.free_bytes() == before
    if room is not None:
        gpu.script.memory_bytes += int(room * each) - before
    placed, release, found = sides._placed, sides.release, list[object]()
    monkeypatch.setattr(sides, "_placed", lambda number: (found.append(number), placed(number))[1])
    monkeypatch.setattr(sides, "release", lambda: (found.append("released"), release()))
    assert len(list(sides.timed())) == 5
    assert [found[i + 1] for i, what in enumerate(found) if what == "released"] == released


# failures


FAILURES = [
    (OutOfResourcesError("too much shared memory"), "compile", "compile", "too much shared memory"),
    (BackendError("an illegal address"), "fault", "replay", "an illegal address"),
    (MeasurementError("no such thing"), "replay", "replay", "no such thing"),
]


@pytest.mark.parametrize(("error", "replayed", "timed", "text"), FAILURES)
def test_failures_are_answers(
    error: Exception, replayed: str, timed: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a replay, a fault is the kernel's; while two sides are timed, it may be either's."""
    devices: list[int] = []

    def device(ordinal: int) -> Any:
        devices.append(ordinal)
        raise error

    monkeypatch.setattr(gpu_replay, "DriverGpu", device)
    told = gpu_replay.replayed_on_gpu(ReplayTask(side(), (2,), 1.0, True)).refused
    assert told is not None
    assert (told.reason, told.text) == (replayed, text)
    told = gpu_times.timed(encoded(time_task())).refused
    assert told is not None
    assert (told.reason, told.text) == (timed, text)
    found = gpu_replay.device_answer(b"")
    assert (found.spec, found.bandwidth, found.problem) == (None, None, text)
    assert devices == [0, 0, 0]


def test_an_error_of_torchs_is_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def captured(task: TimeTask) -> TimeAnswer:
        raise RuntimeError("operation failed due to a previous error during capture")

    monkeypatch.setattr(gpu_times, "_timed", captured)
    told = gpu_times.timed(encoded(time_task())).refused
    assert told == CallRefused("replay", "operation failed due to a previous error during capture")


def test_the_device_that_is_visible_first_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = scripted_gpu()
    monkeypatch.setattr(gpu_replay, "DriverGpu", lambda ordinal: gpu if ordinal == 0 else None)
    monkeypatch.setattr(gpu_replay, "measured_bandwidth", lambda one: 3e12 if one is gpu else None)
    found = gpu_replay.device_answer(b"")
    assert found == DeviceAnswer(gpu.spec, 3e12, gpu.free_bytes())
    answer = gpu_replay.replayed_on_gpu(ReplayTask(side(), (2, 0), 1.0, True))
    assert [len(content or b"") for content in answer.contents] == [2400, 2400]
    assert (answer.outside, answer.refused) == (0, None)
