"""What a candidate leaves, beside what the reference computes, on contents that are drawn after it was recorded.

The reference's results come from processes that never see the candidate; the candidate's from a process for each usual
content, which gets that content alone. On a GPU extreme contents are in one process; where results are few, many usual
contents are in one process more.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, TypeVar

import msgspec

from kerntune.base.formatting import visible
from kerntune.base.recording import View
from kerntune.gpu.number_formats import FLOAT_FORMATS
from kerntune.referee.candidate_speed import AUTHOR_SECONDS
from kerntune.referee.declared_inputs import ODD_POISONS, content_of, contents_of, poison_patterns
from kerntune.referee.errors_together import (
    ErrorsTogether,
    check_reference,
    differs,
    errors_of,
    hardly_changed,
    hardly_varies,
    held_changes,
    in_buffers,
    is_demanded,
    left_of,
    together_of,
    unequal_of,
    unvaried,
    what_counts,
    wrong_together,
)
from kerntune.referee.extreme_contents import DECIDED, DRAWN_FLOATS, GRIDS, OF_NAN
from kerntune.referee.further_contents import (
    affordable,
    beside_deviations,
    drawn_anew,
    has_deviations,
    many_contents,
)
from kerntune.referee.hostile_recording import CheckedCall, check_outlines, check_results, given_contents, side_of
from kerntune.referee.influences import unfollowed
from kerntune.referee.prewarmed import PrewarmedProcesses
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.result_errors import ResultError
from kerntune.referee.tasks import (
    CaseInputs,
    Constant,
    DescribeTask,
    ExpectAnswer,
    ExpectedSeed,
    ExpectTask,
    Given,
    ReplayAnswer,
    ReplaySide,
    ReplayTask,
    Rolls,
    UserCallable,
    Variation,
)
from kerntune.referee.timed_contents import ComparedReplays, RightCandidate, in_a_row, places, variation_of

MOST_EXPECTED = 1 << 32
"""Bytes of what the author's process may answer."""

AT_ONCE = 12
"""Contents that are looked at together on a GPU's machine."""

FURTHER = 48
"""And so many where a mean error may be a bias or chance: what the numbers of one content have in common, as a rounded
norm is, varies from content to content alone."""

DRAWS = 16
"""Of roundings inside of a reference beside which a result seems wrong. Of 4,000 contents of Liger's dyt, 457
were off by more than sums explain, and none by six deviations."""

MOST_EMULATED = 1 << 25
"""Bytes of inputs and results up to which what is right on a GPU is emulated, too: more takes longer than its time."""

CORES_EACH = 4
"""For each of these that runs beside what is timed: a host that launches call by call must not wait."""

INDICES = ("int64", "int32")
"""What results may be indices."""

T = TypeVar("T")

Compared = tuple[ExpectedSeed, bytes, tuple[bytes, ...], Sequence[str]]
"""What the reference computes, what fills unwritten memory, what the replay left, and the content's form."""

Replayed = tuple[Sequence[bytes], bytes, float]
"""A content that is replayed, what fills unwritten memory, and when that must be done (seconds of a clock)."""


