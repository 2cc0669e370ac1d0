"""How fast a candidate is beside the reference: both in turn, in sealed processes that hold none of its host code.

Without a GPU there are no speeds. Those of a scripted GPU follow a script, and verdicts say so.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import random
import secrets
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from kerntune.base.device import Target
from kerntune.base.stats import DEFAULT_LEVEL, Estimate, median
from kerntune.errors import MeasurementError
from kerntune.gpu import device_lock
from kerntune.gpu.base import Executor
from kerntune.referee.case_inputs import CaseInputs
from kerntune.referee.content_forms import extreme_forms
from kerntune.referee.hostile_recording import ITEM_BYTES, CheckedCall, side_of
from kerntune.referee.prewarmed import PrewarmedProcesses
from kerntune.referee.reasons import LIVE_TOLD, Reason, Refusal
from kerntune.referee.replay_processes import AUTHOR_SECONDS, author_count
from kerntune.referee.result_errors import difference_of
from kerntune.referee.result_numbers import same_bytes
from kerntune.referee.scripted_pair import live_stand_in, side_by_side
from kerntune.referee.sealing import nvidia_devices
from kerntune.referee.tasks import (
    BytesLike,
    DeviceAnswer,
    KeptExecution,
    LiveCall,
    ReplayAnswer,
    ReplaySide,
    ReplayTask,
    Rolls,
    TimeAnswer,
    TimeTask,
)
from kerntune.referee.timed_contents import RightCandidate, TimedContents
from kerntune.referee.verdicts import TimedLaunch, Word, word_of_change
from kerntune.timing.paired_processes import PROCESSES, Replay, combine, compare
from kerntune.timing.worker.pool import LocalPairs, Pairs
from kerntune.timing.worker.requests import PairReply, PairRequest

MOST_KEPT = 16
KEPT_BYTES, SENT_BYTES = 128 << 20, 64 << 20
"""Executions of each kind that one timing process keeps: so many, or as many as these bytes hold, two at least; fewer
where what they left must be sent, since it can't be repeated exactly. A kernel that leaves out one execution in twenty
is found with 91 % in three processes that keep 16, with 27 % where they keep two; in twelve, with 99.99 % and 71 %."""

AT_ONCE = 4
"""Processes that prepare themselves together. They are timed one after the other."""

CHECKED_TOO = 1.5
"""What further processes take, of the time that those before took: their executions are checked, too."""

TIME_SECONDS = 60.0
LOCK_SECONDS = 3_600.0

SEEDS, LATER_CALLS = 5, 1
"""Contents that each shape is judged on, and processes that replay later calls."""

ROOMY = 24 << 30
"""Bytes of free device memory from which processes are prewarmed: some twenty contexts of half a GB at a time."""


@dataclass(frozen=True)
class TimedPair:
    """Both sides' times in ns, and the change from the reference to the candidate (0.12: that is 12 % slower)."""

    change: Estimate
    reference_ns: float
    candidate_ns: float
    bandwidth: float | None = None
    warm: float | None = None
    """The same change where executions follow each other, of one process."""

    launch_ns: tuple[float, ...] = ()
    remarks: tuple[str, ...] = ()
    wrong: str = ""
    """What timed executions computed wrongly."""

    def shares(self, launches: Sequence[TimedLaunch]) -> tuple[TimedLaunch, ...]:
        """The launches with their times and shares, where they were taken."""
        if len(self.launch_ns) != len(launches):
            return tuple(launches)
        whole = sum(self.launch_ns) or 1.0
        return tuple(replace(x, ns=ns, share=ns / whole) for x, ns in zip(launches, self.launch_ns, strict=True))


class Speeds:
    """Where times come from: here from nowhere, so that verdicts are WRONG, REFUSED or UNTIMED. ``on_gpu``: results are
    the GPU's, too."""

    origin = "none"
    device = ""
    why_not = "there is no GPU here"
    on_gpu = False

    def start(self, processes: PrewarmedProcesses) -> None:
        """Find the device, before a candidate runs."""

    def target(self, default: Target) -> Target:
        """What is compiled for."""
        return default

    def prewarm(self, readable: tuple[str, ...], case: CaseInputs, seconds: float) -> None:
        """Have processes ready for the results of a case, whose replays may take so many ``seconds``; the reference
        may read ``readable``."""

    def prewarm_timing(self, readable: tuple[str, ...], authors: tuple[str, ...], further: int) -> None:
        """Have processes ready that time, and before them so many ``further`` ones for results. ``readable`` is what
        the reference may read if it runs live, else empty; ``authors`` what it may read otherwise. First results should
        be there: processes open a GPU one after the other."""

    def discard(self) -> None:
        """End processes that were not needed."""

    def measure(self, right: RightCandidate) -> TimedPair | None:
        """Times of both. None without a GPU; :class:`Refusal` where what is timed computes something else."""
        return None


