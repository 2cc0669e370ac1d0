"""What is wrong with other calls than the first one, on a few of its contents each.

They are a later call, one that is recorded otherwise, and one whose convolutions are a GPU's.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from msgspec.structs import replace

from kerntune.referee.case_inputs import CaseInputs
from kerntune.referee.content_errors import Compared
from kerntune.referee.declared_inputs import poison_patterns
from kerntune.referee.element_errors import ResultError
from kerntune.referee.errors_together import ShapeComparison, left_of, together_of
from kerntune.referee.further_contents import nearly_alike
from kerntune.referee.hostile_recording import CheckedCall, check_outlines, check_results
from kerntune.referee.later_call import IN_IT, behind
from kerntune.referee.other_contents import MOST_EMULATED, OtherContents
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.reference_evidence import check_reference, in_buffers
from kerntune.referee.tasks import ExpectedSeed, ExpectTask, ReplayAnswer
from kerntune.referee.timed_contents import ComparedReplays, variation_of
from kerntune.referee.torch_operators import with_tf32

LATER_CONTENTS, LATER_OF_LARGE = 6, 2
"""Contents that a later call is judged on, in one process; of large inputs, which take as long as the others do."""

OTHER_CONTENTS = 3
"""And those that each of an autotuner's other configs is judged on."""


class FewReplays(NamedTuple):
    """What replays leave of some of the known contents, by their numbers, in one process."""

    which: Sequence[int]
    poison: bytes
    answers: Sequence[ReplayAnswer]


class LaterReplays(NamedTuple):
    """Those of a later call, or why there are none. Behind the first of the known contents come some that are ``near``
    them: what the reference computes of these, or None."""

    few: FewReplays | Refusal
    near: Sequence[ExpectedSeed | None]


