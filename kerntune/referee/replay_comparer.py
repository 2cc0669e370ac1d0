"""What a candidate leaves, beside what the reference computes, on contents that are drawn after it was recorded.

Where results are few, many usual contents are in one process more.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial

from msgspec.structs import replace

from kerntune.referee.case_inputs import CaseInputs
from kerntune.referee.content_forms import DRAWN_FLOATS
from kerntune.referee.declared_inputs import ODD_POISONS, POISONS, contents_of, poison_patterns
from kerntune.referee.element_errors import ResultError
from kerntune.referee.errors_together import (
    BY_PRODUCTS,
    ShapeComparison,
    hardly_changed,
    is_demanded,
    left_of,
    together_of,
    wrong_together,
)
from kerntune.referee.further_contents import (
    MANY,
    affordable,
    drawn_anew,
    many_contents,
)
from kerntune.referee.hostile_recording import CheckedCall, check_outlines, check_results, side_of
from kerntune.referee.influences import unfollowed
from kerntune.referee.later_call import check_later_results
from kerntune.referee.open_elements import FAILS, not_compared
from kerntune.referee.other_calls import OtherCalls
from kerntune.referee.other_contents import MOST_EMULATED, SPARSE_CONTENTS, promising
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.reference_evidence import (
    always_equal,
    check_reference,
    differs,
    follows,
    hardly_varies,
    in_buffers,
    restored_input,
    unvaried,
    what_counts,
)
from kerntune.referee.replay_processes import parts_of
from kerntune.referee.rounding_limits import FEW
from kerntune.referee.tasks import ExpectAnswer, ExpectedSeed, ExpectTask, ReplayAnswer, Variation
from kerntune.referee.timed_contents import ComparedReplays, RightCandidate, variation_of

FURTHER = 48
"""And so many where a mean error may be a bias or chance: what the numbers of one content have in common, as a rounded
norm is, varies from content to content alone."""

CLOSELY = 2
"""Contents of the task's own code whose results are computed once more, off by a rounding: its tensors are large."""

AUTHOR_RUNS = 2
"""The reference runs as it is and in float64: its time for further contents is so many times a replay's."""

PROBES = 2
"""Further contents that tell whether a result follows from what varies in them."""

CORES_EACH = 4
"""For each of these that runs beside what is timed: a host that launches call by call must not wait."""


def poisons_of(forms: Sequence[Sequence[str]], usual: int) -> list[bytes]:
    """What fills unwritten memory, by content. Behind an end of a range a weight is zero, so that NaN alone counts."""
    found, (nan,) = [*poison_patterns(usual), *poison_patterns(len(forms) - usual)], poison_patterns(1, POISONS[:1])
    return [nan if "paired" in form else one for form, one in zip(forms, found, strict=True)]