class ScriptedSpeeds(Speeds):
    """Times of a scripted GPU: its rules name kernels, and the work of a reference that isn't Triton's as
    :data:`~kerntune.referee.scripted_pair.LIVE`."""

    origin = "scripted"

    def __init__(self, gpu: Executor, bandwidth: float | None = None) -> None:
        self._gpu, self._bandwidth = gpu, bandwidth
        self._pairs: Pairs = LocalPairs(gpu)
        self.device = f"{gpu.spec.name} (scripted)"

    def measure(self, right: RightCandidate) -> TimedPair | None:
        """By the script, which has no operator of torch's: :class:`MeasurementError` where one runs beside kernels."""
        candidate, reference = right.call.recording, right.reference
        if right.call.operators or (isinstance(reference, CheckedCall) and reference.operators):
            raise MeasurementError("torch's operators run beside the kernels, of which a scripted GPU has no times")
        before = live_stand_in(candidate) if isinstance(reference, Refusal) else reference.recording
        replay = _compared(self._pairs, side_by_side(before, candidate))
        return TimedPair(replay.change, median(replay.a_ns), median(replay.b_ns), self._bandwidth)


class GpuSpeeds(Speeds):
    """Times and results of the first GPU that is visible."""

    origin, on_gpu = "gpu", True

    def start(self, processes: PrewarmedProcesses) -> None:
        """:class:`MeasurementError` where the GPU can't be used."""
        if self.device:
            return
        answered = processes.ask("device", None, (), TIME_SECONDS, 1 << 16, gpu=True)
        answer = DeviceAnswer(problem=answered.how)
        if answered.data is not None:
            answer = msgspec.msgpack.decode(answered.data, type=DeviceAnswer)
        if answer.spec is None:
            raise MeasurementError(f"the GPU can't be used: {answer.problem}; CUDA_VISIBLE_DEVICES= judges without it")
        self._processes, self._spec, self._bandwidth = processes, answer.spec, answer.bandwidth
        self._roomy = answer.free >= ROOMY
        self.device = answer.spec.name

    def prewarm(self, readable: tuple[str, ...], case: CaseInputs, seconds: float) -> None:
        """One a seed, where there is room."""
        if self._roomy:
            nbytes = sum(math.prod(t.shape) * ITEM_BYTES.get(t.dtype, 8) for t in case.tensors)
            count = SEEDS + (0 if case.made_by_author else len(extreme_forms(case.tensors, random.Random(0))))
            authors = 1 if case.made_by_author else author_count(nbytes, count) + LATER_CALLS
            self._processes.prewarm("expect", readable, AUTHOR_SECONDS, authors)
            self._processes.prewarm("replay", (), seconds, SEEDS + LATER_CALLS + (count > SEEDS))

    def prewarm_timing(self, readable: tuple[str, ...], authors: tuple[str, ...], further: int) -> None:
        """Those of the first look, and as many that check what they leave."""
        if self._roomy:
            self._processes.prewarm("expect", authors, AUTHOR_SECONDS, further)
            self._processes.prewarm("time", readable, TIME_SECONDS, PROCESSES)
            self._processes.prewarm("replay", (), TIME_SECONDS, PROCESSES + further)

    def discard(self) -> None:
        """They hold contexts of the device."""
        if self._roomy:
            self._processes.discard()

    def target(self, default: Target) -> Target:
        """The GPU's."""
        return self._spec.target

    def measure(self, right: RightCandidate) -> TimedPair | None:
        """In turn, in fresh processes; kept executions are compared with what is known, and with fresh ones."""
        pairs, recording = SealedPairs(self._processes, right), right.call.recording
        with contextlib.closing(pairs), device_lock.hold(self._spec.uuid, self._spec.name, LOCK_SECONDS):
            replay, wrong = pairs.timed(PairRequest(recording, recording, (), {}))
        return TimedPair(
            replay.change, median(replay.a_ns), median(replay.b_ns), self._bandwidth, pairs.warm, pairs.launch_ns,
            tuple(pairs.remarks()), wrong,
        )  # fmt: skip


