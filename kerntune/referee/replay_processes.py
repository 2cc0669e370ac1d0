"""What the reference's author and the candidate's replays answer, each in processes of their own.

The author's processes never see the candidate. A usual content is replayed in a process that gets it alone; on a GPU
extreme contents are in one.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from kerntune.base.formatting import visible
from kerntune.gpu.number_formats import FLOAT_FORMATS
from kerntune.referee.case_inputs import CaseInputs, Given, UserCallable
from kerntune.referee.declared_inputs import content_of
from kerntune.referee.hostile_recording import CheckedCall, side_of
from kerntune.referee.prewarmed import PrewarmedProcesses
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.reference_evidence import differs, held_changes, in_buffers
from kerntune.referee.tasks import (
    DescribeTask,
    ExpectAnswer,
    ExpectedSeed,
    ExpectTask,
    ReplayAnswer,
    ReplaySide,
    ReplayTask,
    Rolls,
    Variation,
)
from kerntune.referee.timed_contents import in_a_row, places, variation_of

AUTHOR_SECONDS = 300.0

MOST_EXPECTED = 1 << 32
"""Bytes of what the author's process may answer."""

AT_ONCE = 12
"""Contents that are looked at together on a GPU's machine."""

MUCH, EACH_AUTHOR = 8 << 20, 64 << 20
"""Bytes of a seed's inputs from which the author's processes are several; and how many bytes of all seeds are worth
one more."""

FEW_AUTHORS, MOST_AUTHORS, MOST_AT_ONCE = 3, 4, 1 << 30
"""How many they are then, and how many bytes of inputs they may have together: float64 and what is computed on the way
take some twenty times as much of the device. Processes open a GPU one after the other, in 0.13 s each on an H100,
so that the last ones of many begin late."""


