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
from kerntune.referee.content_errors import Compared
from kerntune.referee.content_forms import DRAWN_FLOATS
from kerntune.referee.declared_inputs import ODD_POISONS, POISONS, contents_of, poison_patterns
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
    nearly_alike,
)
from kerntune.referee.hostile_recording import CheckedCall, check_outlines, check_results, side_of
from kerntune.referee.influences import unfollowed
from kerntune.referee.later_call import IN_IT, behind, check_later_results
from kerntune.referee.open_elements import FAILS, not_compared
from kerntune.referee.other_contents import MOST_EMULATED, SPARSE_CONTENTS, OtherContents
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
from kerntune.referee.result_errors import ResultError
from kerntune.referee.rounding_limits import FEW
from kerntune.referee.tasks import ExpectAnswer, ExpectedSeed, ExpectTask, ReplayAnswer, Variation
from kerntune.referee.timed_contents import ComparedReplays, RightCandidate, variation_of
from kerntune.referee.torch_operators import with_tf32

FURTHER = 48
"""And so many where a mean error may be a bias or chance: what the numbers of one content have in common, as a rounded
norm is, varies from content to content alone."""

LATER_CONTENTS, LATER_OF_LARGE = 6, 2
"""Contents that a later call is judged on, in one process; of large inputs, which take as long as the others do."""

OTHER_CONTENTS = 3
"""And those that each of an autotuner's other configs is judged on."""

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


