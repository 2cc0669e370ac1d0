"""The judgement: who runs when, and what counts. This process imports no code of users.

The order is the defence. Processes start and import everything; the candidate is recorded at every shape, each time in
a sealed process that is dead afterwards with all that it started; only then are seeds drawn. The reference's results
are computed in one process, the candidate's launches are replayed in others, and both are compared here.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from kerntune.base.device import Target
from kerntune.base.formatting import format_bytes, visible
from kerntune.base.recording import View
from kerntune.errors import KerntuneError, UsageError
from kerntune.referee.candidate_speed import (
    AUTHOR_SECONDS,
    SEEDS,
    NoSpeeds,
    RightCandidate,
    Speeds,
    TimedPair,
    default_speeds,
)
from kerntune.referee.declared_inputs import content_of, parse_line, poison_patterns
from kerntune.referee.hostile_recording import (
    ITEM_BYTES,
    MOST_BYTES,
    CheckedCall,
    check_outlines,
    check_results,
    checked,
    decoded,
    side_of,
)
from kerntune.referee.layouts import (
    FUNCTION,
    candidate_source,
    literal_inputs,
    makes_inputs,
    reference_source,
    task_shapes,
)
from kerntune.referee.prewarmed import PrewarmedProcesses
from kerntune.referee.reasons import TOLD, Reason, Refusal
from kerntune.referee.result_errors import ResultError, error_of, hardly_varies
from kerntune.referee.sealed_process import Answered, folder_of
from kerntune.referee.sealing import landlock_version
from kerntune.referee.tasks import (
    CaseInputs,
    DescribeTask,
    ExpectAnswer,
    ExpectedResult,
    ExpectedSeed,
    ExpectTask,
    RecordTask,
    ReplayAnswer,
    ReplayTask,
    UserCallable,
)
from kerntune.referee.verdicts import (
    CandidateVerdict,
    ShapeResult,
    TimedLaunch,
    Word,
    below_roofline,
    together,
    word_of_change,
)

DEFAULT_BUDGET = 10.0
"""Seconds for the replays and times of one shape."""

RECORD_SECONDS = 120.0
"""A candidate's import, its call on stand-ins and its compilation."""

MOST_NAME = 200
"""Characters of a kernel's name that are shown."""

MOST_EXPECTED = 1 << 32
"""Bytes of what the author's process may answer."""

DEFAULT_TARGET = "cuda:90"
"""What is compiled for without a GPU (H100, H200)."""


@dataclass
class Bench:
    """What judgements share: sealed processes, which have imported everything, and where speeds come from."""

    sealed: bool = True
    speeds: Speeds = field(default_factory=NoSpeeds)
    target: Target = field(default_factory=lambda: Target.parse(DEFAULT_TARGET))

    def __post_init__(self) -> None:
        self.processes = PrewarmedProcesses(self.sealed)

    def start(self) -> None:
        """Everything is imported, and the device is known, before a candidate runs."""
        self.processes.wait()
        self.speeds.start(self.processes)
        self.target = self.speeds.target(self.target)

    def close(self) -> None:
        """End every process."""
        self.processes.close()


def judge(
    candidate: str,
    reference: str,
    inputs: str | Sequence[str] = (),
    *,
    budget: float = DEFAULT_BUDGET,
    sealed: bool = True,
    bench: Bench | None = None,
) -> CandidateVerdict:
    """Whether ``candidate`` (``file.py::function``, or a file in a layout that is known) computes what ``reference``
    does, and whether it is faster.

    ``inputs`` is a line or several (:mod:`kerntune.referee.declared_inputs`), a shape each, or a Python file with
    ``INPUTS``, or ``task.yml``; it can be left out where the reference's file makes inputs itself. With
    ``sealed=False`` the candidate runs without limits where the system has none.

    :class:`UsageError` for a call that can't be understood,
    :class:`MeasurementError` where the judge itself fails; whatever the candidate does is in the verdict.
    """
    other = reference_source(reference)
    if not os.path.isfile(candidate.partition("::")[0]):
        raise UsageError(f"{candidate}: there is no such file")
    try:
        source = candidate_source(candidate)
    except UsageError as exc:
        unread = ShapeResult("all", Word.REFUSED, reason=Reason.LAYOUT, text=visible(str(exc)[:500]))
        return CandidateVerdict(Word.REFUSED, candidate, _named(other), (unread,), sealed)
    with contextlib.ExitStack() as stack:
        own = bench
        if own is None:
            own = Bench(sealed, default_speeds())
            stack.callback(own.close)
        return CandidateJudgement(own, source, other, budget).run(inputs)