class ReplayComparer:
    """Compares, for one reference."""

    def __init__(self, processes: PrewarmedProcesses, reference: UserCallable, on_gpu: bool, budget: float) -> None:
        self._processes, self._reference, self._on_gpu, self._budget = processes, reference, on_gpu, budget

    def described(self, given: tuple[dict[str, Given], ...]) -> list[CaseInputs]:
        """The cases whose inputs the task's own code makes."""
        return list(self._authors(DescribeTask(self._reference, given, self._on_gpu)).cases)

    def compare(
        self, case: CaseInputs, call: CheckedCall, forms: Sequence[tuple[str, ...]], end: float
    ) -> ComparedReplays:
        """Both sides' results, on a content for each of ``forms``, of which the usual ones are empty and first. The
        candidate's processes are dead. :class:`Refusal` where that is no evidence, or can't be had."""
        usual = sum(not any(form) for form in forms)
        expected, patterns, answers, kept, dropped = self._results(case, call, forms, usual, end)
        left = [left_of(call, x, answer) for x, answer in zip(expected, answers, strict=True)]
        together = together_of(case, expected[:usual])
        given = list(zip(expected, patterns, left, kept, strict=True))
        with ThreadPoolExecutor(self._workers) as threads:
            promised = self._beside(threads, self._of_ties, case, call, expected[0], together, end)
            second = self._beside(threads, self._of_second_call, case, call, expected[:usual], together, end)
            found = self._errors(case, call, together, given[:usual])
            errors = tuple(e for each in found for e in each)
            if not any(e.wrong for e in errors):
                found += self._errors(case, call, together, given[usual:])
            wrong = tuple(e for each in found for e in each if e.wrong)
            few, count = many_contents(case, expected[0])
            wrong = wrong or self._of_many(few, call, expected[0], together, count) or promised() or second()
        wrong = wrong or tuple(wrong_together(case, together))
        wrong = wrong or tuple(unfollowed(case, call, expected[:usual], left[:usual]))
        if not wrong and any(one.undecided for one in together.values()):
            more = self._of_many(case, call, expected[0], together, affordable(case, FURTHER))
            wrong = more or tuple(wrong_together(case, together))
        if not wrong and (why := hardly_changed(case, together)):
            raise Refusal(Reason.DEGENERATE, why)
        repeatable = all(x.repeatable for x in answers[:usual])
        return ComparedReplays(expected, patterns, left, repeatable, errors, wrong, dropped)

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
            raise Refusal(Reason.REFERENCE, answered.how)
        answer = msgspec.msgpack.decode(answered.data, type=ExpectAnswer)
        if answer.refused is not None:
            raise Refusal(Reason.REFERENCE, answer.refused.text)
        return answer

    def _results(
        self, case: CaseInputs, call: CheckedCall, forms: Sequence[Sequence[str]], usual: int, deadline: float
    ) -> tuple[tuple[ExpectedSeed, ...], list[bytes], list[ReplayAnswer], list[Sequence[str]], int]:
        """What the reference computes, what fills unwritten memory, what the candidate leaves, and the form: a list a
        content; and at how many the reference failed. Where the referee makes the inputs and there is a GPU, both sides
        compute at the same time; else what demands nothing isn't replayed: what a kernel does with NaN may be a fault
        in the emulator."""
        seeds = [secrets.randbits(63) for _ in forms]
        patterns = [*poison_patterns(usual), *poison_patterns(len(forms) - usual)]
        more = self._budget * (len(forms) - usual) / max(usual, 1)  # seconds, for extreme contents
        ends = [deadline + (more if any(form) else 0.0) for form in forms]
        with ThreadPoolExecutor(2 * self._workers) as threads:
            contents: tuple[tuple[bytes, ...], ...] = ()
            if not case.made_by_author:
                contents = tuple(threads.map(partial(contents_of, case.tensors), seeds, forms))
            at_once = bool(contents) and self._workers > 1
            given = contents if at_once else ()
            closely, extreme = (usual, usual) if contents else (0, None)
            task = ExpectTask(
                self._reference,
                case,
                tuple(seeds),
                contents,
                self._on_gpu,
                closely=closely,
                extreme=extreme,
                usual=usual,
            )
            asked = [threads.submit(self._authors, one) for one in (task.parts() if at_once else (task,))]
            early = self._replays(threads, case, call, list(zip(given, patterns, ends, strict=False)), usual)
            expected = self._expected(asked, task, usual)
            check_reference(expected)
            dropped = len(forms) - len(expected)
            alike = "" if many_contents(case, expected[0])[1] else hardly_varies(what_counts(expected[:usual]))
            if why := alike or unvaried(case, expected[:usual]) or self._added_to(case, expected[:usual]):
                raise Refusal(Reason.DEGENERATE, why)
            check_outlines(call, expected)
            expected = tuple(in_buffers(call, case, x) for x in expected)
            check_results(call, case, expected[0].results)
            every = list(zip(expected, patterns, ends, forms, strict=False))
            if not at_once:
                every = [one for one in every if is_demanded(case, one[0], one[3])]
                each = [(x.contents, pattern, until) for x, pattern, until, _ in every]
                early = self._replays(threads, case, call, each, usual)
            answers = list[ReplayAnswer]()
            for one in early:
                answers += one.result() if len(answers) < len(every) else ()
            kept, fills, _, of = zip(*every, strict=True)
            return kept, list(fills), answers[: len(every)], list(of), dropped

    def _expected(
        self, asked: Sequence[Future[ExpectAnswer]], task: ExpectTask, usual: int
    ) -> tuple[ExpectedSeed, ...]:
        """What the reference computes, with the contents; where it fails, without extreme contents, and without other
        numbers than those that are given: a failed assertion on a GPU leaves no results of its process."""
        found: tuple[ExpectedSeed, ...] = ()
        try:
            for one in asked:
                found += one.result().seeds
        except Refusal:
            if not task.contents:
                raise
            wait(asked)  # they have the device's memory
            seeds, contents = task.seeds[:usual], task.contents[:usual]
            fewer = msgspec.structs.replace(task, seeds=seeds, contents=contents, closely=0, extreme=None)
            found = found[:usual] if len(found) >= usual else self._authors(fewer).seeds
        replace = msgspec.structs.replace
        return tuple(replace(x, contents=c) for x, c in zip(found, task.contents, strict=False)) or found

    def _of_many(
        self, case: CaseInputs, call: CheckedCall, first: ExpectedSeed, together: Mapping[int, ErrorsTogether],
        count: int,
    ) -> tuple[ResultError, ...]:  # fmt: skip
        """What is wrong on so many further contents, in one process for all, as far as the time of another budget
        reaches. A single flag may have been the same for the first few. Known inputs are those of ``first``."""
        if not count or not call.wanted:
            return ()
        seeds = tuple(secrets.randbits(63) for _ in range(count))
        drawn = () if case.made_by_author else tuple(drawn_anew(case, seed, first.contents) for seed in seeds)
        answered = self._authors(ExpectTask(self._reference, case, seeds, drawn, self._on_gpu)).seeds
        expected = tuple(in_buffers(call, case, x) for x in answered)
        contents = drawn or tuple(x.contents for x in expected)
        check_reference((first, *expected))
        if why := hardly_varies(what_counts((first, *expected))):
            raise Refusal(Reason.DEGENERATE, why)
        (poison,), end = poison_patterns(1), time.monotonic() + self._budget
        if variation_of(case, call, least=1).storages:
            answers = self._in_a_row(case, call, contents, poison, end)
        else:  # no launch reaches what varies
            answers = [self._replayed(call, contents[0], poison, end)] * count
        wants = [msgspec.structs.replace(x, contents=c) for x, c in zip(expected, contents, strict=True)]
        given = [(w, poison, left_of(call, w, answer), ()) for w, answer in zip(wants, answers, strict=False)]
        return tuple(e for each in self._errors(case, call, together, given) for e in each if e.wrong)

    def _errors(
        self, case: CaseInputs, call: CheckedCall, together: Mapping[int, ErrorsTogether],
        given: Sequence[Compared], on_gpu: bool | None = None,
    ) -> list[list[ResultError]]:  # fmt: skip
        """The errors of each content; where a result is wrong, beside what roundings inside of the reference do to it,
        if that takes no time."""
        on_gpu, one = self._on_gpu if on_gpu is None else on_gpu, partial(errors_of, case, call, together)
        with ThreadPoolExecutor(self._workers) as threads:
            found = list(threads.map(lambda compared: list(one(*compared)), given))
        again = [i for i, errors in enumerate(found) if any(e.wrong for e in errors) and has_deviations(*given[i])]
        seeds, contents = tuple(secrets.randbits(63) for _ in again), tuple(given[i][0].contents for i in again)
        with contextlib.suppress(Refusal):
            task = ExpectTask(self._reference, case, seeds, contents, on_gpu, draws=DRAWS)
            for i, other in zip(again, self._authors(task).seeds if again else (), strict=True):
                want = beside_deviations(given[i][0], other)
                found[i] = list(one(want, *given[i][1:], again=True))
        return found

    def _of_ties(
        self, case: CaseInputs, call: CheckedCall, first: ExpectedSeed, together: Mapping[int, ErrorsTogether],
        end: float,
    ) -> tuple[ResultError, ...]:  # fmt: skip
        """What is wrong where more is promised than rounding allows: indices of equal numbers where torch documents
        them, and all results where all that the reference does is exact."""
        wanted = [r.dtype for r in (*first.results, *filter(None, first.changed))]
        whole = any(dtype not in FLOAT_FORMATS for dtype in wanted)
        kinds: list[tuple[str, tuple[str, ...]]] = [("", ("ties",))] * bool({*wanted} & {*INDICES})
        if first.exact:
            kinds += [("grid", GRIDS), ("decided", DECIDED), *[("nan", OF_NAN)] * whole]
        if all(t.content not in DRAWN_FLOATS for t in case.tensors):
            return ()
        with ThreadPoolExecutor(self._workers) as threads:
            asked = [
                self._beside(threads, self._of_promised, case, call, together, exact, words, end)
                for exact, words in kinds
            ]
            for (exact, _), one in zip(kinds, asked, strict=True):
                promised, wrong = one()
                if wrong or (exact and not promised):
                    return wrong
        return ()

    def _added_to(self, case: CaseInputs, usual: Sequence[ExpectedSeed]) -> str:
        """The input that is one number in all contents and that the reference adds to: whether a candidate adds, none
        tells. What it only fills may be one number. Empty if there is none."""
        for i in held_changes(case, usual):
            given, first = case.tensors[i], usual[0]
            kind = "normal" if given.dtype in FLOAT_FORMATS else "integers"
            drawn = content_of(msgspec.structs.replace(given, content=kind, low=0.0, high=1.0), secrets.randbits(63))
            contents = (*first.contents[:i], drawn, *first.contents[i + 1 :])
            task = ExpectTask(self._reference, case, (0,), (contents,), self._on_gpu)
            with contextlib.suppress(Refusal):  # it may take such numbers alone
                if differs(first, self._authors(task).seeds[0]):
                    return f"input {given.name} is one number in every content, and is added to; it needs others"
        return ""

    def _of_second_call(
        self, case: CaseInputs, call: CheckedCall, usual: Sequence[ExpectedSeed],
        together: Mapping[int, ErrorsTogether], end: float,
    ) -> tuple[ResultError, ...]:  # fmt: skip
        """What is wrong in a second call, where the first has left other numbers in memory from before the call."""
        if not call.kept:
            return ()
        replace, (poison,), sizes = msgspec.structs.replace, poison_patterns(1), call.recording.storages
        views = (View(i, "uint8", (sizes[i].nbytes,), (1,)) for i in call.kept)
        watched, first = replace(call, results=(*call.results, *views)), usual[0].contents
        left = dict(zip(watched.wanted, self._replayed(watched, first, poison, end).contents, strict=True))
        begun = given_contents(side_of(call, first, poison, self._on_gpu))
        kept = {i: data for i in call.kept if (data := left[i]) is not None and data != begun[i]}
        if not kept:
            return ()
        fills = tuple(f for f in call.fills if f.storage not in kept)
        constants = (*(c for c in call.constants if c.storage not in kept), *(Constant(*one) for one in kept.items()))
        again, want = replace(call, fills=fills, constants=constants), usual[-1]
        after = left_of(again, want, self._replayed(again, want.contents, poison, end))
        (found,) = self._errors(case, again, together, [(want, poison, after, ())])
        told = "in a second call, which finds what the first has left in memory from before: "
        return tuple(replace(e, wrong=told + e.wrong, unwritten=False) for e in found if e.wrong)

    def _of_promised(
        self, case: CaseInputs, call: CheckedCall, together: Mapping[int, ErrorsTogether], exact: str,
        words: Sequence[str], end: float,
    ) -> tuple[bool, tuple[ResultError, ...]]:  # fmt: skip
        """Whether the reference promises its results there, and what is wrong on contents with floats of these forms,
        as far as the time reaches."""
        forms = [tuple(word if t.content in DRAWN_FLOATS else "" for t in case.tensors) for word in words]
        seeds, patterns = tuple(secrets.randbits(63) for _ in forms), poison_patterns(len(forms))
        with ThreadPoolExecutor(self._workers) as threads:
            given = tuple(threads.map(partial(contents_of, case.tensors), seeds, forms))
        task = ExpectTask(self._reference, case, seeds, given, self._on_gpu, ties=not exact, exact=exact)
        found = tuple[ExpectedSeed, ...]()
        with contextlib.suppress(Refusal):  # torch's operators can't be watched there
            found = self._authors(task).seeds
        promised, answers = len(found) == len(forms), list[ReplayAnswer]()
        each = [(contents, poison, end) for contents, poison in zip(given, patterns, strict=True)]
        with ThreadPoolExecutor(self._workers) as threads:
            for one in self._replays(threads, case, call, each if promised else (), 0):
                try:
                    answers += one.result()
                except Refusal as exc:
                    if exc.reason is not Reason.REPLAY_LATE:
                        raise
                    break
        for i, answer in enumerate(answers):
            want = msgspec.structs.replace(found[i], contents=given[i])
            after = left_of(call, want, answer)
            errors = (
                unequal_of(case, call, want, after, forms[i])
                if exact
                else errors_of(case, call, together, want, patterns[i], after, forms[i])
            )
            if wrong := tuple(e for e in errors if e.wrong):
                return True, wrong
        return promised, ()

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
        variation = msgspec.structs.replace(variation_of(case, call, least=1), whole=True)
        side = in_a_row(side_of(call, contents[0], poison, self._on_gpu), call, contents, variation)
        answer, each = (
            self._answer(side, call, end, variation, places(call, variation, len(contents))),
            len(call.wanted),
        )
        cut = [answer.contents[i : i + each] for i in range(0, len(answer.contents), each)]
        return [msgspec.structs.replace(answer, contents=one) for one in cut]

    def _replayed(self, call: CheckedCall, given: Sequence[bytes], poison: bytes, end: float) -> ReplayAnswer:
        """What one replay leaves, in a process of its own that knows no other content."""
        return self._answer(side_of(call, given, poison, self._on_gpu), call, end, Variation(), ((),))

    def emulated(self, right: RightCandidate, end: float) -> ResultError | None:
        """What is wrong in the emulator with what is right on the GPU: what a masked lane holds there is the compiler's
        choice, and a race may be won. :class:`Refusal` for a fault, or where that isn't known by ``end``. Unwritten
        memory is odd: zeros may be right."""
        given = sum(map(len, right.expected[0].contents)) + sum(len(r.native) for r in right.expected[0].results)
        if given > MOST_EMULATED:
            raise Refusal(Reason.REPLAY_LATE, "the emulator takes too long for tensors of this size")
        odd = [i for i, poison in enumerate(right.patterns) if poison[1] in ODD_POISONS]
        with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)) // CORES_EACH)) as threads:
            each = [threads.submit(self._emulated, right, seed, end) for seed in odd]
        unknown: Refusal | None = None
        for one in each:
            try:
                if (wrong := one.result()) is not None:
                    return wrong
            except Refusal as exc:
                if exc.reason in (Reason.FAULT, Reason.OUTSIDE):
                    raise
                unknown = exc
        if unknown is not None:
            raise unknown
        return None

    def _emulated(self, right: RightCandidate, seed: int, end: float) -> ResultError | None:
        case, call, want, poison = right.case, right.call, right.expected[seed], right.patterns[seed]
        side = side_of(call, want.contents, poison, binaries=False)
        answer = self._answer(side, call, end, Variation(), ((),), on_gpu=False)
        together = together_of(case, right.expected)
        given = (want, poison, left_of(call, want, answer), ())
        (errors,) = self._errors(case, call, together, [given], on_gpu=False)
        return next((e for e in errors if e.wrong), None)

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