def author_count(nbytes: int, contents: int) -> int:
    """How many processes of the author compute so many ``contents`` of ``nbytes`` each."""
    if nbytes < MUCH:
        return 1
    wanted = min(MOST_AUTHORS, max(FEW_AUTHORS, -(-nbytes * contents // EACH_AUTHOR)))
    return min(contents, wanted, max(1, MOST_AT_ONCE // nbytes))


def parts_of(task: ExpectTask) -> list[ExpectTask]:
    """Several where contents are large: to hand these over takes longer than another process's start."""
    count = author_count(sum(map(len, task.contents[0])), len(task.seeds)) if task.contents else 1
    if count == 1:
        return [task]
    each = -(-len(task.seeds) // count)
    places = [slice(i, i + each) for i in range(0, len(task.seeds), each)]
    found = [replace(task, seeds=task.seeds[at], contents=task.contents[at]) for at in places]
    begins = [None if task.extreme is None else max(0, task.extreme - at.start) for at in places]
    closely = [int(task.closely > 0), *[0] * (len(found) - 1)]
    usual = [max(0, task.usual - at.start) for at in places]
    return [replace(x, closely=n, extreme=e, usual=u) for x, n, e, u in zip(found, closely, begins, usual, strict=True)]


T = TypeVar("T")

Replayed = tuple[Sequence[bytes], bytes, float]
"""A content that is replayed, what fills unwritten memory, and when that must be done (seconds of a clock)."""


class ReplayProcesses:
    """Of one reference; a candidate is replayed on the GPU, or emulated."""

    def __init__(self, processes: PrewarmedProcesses, reference: UserCallable, on_gpu: bool, budget: float) -> None:
        self._processes, self._reference, self._on_gpu, self._budget = processes, reference, on_gpu, budget

    def described(self, given: tuple[dict[str, Given], ...]) -> list[CaseInputs]:
        """The cases whose inputs the task's own code makes."""
        return list(self._authors(DescribeTask(self._reference, given, self._on_gpu)).cases)

    def _beside(self, threads: ThreadPoolExecutor, run: Callable[..., T], *args: Any) -> Callable[[], T]:
        """Gives what ``run`` returns; a GPU's machine has room to run it meanwhile."""
        return threads.submit(run, *args).result if self._on_gpu else partial(run, *args)

    @property
    def _workers(self) -> int:
        """Contents that are looked at together: a GPU's machine has room for all."""
        return AT_ONCE if self._on_gpu else 1

    def _authors(self, task: DescribeTask | ExpectTask) -> ExpectAnswer:
        answered = self._processes.ask(
            "expect", task, self._reference.readable, AUTHOR_SECONDS, MOST_EXPECTED, task.gpu
        )
        if answered.data is None:
            late = f"; it has {AUTHOR_SECONDS:g} s for all contents: declare smaller shapes"
            raise Refusal(Reason.REFERENCE, answered.how + late * answered.end.late)
        answer = msgspec.msgpack.decode(answered.data, type=ExpectAnswer)
        if answer.refused is not None:
            raise Refusal(Reason.REFERENCE, answer.refused.text)
        return answer

    def _emulated_reference(self, case: CaseInputs, call: CheckedCall, want: ExpectedSeed) -> ExpectedSeed:
        """What the interpreter computes for a reference whose kernels a GPU can't run in float64."""
        task = ExpectTask(self._reference, case, (0,), (tuple(want.contents),))
        with contextlib.suppress(Refusal):
            (other,) = (in_buffers(call, case, one) for one in self._authors(task).seeds)
            layouts = [[(r.dtype, r.shape) for r in one.results] for one in (want, other)]
            if layouts[0] == layouts[1] and len(other.changed) == len(want.changed):
                return replace(other, contents=want.contents)
        return want

    def _added_to(self, case: CaseInputs, usual: Sequence[ExpectedSeed]) -> str:
        """The input that is one number in all contents and that the reference adds to: whether a candidate adds, none
        tells. What it only fills may be one number. Empty if there is none."""
        for i in held_changes(case, usual):
            given, first = case.tensors[i], usual[0]
            kind = "normal" if given.dtype in FLOAT_FORMATS else "integers"
            drawn = content_of(replace(given, content=kind, low=0.0, high=1.0), secrets.randbits(63))
            contents = (*first.contents[:i], drawn, *first.contents[i + 1 :])
            task = ExpectTask(self._reference, case, (0,), (contents,), self._on_gpu)
            with contextlib.suppress(Refusal):  # it may take such numbers alone
                if differs(first, self._authors(task).seeds[0]):
                    return f"input {given.name} is one number in every content, and is added to; it needs others"
        return ""

    def _replays(
        self, threads: ThreadPoolExecutor, case: CaseInputs, call: CheckedCall, each: Sequence[Replayed], usual: int
    ) -> list[Future[list[ReplayAnswer]]]:
        """What the candidate leaves: of each usual content in a process of its own, which knows no other one. Extreme
        ones are in one process on a GPU, which processes open one after the other."""
        alone, together = list(each), list[Replayed]()
        if self._on_gpu and call.wanted and variation_of(case, call, least=1).storages:
            alone, together = list(each[:usual]), list(each[usual:])
        found = [threads.submit(self._replayed_alone, call, one) for one in alone]
        return found + ([threads.submit(self._replayed_in_a_row, case, call, together)] if together else [])

    def _replayed_alone(self, call: CheckedCall, one: Replayed) -> list[ReplayAnswer]:
        return [self._replayed(call, *one)]

    def _replayed_in_a_row(self, case: CaseInputs, call: CheckedCall, each: Sequence[Replayed]) -> list[ReplayAnswer]:
        """What replays of several contents leave, in one process."""
        contents, count = [given for given, _, _ in each], len(each)
        _, poison, end = each[0]
        found = self._in_a_row(case, call, contents, poison, end)
        if len(found) < count:
            raise Refusal(Reason.REPLAY_LATE, f"{count - len(found)} of {count} extreme contents were not replayed")
        return found

    def _in_a_row(
        self, case: CaseInputs, call: CheckedCall, contents: Sequence[Sequence[bytes]], poison: bytes, end: float
    ) -> list[ReplayAnswer]:
        """The same as far as the time reaches."""
        variation = replace(variation_of(case, call, least=1), whole=True)
        side = in_a_row(side_of(call, contents[0], poison, self._on_gpu), call, contents, variation)
        answer, each = (
            self._answer(side, call, end, variation, places(call, variation, len(contents))),
            len(call.wanted),
        )
        cut = [answer.contents[i : i + each] for i in range(0, len(answer.contents), each)]
        return [replace(answer, contents=one) for one in cut]

    def _replayed(self, call: CheckedCall, given: Sequence[bytes], poison: bytes, end: float) -> ReplayAnswer:
        """What one replay leaves, in a process of its own that knows no other content."""
        return self._answer(side_of(call, given, poison, self._on_gpu), call, end, Variation(), ((),))

    def _answer(
        self, side: ReplaySide, call: CheckedCall, end: float, variation: Variation, rolls: tuple[Rolls, ...],
        on_gpu: bool | None = None,
    ) -> ReplayAnswer:  # fmt: skip
        on_gpu = self._on_gpu if on_gpu is None else on_gpu
        seconds, count = max(1.0, end - time.monotonic()), len(rolls)
        sizes = [call.recording.storages[i].nbytes for i in call.wanted]
        most = sum(sizes) * count + 64 * count * len(call.recording.storages) + (1 << 20)
        task = ReplayTask(side, call.wanted, seconds, on_gpu, True, variation, rolls)
        answered = self._processes.ask("replay", task, (), seconds + 5.0, most, on_gpu)
        if answered.data is None:
            late = answered.end.late or on_gpu != self._on_gpu  # who emulates beside a GPU has less memory than that
            raise Refusal(Reason.REPLAY_LATE if late else Reason.FAULT, f"the replay: {answered.how}")
        answer = msgspec.msgpack.decode(answered.data, type=ReplayAnswer)
        if answer.refused is not None:
            raise Refusal(Reason(answer.refused.reason), visible(answer.refused.text))
        done = len(answer.contents) // len(sizes) if sizes else count
        lengths = [n if c is None else len(c) for c, n in zip(answer.contents, sizes * count, strict=False)]
        if not 0 < done <= count or len(answer.contents) != len(sizes) * done or lengths != sizes * done:
            raise Refusal(Reason.ANSWER, "the replay's answer has other sizes than the recording")
        if answer.outside:
            raise Refusal(Reason.OUTSIDE, f"{answer.outside:,} bytes beside all tensors are written")
        return answer