class CandidateJudgement:
    """One candidate beside one reference."""

    _deadline: float
    """When the budget of the shape that is judged is used."""

    def __init__(self, bench: Bench, candidate: UserCallable, reference: UserCallable, budget: float) -> None:
        self._bench, self._candidate, self._reference, self._budget = bench, candidate, reference, budget

    def run(self, inputs: str | Sequence[str]) -> CandidateVerdict:
        """The verdict over all shapes."""
        bench = self._bench
        if bench.sealed and not landlock_version():
            refused = ShapeResult("all", Word.REFUSED, reason=Reason.UNSEALED, text=TOLD[Reason.UNSEALED])
            return self._verdict([refused])
        bench.start()
        try:
            cases = self._cases(inputs)
        except Refusal as exc:
            return self._verdict([_refused("all", exc)])
        bench.speeds.prewarm(folder_of(self._reference.path), cases[0], self._budget + 5.0)
        recorded = list(self._all_recorded(cases))
        references = [
            call if isinstance(call, Refusal) else self._recorded(self._reference, case)
            for case, call in zip(cases, recorded, strict=True)
        ]
        seeds = [[secrets.randbits(63) for _ in range(SEEDS)] for _ in cases]  # the candidate's processes are dead
        shapes = [
            _refused(case.label, call) if isinstance(call, Refusal) else self._shape(case, call, other, drawn)
            for case, call, other, drawn in zip(cases, recorded, references, seeds, strict=True)
        ]
        bench.speeds.discard()
        return self._verdict(shapes)

    def _verdict(self, shapes: Sequence[ShapeResult]) -> CandidateVerdict:
        bench = self._bench
        return CandidateVerdict(
            together(shapes), _named(self._candidate), _named(self._reference), tuple(shapes), bench.sealed,
            bench.speeds.origin, bench.speeds.device or str(bench.target),
        )  # fmt: skip

    # inputs

    def _cases(self, inputs: str | Sequence[str]) -> list[CaseInputs]:
        lines = [inputs] if isinstance(inputs, str) else list(inputs)
        if len(lines) == 1 and lines[0].endswith(".py"):
            lines = list(literal_inputs(lines[0])) or [f"{lines[0]}: it has no INPUTS"]
        if len(lines) == 1 and lines[0].endswith((".yml", ".yaml")):
            return self._described(task_shapes(lines[0]))
        if lines:
            return [parse_line(line) for line in lines]
        if not makes_inputs(self._reference):
            raise UsageError(
                f"{self._reference.path}: it makes no inputs; declare them: --inputs 'x: f16[4096] normal'"
            )
        return self._described(({},))

    def _described(self, given: tuple[dict[str, Any], ...]) -> list[CaseInputs]:
        answer = self._authors(DescribeTask(self._reference, given, self._bench.speeds.on_gpu))
        return list(answer.cases)

    def _authors(self, task: DescribeTask | ExpectTask) -> ExpectAnswer:
        answered = self._bench.processes.ask(
            "expect", task, (folder_of(self._reference.path),), AUTHOR_SECONDS, MOST_EXPECTED, task.gpu
        )
        if answered.data is None:
            raise Refusal(Reason.REFERENCE, answered.how)
        answer = msgspec.msgpack.decode(answered.data, type=ExpectAnswer)
        if answer.refused is not None:
            raise Refusal(Reason.REFERENCE, answer.refused.text)
        return answer

    # recordings

    def _all_recorded(self, cases: Sequence[CaseInputs]) -> Iterator[CheckedCall | Refusal]:
        """The candidate at each shape. One that is late has used its time at all of them."""
        late: Refusal | None = None
        for case in cases:
            call = late or self._recorded(self._candidate, case)
            if isinstance(call, Refusal) and call.reason is Reason.CANDIDATE_LATE:
                late = Refusal(call.reason, "not recorded: it was late at an earlier shape")
            yield call

    def _recorded(self, source: UserCallable, case: CaseInputs) -> CheckedCall | Refusal:
        """One side's launches at one shape, by a process that is dead now."""
        bench = self._bench
        task = RecordTask(source, case, bench.target, bench.speeds.on_gpu)
        answered = bench.processes.ask("record", task, (folder_of(source.path),), RECORD_SECONDS, MOST_BYTES)
        try:
            return checked(_call_of(answered), case, bench.target)
        except Refusal as exc:
            return exc

    # one shape

    def _shape(
        self, case: CaseInputs, call: CheckedCall, reference: CheckedCall | Refusal, seeds: Sequence[int]
    ) -> ShapeResult:
        self._deadline = time.monotonic() + self._budget
        self._bench.speeds.prewarm_timing(folder_of(self._reference.path) if isinstance(reference, Refusal) else "")
        launches = tuple(TimedLaunch(visible(x.kernel[:MOST_NAME]), x.grid) for x in call.recording.launches)
        try:
            expected, patterns, answers = self._evidence(case, call, seeds)
            with ThreadPoolExecutor(self._workers) as threads:
                left = [_left(call, x, answer) for x, answer in zip(expected, answers, strict=True)]
                found = threads.map(lambda *one: list(self._errors(case, call, *one)), expected, patterns, left)
                errors = tuple(e for each in found for e in each)
        except Refusal as exc:
            return _refused(case.label, exc, launches)
        wrong = [e for e in errors if e.wrong]
        if wrong and all(e.unwritten for e in wrong):
            unwritten = Refusal(Reason.RESULT_UNWRITTEN, f"result {wrong[0].result}: {TOLD[Reason.RESULT_UNWRITTEN]}")
            return _refused(case.label, unwritten, launches)
        if wrong:
            text = f"result {wrong[0].result}: {wrong[0].wrong}" if wrong[0].result >= 0 else wrong[0].wrong
            return ShapeResult(case.label, Word.WRONG, errors, text=text, launches=launches)
        if empty := next((e for e in errors if not e.significant and e.size > 0), None):
            why = f"result {empty.result} may be off by {empty.rms_allowed:.0%} of its size, so it says nothing"
            return _refused(case.label, Refusal(Reason.DEGENERATE, why), launches)
        right = RightCandidate(
            case, call, self._reference, reference, expected, tuple(left), all(x.repeatable for x in answers),
            patterns, self._deadline,
        )  # fmt: skip
        return self._timed(right, ShapeResult(case.label, Word.UNTIMED, errors, launches=launches))

    @property
    def _workers(self) -> int:
        """Seeds that are looked at together: a GPU's machine has room for all."""
        return SEEDS if self._bench.speeds.on_gpu else 1

    def _evidence(
        self, case: CaseInputs, call: CheckedCall, seeds: Sequence[int]
    ) -> tuple[tuple[ExpectedSeed, ...], list[bytes], list[ReplayAnswer]]:
        """What the reference computes, what fills unwritten memory, and what the candidate leaves: a list a seed.
        Where the referee makes the inputs and there is a GPU, both sides compute at the same time."""
        patterns = poison_patterns(len(seeds))
        with ThreadPoolExecutor(2 * self._workers) as threads:
            contents: tuple[tuple[bytes, ...], ...] = ()
            if not (case.given or _by_author(case)):
                contents = tuple(threads.map(lambda seed: tuple(content_of(t, seed) for t in case.tensors), seeds))
            task = ExpectTask(self._reference, case, tuple(seeds), contents, self._bench.speeds.on_gpu)
            at_once = bool(contents) and self._workers > 1
            given = contents if at_once else ()
            asked = [threads.submit(self._authors, one) for one in (task.by_seed() if at_once else (task,))]
            early = [threads.submit(self._replayed, call, *one) for one in zip(given, patterns, strict=False)]
            expected = tuple(seed for one in asked for seed in one.result().seeds)
            if contents:
                replace = msgspec.structs.replace
                expected = tuple(replace(x, contents=c) for x, c in zip(expected, contents, strict=True))
            _check_reference(expected)
            if why := hardly_varies([_evidence(x) for x in expected]):
                raise Refusal(Reason.DEGENERATE, why)
            check_outlines(call, expected)
            check_results(call, case, expected[0].results)
            if not at_once:
                early = [
                    threads.submit(self._replayed, call, x.contents, poison)
                    for x, poison in zip(expected, patterns, strict=True)
                ]
            return expected, patterns, [one.result() for one in early]

    def _errors(
        self, case: CaseInputs, call: CheckedCall, expected: ExpectedSeed, poison: bytes, left_in: Sequence[bytes]
    ) -> Iterator[ResultError]:
        """The errors of what one replay left in the wanted storages."""
        after_of = dict(zip(call.wanted, left_in, strict=True))
        for number, (view, want) in enumerate(zip(call.results, expected.results, strict=True)):
            yield error_of(number, after_of[view.storage], view, want, case, poison)
        for index, (given, storage) in enumerate(zip(case.tensors, call.inputs, strict=True)):
            left = expected.changed[index] if index < len(expected.changed) else None
            if storage is None:  # no launch reaches it, or so the recording says
                if left is not None:
                    text = f"it leaves input {given.name} as it is, which the reference changes"
                    yield ResultError(-1, given.dtype, size=1.0, wrong=text)
                continue
            after, before = after_of[storage], expected.contents[index]
            if left is None and after != before:
                yield ResultError(-1, given.dtype, size=1.0, wrong=f"it changes input {given.name}")
            elif left is not None:
                view = View(storage, given.dtype, given.shape, given.strides)
                found = error_of(-1, after, view, left, case, poison)
                text = f"input {given.name}, which the reference changes: {found.wrong}" if found.wrong else ""
                yield msgspec.structs.replace(found, wrong=text)

    def _replayed(self, call: CheckedCall, given: Sequence[bytes], poison: bytes) -> ReplayAnswer:
        """What one replay leaves, in a process of its own that knows no other seed."""
        seconds, gpu = max(1.0, self._deadline - time.monotonic()), self._bench.speeds.on_gpu
        side = side_of(call, given, poison, binaries=gpu)
        sizes = [call.recording.storages[i].nbytes for i in call.wanted]
        most = sum(sizes) + 64 * len(call.recording.storages) + (1 << 20)
        task = ReplayTask(side, call.wanted, seconds, gpu)
        answered = self._bench.processes.ask("replay", task, (), seconds + 5.0, most, gpu)
        if answered.data is None:
            late = answered.end.late
            raise Refusal(Reason.REPLAY_LATE if late else Reason.FAULT, f"the replay: {answered.how}")
        answer = msgspec.msgpack.decode(answered.data, type=ReplayAnswer)
        if answer.refused is not None:
            raise Refusal(Reason(answer.refused.reason), visible(answer.refused.text))
        if len(answer.contents) != len(sizes) or any(
            c is not None and len(c) != n for c, n in zip(answer.contents, sizes, strict=True)
        ):
            raise Refusal(Reason.ANSWER, "the replay's answer has other sizes than the recording")
        if answer.outside:
            raise Refusal(Reason.OUTSIDE, f"{answer.outside:,} bytes beside all tensors are written")
        return answer

    def _timed(self, right: RightCandidate, untimed: ShapeResult) -> ShapeResult:
        speeds, replace = self._bench.speeds, msgspec.structs.replace
        untimed = replace(untimed, remarks=_constants(right.call))
        try:
            timed = speeds.measure(right)
        except Refusal as exc:
            return replace(untimed, word=Word.REFUSED, reason=exc.reason, text=str(exc) or TOLD[exc.reason])
        except KerntuneError as exc:
            return replace(untimed, text=f"right, but not timed: {visible(str(exc)[:500])}")
        if timed is None:
            return replace(untimed, text=f"right on {SEEDS} contents; {speeds.why_not}")
        if timed.wrong:
            return replace(untimed, word=Word.WRONG, text=timed.wrong)
        return _with_times(untimed, timed, right)


