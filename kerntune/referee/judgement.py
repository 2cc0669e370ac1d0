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
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from kerntune.base.device import Target
from kerntune.base.formatting import visible
from kerntune.errors import KerntuneError, UsageError
from kerntune.referee import layouts
from kerntune.referee.candidate_speed import SEEDS, Speeds, TimedPair, default_speeds
from kerntune.referee.case_inputs import CaseInputs, UserCallable
from kerntune.referee.content_forms import extreme_forms
from kerntune.referee.declared_inputs import names_of, parse_line
from kerntune.referee.element_errors import ResultError
from kerntune.referee.errors_together import COUNTER
from kerntune.referee.further_contents import affordable
from kerntune.referee.hostile_recording import MOST_BYTES, CheckedCall, checked
from kerntune.referee.later_call import with_later
from kerntune.referee.other_configs import OtherConfigs
from kerntune.referee.other_numbers import case_before, other_numbers, unchanged, where_numbers_count
from kerntune.referee.prewarmed import PrewarmedProcesses
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.recorder_answer import answer_of
from kerntune.referee.replay_comparer import ReplayComparer
from kerntune.referee.replay_processes import AT_ONCE
from kerntune.referee.sealing import landlock_version
from kerntune.referee.tasks import RecordTask
from kerntune.referee.timed_contents import RightCandidate
from kerntune.referee.verdicts import (
    CandidateVerdict,
    ShapeResult,
    TimedLaunch,
    Word,
    below_roofline,
    bytes_that_must_move,
    constants_told,
    launches_of,
    together,
    word_of_change,
)

DEFAULT_BUDGET, MOST_BUDGET = 10.0, 86_400
"""Seconds for the replays and times of one shape."""

RECORD_SECONDS = 120.0
"""A candidate's import, its call on stand-ins and its compilation."""

MOST_TOGETHER = 8
"""Recordings, and cases with other numbers, at a time."""

EMULATED_SECONDS = 3.0
"""What is right on a GPU is emulated for so long at most: to time it takes longer."""

NOT_EMULATED = "races, misaligned addresses, false hints and what masked lanes hold were not looked for"

HOLD = "; where numbers belong together, == instead of = holds them"
"""What a message on other numbers adds: a mask may belong to lengths."""

THESE_NUMBERS, ONE_SHAPE = "these numbers", "one shape in a process"

_T = TypeVar("_T")

Twin = tuple[str, CaseInputs, "CheckedCall | Refusal"]
"""What is judged alone, if not this: a case whose label says what is other there, and the candidate's recording."""

DEFAULT_TARGET = "cuda:90"
"""What is compiled for without a GPU (H100, H200)."""


@dataclass
class Bench:
    """What judgements share: sealed processes, which have imported everything, and where speeds come from."""

    sealed: bool = True
    speeds: Speeds = field(default_factory=Speeds)
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
    if unnamed := next((x for x in (candidate, reference) if not isinstance(x, str)), None):
        raise UsageError(f"{unnamed!r}: name its file and function, 'file.py::function': other processes import it")
    inputs = [inputs] if isinstance(inputs, str) else inputs
    if not isinstance(inputs, (list, tuple)) or not all(isinstance(x, str) for x in inputs):
        raise UsageError(f"inputs: {inputs!r}: give a line for each shape, or a file's name")
    if not isinstance(budget, (int, float)) or not 0 < budget < MOST_BUDGET:
        raise UsageError("the budget is a number of seconds above 0, and less than a day")
    other = layouts.reference_source(reference)
    if not os.path.isfile(candidate.partition("::")[0]):
        raise UsageError(f"{candidate}: there is no such file")
    try:
        source, other = layouts.candidate_beside(candidate, other, inputs)
    except UsageError as exc:
        unread = ShapeResult("all", Word.REFUSED, reason=Reason.LAYOUT, text=visible(str(exc)[:500]))
        return CandidateVerdict(Word.REFUSED, candidate, _named(other), (unread,), sealed)
    if task := _task_of(inputs):
        modules = layouts.task_modules(task)
        source, other = (replace(x, modules=modules) for x in (source, other))
        if other.layout == layouts.FUNCTION:
            other = replace(other, layout=layouts.GPU_MODE)
    with contextlib.ExitStack() as stack:
        own = bench or stack.enter_context(contextlib.closing(Bench(sealed, default_speeds())))
        verdict = CandidateJudgement(own, source, other, budget).run(inputs)
    return verdict if task else _with_task_beside(verdict, Path(other.path).with_name("task.yml"))