def default_speeds() -> Speeds:
    """Of the GPU where there is one that may be seen."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")
    return Speeds() if hidden or not any(True for _ in nvidia_devices()) else GpuSpeeds()


def _compared(pairs: Pairs, request: PairRequest) -> Replay:
    """Over fresh processes; of none is it known what it adds to a ratio."""
    return compare(pairs, request, DEFAULT_LEVEL, None, lambda change, ns: word_of_change(change) is not Word.UNDECIDED)


class NotRepeatable(Exception):
    """Equal content has left other bytes, which may be rounding."""


class BudgetUsed(Exception):
    """No time is left for further processes."""


class SealedPairs(Pairs):
    """Times a right candidate beside its reference, in a sealed process for each request.

    Each process has the content of one seed for the candidate and of another one for the reference.
    """

    def __init__(self, processes: PrewarmedProcesses, right: RightCandidate) -> None:
        self._processes, self._right = processes, right
        self._contents = TimedContents(right, random.Random(secrets.randbits(64)))
        self._wanted = tuple(i for i in right.call.wanted if i in self._computed())
        self._sizes = sum(right.call.recording.storages[i].nbytes for i in self._wanted)
        self._repeatable = right.repeatable
        self._last_batch = 0.0
        self._asked = self._expected = 0
        self._threads = ThreadPoolExecutor(AT_ONCE)
        self._waiting: deque[Future[PairReply]] = deque()
        self.replies: list[PairReply] = []
        self.kept: list[tuple[int, KeptExecution]] = []
        self.launch_ns: tuple[float, ...] = ()
        self.warm: float | None = None
        self._timed_as: set[str] = set()

    def _computed(self) -> set[int]:
        """Storages of results, and of inputs that the reference changes."""
        right = self._right
        changed = right.expected[0].changed
        inputs = {s for s, left in zip(right.call.inputs, changed, strict=False) if s is not None and left is not None}
        return inputs | {v.storage for v in right.call.results}

    @property
    def _keep(self) -> int:
        most = KEPT_BYTES if self._repeatable else SENT_BYTES
        return max(2, min(MOST_KEPT, most // max(self._sizes, 1)))

    @property
    def live(self) -> bool:
        """Whether the reference runs as the author's code."""
        return isinstance(self._right.reference, Refusal)

    def timed(self, request: PairRequest) -> tuple[Replay, str]:
        """The comparison as far as the budget reaches, and what is wrong with what timed executions left. Where that
        can't be repeated exactly after all, all is timed again, and what they left is sent whole."""
        try:
            replay = _compared(self, request)
        except BudgetUsed:
            replay = combine(self.replies, DEFAULT_LEVEL, None)
        try:
            return replay, self.wrong()
        except NotRepeatable:
            self._repeatable, self.replies, self.kept = False, [], []
            return self.timed(request)

    def expect(self, count: int) -> None:
        """Let so many processes in all prepare themselves."""
        self._expected = count

    def run(self, request: PairRequest) -> PairReply:
        """The reply of another process. :class:`MeasurementError` if it fails, :class:`BudgetUsed` if no time is left
        for more."""
        if not self._waiting:
            began = time.monotonic()
            if len(self.replies) >= PROCESSES and began + CHECKED_TOO * self._last_batch > self._right.deadline:
                raise BudgetUsed
            for _ in range(max(1, min(AT_ONCE, self._expected - len(self.replies)))):
                self._waiting.append(self._threads.submit(self._ask, self._asked, request.blocks))
                self._asked += 1
            wait(self._waiting)
            self._last_batch = time.monotonic() - began
        self.replies.append(self._waiting.popleft().result())
        return self.replies[-1]

    def _ask(self, number: int, blocks: int) -> PairReply:
        right, contents = self._right, self._contents
        seed = number % len(right.expected)
        each = max(2, blocks // 8 * 2)  # at a placement: a fourth of them, in either order as many
        task = TimeTask(
            contents.side(seed), self._reference((seed + 1) % len(right.expected)), self._wanted, contents.variation,
            tuple(contents.known(seed)), self._keep, not self._repeatable, each, number, details=not number,
        )  # fmt: skip
        readable = right.source.readable if self.live else ()
        most = 2 * self._keep * (self._sizes + (1 << 10)) + (1 << 20)
        answered = self._processes.ask("time", task, readable, TIME_SECONDS, most, gpu=True)
        if answered.data is None:
            raise MeasurementError(f"a process that times failed: {answered.how}")
        answer = msgspec.msgpack.decode(answered.data, type=TimeAnswer)
        if answer.refused is not None:
            raise MeasurementError(answer.refused.text)
        if answer.damaged:
            raise Refusal(Reason.OUTSIDE, "while it is timed, first contents of tensors change")
        self.kept += [(seed, one) for one in answer.kept]
        self._timed_as.add(answer.timed_as)
        if answer.warm_ns:
            self.warm, self.launch_ns = answer.warm_ns[1] / answer.warm_ns[0] - 1, answer.launch_ns
        return PairReply(answer.reference_ns, answer.candidate_ns, answer.foreign, placements=answer.placements)

    def close(self) -> None:
        """Wait for processes that were asked in vain."""
        self._threads.shutdown()

    def _reference(self, seed: int) -> ReplaySide | LiveCall:
        right, reference = self._right, self._right.reference
        given = right.expected[seed].contents
        if isinstance(reference, Refusal):
            return LiveCall(right.source, right.case, given)
        return side_of(reference, given, right.patterns[seed])

    def wrong(self) -> str:
        """What is wrong with what timed executions left; empty if nothing is. Those of the known content are held
        against what was found right, the others against fresh executions of the same content."""
        seeds = sorted({seed for seed, _ in self.kept})
        with ThreadPoolExecutor(max(len(seeds), 1)) as threads:
            return next(filter(None, threads.map(self._wrong_of, seeds)), "")

    def _wrong_of(self, seed: int) -> str:
        right = self._right
        known = {rolls: self._judged(one) for rolls, one in self._contents.known(seed).items()}
        mine = [one for at, one in self.kept if at == seed]
        others = [one for one in mine if one.rolls not in known]
        random.SystemRandom().shuffle(others)
        pairs = [(known[one.rolls], one) for one in mine if one.rolls in known]
        if others:
            # Among them is the known content, not first: what is left out of contents that come once is seen there.
            at = random.SystemRandom().randint(1, len(others))
            others.insert(at, KeptExecution(*next(iter(known.items()))))
            pairs += zip(self._fresh(seed, [one.rolls for one in others]), others, strict=True)
        for left, one in pairs:
            if len(left) == len(one.contents) and all(map(same_bytes, left, one.contents)):
                continue
            if self._repeatable:
                raise NotRepeatable
            sides = (dict(zip(self._wanted, x, strict=True)) for x in (left, one.contents))
            if problem := difference_of(right.case, right.call, *sides):
                return f"while it is timed, {problem}"
        return ""

    def _judged(self, seed: int) -> tuple[BytesLike, ...]:
        """What was found right for a seed, as executions that are kept have it."""
        before = dict(zip(self._right.call.wanted, self._right.results[seed], strict=True))
        judged = tuple(before[i] for i in self._wanted)
        return tuple(hashlib.sha256(content).digest() for content in judged) if self._repeatable else judged

    def _fresh(self, seed: int, rolls: Sequence[Rolls]) -> Iterator[tuple[BytesLike, ...]]:
        """What executions of these contents leave in another process; of all, if they can't be repeated exactly."""
        whole, contents = not self._repeatable, self._contents
        side, variation = contents.side(seed), contents.variation
        task = ReplayTask(side, self._wanted, TIME_SECONDS, True, whole, variation, tuple(rolls))
        most = len(rolls) * (self._sizes + (1 << 10)) + (1 << 20)
        answered = self._processes.ask("replay", task, (), TIME_SECONDS, most, gpu=True)
        if answered.data is None:
            raise MeasurementError(f"a replay failed: {answered.how}")
        answer = msgspec.msgpack.decode(answered.data, type=ReplayAnswer)
        count = len(self._wanted)
        if answer.refused is not None or len(answer.contents) != count * len(rolls):
            raise MeasurementError(answer.refused.text if answer.refused else "a replay has no whole answer")
        for i in range(0, len(answer.contents), count):
            yield tuple(content or b"" for content in answer.contents[i : i + count])

    def remarks(self) -> Iterator[str]:
        """What a reader should know of these times."""
        yield from (LIVE_TOLD[how] for how in sorted(self._timed_as & LIVE_TOLD.keys()))
        if not self._contents.variation.storages:
            yield "no input's content can vary from one timed execution to the next"