def _with_times(untimed: ShapeResult, timed: TimedPair, right: RightCandidate) -> ShapeResult:
    remarks = (*untimed.remarks, *timed.remarks)
    if isinstance(right.reference, Refusal):
        remarks = (*remarks, f"the reference isn't replayed: {right.reference}")
    moved = bytes_that_must_move(right.case, right.call)
    found = msgspec.structs.replace(
        untimed, word=word_of_change(timed.change), change=timed.change, warm=timed.warm,
        reference_ns=timed.reference_ns, candidate_ns=timed.candidate_ns, launches=timed.shares(untimed.launches),
        must_move=moved, bandwidth=timed.bandwidth, remarks=remarks,
    )  # fmt: skip
    if below_roofline(timed.candidate_ns, moved, timed.bandwidth):
        text = f"{timed.candidate_ns:,.0f} ns for {moved:,} bytes, at {timed.bandwidth or 0:.3g} bytes a second at most"
        return msgspec.structs.replace(found, word=Word.REFUSED, reason=Reason.ROOFLINE, text=text)
    return found


def bytes_that_must_move(case: CaseInputs, call: CheckedCall) -> int:
    """Bytes of inputs that have to come from memory once. A tensor that an index may choose from (one of its sizes is
    what a declared index is below) needn't be read whole, so it doesn't count; nor do results, which may stay in the
    cache until after the clock is read."""
    chosen_from = {int(t.high) + 1 for t in case.tensors if t.content == "integers"}
    return sum(
        call.recording.storages[storage].nbytes
        for given, storage in zip(case.tensors, call.inputs, strict=True)
        if storage is not None and not chosen_from & set(given.shape)
    )