class OtherCalls(OtherContents):
    """Compares these, for one reference."""

    def other_recording(self, case: CaseInputs, call: CheckedCall, known: ComparedReplays) -> tuple[ResultError, ...]:
        """What is wrong with a candidate that is recorded otherwise, on few of the contents that are ``known``."""
        check_outlines(call, known.expected)
        check_results(call, case, known.expected[0].results)
        given = list(zip(known.expected, known.patterns, known.left, known.forms, strict=True))
        usual = sum(not any(form) for form in known.forms)
        of = ShapeComparison(case, call, together_of(case, known.expected[:usual]))
        return self._on_few(of, given, usual, OTHER_CONTENTS)

    def _of_convolutions(self, of: ShapeComparison, given: Sequence[Compared], usual: int) -> tuple[ResultError, ...]:
        """What is wrong where torch's convolutions beside the kernels are as a GPU has them, and the reference has
        none."""
        rows = with_tf32(of.call.operators, of.call.recording)
        if self._on_gpu or given[0][0].convolves or rows == of.call.operators:
            return ()
        narrow = replace(of, call=replace(of.call, operators=rows))
        told = "; torch's convolutions of float32 have tf32 on a GPU, unless a setting is another"
        return tuple(replace(e, wrong=e.wrong + told) for e in self._on_few(narrow, given[:usual], usual, 1))

    def _of_later_call(
        self, of: ShapeComparison, given: Sequence[Compared], usual: int, once: list[str],
        replayed: Callable[[], LaterReplays] | None = None,
    ) -> tuple[ResultError, ...]:  # fmt: skip
        """What is wrong in a later call, behind some on other numbers: on a usual content, some that are near those of
        the call before, and drawn extreme ones, which may have been ``replayed`` meanwhile. Where that fails, it may be
        for want of room, or at numbers at which the reference does, so it is done again without them. Where the call
        can't be replayed, or not on all, ``once`` gets that. A model's own floats are those of the content then, as
        they were before the first."""
        case = of.case
        if of.call.again is None:
            return ()
        contents = [one.contents for one, *_ in given]
        few, near = replayed() if replayed else self._replay_later(case, of.call, contents, usual)
        again, found = behind(of.call, contents[0]), [x for x in near if x is not None]
        if isinstance(few, Refusal) and (replayed or len(found) < len(near)):
            few, near = self._few_or_why(case, again, contents, usual, [x.contents for x in found]), found
        if isinstance(few, Refusal):
            if few.reason in (Reason.FAULT, Reason.OUTSIDE):
                raise Refusal(few.reason, f"{IN_IT}{few}")
            once.append(f"judged by its first call alone: a later one can't be replayed: {few}")
            return ()
        done, asked = len(few.answers), len(few.which) + len(near)
        if done < asked and variation_of(case, again, least=1).storages:
            once.append(f"of a later call {done} of {asked} contents were compared, as far as the time reaches")
        expected = [one for one, *_ in given[:usual]]
        try:
            check_reference((*expected, *found))
            near = [x and in_buffers(again, case, x) for x in near]
        except Refusal:  # its results there lie otherwise
            near = [None] * len(near)
        alone = replace(of, call=again, together=together_of(case, expected))
        wrong = self._errors_of_few(alone, given, few, near)
        told = "in a later call, which finds what those before have left: "
        return tuple(replace(e, wrong=told + e.wrong, unwritten=False) for e in wrong)

    def _replay_later(
        self, case: CaseInputs, call: CheckedCall, contents: Sequence[Sequence[bytes]], usual: int
    ) -> LaterReplays:
        """What the later call leaves of some of these contents, the ``usual`` ones first, and of some that are near
        them."""
        again, large = behind(call, contents[0]), sum(map(len, contents[0])) >= MOST_EMULATED
        every = nearly_alike(case, contents[0], contents[:usual][:2][-1], secrets.randbits(63))
        near = tuple(itertools.islice(every, 1 if large else None))
        count = len(near)
        task = ExpectTask(self._reference, case, (0,) * count, near, self._on_gpu, closely=count)
        with ThreadPoolExecutor(1) as threads:
            few = self._beside(threads, self._few_or_why, case, again, contents, usual, near)
            computed = self._near_results(task)
            return LaterReplays(few(), computed)

    def _few_or_why(
        self, case: CaseInputs, again: CheckedCall, contents: Sequence[Sequence[bytes]], usual: int,
        near: Sequence[Sequence[bytes]],
    ) -> FewReplays | Refusal:  # fmt: skip
        try:
            return self._few_replays(case, again, contents, usual, LATER_CONTENTS, near)
        except Refusal as exc:
            return exc

    def _near_results(self, task: ExpectTask) -> list[ExpectedSeed | None]:
        found = tuple[ExpectedSeed, ...]()
        with contextlib.suppress(Refusal):  # it takes no such numbers together
            found = self._authors(task).seeds if task.contents else ()
        none = [None] * (len(task.contents) - len(found))
        return [*(replace(x, contents=c) for x, c in zip(found, task.contents, strict=False)), *none]

    def _on_few(self, of: ShapeComparison, given: Sequence[Compared], usual: int, most: int) -> tuple[ResultError, ...]:
        """What is wrong on a usual content and drawn extreme ones. :class:`Refusal` where they can't be replayed."""
        few = self._few_replays(of.case, of.call, [one.contents for one, *_ in given], usual, most)
        return self._errors_of_few(of, given, few)

    def _few_replays(
        self, case: CaseInputs, call: CheckedCall, contents: Sequence[Sequence[bytes]], usual: int, most: int,
        near: Sequence[Sequence[bytes]] = (),
    ) -> FewReplays:  # fmt: skip
        """Of the last usual one of these contents, those ``near`` others, and drawn extreme ones, in one process."""
        most = most if sum(map(len, contents[0])) < MOST_EMULATED else LATER_OF_LARGE
        extreme = secrets.SystemRandom().sample(range(usual, len(contents)), min(most - 1, len(contents) - usual))
        each = [contents[usual - 1], *near, *(contents[i] for i in extreme)]
        (poison,), end = poison_patterns(1), time.monotonic() + self._budget
        if variation_of(case, call, least=1).storages:
            answers = self._in_a_row(case, call, each, poison, end)
        else:
            answers = [self._replayed(call, each[0], poison, end)]
        return FewReplays((usual - 1, *extreme), poison, answers)

    def _errors_of_few(
        self, of: ShapeComparison, given: Sequence[Compared], few: FewReplays, near: Sequence[ExpectedSeed | None] = ()
    ) -> tuple[ResultError, ...]:
        """What is wrong there. Contents that the reference fails at, which are the last ones, are none of ``given``."""
        first, *extreme = [(given[i][0], given[i][3]) if i < len(given) else (None, ()) for i in few.which]
        wants = [first, *((one, ()) for one in near), *extreme]
        compared = [
            (want, few.poison, left_of(of.call, want, answer), form)
            for (want, form), answer in zip(wants, few.answers, strict=False)
            if want is not None
        ]
        errors = self._as_written(of, compared, self._errors(of, compared))
        return tuple(e for each in errors for e in each if e.wrong)