def _task_of(inputs: str | Sequence[str]) -> str:
    """The ``task.yml`` that inputs are; empty if they are something else."""
    lines = [inputs] if isinstance(inputs, str) else inputs
    return lines[0] if len(lines) == 1 and lines[0].endswith((".yml", ".yaml")) else ""


def _with_task_beside(verdict: CandidateVerdict, task: Path) -> CandidateVerdict:
    """The verdict. Where code fails for want of a shape or a module, it names the task that may have it."""
    told = f"the task's shapes and modules: --inputs {visible(str(task))}"
    lacking = [s.reason is Reason.REFERENCE or "No module named" in s.text for s in verdict.shapes]
    if not any(lacking) or not task.is_file():
        return verdict
    shapes = zip(verdict.shapes, lacking, strict=True)
    return replace(verdict, shapes=tuple(replace(s, text=f"{s.text}; {told}") if x else s for s, x in shapes))


class CandidateJudgement:
    """One candidate beside one reference."""

    _deadline: float
    """When the budget of the shape that is judged is used."""

    def __init__(self, bench: Bench, candidate: UserCallable, reference: UserCallable, budget: float) -> None:
        self._bench, self._candidate, self._reference, self._budget = bench, candidate, reference, budget
        self._comparer = ReplayComparer(bench.processes, reference, bench.speeds.on_gpu, budget)
        self._remarks, self._late = layouts.remarks_of_imports(candidate, reference), False

    def run(self, inputs: str | Sequence[str]) -> CandidateVerdict:
        """The verdict over all shapes."""
        bench = self._bench
        if bench.sealed and not landlock_version():
            return self._verdict([_refused("all", Refusal(Reason.UNSEALED))])
        bench.start()
        try:
            cases = self._cases(inputs)
        except Refusal as exc:
            return self._verdict([_refused("all", exc)])
        bench.speeds.prewarm(self._reference.readable, cases[0], self._budget + 5.0)
        others = [other_numbers(case, secrets.SystemRandom()) for case in cases]
        asked = [partial(self._of_candidate, case, later=True) for case in cases]
        for case, each in zip(cases, others, strict=True):  # what a first call's numbers have left may not matter
            before = None if case.init or case.parameters else case
            asked += [partial(self._of_candidate, other, before=before) for other in each]
        recorded = list(self._each(asked))
        recorded, again = recorded[: len(cases)], iter(recorded[len(cases) :])
        twins = [[(THESE_NUMBERS, other, next(again)) for other in each] for each in others]
        for number, (call, twin) in enumerate(zip(recorded, twins, strict=True)):
            if not isinstance(call, Refusal) and (before := case_before(cases, number)):
                other = replace(cases[number], label="a call at another shape before")
                twin.append((ONE_SHAPE, other, self._recorded(self._candidate, other, before=before)))
        record = partial(self._recorded, self._candidate)
        configs = [OtherConfigs(call, partial(record, case)) for case, call in zip(cases, recorded, strict=True)]
        references = [
            call if isinstance(call, Refusal) else self._recorded(self._reference, case)
            for case, call in zip(cases, recorded, strict=True)
        ]
        shapes = [  # the candidate's processes are dead: contents are drawn from here on
            _refused(case.label, call) if isinstance(call, Refusal) else self._shape(case, call, other, twin, config)
            for case, call, other, twin, config in zip(cases, recorded, references, twins, configs, strict=True)
        ]
        bench.speeds.discard()
        return self._verdict(shapes)

    def _verdict(self, shapes: Sequence[ShapeResult]) -> CandidateVerdict:
        bench = self._bench
        return CandidateVerdict(
            together(shapes), _named(self._candidate), _named(self._reference), tuple(shapes), bench.sealed,
            bench.speeds.origin, bench.speeds.device or str(bench.target), self._remarks,
        )  # fmt: skip

    # inputs

    def _cases(self, inputs: str | Sequence[str]) -> list[CaseInputs]:
        lines = [inputs] if isinstance(inputs, str) else list(inputs)
        if len(lines) == 1 and lines[0].endswith(".py"):
            lines = list(layouts.literal_inputs(lines[0])) or [f"{lines[0]}: it has no INPUTS"]
        made = layouts.makes_inputs(self._reference)
        if (task := _task_of(lines)) and made:
            return self._comparer.described(layouts.task_shapes(task, small=not self._bench.speeds.on_gpu))
        if lines and not task:
            cases, takes = [parse_line(line) for line in lines], layouts.parameters_of(self._reference)
            for names in map(names_of, lines):
                if {*names} <= {*takes} and names != takes[: len(names)]:
                    raise UsageError(
                        f"inputs {', '.join(names)}: they go by position, and {self._reference.name} takes "
                        f"{', '.join(takes)}; declare them in this order"
                    )
            return cases
        if not made:
            maker = layouts.MAKERS.get(self._reference.layout)
            otherwise = f", or import {maker} of the task's there" if maker else ""
            told = "it makes no inputs; declare them: --inputs 'x: f16[4096] normal'"
            raise UsageError(f"{self._reference.path}: {told}{otherwise}")
        return self._comparer.described(({},))

    # recordings

    def _of_candidate(self, case: CaseInputs, **otherwise: Any) -> CheckedCall | Refusal:
        """The candidate at a shape. One that is late has used its time at all that aren't recorded yet."""
        if case.unmade:
            return Refusal(Reason.REFERENCE, case.unmade)
        if self._late:
            return Refusal(Reason.CANDIDATE_LATE, "not recorded: it was late at an earlier shape")
        call = self._recorded(self._candidate, case, **otherwise)
        self._late |= isinstance(call, Refusal) and call.reason is Reason.CANDIDATE_LATE
        return call

    def _recorded(self, source: UserCallable, case: CaseInputs, **otherwise: Any) -> CheckedCall | Refusal:
        """One side's launches at one shape, by a process that is dead now."""
        bench = self._bench
        task = RecordTask(source, case, bench.target, bench.speeds.on_gpu, **otherwise)
        answered = bench.processes.ask("record", task, source.readable, RECORD_SECONDS, MOST_BYTES)
        try:
            first, again = answer_of(answered)
            call = checked(first, case, bench.target, calls=1 if task.before is None else 2)
            return with_later(call, again, case, bench.target) if task.later else call
        except Refusal as exc:
            return exc

    def _each(self, asked: Sequence[Callable[[], _T]]) -> Iterable[_T]:
        """What each gives: all at once on a GPU's machine, which has processors for that."""
        if not self._bench.speeds.on_gpu or not asked:
            return (one() for one in asked)
        with ThreadPoolExecutor(min(len(asked), MOST_TOGETHER)) as threads:
            return list(threads.map(lambda one: one(), asked))

    # one shape

    def _shape(
        self, case: CaseInputs, call: CheckedCall, reference: CheckedCall | Refusal, twins: Sequence[Twin],
        configs: OtherConfigs,
    ) -> ShapeResult:  # fmt: skip
        self._deadline = time.monotonic() + self._budget
        readable = self._reference.readable if isinstance(reference, Refusal) else ()
        prewarm = partial(self._bench.speeds.prewarm_timing, readable, self._reference.readable)
        launches = launches_of(call)
        forms: list[tuple[str, ...]] = [()] * SEEDS
        if not case.made_by_author:
            forms += extreme_forms(case.tensors, secrets.SystemRandom())
        try:
            found = self._comparer.compare(case, call, forms, self._deadline, prewarm)
        except Refusal as exc:
            return _refused(case.label, exc, launches)
        errors, wrong = found.errors, found.wrong
        if wrong and all(e.unwritten for e in wrong):
            unwritten = Refusal(Reason.RESULT_UNWRITTEN, f"result {wrong[0].result}: {Reason.RESULT_UNWRITTEN.told}")
            return _refused(case.label, unwritten, launches)
        if wrong:
            worst = next((e for e in wrong if not e.unwritten), wrong[0])
            text = f"result {worst.result}: {worst.wrong}" if worst.result >= 0 else worst.wrong
            told = (*errors, *(e for e in wrong if e not in errors))
            text += call.told_of_weights(case) + call.told_of_products(worst.dtype, worst.rms)
            return ShapeResult(case.label, Word.WRONG, told, text=text, launches=launches)
        if empty := next((e for e in errors if not e.significant and e.size > 0), None):
            why = f"result {empty.result} may be off by {empty.rms_allowed:.0%} of its size, so it says nothing"
            return _refused(case.label, Refusal(Reason.DEGENERATE, why), launches)
        remarks, cuts = found.remarks, [found.cut]
        for given in case.tensors:
            if given.alike:
                remarks += (f"input {given.name} is one number at this shape; other shapes have others",)
            if given.name.endswith(COUNTER):
                remarks += (f"{given.name} isn't compared",)
        remarks += unchanged(case, [one for what, one, _ in twins if what == THESE_NUMBERS])
        if call.leaves:
            remarks += (f"it leaves {', '.join(call.leaves)} of torch otherwise for the whole program",)
        if case.holds:
            remarks += ("numbers after == were no others, so a candidate may know them",)
        try:
            compare = partial(self._comparer.other_recording, case, known=found)
            told_of_configs = partial(configs.told, compare, AT_ONCE if self._bench.speeds.on_gpu else 1)
            for said in self._each([told_of_configs, *(partial(self._of_twin, cuts, case, *twin) for twin in twins)]):
                if not isinstance(said, tuple):
                    told = (*errors, said)
                    return ShapeResult(case.label, Word.WRONG, told, text=said.wrong, launches=launches)
                remarks += said
        except Refusal as exc:
            return _refused(case.label, exc, launches)
        cut = "; ".join(filter(None, cuts))
        remarks = (*remarks, cut) if cut else remarks
        right = RightCandidate(
            case, call, self._reference, reference, found.expected[:SEEDS], tuple(found.left[:SEEDS]),
            found.repeatable, found.patterns[:SEEDS], self._deadline, cut,
        )  # fmt: skip
        untimed = ShapeResult(case.label, Word.UNTIMED, errors, launches=launches, remarks=remarks)
        if not self._bench.speeds.on_gpu:
            return self._timed(right, untimed)
        with ThreadPoolExecutor(1) as beside:
            emulated = beside.submit(self._comparer.emulated, right, time.monotonic() + EMULATED_SECONDS)
            return _with_emulated(self._timed(right, untimed), emulated)

    def _of_twin(
        self, cuts: list[str], own: CaseInputs, what: str, case: CaseInputs, call: CheckedCall | Refusal
    ) -> ResultError | tuple[str, ...]:
        """What is wrong where numbers that are known when recording are others than in ``own``, or what a reader should
        know. ``cuts`` gets what the time didn't reach."""
        try:
            if isinstance(call, Refusal):
                return (f"judged with {what} alone: with {case.label} the candidate is refused: {call}",)
            forms = [()] * max(2, affordable(case, SEEDS)) + where_numbers_count(case, secrets.SystemRandom())
            found = self._comparer.compare(case, call, forms, self._deadline)
            cuts += [f"with {case.label}: {found.cut}"] * bool(found.cut)
            made = bool(found.wrong) and what == THESE_NUMBERS and case.made_by_author
            if made and not self._comparer.follow_from_numbers(own, call, found.expected):
                return (f"judged with {what} alone: the reference's results don't follow from {case.label}",)
        except Refusal as exc:
            if exc.reason in (Reason.FAULT, Reason.OUTSIDE) and what != THESE_NUMBERS:  # which may not belong together
                raise Refusal(exc.reason, f"with {case.label}: {exc}") from None
            return (f"judged with {what} alone: with {case.label} nothing can be compared: {exc}",)
        for error in found.wrong:
            told = "" if what != THESE_NUMBERS or case.made_by_author else HOLD
            return replace(error, wrong=f"with {case.label}: {error.wrong}{told}")
        return ()

    def _timed(self, right: RightCandidate, untimed: ShapeResult) -> ShapeResult:
        speeds = self._bench.speeds
        untimed = replace(untimed, remarks=(*constants_told(right.call), *untimed.remarks))
        try:
            timed = speeds.measure(right)
        except Refusal as exc:
            return replace(untimed, word=Word.REFUSED, reason=exc.reason, text=str(exc))
        except KerntuneError as exc:
            return replace(untimed, text=f"right, but not timed: {visible(str(exc)[:500])}")
        if timed is None:
            return replace(untimed, text=f"right on {SEEDS} contents; {speeds.why_not}")
        if timed.wrong:
            return replace(untimed, word=Word.WRONG, text=timed.wrong)
        return _with_times(untimed, timed, right)