def _left(call: CheckedCall, expected: ExpectedSeed, answer: ReplayAnswer) -> tuple[bytes, ...]:
    """What each wanted storage held after a replay."""
    given = call.contents(expected.contents)
    pairs = zip(call.wanted, answer.contents, strict=True)
    return tuple(given[i] or b"" if after is None else after for i, after in pairs)


def _by_author(case: CaseInputs) -> bool:
    return any(t.content == "author" for t in case.tensors)


def _check_reference(seeds: Sequence[ExpectedSeed]) -> None:
    """Whether the reference's results are of known dtypes, and lie alike for all seeds."""
    layouts = {tuple((r.dtype, r.shape, r.strides, r.input) for r in _evidence(seed)) for seed in seeds}
    if len(layouts) != 1:
        raise Refusal(Reason.REFERENCE, "its results have other layouts for other numbers")
    results = [r for seed in seeds for r in (*seed.results, *filter(None, seed.changed))]
    unknown = sorted({r.dtype for r in results} - ITEM_BYTES.keys())
    if results and not any(r.native for r in results):
        raise Refusal(Reason.DEGENERATE, "no result of the reference has an element")
    if unknown or not results:
        raise Refusal(Reason.REFERENCE, f"its results are {', '.join(unknown) or 'none'}, which can't be judged")