class ReplayComparer(OtherContents):
    """Compares, for one reference."""

    def compare(
        self, case: CaseInputs, call: CheckedCall, forms: Sequence[tuple[str, ...]], end: float,
        known: Callable[[], object] = lambda: None,
    ) -> ComparedReplays:  # fmt: skip
        """Both sides' results, on a content for each of ``forms``, of which the usual ones are empty and first. The
        candidate's processes are dead. ``known`` is called once the results are. :class:`Refusal` where that is no
        evidence, or can't be had."""
        usual = sum(not any(form) for form in forms)
        contents = self._drawn(case, forms)
        with ThreadPoolExecutor(1) as threads:  # a later call's reference beside the first one's
            near = self._beside(threads, self._near, case, call, contents[:usual]) if contents else None
            expected, patterns, answers, kept, dropped = self._results(case, call, forms, usual, end, contents)
        known()
        left = [left_of(call, x, answer) for x, answer in zip(expected, answers, strict=True)]
        of = ShapeComparison(case, call, together_of(case, expected[:usual]))
        given, once = list(zip(expected, patterns, left, kept, strict=True)), list[str]()
        with ThreadPoolExecutor(self._workers) as threads:
            promised = self._beside(threads, self._of_ties, of, expected[0])
            later = self._beside(threads, self._of_later_call, of, given, usual, once, near)
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
            wrong = wrong or self._of_many(replace(of, case=few), expected[:usual], count, once) or promised()
            wrong = wrong or later() or sparse() or made() or alike() or self._of_convolutions(of, given, usual)
            wrong = wrong or far() or self._of_unread(of, expected[:usual])
        wrong = wrong or tuple(wrong_together(of))
        wrong = wrong or tuple(unfollowed(case, call, expected[:usual], left[:usual], self._workers))
        if not wrong and any(one.undecided for one in of.together.values()):
            more = self._of_many(of, expected[:usual], affordable(case, FURTHER))
            wrong = more or tuple(wrong_together(of))
        if not wrong and (why := hardly_changed(of)):
            raise Refusal(Reason.DEGENERATE, why)
        repeatable = all(x.repeatable for x in answers[:usual])
        remarks = (*not_compared(expected[:usual]), *once, *always_equal(case, expected[:usual]))
        if any(e.by_products for each in found for e in each):
            remarks += (BY_PRODUCTS,)
        if dropped:
            remarks += (f"the reference fails at {dropped} contents beside the usual ones, which were left out",)
        return ComparedReplays(expected, patterns, left, repeatable, errors, wrong, remarks, kept)

    def follow_from_numbers(self, case: CaseInputs, call: CheckedCall, others: Sequence[ExpectedSeed]) -> bool:
        """Whether the reference has other results with a task's own numbers than ``others``: what it doesn't read may
        say in words what an input is, the longest of its lengths for example."""
        contents = tuple(one.contents for one in others[:SPARSE_CONTENTS])
        task = ExpectTask(self._reference, case, (0,) * len(contents), contents, self._on_gpu)
        own = (in_buffers(call, case, one) for one in self._authors(task).seeds)
        return any(differs(one, other) for one, other in zip(own, others[:SPARSE_CONTENTS], strict=True))

    def other_recording(self, case: CaseInputs, call: CheckedCall, known: ComparedReplays) -> tuple[ResultError, ...]:
        """What is wrong with a candidate that is recorded otherwise, on few of the contents that are ``known``."""
        check_outlines(call, known.expected)
        check_results(call, case, known.expected[0].results)
        given = list(zip(known.expected, known.patterns, known.left, known.forms, strict=True))
        usual = sum(not any(form) for form in known.forms)
        of = ShapeComparison(case, call, together_of(case, known.expected[:usual]))
        return self._on_few(of, given, usual, OTHER_CONTENTS)

    def _drawn(self, case: CaseInputs, forms: Sequence[Sequence[str]]) -> tuple[tuple[bytes, ...], ...]:
        """The contents that the referee makes; none where the task's own code makes them."""
        seeds = [secrets.randbits(63) for _ in forms if not case.made_by_author]
        with ThreadPoolExecutor(2 * self._workers) as threads:
            return tuple(threads.map(partial(contents_of, case.tensors), seeds, forms))

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
        self, of: ShapeComparison, usual: Sequence[ExpectedSeed], count: int, once: list[str] | None = None
    ) -> tuple[ResultError, ...]:
        """What is wrong on so many further contents, in one process for all, as far as the time of another budget
        reaches: if that isn't all, ``once`` gets it. A single flag may have been the same for the usual ones. Known
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
        if once is not None and len(answers) < count:
            once.append(f"{len(answers)} of {count} further contents were compared, as far as the time reaches")
        wants = [replace(x, contents=c) for x, c in zip(expected, contents, strict=True)]
        given = [(w, poison, left_of(call, w, answer), ()) for w, answer in zip(wants, answers, strict=False)]
        return tuple(e for each in self._errors(of, given) for e in each if e.wrong)

    def _of_later_call(
        self, of: ShapeComparison, given: Sequence[Compared], usual: int, once: list[str],
        near: Callable[[], tuple[ExpectedSeed, ...]] | None = None,
    ) -> tuple[ResultError, ...]:  # fmt: skip
        """What is wrong in a later call, behind some on other numbers, on a usual content, some that are ``near`` those
        of the call before, and drawn extreme ones. Where it can't be replayed, ``once`` gets why. A model's own floats
        are those of the content then, as they were before the first."""
        case = of.case
        if of.call.again is None:
            return ()
        again = behind(of.call, given[0][0].contents)
        expected = [one for one, *_ in given[:usual]]
        alone = replace(of, call=again, together=together_of(case, expected))
        found = near() if near else self._near(case, of.call, [one.contents for one in expected])
        nearly = tuple[ExpectedSeed, ...]()
        with contextlib.suppress(Refusal):  # its results there lie otherwise
            check_reference((*expected, *found))
            nearly = tuple(in_buffers(again, case, one) for one in found)
        try:
            wrong = self._on_few(alone, given, usual, LATER_CONTENTS, nearly)
        except Refusal as exc:
            if exc.reason in (Reason.FAULT, Reason.OUTSIDE):
                raise Refusal(exc.reason, f"{IN_IT}{exc}") from None
            once.append(f"judged by its first call alone: a later one can't be replayed: {exc}")
            return ()
        told = "in a later call, which finds what those before have left: "
        return tuple(replace(e, wrong=told + e.wrong, unwritten=False) for e in wrong)

    def _of_convolutions(self, of: ShapeComparison, given: Sequence[Compared], usual: int) -> tuple[ResultError, ...]:
        """What is wrong where torch's convolutions beside the kernels are as a GPU has them, and the reference has
        none."""
        rows = with_tf32(of.call.operators, of.call.recording)
        if self._on_gpu or given[0][0].convolves or rows == of.call.operators:
            return ()
        narrow = replace(of, call=replace(of.call, operators=rows))
        told = "; torch's convolutions of float32 have tf32 on a GPU, unless a setting is another"
        return tuple(replace(e, wrong=e.wrong + told) for e in self._on_few(narrow, given[:usual], usual, 1))

    def _near(self, case: CaseInputs, call: CheckedCall, usual: Sequence[Sequence[bytes]]) -> tuple[ExpectedSeed, ...]:
        """What the reference computes of contents that are nearly the first of the usual ones, for a later call."""
        near = nearly_alike(case, usual[0], usual[:2][-1], secrets.randbits(63)) if call.again is not None else []
        contents = tuple(map(tuple, near[:1] if sum(map(len, usual[0])) >= MOST_EMULATED else near))
        task = ExpectTask(self._reference, case, (0,) * len(contents), contents, self._on_gpu)
        with contextlib.suppress(Refusal):  # it takes no such numbers together
            found = self._authors(task).seeds if contents else ()
            return tuple(replace(x, contents=c) for x, c in zip(found, contents[: len(found)], strict=True))
        return ()

    def _on_few(
        self, of: ShapeComparison, given: Sequence[Compared], usual: int, most: int, near: Sequence[ExpectedSeed] = ()
    ) -> tuple[ResultError, ...]:
        """What is wrong on a usual content, those ``near`` others, and drawn extreme ones, in one process."""
        case, call, (want, *_), chance = of.case, of.call, given[usual - 1], secrets.SystemRandom()
        most = most if sum(map(len, want.contents)) < MOST_EMULATED else LATER_OF_LARGE
        extreme = chance.sample(given[usual:], min(most - 1, len(given) - usual))
        wants: list[tuple[ExpectedSeed, Sequence[str]]] = [(one, ()) for one in (want, *near[:most])]
        wants += [(one, form) for one, _, _, form in extreme]
        (poison,), end = poison_patterns(1), time.monotonic() + self._budget
        if variation_of(case, call, least=1).storages:
            answers = self._in_a_row(case, call, [one.contents for one, _ in wants], poison, end)
        else:
            answers = [self._replayed(call, want.contents, poison, end)]
        pairs = zip(wants, answers, strict=False)
        compared = [(one, poison, left_of(call, one, answer), form) for (one, form), answer in pairs]
        errors = self._as_written(of, compared, self._errors(of, compared))
        return tuple(e for each in errors for e in each if e.wrong)

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