class ReplayComparer(OtherCalls):
    """Compares, for one reference."""

    def compare(
        self, case: CaseInputs, call: CheckedCall, forms: Sequence[tuple[str, ...]], end: float,
        known: Callable[[int], object] = lambda further: None,
    ) -> ComparedReplays:  # fmt: skip
        """Both sides' results, on a content for each of ``forms``, of which the usual ones are empty and first. The
        candidate's processes are dead. ``known`` is called once the results are, with how many further processes of
        the author will be asked soon. :class:`Refusal` where that is no evidence, or can't be had."""
        usual = sum(not any(form) for form in forms)
        contents = self._drawn(case, forms)
        with ThreadPoolExecutor(self._workers) as threads:
            early = self._on_gpu and bool(contents) and call.again is not None  # a later call beside the first one
            replayed = threads.submit(self._replay_later, case, call, contents, usual).result if early else None
            expected, patterns, answers, kept, dropped = self._results(case, call, forms, usual, end, contents)
            known(len(promising(case, expected[0])))
            left = [left_of(call, x, answer) for x, answer in zip(expected, answers, strict=True)]
            of = ShapeComparison(case, call, together_of(case, expected[:usual]))
            given, once, cut = list(zip(expected, patterns, left, kept, strict=True)), list[str](), list[str]()
            promised = self._beside(threads, self._of_ties, of, expected[0])
            later = self._beside(threads, self._of_later_call, of, given, usual, once, replayed)
            far = self._beside(threads, self._of_far, of, expected[0])
            sparse = self._beside(threads, self._of_sparse, of, expected[:usual])
            made = self._beside(threads, self._of_made, of, expected[:usual])
            alike = self._beside(threads, self._of_alike, of, expected[:usual])
            first = self._first_errors(of, given)
            found = self._second_look(of, given[:usual], first[:usual])
            if not any(e.wrong for each in found for e in each):
                found += self._as_written(of, given[usual:], self._second_look(of, given[usual:], first[usual:]))
            found = self._with_memory_told(of, found, given)
            errors = tuple(e for each in found[:usual] for e in each)
            wrong = tuple(e for each in found for e in each if e.wrong)
            if told := restored_input(case, call, expected[:usual], answers[0]):
                wrong += (ResultError(-1, "", size=1.0, wrong=told),)
            few, count = many_contents(case, expected[0])
            few, count = (few, count) if wrong else self._reached(case, few, count, expected[:usual])
            wrong = wrong or self._of_many(replace(of, case=few), expected[:usual], count, cut) or promised()
            wrong = wrong or later() or sparse() or made() or alike() or self._of_convolutions(of, given, usual)
            wrong = wrong or far() or self._of_unread(of, expected[:usual])
        wrong = wrong or tuple(wrong_together(of))
        wrong = wrong or tuple(unfollowed(case, call, expected[:usual], left[:usual], self._workers))
        if not wrong and any(one.undecided for one in of.together.values()):
            more = self._of_many(of, expected[:usual], affordable(case, FURTHER), cut)
            wrong = more or tuple(wrong_together(of))
        if not wrong and (why := hardly_changed(of)):
            raise Refusal(Reason.DEGENERATE, why)
        repeatable = all(x.repeatable for x in answers[:usual])
        remarks = (*not_compared(expected[:usual]), *once, *always_equal(case, expected[:usual]))
        if any(e.by_products for each in found for e in each):
            remarks += (BY_PRODUCTS,)
        if dropped:
            remarks += (f"the reference fails at {dropped} contents beside the usual ones, which were left out",)
        return ComparedReplays(expected, patterns, left, repeatable, errors, wrong, remarks, kept, "; ".join(cut))

    def follow_from_numbers(self, case: CaseInputs, call: CheckedCall, others: Sequence[ExpectedSeed]) -> bool:
        """Whether the reference has other results with a task's own numbers than ``others``: what it doesn't read may
        say in words what an input is, the longest of its lengths for example."""
        contents = tuple(one.contents for one in others[:SPARSE_CONTENTS])
        task = ExpectTask(self._reference, case, (0,) * len(contents), contents, self._on_gpu)
        own = (in_buffers(call, case, one) for one in self._authors(task).seeds)
        return any(differs(one, other) for one, other in zip(own, others[:SPARSE_CONTENTS], strict=True))

    def _drawn(self, case: CaseInputs, forms: Sequence[Sequence[str]]) -> tuple[tuple[bytes, ...], ...]:
        """The contents that the referee makes; none where the task's own code makes them."""
        seeds = [secrets.randbits(63) for _ in forms if not case.made_by_author]
        with ThreadPoolExecutor(2 * self._workers) as threads:
            return tuple(threads.map(partial(contents_of, case.tensors, plain=case.numbers), seeds, forms))

    def _results(
        self, case: CaseInputs, call: CheckedCall, forms: Sequence[Sequence[str]], usual: int, deadline: float,
        contents: tuple[tuple[bytes, ...], ...],
    ) -> tuple[tuple[ExpectedSeed, ...], list[bytes], list[ReplayAnswer], list[Sequence[str]], int]:  # fmt: skip
        """What the reference computes, what fills unwritten memory, what the candidate leaves, and the form: a list a
        content; and at how many the reference failed. Where the referee makes the inputs and there is a GPU, both sides
        compute at the same time; else what demands nothing isn't replayed: what a kernel does with NaN may be a fault
        in the emulator."""
        seeds = tuple(secrets.randbits(63) for _ in forms)
        patterns = poisons_of(forms, usual)
        extreme_seconds = self._budget * (len(forms) - usual) / max(usual, 1)
        more = [extreme_seconds if any(form) else 0.0 for form in forms]
        with ThreadPoolExecutor(2 * self._workers) as threads:
            at_once = bool(contents) and self._workers > 1
            closely, extreme = (usual, usual) if contents else (CLOSELY, None)
            task = ExpectTask(
                self._reference, case, seeds, contents, self._on_gpu,
                closely=closely, extreme=extreme, usual=usual,
            )  # fmt: skip
            asked = [threads.submit(self._authors, one) for one in (parts_of(task) if at_once else (task,))]
            given = zip(contents if at_once else (), patterns, more, strict=False)
            early = self._replays(threads, case, call, [(x, p, deadline + m) for x, p, m in given], usual)
            expected = self._expected(asked, task, usual)
            check_reference(expected)
            if undefined := next(filter(None, (x.undefined for x in expected[:usual])), ""):
                raise Refusal(Reason.REFERENCE, undefined)
            dropped = len(forms) - len(expected) + sum(one.undefined == FAILS for one in expected)
            alike = "" if many_contents(case, expected[0])[1] else hardly_varies(what_counts(expected[:usual]))
            if why := alike or unvaried(case, expected[:usual]) or self._added_to(case, expected[:usual]):
                raise Refusal(Reason.DEGENERATE, why)
            check_outlines(call, expected)
            expected = tuple(in_buffers(call, case, x) for x in expected)
            check_results(call, case, expected[0].results)
            check_later_results(call, case, expected)
            every = list(zip(expected, patterns, more, forms, strict=False))
            if not at_once:
                every = [one for one in every if is_demanded(case, one[0], one[3])]
                begun = max(deadline, time.monotonic() + self._budget)  # the reference's time is none of a replay's
                each = [(x.contents, pattern, begun + m) for x, pattern, m, _ in every]
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
            wait(asked)
            self._processes.wait_for_ends()
            seeds, contents = task.seeds[:usual], task.contents[:usual]
            fewer = replace(task, seeds=seeds, contents=contents, closely=0, extreme=None)
            found = found[:usual] if len(found) >= usual else self._authors(fewer).seeds
        pairs = zip(found, task.contents, strict=False)
        return tuple(replace(x, contents=c) for x, c in pairs) or found

    def _reached(
        self, case: CaseInputs, few: CaseInputs, count: int, usual: Sequence[ExpectedSeed]
    ) -> tuple[CaseInputs, int]:
        """The case of :func:`many_contents` and its count; unless what varies there leaves a result of few elements as
        it is: then all inputs vary, in as many contents as their size allows."""
        if few is case or not count:
            return few, count
        answered, _ = self._further(few, usual[0], PROBES)
        small = [[r for r in one if math.prod(r.shape) < FEW] for one in what_counts((usual[0], *answered))]
        if not hardly_varies(small):
            return few, count
        count = affordable(case, MANY)
        if not count and (why := hardly_varies(what_counts(usual))):
            raise Refusal(Reason.DEGENERATE, why)
        return case, count

    def _further(
        self, case: CaseInputs, first: ExpectedSeed, count: int
    ) -> tuple[tuple[ExpectedSeed, ...], tuple[tuple[bytes, ...], ...]]:
        """What the reference computes on so many contents more, or as many as the time reaches, and these."""
        seeds = tuple(secrets.randbits(63) for _ in range(count))
        drawn = () if case.made_by_author else tuple(drawn_anew(case, seed, first.contents) for seed in seeds)
        seconds = AUTHOR_RUNS * self._budget
        answered = self._authors(ExpectTask(self._reference, case, seeds, drawn, self._on_gpu, seconds=seconds)).seeds
        return answered, drawn[: len(answered)] or tuple(x.contents for x in answered)

    def _of_many(
        self, of: ShapeComparison, usual: Sequence[ExpectedSeed], count: int, cut: list[str]
    ) -> tuple[ResultError, ...]:
        """What is wrong on so many further contents, in one process for all, as far as the time of another budget
        reaches: if that isn't all, ``cut`` gets it. A single flag may have been the same for the usual ones. Known
        inputs are those of the first."""
        case, call = of.case, of.call
        if not count or not call.wanted:
            return ()
        answered, contents = self._further(case, usual[0], count)
        expected = tuple(in_buffers(call, case, x) for x in answered)
        check_reference((*usual, *expected))
        if why := hardly_varies(what_counts((*usual, *expected))):
            raise Refusal(Reason.DEGENERATE, why)
        (poison,), end = poison_patterns(1), time.monotonic() + self._budget
        if variation_of(case, call, least=1).storages:
            answers = self._in_a_row(case, call, contents, poison, end)
        else:  # no launch reaches what varies
            answers = [self._replayed(call, contents[0], poison, end)] * len(contents)
        if len(answers) < count:
            cut.append(f"{len(answers)} of {count} further contents were compared, as far as the time reaches")
        wants = [replace(x, contents=c) for x, c in zip(expected, contents, strict=True)]
        given = [(w, poison, left_of(call, w, answer), ()) for w, answer in zip(wants, answers, strict=False)]
        return tuple(e for each in self._errors(of, given) for e in each if e.wrong)

    def _of_unread(self, of: ShapeComparison, usual: Sequence[ExpectedSeed]) -> tuple[ResultError, ...]:
        """What is wrong where no launch is given an input that was drawn later, though a result follows from it."""
        case, (first, *others) = of.case, usual
        floats = [k for k in of.call.ignored(case) if case.tensors[k].content in (*DRAWN_FLOATS, "author") and others]
        contents = tuple((*first.contents[:k], others[0].contents[k], *first.contents[k + 1 :]) for k in floats)
        task = ExpectTask(self._reference, case, (0,) * len(floats), contents, self._on_gpu)
        with contextlib.suppress(Refusal):  # its inputs belong together
            for k, other in zip(floats, self._authors(task).seeds if floats else (), strict=True):
                if (number := follows(first, other)) is not None:
                    text = f"no launch reads input {case.tensors[k].name}, from which it follows"
                    return (ResultError(number, first.results[number].dtype, size=1.0, wrong=text),)
        return ()

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
        of = ShapeComparison(case, call, together_of(case, right.expected))
        (errors,) = self._errors(of, [(want, poison, left_of(call, want, answer), ())], on_gpu=False)
        if told := restored_input(case, call, right.expected, answer):
            errors.append(ResultError(-1, "", size=1.0, wrong=told))
        return next((e for e in errors if e.wrong), None)