def _evidence(seed: ExpectedSeed) -> tuple[ExpectedResult, ...]:
    """What the reference computes: its results, and inputs that it changes."""
    return seed.results or tuple(c for c in seed.changed if c is not None)


def _constants(call: CheckedCall) -> tuple[str, ...]:
    """What launches get that the candidate has made, by size: a table of results would be among it."""
    reached = {storage for launch in call.recording.launches for storage in launch.reads}
    sizes = sorted((len(c.data) for c in call.constants if c.storage in reached), reverse=True)
    largest = ", ".join(map(format_bytes, sizes[:8]))
    text = f"{len(sizes)} constants of {format_bytes(sum(sizes))} made before the launches, the largest: {largest}"
    return (text,) if sizes else ()


RECORDERS = (
    Reason.CANDIDATE_FAILED, Reason.COMPILE, Reason.MEMORY, Reason.NO_LAUNCH, Reason.OPERATOR, Reason.RESULT_COUNT,
    Reason.RESULT_LAYOUT, Reason.STREAMS, Reason.UNSEEN, Reason.VALUES,
)  # fmt: skip
"""What a recorder may refuse for. It may be the candidate that says so."""


def _call_of(answered: Answered) -> Any:
    """What a recorder has answered; :class:`Refusal` for anything but a recorded call."""
    end = answered.end
    if end.survivors:
        raise Refusal(Reason.SURVIVORS, f"{end.survivors} processes are left")
    if end.cannot_seal:
        raise Refusal(Reason.UNSEALED, end.cannot_seal)
    if answered.data is None:
        raise Refusal(Reason.CANDIDATE_LATE if end.late else Reason.CANDIDATE_DIED, answered.how)
    answer = decoded(answered.data)
    if answer.refused is not None:
        reason = next((r for r in RECORDERS if r.value == answer.refused.reason), Reason.ANSWER)
        raise Refusal(reason, visible(" ".join(answer.refused.text[:1000].split())))
    if answer.call is None:
        raise Refusal(Reason.ANSWER, "its answer is empty")
    return answer.call


def _refused(label: str, exc: Refusal, launches: tuple[TimedLaunch, ...] = ()) -> ShapeResult:
    return ShapeResult(label, Word.REFUSED, reason=exc.reason, text=str(exc) or TOLD[exc.reason], launches=launches)


def _named(source: UserCallable) -> str:
    path = Path(source.path)
    shown = os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
    return shown if source.layout != FUNCTION else f"{shown}::{source.name}"