def _with_emulated(shape: ShapeResult, emulated: Future[ResultError | None]) -> ShapeResult:
    """What was timed, or was right, unless the emulator says otherwise."""
    if shape.word in (Word.WRONG, Word.REFUSED):
        return shape
    try:
        wrong = emulated.result()
    except Refusal as exc:
        if exc.reason in (Reason.FAULT, Reason.OUTSIDE):
            return replace(shape, word=Word.REFUSED, reason=exc.reason, text=f"in the emulator: {exc}")
        return replace(shape, remarks=(*shape.remarks, f"{NOT_EMULATED}: {exc}"))
    if wrong is None:
        return shape
    text = f"in the emulator, result {wrong.result}: {wrong.wrong}"
    return replace(shape, word=Word.WRONG, errors=(*shape.errors, wrong), text=text)


def _with_times(untimed: ShapeResult, timed: TimedPair, right: RightCandidate) -> ShapeResult:
    remarks = (*untimed.remarks, *timed.remarks)
    if isinstance(right.reference, Refusal):
        remarks = (*remarks, f"the reference isn't replayed: {right.reference}")
    moved = bytes_that_must_move(right.case, right.call)
    word, text = word_of_change(timed.change), untimed.text
    if right.cut and word in (Word.FASTER, Word.SAME):
        word, text = Word.UNDECIDED, f"{right.cut}; a larger --budget reaches more"
        remarks = tuple(one for one in remarks if one != right.cut)
    found = replace(
        untimed, word=word, text=text, change=timed.change, warm=timed.warm,
        reference_ns=timed.reference_ns, candidate_ns=timed.candidate_ns, launches=timed.shares(untimed.launches),
        must_move=moved, bandwidth=timed.bandwidth, remarks=remarks,
    )  # fmt: skip
    if below_roofline(timed.candidate_ns, moved, timed.bandwidth):
        text = f"{timed.candidate_ns:,.0f} ns for {moved:,} bytes, at {timed.bandwidth or 0:.3g} bytes a second at most"
        return replace(found, word=Word.REFUSED, reason=Reason.ROOFLINE, text=text)
    return found


def _refused(label: str, exc: Refusal, launches: tuple[TimedLaunch, ...] = ()) -> ShapeResult:
    return ShapeResult(label, Word.REFUSED, reason=exc.reason, text=str(exc), launches=launches)


def _named(source: UserCallable) -> str:
    path = Path(source.path)
    shown = os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
    return shown if source.name in layouts.LAYOUTS else f"{shown}::{source.name}"
